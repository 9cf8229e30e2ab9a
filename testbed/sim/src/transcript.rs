//! The fingerprint of a simulated run: what a change that must change nothing is held against.
//!
//! `tests/fingerprints` keeps those of 200 seeds of each kind of scenario
//! (`tests/tests/fingerprints.rs`). The hash is SipHash-1-3 with a fixed key, so that it is the
//! same on every machine and with every compiler.

use std::fmt::{Debug, Write as _};
use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use weft_wire::Nanos;

/// Two hashes, as they stand.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Fingerprint {
    /// Of every frame that arrived anywhere, with place and time.
    pub frames: u64,
    /// Of every event and message between processes, with place and time.
    pub events: u64,
}

/// What happens in a run, in its order.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    frames: SipHasher13,
    events: SipHasher13,
    text: String,
}

impl Transcript {
    /// Notes a frame that arrives at a node.
    pub fn note_frame(&mut self, now: Nanos, node: usize, frame: &[u8]) {
        self.frames.write(&now.0.to_be_bytes());
        self.frames.write(&(node as u64).to_be_bytes());
        self.frames.write(frame);
    }

    /// Notes an event at a node, or a message to it. Only the digits of its text count: a change of
    /// a name changes nothing that happens.
    pub fn note_event(&mut self, now: Nanos, node: usize, event: &impl Debug) {
        self.text.clear();
        write!(self.text, "{event:?}").expect("a string takes everything");
        self.events.write(&now.0.to_be_bytes());
        self.events.write(&(node as u64).to_be_bytes());
        for number in self.text.split(|char: char| !char.is_ascii_digit()) {
            if !number.is_empty() {
                self.events.write(number.as_bytes());
                self.events.write(b" ");
            }
        }
    }

    /// The fingerprint so far.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint { frames: self.frames.finish(), events: self.events.finish() }
    }
}
