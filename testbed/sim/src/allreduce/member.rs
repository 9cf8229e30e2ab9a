//! A member: a worker and its program.

use std::net::SocketAddr;

use weft_engine::role::worker::{Event, Worker, WorkerConfig, WorkerError};
use weft_kernel::crc32c_blank;
use weft_wire::Nanos;
use weft_wire::header::CRC_AT;

use super::data::Data;
use super::scenario::{Kind, Scenario};
use super::topology::{self, Placement};
use crate::coverage::Coverage;
use crate::hash;
use crate::transcript::Transcript;

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

/// A worker and its program.
pub trait Member {
    /// Where it speaks from.
    fn addr(&self) -> SocketAddr;
    /// The box that it speaks to.
    fn box_index(&self) -> usize {
        0
    }
    /// Begins a life.
    fn start(&mut self, now: Nanos);
    /// Is killed.
    fn kill(&mut self, now: Nanos, coverage: &mut Coverage) {
        let _ = (now, coverage);
    }
    /// Takes a frame.
    fn handle(&mut self, now: Nanos, frame: &mut [u8]);
    /// Does what is due; returns what goes out.
    fn poll(
        &mut self,
        now: Nanos,
        coverage: &mut Coverage,
        transcript: &mut Transcript,
    ) -> Vec<Vec<u8>>;
    /// When to poll next.
    fn timeout(&self) -> Nanos;
    /// True when it took part to the end.
    fn is_done(&self) -> bool;
    /// False for one of which no end is wanted.
    fn counts(&self) -> bool {
        true
    }
    /// What it has done, as cues count it.
    fn progress(&self) -> u64;
    /// Another member is late from now on.
    fn note_pause(&mut self) {}
    /// Adds the counters of the present life.
    fn retire(&mut self, coverage: &mut Coverage) {
        let _ = coverage;
    }
}

/// A worker and its program: connect, sum the rounds, close; begin anew when a session ends.
#[derive(Debug)]
pub struct MemberNode {
    scenario_seed: u64,
    index: usize,
    config: WorkerConfig,
    /// Where it belongs.
    pub placement: Placement,
    worker: Option<Worker>,
    lives: u64,
    attempt: u32,
    round: u32,
    rounds: u32,
    chunks: u32,
    begins_anew: bool,
    counts: bool,
    /// Its contributions and sums.
    pub data: Data,
    /// How it ended.
    pub end: Option<End>,
    /// When it ended.
    pub ended_at: Nanos,
    /// Every error, in order.
    pub errors: Vec<WorkerError>,
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
    pub fn new(scenario: &Scenario, index: usize, placement: Placement) -> Self {
        let begins_anew = scenario.kind == Kind::Return;
        Self {
            scenario_seed: scenario.seed,
            index,
            config: topology::worker_config(scenario, index, placement),
            placement,
            worker: None,
            lives: 0,
            attempt: 0,
            round: 0,
            rounds: scenario.rounds,
            chunks: scenario.chunks,
            begins_anew,
            counts: scenario.kind != Kind::Greedy || placement.job > 0,
            data: Data::new(topology::job(scenario, placement.job), placement.worker, begins_anew),
            end: None,
            ended_at: Nanos(0),
            errors: Vec::new(),
            next_at: Nanos::MAX,
            retransmissions: 0,
            retransmissions_before: 0,
        }
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
}

impl Member for MemberNode {
    fn addr(&self) -> SocketAddr {
        self.config.local.addr
    }

    fn box_index(&self) -> usize {
        self.placement.box_index
    }

    fn counts(&self) -> bool {
        self.counts
    }

    fn progress(&self) -> u64 {
        self.data.sum_count.into()
    }

    fn start(&mut self, now: Nanos) {
        if self.lives > 0 {
            self.attempt += 1;
        }
        self.lives += 1;
        let seed = hash(&[self.scenario_seed, self.index as u64, self.lives]);
        let worker = Worker::new(self.config, crc32c_blank::<CRC_AT>, seed, now);
        self.worker = Some(worker.expect("both addresses are IPv4"));
        self.end = None;
        self.round = 0;
        self.next_at = Nanos::MAX;
    }

    fn kill(&mut self, now: Nanos, coverage: &mut Coverage) {
        self.retire(coverage);
        self.worker = None;
        self.finish(now, End::Dead);
    }

    fn retire(&mut self, coverage: &mut Coverage) {
        if let Some(worker) = &self.worker {
            coverage.worker(worker.stats());
            self.retransmissions += worker.stats().retransmissions;
        }
    }

    fn note_pause(&mut self) {
        let present = self.worker.as_ref().map_or(0, |worker| worker.stats().retransmissions);
        self.retransmissions_before = self.retransmissions + present;
    }

    fn is_done(&self) -> bool {
        self.end.is_some()
    }

    fn handle(&mut self, now: Nanos, frame: &mut [u8]) {
        if let Some(worker) = &mut self.worker {
            // What it refuses it has counted.
            let _ = worker.handle_frame(now, frame, &mut self.data);
        }
    }

    fn poll(
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

    fn timeout(&self) -> Nanos {
        let worker = self.worker.as_ref().map_or(Nanos::MAX, Worker::poll_timeout);
        worker.min(self.next_at)
    }
}

/// Lives of a member before it gives up.
const LIVES_MAX: u64 = 5;
/// Frames that one call may ask to send: more than any window, so more is an endless loop (I8).
const BURST_MAX: usize = 4_096;
