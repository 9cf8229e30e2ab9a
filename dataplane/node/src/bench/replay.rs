//! The aggregator's lane on a device that delivers the same contributions for ever.
//!
//! [`weft_io::restamp`] makes each of them the next one of its member. As none is lost, contribution
//! number `s` of every member carries the numbers of step `s mod` steps, which the reference knows.

use std::time::Duration;

use weft_engine::drops::DropReason;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::{RowConfig, Table};
use weft_io::restamp::{Restamp, WindowStamp, WindowStampConfig};
use weft_io::{AggregatorLane, Burst, Port, PortInfo, PortStats};
use weft_kernel::Kernels;
use weft_wire::Nanos;
use weft_wire::header::{Kind, Packet};
use weft_wire::hello::Integrity;

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
    let stamped = Restamp::new(port, stamp(&session, row, frames));
    let checked = Checked::new(stamped, frames, settings.check_every);
    let mut lane = AggregatorLane::new(checked, engine);
    breathe_until(&mut lane, settings.limit.tenth(), outside);
    let before = Counters::read(&lane, outside);
    breathe_until(&mut lane, settings.limit, outside);
    let after = Counters::read(&lane, outside);
    let stats = lane.engine().stats();
    let reasons = DropReason::ALL.iter().map(|(reason, name)| (*name, stats.drops.of(*reason)));
    Ok(Measurement {
        mode: "replay",
        packets: after.packets - before.packets,
        contributions_added: after.added - before.added,
        answers: after.answers - before.answers,
        cpu_seconds: (after.cpu - before.cpu).as_secs_f64(),
        wall_seconds: Duration::from_nanos(after.at.since(before.at).0).as_secs_f64(),
        checked: lane.port().compared,
        wrong: lane.port().wrong,
        refused: lane.port().inner.refused(),
        drops: reasons.filter(|(_, count)| *count > 0).collect(),
        repeated: 0,
        lost: lane.stats().tx_dropped + lane.stats().tx_nombuf,
        isa: kernels.isa().to_string(),
    })
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

struct Counters {
    packets: u64,
    added: u64,
    answers: u64,
    at: Nanos,
    cpu: Duration,
}

impl Counters {
    fn read<P: Port>(lane: &AggregatorLane<P>, outside: &impl Outside) -> Self {
        let (mut added, mut answers) = (0, 0);
        for (_, job) in lane.engine().jobs() {
            added += job.contributions_added;
            answers += job.answers_sent;
        }
        let packets = lane.port().stats().rx_packets;
        Self { packets, added, answers, at: outside.now(), cpu: outside.cpu() }
    }
}

/// Compares some of the answers that leave with the reference.
struct Checked<'a, P: Port> {
    inner: P,
    frames: &'a Frames,
    payload_start: usize,
    every: u32,
    countdown: u32,
    compared: u64,
    wrong: u64,
}

impl<'a, P: Port> Checked<'a, P> {
    fn new(inner: P, frames: &'a Frames, every: u32) -> Self {
        let every = every.max(1);
        let payload_start = frames.payload_start();
        Self { inner, frames, payload_start, every, countdown: every, compared: 0, wrong: 0 }
    }

    fn compare(&mut self, frame: &[u8]) {
        // A copy that shares its payload shows its headers alone; its original is checked.
        if frame.len() < self.frames.frame_len() {
            return;
        }
        let packet = Packet::new_unchecked(&frame[self.payload_start..]);
        if packet.kind() == Some(Kind::Answer) {
            self.compared += 1;
            self.wrong += u64::from(!self.frames.is_answer(frame, packet.chunk().0));
        }
    }
}

impl<P: Port> Port for Checked<'_, P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        self.inner.rx_burst(now, rx)
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        let count = u32::try_from(tx.len()).expect("a burst is short");
        if self.countdown <= count {
            let frame = &tx[self.countdown as usize - 1];
            self.compare(frame.as_ref());
            self.countdown = self.every;
        } else {
            self.countdown -= count;
        }
        self.inner.tx_burst(now, tx)
    }

    fn alloc(&mut self) -> Option<P::Frame> {
        self.inner.alloc()
    }

    fn copy(&mut self, frame: &P::Frame, header_len: usize) -> Option<P::Frame> {
        self.inner.copy(frame, header_len)
    }

    fn recycles(&self, frame_len: usize) -> bool {
        self.inner.recycles(frame_len)
    }

    fn free(&mut self, frames: &mut Burst<P::Frame>) {
        self.inner.free(frames);
    }

    fn info(&self) -> PortInfo {
        self.inner.info()
    }

    fn stats(&self) -> PortStats {
        self.inner.stats()
    }
}
