//! A lane's thread: breathe, sleep when idle, publish counters, stop when told.
//!
//! Does I/O around [`RoleLane`], for every role. Counters leave through a queue of one that is
//! overwritten once per period, so the lane never waits for a reader and takes no lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use weft_config::node::IdleSection;
use weft_io::Port;
use weft_io::shm::ShmCounts;
use weft_lane::{Idle, LaneEngine, LanePort, RoleLane};
use weft_wire::Nanos;

use crate::control::NodeControl;
use crate::durable::Keeper;
use crate::host::Host;
use crate::record::Notes;
use crate::stats::{EngineSnapshot, LaneSnapshot};
use crate::tally;

/// What all lanes share.
#[derive(Debug)]
pub struct Shared {
    /// Set to end the lanes.
    pub stop: Arc<AtomicBool>,
    /// The lanes have ended.
    pub is_over: AtomicBool,
    /// Zero of the node's clock.
    pub start: Instant,
    /// When to sleep.
    pub idle: IdleSection,
    /// What memory shared with workers has seen, if it is: lane by lane.
    pub shm: OnceLock<Vec<ShmCounts>>,
    /// The way to whoever commands the node.
    pub control: Option<Arc<NodeControl>>,
    /// Time between two snapshots; `None` publishes none.
    pub snapshot_period_ns: Option<u64>,
    /// The latest snapshot of each lane that nobody has read.
    pub snapshots: Vec<ArrayQueue<LaneSnapshot>>,
}

impl Shared {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// A lane's counters, and what belongs to the node: the kernel has bands for all that leaves
    /// the host.
    fn snapshot<P: Port, E: LaneEngine + EngineSnapshot>(
        &self,
        index: usize,
        lane: &RoleLane<LanePort<P>, E>,
        host: &Host,
    ) -> LaneSnapshot {
        let shm = self.shm.get().and_then(|lanes| lanes.get(index)).cloned();
        let mut snapshot = LaneSnapshot { shm, ..LaneSnapshot::take(index, lane, host) };
        let control = self.control.as_ref().filter(|_| index == 0);
        if let Some((bands, repairs)) = control.and_then(|control| control.kernel_bands()) {
            (snapshot.bands, snapshot.band_repairs) = (Some(bands), Some(repairs));
        }
        snapshot
    }
}

/// Runs lane `index` with what `keeper` keeps of it, until it is told to stop or its port closes;
/// returns its last counters.
pub fn run<P: Port, E: LaneEngine + EngineSnapshot>(
    lane: &mut RoleLane<LanePort<P>, E>,
    index: usize,
    mut host: Host,
    shared: &Shared,
    keeper: &mut impl Keeper<E>,
) -> LaneSnapshot {
    let mut idle = Idle::new(shared.idle);
    let mut carried = (0, 0);
    let mut tally_due = shared.control.as_ref().map_or(Nanos::MAX, |_| tally::PERIOD);
    let mut snapshot_due = shared.snapshot_period_ns.map_or(Nanos::MAX, Nanos);
    while !shared.stop.load(Ordering::Relaxed) && lane.port().is_open() {
        let now = shared.now();
        let frames = lane.breathe(now, &mut host);
        let (port, engine) = lane.parts_mut();
        let mut notes = Notes::of(port.recorder());
        keeper.exchange(engine, &mut notes);
        if index == 0 {
            exchange(now, engine, shared.control.as_deref(), &mut notes);
        } else if let Some(control) = &shared.control {
            control.exchange_holdings(now, index, engine, &mut notes);
        }
        if let Some(control) = shared.control.as_ref().filter(|_| frames > 0) {
            // Each lane may have a port of its own.
            let (rx_bytes, tx_bytes) = lane.port().carried();
            control.add_carried(rx_bytes - carried.0, tx_bytes - carried.1);
            carried = (rx_bytes, tx_bytes);
        }
        let mut due = lane.engine().poll_timeout().min(snapshot_due).min(tally_due);
        if keeper.is_waiting() {
            // The disk wakes nobody.
            due = due.min(now.saturating_add(JOURNAL_POLL));
        }
        if let Some(pause_ns) = idle.after_breath(frames, due.since(now).0) {
            lane.port_mut().wait(pause_ns);
        }
        if let Some(control) = shared.control.as_ref().filter(|_| now >= tally_due) {
            control.note_figures(index, lane);
            tally_due = now.saturating_add(tally::PERIOD);
        }
        if now >= snapshot_due {
            shared.snapshots[index].force_push(shared.snapshot(index, lane, &host));
            let period = Nanos(shared.snapshot_period_ns.unwrap_or(u64::MAX));
            snapshot_due = now.saturating_add(period);
        }
    }
    keeper.end(lane.parts_mut().1);
    shared.snapshot(index, lane, &host)
}

/// How long a lane sleeps at most while the disk owes it a word.
const JOURNAL_POLL: Nanos = Nanos(100_000);

/// Commands in, events out. Without anybody to hear them events are thrown away here, so that what
/// an engine counts as lost is lost.
pub fn exchange(
    now: Nanos,
    engine: &mut impl LaneEngine,
    control: Option<&NodeControl>,
    notes: &mut Notes<'_>,
) {
    match control {
        Some(control) => control.exchange(now, engine, notes),
        None => {
            while let Some((job, event)) = engine.poll_event() {
                notes.event(job, &event);
            }
        }
    }
}
