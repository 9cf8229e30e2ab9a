//! The frames of a lane's recording, as a script for its port: what arrives within a breath, and
//! what is compared with what leaves.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use weft_io::pcap::{Capture, PcapWriter};
use weft_io::record::{Breath, Direction};
use weft_node::record::Head;
use weft_wire::Nanos;

use super::difference::{self, Difference};
use super::load::ReplayError;
use super::options::{Options, Outcome};
use super::port::Script;

/// A capture of what leaves.
pub(super) type Output = PcapWriter<BufWriter<File>>;

/// The frames of a lane, and what comes of them.
#[derive(Debug)]
pub(super) struct Recorded {
    capture: Capture,
    /// Sent instead of what the recording has.
    expected: Option<Capture>,
    expected_next: usize,
    options: Options,
    lane: usize,
    /// The packet at which the present breath begins.
    start: usize,
    breath: Breath,
    arrived: usize,
    left: usize,
    calls: u32,
    output: Option<Output>,
    clock_origin: Nanos,
    pub(super) output_failed: bool,
    pub(super) outcome: Outcome,
}

impl Script for Recorded {
    fn arrive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if self.arrived >= self.breath.rx as usize {
            return None;
        }
        let bytes = self.capture.get(self.start + self.arrived)?.bytes;
        buffer.get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.arrived += 1;
        Some(bytes.len())
    }

    fn leave(&mut self, now: Nanos, frame: &[u8]) {
        if let Some(output) = &mut self.output {
            let at = self.clock_origin.saturating_add(now);
            self.output_failed |= output.write(at, frame).is_err();
        }
        let index = self.start + self.breath.rx as usize + self.left;
        self.left += 1;
        let (number, expected) = match &self.expected {
            Some(capture) => {
                let number = self.expected_next;
                self.expected_next += 1;
                (number, capture.get(number).map(|packet| packet.bytes))
            }
            None if self.left > self.breath.tx as usize => (index, None),
            None => (index, self.capture.get(index).map(|packet| packet.bytes)),
        };
        match expected {
            Some(expected) if expected == frame => {}
            Some(expected) => {
                compare(
                    &mut self.outcome,
                    self.lane,
                    number,
                    now,
                    (expected, frame),
                    &self.options,
                );
            }
            None => {
                let got = format!("{} octets", frame.len());
                differ(&mut self.outcome, self.lane, number, now, "frame", "none", &got);
            }
        }
    }

    fn is_empty_pool(&mut self) -> bool {
        let call = self.calls;
        self.calls += 1;
        self.breath.nombuf.contains(&call)
    }
}

impl Recorded {
    /// A lane's frames, before the first breath.
    pub(super) fn new(
        capture: Capture,
        lane: usize,
        options: &Options,
        head: &Head,
    ) -> Result<Self, ReplayError> {
        let expected = options.expect.as_deref().map(Capture::load).transpose()?;
        let create = |path: &PathBuf| {
            File::create(path).and_then(|file| PcapWriter::new(BufWriter::new(file))).map_err(
                |source| ReplayError::File { path: path.clone(), attempt: "write", source },
            )
        };
        Ok(Self {
            capture,
            expected,
            expected_next: 0,
            options: options.clone(),
            lane,
            start: 0,
            breath: Breath::default(),
            arrived: 0,
            left: 0,
            calls: 0,
            output: options.write.as_ref().map(create).transpose()?,
            clock_origin: Nanos(head.clock_origin_ns),
            output_failed: false,
            outcome: Outcome::default(),
        })
    }

    /// True when a frame of this breath has not arrived yet.
    #[cfg(feature = "dpdk")]
    pub(super) fn is_due(&self) -> bool {
        self.arrived < self.breath.rx as usize
    }

    /// A device delivers a frame, which has to be the next one that arrived.
    #[cfg(feature = "dpdk")]
    pub(super) fn deliver(&mut self, frame: &[u8]) {
        let index = self.start + self.arrived;
        self.arrived += 1;
        let recorded = self.capture.get(index).map_or(&[][..], |packet| packet.bytes);
        if recorded != frame {
            let now = self.breath.now;
            let both = (recorded, frame);
            compare(&mut self.outcome, self.lane, index, now, both, &Options::default());
        }
    }

    /// Begins a breath.
    pub(super) fn begin(&mut self, breath: Breath) -> Result<(), &'static str> {
        let packets = |from: usize, count: u32, direction| {
            (from..from + count as usize).all(|index| {
                self.capture.get(index).is_some_and(|packet| packet.direction == Some(direction))
            })
        };
        let out = self.start + breath.rx as usize;
        if !packets(self.start, breath.rx, Direction::In)
            || !packets(out, breath.tx, Direction::Out)
        {
            return Err("the frames are not those that the log says");
        }
        (self.arrived, self.left, self.calls) = (0, 0, 0);
        self.breath = breath;
        Ok(())
    }

    /// Ends a breath: what did not leave, and what did not arrive, differs.
    pub(super) fn end(&mut self) {
        self.outcome.packets_in += self.arrived as u64;
        self.outcome.packets_out += self.left as u64;
        let (rx, tx) = (self.breath.rx as usize, self.breath.tx as usize);
        for missing in self.arrived..rx {
            let (outcome, now) = (&mut self.outcome, self.breath.now);
            differ(outcome, self.lane, self.start + missing, now, "arrival", "a frame", "none");
        }
        if self.expected.is_none() {
            for missing in self.left..tx {
                let index = self.start + rx + missing;
                let len = self.capture.get(index).map_or(0, |packet| packet.bytes.len());
                let (outcome, now) = (&mut self.outcome, self.breath.now);
                differ(outcome, self.lane, index, now, "frame", &format!("{len} octets"), "none");
            }
        }
        self.start += rx + tx;
    }

    /// What was expected behind the last breath.
    pub(super) fn finish(&mut self) {
        let Some(expected) = &self.expected else { return };
        for index in self.expected_next..expected.len() {
            let len = expected.get(index).map_or(0, |packet| packet.bytes.len());
            let (outcome, now) = (&mut self.outcome, self.breath.now);
            differ(outcome, self.lane, index, now, "frame", &format!("{len} octets"), "none");
        }
    }
}

/// Counts a frame that differs, and shows the first fields.
pub(super) fn compare(
    outcome: &mut Outcome,
    lane: usize,
    index: usize,
    now: Nanos,
    (expected, got): (&[u8], &[u8]),
    options: &Options,
) {
    let found = difference::compare(expected, got, &options.ignore);
    let Some((first, others)) = found.split_first() else { return };
    let more = if others.is_empty() {
        String::new()
    } else {
        let names: Vec<&str> = others.iter().take(3).map(|(name, ..)| name.as_str()).collect();
        let dots = if others.len() > 3 { ", …" } else { "" };
        format!(" (and {}{dots})", names.join(", "))
    };
    differ(outcome, lane, index, now, &first.0, &first.1, &format!("{}{more}", first.2));
}

pub(super) fn differ(
    outcome: &mut Outcome,
    lane: usize,
    index: usize,
    now: Nanos,
    field: &str,
    expected: &str,
    got: &str,
) {
    outcome.differ(|| Difference {
        lane,
        packet: index as u64 + 1,
        at_ns: now.0,
        field: field.to_owned(),
        expected: expected.to_owned(),
        got: got.to_owned(),
    });
}
