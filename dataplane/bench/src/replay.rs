//! The aggregator's lane on a device that delivers the same contributions for ever.
//!
//! [`weft_io::restamp`] makes each of them the next one of its member. As none is lost,
//! contribution number `s` of every member carries the numbers of step `s mod` steps, which the
//! reference knows. An answer is right if it is to a step whose contributions have all come, no
//! longer ago than banks last, and carries the sum of exactly these.

use std::time::Duration;

use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::{RowConfig, Table};
use weft_io::Port;
use weft_io::restamp::{Stamp, WindowStamp, WindowStampConfig};
use weft_kernel::Kernels;
use weft_lane::AggregatorLane;
use weft_wire::header::{HEADER_LEN, Kind, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{JobId, Nanos};

use super::checked::{Checked, Counters, Lane, Reference, lost, measurement};
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
    let mut engine = Aggregator::new(table, 0, settings.seed, kernels);
    let mut stamps = Stamps::new(frames, 1);
    for row in &table.config().rows {
        let members = Members::new(table.config(), row, settings.seed, Nanos(0))?;
        let sessions = members.join_engines(std::slice::from_mut(&mut engine))?;
        stamps.push(stamp(&sessions[0], row, frames, [0, 1]));
    }
    let mut lane = Lane::new(Checked::new(port, stamps, frames, settings.check_every), engine);
    breathe_until(&mut lane, settings.limit.tenth(), outside, |_| ());
    let before = read(&lane, outside);
    breathe_until(&mut lane, settings.limit, outside, |_| ());
    let after = read(&lane, outside);
    Ok(measurement(lane.port(), lane.engine(), lost(&lane), [&before, &after], kernels))
}

/// What a measurement is given besides port and frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) limit: Limit,
    pub(super) seed: u64,
    pub(super) check_every: u32,
}

/// The stamp of one of so many lanes.
pub(super) fn stamp(
    session: &Session,
    row: &RowConfig,
    frames: &Frames,
    [lane, lanes]: [u16; 2],
) -> WindowStamp {
    WindowStamp::new(WindowStampConfig {
        payload_start: frames.payload_start(),
        datagram_len: frames.frame_len() - frames.payload_start(),
        group: session.group,
        cookies: session.cookies.clone(),
        window: session.window,
        shards: u32::from(lanes),
        shard: u32::from(lane),
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

/// Breathes until the limit; tells `after_breath` after each.
pub(super) fn breathe_until<P: Port>(
    lane: &mut AggregatorLane<P>,
    limit: Limit,
    outside: &impl Outside,
    mut after_breath: impl FnMut(&AggregatorLane<P>),
) {
    let begun = outside.now();
    let mut packets = 0;
    loop {
        let now = outside.now();
        if limit.is_over(packets, now.since(begun)) || outside.is_stopped() {
            return;
        }
        packets += lane.breathe(now, &mut ()) as u64;
        after_breath(lane);
    }
}

fn read<P: Port>(lane: &Lane<'_, P, Stamps>, outside: &impl Outside) -> Counters {
    let (added, answers) = count(lane.engine());
    let packets = lane.port().stats().rx_packets;
    Counters { packets, added, answers, at: outside.now(), cpu: outside.cpu() }
}

/// Contributions that entered a sum, and answers sent.
pub(super) fn count(engine: &Aggregator) -> (u64, u64) {
    let of_jobs = engine.jobs().map(|(_, job)| (job.contributions_added, job.answers_sent));
    of_jobs.fold((0, 0), |sum, job| (sum.0 + job.0, sum.1 + job.1))
}

/// A stamp for each lane of each row: rows of a bench are those of job 0, 1, ….
pub(super) struct Stamps {
    payload_start: usize,
    lanes: usize,
    stamps: Vec<WindowStamp>,
}

impl Stamps {
    pub(super) fn new(frames: &Frames, lanes: u16) -> Self {
        let (payload_start, lanes) = (frames.payload_start(), usize::from(lanes));
        Self { payload_start, lanes, stamps: Vec::new() }
    }

    /// Adds the stamp of the next lane, or of the first one of the next row.
    pub(super) fn push(&mut self, stamp: WindowStamp) {
        self.stamps.push(stamp);
    }

    /// Where the stamp of a chunk is.
    #[inline(always)]
    fn place(&self, job: JobId, chunk: u32) -> usize {
        // Lanes are a power of two.
        usize::from(job.0) * self.lanes + (chunk as usize & (self.lanes - 1))
    }
}

impl Stamp for Stamps {
    #[inline(always)]
    fn stamp(&mut self, frame: &mut [u8]) -> bool {
        let Some(datagram) = frame.get_mut(self.payload_start..) else { return false };
        let Some(header) = datagram.first_chunk::<HEADER_LEN>() else { return false };
        let packet = Packet::new_unchecked(header);
        // The chunk is still the one that the frame was made with.
        let place = self.place(packet.job(), packet.chunk().0);
        self.stamps.get_mut(place).is_some_and(|stamp| stamp.stamp_datagram(datagram))
    }
}

impl Reference for Stamps {
    fn is_right(&self, frames: &Frames, frame: &[u8]) -> Option<bool> {
        // A copy that shares its payload shows its headers alone; its original is checked.
        if frame.len() < frames.frame_len() {
            return None;
        }
        let packet = Packet::new_unchecked(&frame[self.payload_start..]);
        let chunk = packet.chunk().0;
        let stamp = self.stamps.get(self.place(packet.job(), chunk))?;
        if packet.kind() != Some(Kind::Answer) {
            return None;
        }
        let lanes = u32::try_from(self.lanes).expect("a few lanes");
        let (step, end) = (chunk / lanes, stamp.complete_steps());
        let is_recent = step < end && end - step <= 2 * stamp.window();
        Some(is_recent && frames.is_answer(frame, chunk))
    }
}
