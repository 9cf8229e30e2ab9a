//! A box with its lanes.

use std::net::SocketAddr;

use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::Table;
use weft_kernel::Kernels;
use weft_lane::LaneMap;
use weft_wire::Nanos;

use super::scenario::Scenario;
use super::topology;
use crate::coverage::Coverage;
use crate::engine::Engine;
use crate::hash;

/// An aggregator.
#[derive(Debug)]
pub struct BoxNode {
    table: Table,
    /// Which lane a frame belongs to; without it the low bits of its source port.
    steering: Option<LaneMap>,
    seed: u64,
    life: u64,
    lanes: Vec<Engine>,
    /// Gone until then.
    pub down_until: Nanos,
}

/// What slots hold, by lease: (job, then step, members and state of every bank).
pub type Snapshot = Vec<(u16, Vec<(u32, u64, bool)>)>;

impl BoxNode {
    /// Starts a box.
    #[must_use]
    pub fn new(scenario: &Scenario, index: usize) -> Self {
        let seed = hash(&[scenario.seed, 1_000 + index as u64]);
        Self::of_table(topology::table(scenario, index), seed, None)
    }

    /// Starts a box with a table.
    #[must_use]
    pub fn of_table(table: Table, seed: u64, steering: Option<LaneMap>) -> Self {
        let (lanes, down_until) = (Vec::new(), Nanos(0));
        let mut node = Self { table, steering, seed, life: 0, lanes, down_until };
        node.start();
        node
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.table.config().local.addr
    }

    /// Its lanes, of the present life.
    pub fn lanes(&self) -> impl Iterator<Item = &Aggregator> {
        self.lanes.iter().filter_map(aggregator)
    }

    fn start(&mut self) {
        self.life += 1;
        let seed = hash(&[self.seed, self.life]);
        let kernels = Kernels::detect();
        let shards = self.table.config().shards;
        let lane =
            |lane| Engine::Aggregator(Box::new(Aggregator::new(&self.table, lane, seed, kernels)));
        self.lanes = (0..shards).map(lane).collect();
    }

    /// Loses all that it knew.
    pub fn restart(&mut self, until: Nanos, coverage: &mut Coverage) {
        self.retire(coverage);
        self.start();
        self.down_until = until;
    }

    /// Adds the counters of its lanes.
    pub fn retire(&self, coverage: &mut Coverage) {
        self.lanes().for_each(|lane| coverage.lane(lane.stats()));
    }

    /// Takes a frame, on the lane that its UDP source port names; returns what goes out.
    pub fn handle(&mut self, now: Nanos, frame: &[u8]) -> Vec<Vec<u8>> {
        let lane = self.lane_of(frame);
        self.lanes[lane].handle(now, frame)
    }

    /// What goes out unasked.
    pub fn poll(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let due = self.lanes.iter_mut().filter(|lane| now >= lane.timeout());
        due.flat_map(|lane| lane.poll(now)).collect()
    }

    /// When to poll next.
    #[must_use]
    pub fn timeout(&self) -> Nanos {
        let timeout = self.lanes.iter().map(Engine::timeout).min();
        timeout.unwrap_or(Nanos::MAX).max(self.down_until)
    }

    /// What the slots of one lane hold: those that a frame can reach.
    #[must_use]
    pub fn snapshot(&self, frame: &[u8]) -> Snapshot {
        let banks = |lease: weft_engine::role::aggregator::LeaseReport<'_>| {
            let banks = lease.slots().occupied();
            let banks =
                banks.map(|bank| (bank.step(), bank.members().0, bank.state().is_complete()));
            (lease.row().job.0, banks.collect())
        };
        let lane = aggregator(&self.lanes[self.lane_of(frame)]);
        lane.into_iter().flat_map(Aggregator::leases).map(banks).collect()
    }

    fn lane_of(&self, frame: &[u8]) -> usize {
        if let Some(steering) = &self.steering {
            return steering.lane_of(frame);
        }
        let port = frame.get(34..36).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
        usize::from(port) & (self.lanes.len() - 1)
    }
}

fn aggregator(lane: &Engine) -> Option<&Aggregator> {
    match lane {
        Engine::Aggregator(aggregator) => Some(aggregator),
        Engine::Server(_) | Engine::Replica(_) => None,
    }
}
