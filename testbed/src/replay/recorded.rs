//! The frames of a lane's recording, as a script for its port: what arrives within a breath, and
//! what is compared with what leaves.

use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::PathBuf;

use imara_diff::{Algorithm, Diff, InternedInput};
use weft_io::pcap::{Capture, PcapWriter};
use weft_io::record::{Breath, Direction};
use weft_node::record::Head;
use weft_wire::Nanos;

use super::difference::{self, Difference, place};
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
    options: Options,
    lane: usize,
    /// The packet at which the present breath begins.
    start: usize,
    breath: Breath,
    arrived: usize,
    left: usize,
    /// Packets of what is expected that have not left yet.
    due: Range<usize>,
    /// Frames that left from the first other one on, until they are judged.
    others: Vec<(Nanos, Vec<u8>)>,
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
        self.left += 1;
        let due = self.due.clone().next().and_then(|index| self.expected().get(index));
        if self.others.is_empty() && due.is_some_and(|packet| packet.bytes == frame) {
            self.due.start += 1;
        } else {
            self.others.push((now, frame.to_vec()));
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
            due: 0..expected.as_ref().map_or(0, Capture::len),
            capture,
            expected,
            others: Vec::new(),
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
            compare(&mut self.outcome, self.lane, index + 1, now, both, &Options::default());
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
        if self.expected.is_none() {
            self.due = out..out + breath.tx as usize;
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
            let number = self.start + missing + 1;
            differ(outcome, self.lane, number, now, "arrival", "a frame", "none");
        }
        if self.expected.is_none() {
            self.judge();
        }
        self.start += rx + tx;
    }

    /// Judges the frames that left, where another capture has what is expected.
    pub(super) fn finish(&mut self) {
        if self.expected.is_some() {
            self.judge();
        }
    }

    fn expected(&self) -> &Capture {
        self.expected.as_ref().unwrap_or(&self.capture)
    }

    fn judge(&mut self) {
        let due = std::mem::take(&mut self.due);
        let others = std::mem::take(&mut self.others);
        let mut outcome = std::mem::take(&mut self.outcome);
        let frame = |index| Some((index, self.expected().get(index)?.bytes));
        let expected: Vec<_> = due.filter_map(frame).collect();
        let place = (self.lane, self.breath.now, "frame");
        align(&mut outcome, place, &expected, &others, &self.options);
        self.outcome = outcome;
    }
}

/// Compares frames in sequence. Frames of one place are pairs, so that one more or one fewer is one
/// difference.
pub(super) fn align(
    outcome: &mut Outcome,
    (lane, end, field): (usize, Nanos, &str),
    expected: &[(usize, impl AsRef<[u8]>)],
    got: &[(Nanos, impl AsRef<[u8]>)],
    options: &Options,
) {
    let mut input = InternedInput::default();
    input.update_before(expected.iter().map(|(_, frame)| place(frame.as_ref())));
    input.update_after(got.iter().map(|(_, frame)| place(frame.as_ref())));
    let diff = Diff::compute(Algorithm::Myers, &input);
    let last = expected.last().map_or(0, |(index, _)| index + 1);
    let mut expected = expected.iter().zip(0..).peekable();
    let mut got = got.iter().zip(0..).peekable();
    loop {
        let is_missing = expected.peek().is_some_and(|(_, at)| diff.is_removed(*at));
        let is_more = got.peek().is_some_and(|(_, at)| diff.is_added(*at));
        let theirs = expected.next_if(|_| is_missing || !is_more);
        let ours = got.next_if(|_| is_more || !is_missing);
        match (theirs, ours) {
            (Some(((index, theirs), _)), Some(((now, ours), _))) => {
                compare(outcome, lane, index + 1, *now, (theirs.as_ref(), ours.as_ref()), options);
            }
            (Some(((index, frame), _)), None) => {
                outcome.fewer += 1;
                let octets = format!("{} octets", frame.as_ref().len());
                differ(outcome, lane, index + 1, end, field, &octets, "none");
            }
            (None, Some(((now, frame), _))) => {
                outcome.more += 1;
                let number = expected.peek().map_or(last, |((index, _), _)| index + 1);
                let octets = format!("{} octets", frame.as_ref().len());
                differ(outcome, lane, number, *now, field, "none", &octets);
            }
            (None, None) => return,
        }
    }
}

/// Counts a frame that differs, and shows the first fields.
fn compare(
    outcome: &mut Outcome,
    lane: usize,
    number: usize,
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
    differ(outcome, lane, number, now, &first.0, &first.1, &format!("{}{more}", first.2));
}

fn differ(
    outcome: &mut Outcome,
    lane: usize,
    number: usize,
    now: Nanos,
    field: &str,
    expected: &str,
    got: &str,
) {
    outcome.differ(|| Difference {
        lane,
        packet: number as u64,
        at_ns: now.0,
        field: field.to_owned(),
        expected: expected.to_owned(),
        got: got.to_owned(),
    });
}
