//! The aggregator's lane on a device that delivers the same contributions for ever.
//!
//! [`weft_io::restamp`] makes each of them the next one of its member. As none is lost,
//! contribution number `s` of every member carries the numbers of step `s mod` steps, which the
//! reference knows.

use std::time::Duration;

use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::{RowConfig, Table};
use weft_io::restamp::{WindowStamp, WindowStampConfig};
use weft_io::{AggregatorLane, Burst, Frame, Port};
use weft_kernel::Kernels;
use weft_wire::Nanos;
use weft_wire::header::{Kind, Packet};
use weft_wire::hello::Integrity;

use super::checked::{Checked, Counters, Lane, Reference, measurement};
use super::frames::Frames;
use super::join::{Members, Session};
use super::{BenchError, Measurement};

/// What a measuring loop asks the outside for.
pub(super) trait Outside {
    /// Time since some origin.
    fn now(&self) -> Nanos;
    /// CPU time that this thread has used.
    fn cpu(&self) -> Duration;
    /// True to end early.
    fn is_stopped(&self) -> bool;
    /// Says that the measured part begins or ends.
    fn mark(&self, event: &str);
    /// Returns when the process is told to end. net_memif frees its rings under a polling lcore
    /// when its peer leaves, so the generator must not leave first.
    fn wait_to_end(&self);
}

/// Measures an aggregator on `port`, which must deliver `frames` over and over, in order.
pub(super) fn run<P: Port>(
    port: P,
    table: &Table,
    frames: &Frames,
    settings: Settings,
    kernels: &'static Kernels,
    outside: &impl Outside,
) -> Result<Measurement, BenchError> {
    let row = &table.config().rows[0];
    let mut engine = Aggregator::new(table, 0, settings.seed, kernels);
    let members = Members::new(table.config(), row, settings.seed, Nanos(0))?;
    let session = members.join_engine(&mut engine)?;
    let stamp = stamp(&session, row, frames);
    let mut lane = Lane::new(Checked::new(port, stamp, frames, settings.check_every), engine);
    breathe_until(&mut lane, settings.limit.tenth(), outside);
    let before = read(&lane, outside);
    breathe_until(&mut lane, settings.limit, outside);
    let after = read(&lane, outside);
    Ok(measurement(&lane, &before, &after, kernels))
}

/// What a measurement is given besides port and frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) limit: Limit,
    pub(super) seed: u64,
    pub(super) check_every: u32,
}

fn stamp(session: &Session, row: &RowConfig, frames: &Frames) -> WindowStamp {
    WindowStamp::new(WindowStampConfig {
        payload_start: frames.payload_start(),
        datagram_len: frames.frame_len() - frames.payload_start(),
        group: session.group,
        cookies: session.cookies.clone(),
        window: session.window,
        shards: 1,
        shard: 0,
        step_start: 0,
        step_end: session.step_count,
        crc32c: (row.integrity == Integrity::Crc32c).then_some(weft_kernel::crc32c),
    })
}

/// When a measurement ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// After a time.
    Time(Duration),
    /// After a number of packets, rounded up to a burst.
    Packets(u64),
}

impl Limit {
    /// The warm-up of a measurement.
    pub(super) fn tenth(self) -> Self {
        match self {
            Self::Time(time) => Self::Time(time / 10),
            Self::Packets(packets) => Self::Packets(packets / 10),
        }
    }

    /// True after so many packets or so long.
    pub(super) fn is_over(self, packets: u64, span: Nanos) -> bool {
        match self {
            Self::Time(time) => u128::from(span.0) >= time.as_nanos(),
            Self::Packets(count) => packets >= count,
        }
    }
}

fn breathe_until<P: Port>(lane: &mut AggregatorLane<P>, limit: Limit, outside: &impl Outside) {
    let begun = outside.now();
    let mut packets = 0;
    loop {
        let now = outside.now();
        if limit.is_over(packets, now.since(begun)) || outside.is_stopped() {
            return;
        }
        packets += lane.breathe(now, &mut ()) as u64;
    }
}

fn read<P: Port>(lane: &Lane<'_, P, WindowStamp>, outside: &impl Outside) -> Counters {
    let (mut added, mut answers) = (0, 0);
    for (_, job) in lane.engine().jobs() {
        added += job.contributions_added;
        answers += job.answers_sent;
    }
    let packets = lane.port().stats().rx_packets;
    Counters { packets, added, answers, at: outside.now(), cpu: outside.cpu() }
}

impl Reference for WindowStamp {
    fn pick<F: Frame>(&self, _: &Frames, _: &Burst<F>, sample: usize) -> Option<usize> {
        Some(sample)
    }

    fn is_right(&self, frames: &Frames, frame: &[u8]) -> Option<bool> {
        // A copy that shares its payload shows its headers alone; its original is checked.
        if frame.len() < frames.frame_len() {
            return None;
        }
        let packet = Packet::new_unchecked(&frame[frames.payload_start()..]);
        let is_answer = packet.kind() == Some(Kind::Answer);
        is_answer.then(|| frames.is_answer(frame, packet.chunk().0))
    }
}
