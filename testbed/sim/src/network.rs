//! The wire between the nodes: what happens to each frame, and the transcript of all of them.
//!
//! A frame's fate is a function of the seed, the link, what the frame is and how often that was
//! sent before (DESIGN, "Seeds"), so nothing else that a run does changes it.

use std::collections::BTreeMap;

use weft_io::fault::{Fate, FaultRates, Identity, corrupt, fate};
use weft_wire::Nanos;
use weft_wire::frame::Udp;
use weft_wire::header::Packet;

use crate::coverage::Coverage;
use crate::hash;
use crate::transcript::Transcript;

/// Time that a frame takes at least.
const LATENCY: Nanos = Nanos::from_micros(20);
/// Most time that an undisturbed frame takes above that.
const JITTER_NS: u64 = 10_000;
/// Most time that a delayed frame takes above that: longer than any retransmission timeout.
const DELAY_NS: u64 = 3_000_000_000;
/// Most time that a reordered frame takes above that.
const REORDER_NS: u64 = 200_000;

/// What protects a frame against damage begins here: Ethernet and IP headers have their own
/// checksums, of which only the latter's is modelled.
const CORRUPT_START: usize = 14;

/// A frame and when it arrives.
#[derive(Clone, Debug)]
pub struct Passing {
    /// When it arrives.
    pub at: Nanos,
    /// The frame.
    pub frame: Vec<u8>,
}

/// The wire.
#[derive(Debug)]
pub struct Network {
    seed: u64,
    rates: FaultRates,
    /// How often a frame of this link and identity was sent.
    attempts: BTreeMap<(usize, u64), u32>,
    sent: u64,
    jitter_ns: u64,
    transcript: Transcript,
    log: bool,
}

impl Network {
    /// An idle wire.
    #[must_use]
    pub fn new(seed: u64, rates: FaultRates, log: bool) -> Self {
        let transcript = Transcript::default();
        let jitter_ns = JITTER_NS;
        Self { seed, rates, attempts: BTreeMap::new(), sent: 0, jitter_ns, transcript, log }
    }

    /// A wire on which undisturbed frames keep their order.
    #[must_use]
    pub fn in_order(self) -> Self {
        Self { jitter_ns: 1, ..self }
    }

    /// What happened: the wire notes the frames that arrive, its owner the events.
    pub fn transcript(&mut self) -> &mut Transcript {
        &mut self.transcript
    }

    /// True when every frame is printed.
    #[must_use]
    pub const fn logs(&self) -> bool {
        self.log
    }

    /// Frames sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends a frame over the link `link`, on which something may happen to it; returns what
    /// arrives.
    pub fn send(
        &mut self,
        now: Nanos,
        (link, is_faulty): (usize, bool),
        frame: Vec<u8>,
        coverage: &mut Coverage,
    ) -> Vec<Passing> {
        self.sent += 1;
        let udp = Udp::parse(&frame).expect("the engines send whole datagrams");
        let key = Identity::of(&frame[udp.payload_range()]).expect("of Weft").key();
        let attempt = self.attempts.entry((link, key)).or_default();
        let link_seed = hash(&[self.seed, link as u64]);
        let rates = if is_faulty { &self.rates } else { &FaultRates::NONE };
        let fate = fate(rates, link_seed, key, *attempt);
        let word = hash(&[link_seed, key, u64::from(*attempt)]);
        *attempt += 1;
        let mut span_ns = LATENCY.0 + word % self.jitter_ns;
        if self.log && fate.fault_count() > 0 {
            println!("{:>12} link {link}: {}", now.0, brief(&fate));
        }
        if fate.lost {
            coverage.fault("loss");
            return Vec::new();
        }
        if let Some(word) = fate.reordered {
            coverage.fault("reorder");
            span_ns += word % REORDER_NS;
        }
        if let Some(word) = fate.delayed {
            coverage.fault("delay");
            // Most are short, some outlast everything.
            span_ns += (word >> 20) % (DELAY_NS >> (word % 12));
        }
        let mut passing = Vec::new();
        if fate.duplicated {
            coverage.fault("duplicate");
            let at = now.saturating_add(Nanos(span_ns + word % REORDER_NS));
            passing.push(Passing { at, frame: frame.clone() });
        }
        let mut frame = frame;
        if let Some(word) = fate.corrupted {
            coverage.fault("corrupt");
            corrupt(&mut frame[CORRUPT_START..], word);
        }
        passing.push(Passing { at: now.saturating_add(Nanos(span_ns)), frame });
        passing
    }

    /// Takes note of a frame that arrives at a node.
    pub fn arrive(&mut self, now: Nanos, node: usize, frame: &[u8], hostile: bool) {
        self.transcript.note_frame(now, node, frame);
        if self.log {
            println!("{}", line(now, node, frame, hostile));
        }
    }
}

fn brief(fate: &Fate) -> String {
    let names = [
        (fate.lost, "lost"),
        (fate.duplicated, "duplicated"),
        (fate.reordered.is_some(), "reordered"),
        (fate.delayed.is_some(), "delayed"),
        (fate.corrupted.is_some(), "corrupted"),
    ];
    names.iter().filter(|(hit, _)| *hit).map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

fn line(now: Nanos, node: usize, frame: &[u8], hostile: bool) -> String {
    let mark = if hostile { "!" } else { " " };
    let what = match Udp::parse(frame) {
        Ok(udp) => {
            let packet = Packet::new_unchecked(&frame[udp.payload_range()]);
            format!("{} -> {} {packet}", udp.source, udp.target)
        }
        Err(error) => format!("{} bytes: {error:?}", frame.len()),
    };
    format!("{:>12}{mark}node {node}: {what}", now.0)
}
