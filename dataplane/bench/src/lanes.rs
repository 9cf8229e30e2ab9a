//! Several lanes on one device, each on an lcore of its own: lane 0 receives for all of them, hands
//! over what is another lane's, and sends what the others answer, as on a device with one queue.
//!
//! Lane 0 receives no more while another lane has half of a ring to do: a frame that is lost would
//! be missing for ever, for nobody repeats it. The figure is of all lanes together.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::Table;
use weft_io::{Burst, Port, forward_port};
use weft_kernel::Kernels;
use weft_lane::{AggregatorLane, LaneMap, Relay, SteeredPort, steer};
use weft_wire::Nanos;

use super::checked::{Checked, Counters, measurement};
use super::frames::Frames;
use super::join::Members;
use super::replay::{Outside, Settings, Stamps, breathe_until, count, stamp};
use super::{BenchError, Measurement};

/// The device, how many lanes there are, and what they are made of.
pub(super) struct Ground<'a, P: Port, S> {
    pub(super) port: P,
    /// Where each further lane sends.
    pub(super) senders: Vec<S>,
    pub(super) relay: Relay<P::Frame>,
    pub(super) map: &'a LaneMap,
    pub(super) ring_frames: usize,
}

/// Measures an aggregator of several lanes on a device that delivers `frames` over and over.
/// `prepare` makes the thread of a lane an lcore, for as long as what it returns lives.
pub(super) fn run<P, S, G>(
    ground: Ground<'_, P, S>,
    table: &Table,
    frames: &Frames,
    settings: Settings,
    kernels: &'static Kernels,
    outside: &(impl Outside + Sync),
    prepare: impl Fn(usize) -> Result<G, BenchError> + Sync,
) -> Result<Measurement, BenchError>
where
    P: Port,
    S: Port<Frame = P::Frame> + Send,
    P::Frame: Send,
{
    let shards = table.config().shards;
    let mut engines: Vec<Aggregator> =
        (0..shards).map(|lane| Aggregator::new(table, lane, settings.seed, kernels)).collect();
    let mut stamps = Stamps::new(frames, shards);
    for row in &table.config().rows {
        let members = Members::new(table.config(), row, settings.seed, Nanos(0))?;
        for (session, lane) in members.join_engines(&mut engines)?.iter().zip(0..) {
            stamps.push(stamp(session, row, frames, [lane, shards]));
        }
    }
    let progress = Progress::default();
    let checked = Checked::new(ground.port, stamps, frames, settings.check_every);
    let (front, sides) = steer(
        Paced { inner: checked, progress: &progress, in_flight_max: ground.ring_frames as u64 / 2 },
        ground.senders,
        false,
        ground.map,
        ground.ring_frames,
        Some(ground.relay),
    );
    let mut engines = engines.into_iter();
    let engine = engines.next().ok_or(BenchError::Unsupported)?;
    std::thread::scope(|scope| {
        let side = |((port, engine), lane)| {
            let (progress, prepare) = (&progress, &prepare);
            scope.spawn(move || {
                let _guard = prepare(lane)?;
                Ok::<_, BenchError>(breathe_beside(
                    AggregatorLane::new(port, engine),
                    progress,
                    outside,
                ))
            })
        };
        let sides: Vec<_> = sides.into_iter().zip(engines).zip(1..).map(side).collect();
        let guard = prepare(0);
        let mut lane = AggregatorLane::new(front, engine);
        let handed_over =
            |lane: &AggregatorLane<SteeredPort<_>>| lane.port().steer_counts().handed_over;
        let mut breathe = |limit| {
            breathe_until(&mut lane, limit, outside, |lane| {
                progress.handed_over.store(handed_over(lane), Ordering::Relaxed);
            });
            (lane.port().stats().rx_packets, count(lane.engine()), outside.now(), outside.cpu())
        };
        breathe(settings.limit.tenth());
        let before = breathe(super::replay::Limit::Packets(1));
        progress.enter(Phase::Measured);
        let after = breathe(settings.limit);
        progress.enter(Phase::Over);
        let mut ends = [before, after].map(|(packets, (added, answers), at, cpu)| Counters {
            packets,
            added,
            answers,
            at,
            cpu,
        });
        for side in sides {
            let died = |_| BenchError::Lane("it panicked".to_owned());
            let readings: [Reading; 2] = side.join().map_err(died)??;
            for (end, reading) in ends.iter_mut().zip(readings) {
                end.added += reading.added;
                end.answers += reading.answers;
                end.cpu += reading.cpu;
            }
        }
        let (_guard, [before, after]) = (guard?, ends);
        let lost = lane.port().steer_counts().ring_full + lane.stats().tx_dropped;
        let checked = &lane.port().inner().inner;
        Ok(measurement(checked, lane.engine(), lost, [&before, &after], kernels))
    })
}

/// What a further lane had done at one time.
#[derive(Clone, Copy, Default)]
struct Reading {
    added: u64,
    answers: u64,
    cpu: Duration,
}

/// Breathes until it is over; returns what had been done at both ends of the measured time.
fn breathe_beside<P: Port>(
    mut lane: AggregatorLane<P>,
    progress: &Progress,
    outside: &impl Outside,
) -> [Reading; 2] {
    let mut readings = [Reading::default(); 2];
    let read = |lane: &AggregatorLane<P>| {
        let (added, answers) = count(lane.engine());
        Reading { added, answers, cpu: outside.cpu() }
    };
    let mut phase = Phase::WarmUp as u8;
    while phase != Phase::Over as u8 {
        let handled = lane.breathe(outside.now(), &mut ()) as u64;
        if handled > 0 {
            progress.handled.fetch_add(handled, Ordering::Relaxed);
        }
        let now = progress.phase.load(Ordering::Acquire);
        if now != phase {
            readings[usize::from(now == Phase::Over as u8)] = read(&lane);
            phase = now;
        }
    }
    readings
}

/// What the lanes tell each other.
#[derive(Debug, Default)]
struct Progress {
    phase: AtomicU8,
    handed_over: AtomicU64,
    handled: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Phase {
    WarmUp,
    Measured,
    Over,
}

impl Progress {
    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }
}

/// A port that waits for the other lanes.
struct Paced<'a, P> {
    inner: P,
    progress: &'a Progress,
    in_flight_max: u64,
}

impl<P: Port> Port for Paced<'_, P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        let handed_over = self.progress.handed_over.load(Ordering::Relaxed);
        let handled = self.progress.handled.load(Ordering::Relaxed);
        if handed_over.saturating_sub(handled) > self.in_flight_max {
            return 0;
        }
        self.inner.rx_burst(now, rx)
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        self.inner.tx_burst(now, tx)
    }

    forward_port!(inner: alloc, copy, recycles, free, info, stats);
}
