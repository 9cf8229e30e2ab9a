//! A replaying device under the lane: restamps what comes in, and compares some of what leaves with
//! the reference.

use std::time::Duration;

use weft_engine::drops::DropReason;
use weft_engine::role::aggregator::Aggregator;
use weft_io::restamp::{Restamp, Stamp};
use weft_io::{Burst, Port, forward_port};
use weft_kernel::Kernels;
use weft_lane::AggregatorLane;
use weft_wire::Nanos;

use super::Measurement;
use super::frames::Frames;

/// A stamp that knows what comes of the frames that it stamped.
pub(super) trait Reference: Stamp {
    /// Whether a frame carries the right sum; `None`: it carries none that can be compared.
    fn is_right(&self, frames: &Frames, frame: &[u8]) -> Option<bool>;
}

/// A lane on such a device.
pub(super) type Lane<'a, P, S> = AggregatorLane<Checked<'a, P, S>>;

/// The device.
pub(super) struct Checked<'a, P: Port, S: Reference> {
    inner: Restamp<P, S>,
    frames: &'a Frames,
    every: usize,
    /// Frames that leave before the next one that is compared.
    wait: usize,
    compared: u64,
    wrong: u64,
}

impl<'a, P: Port, S: Reference> Checked<'a, P, S> {
    /// On `port`, which delivers `frames`; of the frames that leave every `every`-th is compared,
    /// whatever bursts they leave in.
    pub(super) fn new(port: P, stamp: S, frames: &'a Frames, every: u32) -> Self {
        let (inner, every) = (Restamp::new(port, stamp), every.max(1) as usize);
        Self { inner, frames, every, wait: every - 1, compared: 0, wrong: 0 }
    }

    pub(super) fn stamp(&self) -> &S {
        self.inner.stamp()
    }

    pub(super) fn stamp_mut(&mut self) -> &mut S {
        self.inner.stamp_mut()
    }
}

impl<P: Port, S: Reference> Port for Checked<'_, P, S> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        self.inner.rx_burst(now, rx)
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        let mut at = self.wait;
        while let Some(frame) = tx.get(at) {
            at += match self.inner.stamp().is_right(self.frames, frame.as_ref()) {
                Some(is_right) => {
                    self.compared += 1;
                    self.wrong += u64::from(!is_right);
                    self.every
                }
                // The next one that carries a sum stands in for it.
                None => 1,
            };
        }
        self.wait = at - tx.len();
        self.inner.tx_burst(now, tx)
    }

    forward_port!(inner: alloc, copy, recycles, free, info, stats);
}

/// What a lane and its thread had done at one time.
pub(super) struct Counters {
    pub(super) packets: u64,
    pub(super) added: u64,
    pub(super) answers: u64,
    pub(super) at: Nanos,
    pub(super) cpu: Duration,
}

/// What was measured between two readings.
pub(super) fn measurement<P: Port, S: Reference>(
    port: &Checked<'_, P, S>,
    engine: &Aggregator,
    lost: u64,
    [before, after]: [&Counters; 2],
    kernels: &Kernels,
) -> Measurement {
    let drops = &engine.stats().drops;
    let reasons = DropReason::ALL.iter().map(|(reason, name)| (*name, drops.of(*reason)));
    Measurement {
        mode: "replay",
        packets: after.packets - before.packets,
        contributions_added: after.added - before.added,
        answers: after.answers - before.answers,
        cpu_seconds: (after.cpu - before.cpu).as_secs_f64(),
        wall_seconds: Duration::from_nanos(after.at.since(before.at).0).as_secs_f64(),
        checked: port.compared,
        wrong: port.wrong,
        refused: port.inner.refused(),
        drops: reasons.filter(|(_, count)| *count > 0).collect(),
        repeated: 0,
        forged: 0,
        lost,
        isa: kernels.isa().to_string(),
    }
}

/// Frames that a lane lost on their way out.
pub(super) fn lost<P: Port>(lane: &AggregatorLane<P>) -> u64 {
    lane.stats().tx_dropped + lane.stats().tx_nombuf
}
