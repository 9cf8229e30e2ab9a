//! A replaying device under the lane: restamps what comes in, and compares some of what leaves with
//! the reference.

use std::time::Duration;

use weft_engine::drops::DropReason;
use weft_io::restamp::{Restamp, Stamp};
use weft_io::{AggregatorLane, Burst, Frame, Port, forward_port};
use weft_kernel::Kernels;
use weft_wire::Nanos;

use super::Measurement;
use super::frames::Frames;

/// A stamp that knows what comes of the frames that it stamped.
pub(super) trait Reference: Stamp {
    /// Which frame of a burst to look at when the turn of number `sample` has come; `None`: the
    /// burst has none.
    fn pick<F: Frame>(&self, frames: &Frames, burst: &Burst<F>, sample: usize) -> Option<usize>;

    /// Whether a frame carries the right sum; `None`: it carries none that can be compared.
    fn is_right(&self, frames: &Frames, frame: &[u8]) -> Option<bool>;
}

/// A lane on such a device.
pub(super) type Lane<'a, P, S> = AggregatorLane<Checked<'a, P, S>>;

/// The device.
pub(super) struct Checked<'a, P: Port, S: Reference> {
    inner: Restamp<P, S>,
    frames: &'a Frames,
    every: u32,
    countdown: u32,
    compared: u64,
    wrong: u64,
}

impl<'a, P: Port, S: Reference> Checked<'a, P, S> {
    /// On `port`, which delivers `frames`; of the frames that leave one in `every` is compared.
    pub(super) fn new(port: P, stamp: S, frames: &'a Frames, every: u32) -> Self {
        let (inner, every) = (Restamp::new(port, stamp), every.max(1));
        Self { inner, frames, every, countdown: every, compared: 0, wrong: 0 }
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
        let count = u32::try_from(tx.len()).expect("a burst is short");
        if self.countdown <= count {
            let stamp = self.inner.stamp();
            if let Some(index) = stamp.pick(self.frames, tx, self.countdown as usize - 1) {
                if let Some(is_right) = stamp.is_right(self.frames, tx[index].as_ref()) {
                    self.compared += 1;
                    self.wrong += u64::from(!is_right);
                }
                self.countdown = self.every;
            }
        } else {
            self.countdown -= count;
        }
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
    lane: &Lane<'_, P, S>,
    before: &Counters,
    after: &Counters,
    kernels: &Kernels,
) -> Measurement {
    let (stats, port) = (lane.engine().stats(), lane.port());
    let reasons = DropReason::ALL.iter().map(|(reason, name)| (*name, stats.drops.of(*reason)));
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
        lost: lane.stats().tx_dropped + lane.stats().tx_nombuf,
        isa: kernels.isa().to_string(),
    }
}
