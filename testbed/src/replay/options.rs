//! What a replay is told, and what comes of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use weft_node::stats::Report;

use super::difference::{Difference, Fields};

/// What a replay is told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A capture of what should come out, instead of what the recording has.
    pub expect: Option<PathBuf>,
    /// Where to write what comes out.
    pub write: Option<PathBuf>,
    /// An empty directory for a recording of this replay.
    pub bless: Option<PathBuf>,
    /// Fields that may differ.
    pub ignore: Fields,
    /// How fast frames come.
    pub speed: Speed,
    /// What carries frames to and from the engines of a recording.
    pub carrier: Carrier,
    /// Put up with a recording without an end: replay what is whole.
    pub partial: bool,
}

/// What carries frames to and from the engines of a recording.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Carrier {
    /// Memory.
    #[default]
    Memory,
    /// DPDK's net_pcap, a device for each lane. EAL starts once, so there is one such replay in a
    /// process.
    NetPcap,
}

/// How fast frames come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Speed {
    /// As fast as the engines take them.
    #[default]
    Max,
    /// As they came when they were recorded.
    Realtime,
}

/// What came of a replay. Its keys are read by scripts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Frames that the engines received.
    pub packets_in: u64,
    /// Frames that they sent.
    pub packets_out: u64,
    /// Frames of somebody else's capture that have no place in the configuration.
    pub unmapped: u64,
    /// The same by reason: `cut` by the capture's snaplen, else as a box counts them.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Frames, events and records that differ, are missing or are too many.
    pub differences: u64,
    /// Received and sent frames by the seconds of reading, replaying and comparing.
    pub packets_per_second: f64,
    /// `pass` without a difference, else `fail`.
    pub verdict: &'static str,
    /// Numbers that the engines drew and the recording does not have.
    pub draws_missing: u64,
    /// What is worth knowing of the input: a recording that ended early, frames that are cut.
    pub notes: Vec<String>,
    /// The first differences.
    pub first_differences: Vec<Difference>,
    /// Frames that came and were not expected, and the other way round.
    #[serde(skip)]
    pub(super) more: u64,
    #[serde(skip)]
    pub(super) fewer: u64,
    /// The engines' counters.
    #[serde(skip)]
    pub report: Option<Report>,
}

impl Outcome {
    pub(super) fn add(&mut self, other: Self) {
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        self.differences += other.differences;
        self.draws_missing += other.draws_missing;
        self.notes.extend(other.notes);
        self.more += other.more;
        self.fewer += other.fewer;
        let room = SHOWN_MAX.saturating_sub(self.first_differences.len());
        self.first_differences.extend(other.first_differences.into_iter().take(room));
    }

    pub(super) fn differ(&mut self, difference: impl FnOnce() -> Difference) {
        self.differences += 1;
        if self.first_differences.len() < SHOWN_MAX {
            self.first_differences.push(difference());
        }
    }

    pub(super) fn judge(&mut self, elapsed_s: f64) {
        for (count, word) in [(self.more, "more"), (self.fewer, "fewer")] {
            let frames = if count == 1 { "frame" } else { "frames" };
            if count > 0 {
                self.notes.push(format!("{count} {frames} {word} than expected"));
            }
        }
        self.unmapped = self.skipped.values().sum();
        self.verdict = if self.differences == 0 { "pass" } else { "fail" };
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let frames = (self.packets_in + self.packets_out) as f64;
        self.packets_per_second = if elapsed_s > 0.0 { (frames / elapsed_s).round() } else { 0.0 };
    }
}

/// Differences that are kept; all are counted.
pub(super) const SHOWN_MAX: usize = 100;
