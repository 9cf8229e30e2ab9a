//! The two kinds of node: a box with its lanes, and a member with its worker.

use weft_engine::role::Verdict;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::worker::{Event, Worker, WorkerError};
use weft_engine::table::Table;
use weft_kernel::Kernels;
use weft_wire::Nanos;

use super::coverage::Coverage;
use super::data::Data;
use super::hash;
use super::scenario::Scenario;
use super::topology::{self, Seat};
use crate::transcript::Transcript;

/// Room for any frame.
const FRAME_LEN_MAX: usize = 1_514;
/// Frames that one call may ask to send: more than any window, so more is an endless loop (I8).
const BURST_MAX: usize = 4_096;

/// An aggregator.
#[derive(Debug)]
pub struct BoxNode {
    table: Table,
    seed: u64,
    life: u64,
    lanes: Vec<Aggregator>,
    /// Gone until then.
    pub down_until: Nanos,
}

/// What slots hold, by lease: (job, then step, members and state of every bank).
pub type Snapshot = Vec<(u16, Vec<(u32, u64, bool)>)>;

impl BoxNode {
    /// Starts a box.
    #[must_use]
    pub fn new(scenario: &Scenario, index: usize) -> Self {
        let table = topology::table(scenario, index);
        let seed = hash(&[scenario.seed, 1_000 + index as u64]);
        let mut node = Self { table, seed, life: 0, lanes: Vec::new(), down_until: Nanos(0) };
        node.start();
        node
    }

    fn start(&mut self) {
        self.life += 1;
        let seed = hash(&[self.seed, self.life]);
        let kernels = Kernels::detect();
        let shards = self.table.config().shards;
        let lane = |lane| Aggregator::new(&self.table, lane, seed, kernels);
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
        self.lanes.iter().for_each(|lane| coverage.lane(lane.stats()));
    }

    /// Takes a frame, on the lane that its UDP source port names; returns what goes out.
    pub fn handle(&mut self, now: Nanos, frame: &[u8]) -> Vec<Vec<u8>> {
        let lane = self.lane_of(frame);
        let lane = &mut self.lanes[lane];
        let mut buffer = vec![0xee; FRAME_LEN_MAX.max(frame.len())];
        buffer[..frame.len()].copy_from_slice(frame);
        lane.prefetch(frame);
        let mut out = Vec::new();
        match lane.handle_frame(now, &mut buffer, frame.len()) {
            Verdict::Drop(_) | Verdict::Hold | Verdict::Host => {}
            Verdict::Fan { .. } => unreachable!("no job here is pushed"),
            Verdict::Send { len } => out.push(buffer[..len].to_vec()),
            Verdict::Multicast { len, lease } => {
                for member in 1..lane.fan_out(lease) {
                    let mut copy = buffer[..len].to_vec();
                    let header_len = lane.encap_len(lease);
                    lane.readdress(lease, member, &mut copy[..header_len], len);
                    out.push(copy);
                }
                out.push(buffer[..len].to_vec());
            }
        }
        out.extend(self.poll(now));
        out
    }

    /// What goes out unasked.
    pub fn poll(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let mut buffer = vec![0xee; FRAME_LEN_MAX];
        for lane in &mut self.lanes {
            if now < lane.poll_timeout() {
                continue;
            }
            while let Some(len) = lane.poll_transmit(now, &mut buffer) {
                out.push(buffer[..len].to_vec());
                assert!(out.len() < BURST_MAX, "poll_transmit never ends");
            }
        }
        out
    }

    /// When to poll next.
    #[must_use]
    pub fn timeout(&self) -> Nanos {
        self.lanes.iter().map(Aggregator::poll_timeout).min().unwrap_or(Nanos::MAX)
    }

    /// What the slots of one lane hold: those that a frame can reach.
    #[must_use]
    pub fn snapshot(&self, frame: &[u8]) -> Snapshot {
        let lane = &self.lanes[self.lane_of(frame)];
        let banks = |lease: weft_engine::role::aggregator::LeaseReport<'_>| {
            let banks = lease.slots().occupied();
            let banks =
                banks.map(|bank| (bank.step(), bank.members().0, bank.state().is_complete()));
            (lease.row().job.0, banks.collect())
        };
        lane.leases().map(banks).collect()
    }

    /// Frames refused for any reason, in the lane that a frame reaches.
    #[must_use]
    pub fn refused(&self, frame: &[u8]) -> u64 {
        self.lanes[self.lane_of(frame)].stats().drops.total()
    }

    fn lane_of(&self, frame: &[u8]) -> usize {
        let port = frame.get(34..36).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
        usize::from(port) & (self.lanes.len() - 1)
    }
}

/// How a member ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// Closed after all rounds.
    Closed {
        /// All members had closed.
        by_all: bool,
    },
    /// With an error.
    Failed(WorkerError),
    /// It was killed.
    Dead,
}

/// A worker and its program: connect, sum the rounds, close; begin anew when a session ends.
#[derive(Debug)]
pub struct MemberNode {
    scenario_seed: u64,
    index: usize,
    config: weft_engine::role::worker::WorkerConfig,
    /// Where it belongs.
    pub seat: Seat,
    worker: Option<Worker>,
    lives: u64,
    attempt: u32,
    round: u32,
    rounds: u32,
    chunks: u32,
    begins_anew: bool,
    /// Its contributions and sums.
    pub data: Data,
    /// How it ended.
    pub end: Option<End>,
    /// When it ended.
    pub ended_at: Nanos,
    /// Every error, in order.
    pub errors: Vec<WorkerError>,
    /// Does neither hear nor speak until then.
    pub paused_until: Nanos,
    /// When the next round begins, or the close.
    next_at: Nanos,
    /// Retransmissions of all lives.
    pub retransmissions: u64,
    /// Of these, before another member was late.
    pub retransmissions_before: u64,
}

impl MemberNode {
    /// A member that has not started.
    #[must_use]
    pub fn new(scenario: &Scenario, index: usize, seat: Seat) -> Self {
        let begins_anew = scenario.kind == super::scenario::Kind::Return;
        Self {
            scenario_seed: scenario.seed,
            index,
            config: topology::worker_config(scenario, index, seat),
            seat,
            worker: None,
            lives: 0,
            attempt: 0,
            round: 0,
            rounds: scenario.rounds,
            chunks: scenario.chunks,
            begins_anew,
            data: Data::new(topology::job(scenario, seat.job), seat.worker, begins_anew),
            end: None,
            ended_at: Nanos(0),
            errors: Vec::new(),
            paused_until: Nanos(0),
            next_at: Nanos::MAX,
            retransmissions: 0,
            retransmissions_before: 0,
        }
    }

    /// Begins a life.
    pub fn start(&mut self, now: Nanos) {
        if self.lives > 0 {
            self.attempt += 1;
        }
        self.lives += 1;
        let seed = hash(&[self.scenario_seed, self.index as u64, self.lives]);
        let worker = Worker::new(self.config, weft_kernel::crc32c, seed, now);
        self.worker = Some(worker.expect("both addresses are IPv4"));
        self.end = None;
        self.round = 0;
        self.next_at = Nanos::MAX;
    }

    /// Is killed.
    pub fn kill(&mut self, now: Nanos, coverage: &mut Coverage) {
        self.retire(coverage);
        self.worker = None;
        self.finish(now, End::Dead);
    }

    /// Adds the counters of the present life.
    pub fn retire(&mut self, coverage: &mut Coverage) {
        if let Some(worker) = &self.worker {
            coverage.worker(worker.stats());
            self.retransmissions += worker.stats().retransmissions;
        }
    }

    /// Another member is late from now on.
    pub fn note_retransmissions(&mut self) {
        let present = self.worker.as_ref().map_or(0, |worker| worker.stats().retransmissions);
        self.retransmissions_before = self.retransmissions + present;
    }

    /// True when it took part to the end.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.end.is_some()
    }

    /// Rounds complete in the present attempt.
    #[must_use]
    pub fn rounds_done(&self) -> u32 {
        self.round
    }

    /// The present attempt.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Takes a frame; true when the worker did not refuse it.
    pub fn handle(&mut self, now: Nanos, frame: &mut [u8]) -> bool {
        let Some(worker) = &mut self.worker else { return false };
        worker.handle_frame(now, frame, &mut self.data).is_ok()
    }

    /// Does what is due; returns what goes out.
    pub fn poll(
        &mut self,
        now: Nanos,
        coverage: &mut Coverage,
        transcript: &mut Transcript,
    ) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        if let Some(worker) = &mut self.worker
            && now >= worker.poll_timeout()
        {
            worker.handle_timeout(now);
        }
        loop {
            self.program(now);
            let Some(worker) = &mut self.worker else { return out };
            let mut buffer = vec![0; worker.frame_len_max()];
            while let Some(len) = worker.poll_transmit(now, &self.data, &mut buffer) {
                out.push(buffer[..len].to_vec());
                assert!(out.len() < BURST_MAX, "poll_transmit never ends");
            }
            let Some(event) = worker.poll_event() else { return out };
            transcript.note_event(now, self.index, &event);
            self.take(now, event, coverage);
        }
    }

    fn program(&mut self, now: Nanos) {
        if now < self.next_at {
            return;
        }
        self.next_at = Nanos::MAX;
        if self.worker.is_none() {
            return self.start(now);
        }
        let worker = self.worker.as_mut().expect("just seen");
        if self.round == self.rounds {
            return worker.close(now);
        }
        self.data.begin(self.attempt, self.round, self.chunks);
        worker.begin_round(now, self.chunks).expect("the lease is open and long enough");
    }

    fn take(&mut self, now: Nanos, event: Event, coverage: &mut Coverage) {
        let pause = hash(&[self.scenario_seed, self.index as u64, u64::from(self.round)]) % 50_000;
        match event {
            Event::Opened => self.next_at = now.saturating_add(Nanos(pause)),
            Event::RoundComplete => {
                assert!(self.data.is_complete(), "a round without all of its sums");
                self.round += 1;
                // Half of the members go on at once.
                self.next_at = now.saturating_add(Nanos(pause.saturating_sub(25_000)));
            }
            Event::Resynced { .. } => {}
            Event::Failed(error) => {
                self.errors.push(error);
                self.retire(coverage);
                self.worker = None;
                if self.begins_anew && self.lives < LIVES_MAX {
                    self.next_at = now.saturating_add(Nanos(pause));
                } else {
                    self.finish(now, End::Failed(error));
                }
            }
            Event::Closed { by_all } => self.finish(now, End::Closed { by_all }),
        }
    }

    fn finish(&mut self, now: Nanos, end: End) {
        self.end = Some(end);
        self.ended_at = now;
        self.next_at = Nanos::MAX;
    }

    /// When to poll next.
    #[must_use]
    pub fn timeout(&self) -> Nanos {
        let worker = self.worker.as_ref().map_or(Nanos::MAX, Worker::poll_timeout);
        worker.min(self.next_at)
    }
}

/// Lives of a member before it gives up.
const LIVES_MAX: u64 = 5;
