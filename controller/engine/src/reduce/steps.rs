//! What the workers of an allreduce job say, and how far it goes by that: to the round that all
//! stop before, to a standstill, or to the end of a cohort.

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

use weft_control::{Cohort, CohortId, Halt, JobState, RoundOrder, RoundPosition};
use weft_wire::Rank;

use super::BegunRound;
use super::beginning::Beginning;
use super::job::{Out, Phase, Reduce, Why, Worker};
use super::places::width;
use crate::steered::{Resize, SteerError};

impl Reduce {
    /// A worker is of the cohort whose turn it is.
    pub(crate) fn check_cohort(&self, cohort: CohortId) -> Result<(), String> {
        let current = self.cohort.id;
        match cohort.cmp(&current) {
            Ordering::Less => Err("bye".into()),
            Ordering::Equal => Ok(()),
            Ordering::Greater => {
                Err(format!("is {}; the job's workers are cohort {}", cohort.0, current.0))
            }
        }
    }

    /// A worker of the cohort attaches. Which round a cohort's worker begins next it says itself.
    pub(crate) fn attach(
        &mut self,
        rank: Rank,
        life: u64,
        position: RoundPosition,
    ) -> Result<(), String> {
        let current = self.cohort;
        let Some(worker) = self.workers.get_mut(rank.index()) else {
            return Err(format!("ranks of cohort {} are below {}", current.id.0, current.workers));
        };
        let is_new = worker.life != life && worker.life != 0;
        if position.next < current.from_round || (is_new && self.beginning.is_seen) {
            let from_round = current.from_round;
            return Err(format!(
                "begins with round {}; the cohort began with {from_round}, and a worker of it that \
                 was lost does not come back: resize or start the job again",
                position.next
            ));
        }
        *worker = Worker {
            is_attached: true,
            is_welcome: false,
            life,
            // What it follows it is told anew on this stream.
            position: RoundPosition { turn: 0, halt: Halt::None, ..position },
        };
        self.welcome();
        Ok(())
    }

    pub(crate) fn detach(&mut self, rank: Rank) {
        if let Some(worker) = self.workers.get_mut(rank.index()) {
            worker.is_attached = false;
            worker.is_welcome = false;
        }
    }

    pub(crate) fn is_attached(&self, rank: Rank) -> bool {
        self.workers.get(rank.index()).is_some_and(|worker| worker.is_attached)
    }

    /// A worker begins a round.
    pub(crate) fn begin(&mut self, now_ns: u64, rank: Rank, begun: BegunRound) {
        let BegunRound { round, bytes, messages } = begun;
        let Some(worker) = self.workers.get_mut(rank.index()) else { return };
        worker.position.next = worker.position.next.max(round.saturating_add(1));
        self.seen.bytes = self.seen.bytes.saturating_add(bytes);
        if rank.index() == 0 {
            self.count_round(now_ns);
            // All sum the same.
            messages.into_iter().for_each(|messages| self.seen.sizes.note(messages));
        }
        self.note_begun(now_ns);
        self.advance(now_ns);
    }

    /// A worker says where it is.
    pub(crate) fn position(&mut self, now_ns: u64, rank: Rank, position: RoundPosition) {
        let turn = self.turn;
        let Some(worker) = self.workers.get_mut(rank.index()) else { return };
        let halt = if position.turn == turn { position.halt } else { Halt::None };
        let next = worker.position.next.max(position.next);
        worker.position = RoundPosition { halt, next, ..position };
        self.note_begun(now_ns);
        self.advance(now_ns);
    }

    pub(super) fn begin_cohort(&mut self, places: Vec<u16>, from_round: u64) {
        let workers = width(&places);
        self.places = places;
        self.next_places = Vec::new();
        let id = CohortId(self.cohort.id.0.saturating_add(1));
        self.cohort = Cohort { id, workers, from_round, ..self.cohort };
        self.workers = vec![Worker::default(); usize::from(workers)];
        self.phase = Phase::Running;
        self.beginning = Beginning::default();
        self.turn = self.turn.wrapping_add(1).max(1);
        (self.seen.last_ns, self.seen.round_ns) = (None, 0);
        self.is_unsaved = true;
    }

    /// Welcomes whoever waits, once the lease is in.
    pub(super) fn welcome(&mut self) {
        if !self.is_leased() {
            return;
        }
        let (order, turn) = (self.order(), self.turn);
        for (worker, rank) in self.workers.iter_mut().zip(0u8..) {
            let Some(rank) = Rank::new(rank).filter(|_| worker.is_attached) else { continue };
            if !worker.is_welcome {
                worker.is_welcome = true;
                self.out.push(Out::Welcome(rank));
                self.out.push(Out::Order(rank, turn, order));
            }
        }
    }

    pub(super) fn all(&self, is_so: impl Fn(&RoundPosition) -> bool) -> bool {
        self.workers.iter().all(|worker| worker.is_attached && is_so(&worker.position))
    }

    /// Goes as far as what workers said allows.
    pub(super) fn advance(&mut self, now_ns: u64) {
        match self.phase {
            Phase::Running => {}
            Phase::Halting { why, .. } if let Some(rounds) = self.ending() => {
                self.give_up(why, format!("{}", SteerError::Ending { rounds }));
            }
            Phase::Halting { why, asked_ns, boundary: None } => {
                if self.all(|at| at.halt >= Halt::Held) {
                    let boundary = Some(self.next_round());
                    self.turn_to(Phase::Halting { why, asked_ns, boundary });
                }
            }
            Phase::Halting { why, asked_ns, boundary: Some(boundary) } => {
                if self.next_round() > boundary {
                    let boundary = Some(self.next_round());
                    self.turn_to(Phase::Halting { why, asked_ns, boundary });
                } else if self.all(|at| at.halt >= Halt::Stopped && at.next == boundary) {
                    self.stand(now_ns, why, asked_ns, boundary);
                }
            }
            // Those that a former life had stand.
            Phase::Paused { by, boundary } => {
                if self.next_round() > boundary {
                    let (why, boundary) = (Why::Pause(by), Some(self.next_round()));
                    self.turn_to(Phase::Halting { why, asked_ns: None, boundary });
                }
            }
            Phase::Leaving { to, asked_ns, stood_ns, boundary } => {
                if self.all(|at| at.halt == Halt::Left && at.next == boundary) {
                    self.leave(now_ns, to, (asked_ns, stood_ns), boundary);
                }
            }
        }
    }

    /// All stand at the boundary.
    fn stand(&mut self, now_ns: u64, why: Why, asked_ns: Option<u64>, boundary: u64) {
        let after_ns = asked_ns.map(|asked_ns| now_ns.saturating_sub(asked_ns));
        match why {
            Why::Pause(by) => {
                self.phase = Phase::Paused { by, boundary };
                self.is_unsaved = true;
                if let Some(after_ns) = after_ns {
                    self.pauses.note(after_ns);
                }
                self.out.push(Out::State(JobState::Paused, after_ns));
            }
            Why::Resize(to) => {
                self.turn_to(Phase::Leaving { to, asked_ns, stood_ns: now_ns, boundary });
            }
        }
    }

    /// All have kept what is needed: the cohort is over.
    fn leave(&mut self, now_ns: u64, to: u16, at: (Option<u64>, u64), boundary: u64) {
        let (asked_ns, stood_ns) = at;
        let from = self.cohort.workers;
        let over: Vec<Rank> = self.attached_ranks().collect();
        let places = core::mem::take(&mut self.next_places);
        self.before = Some(core::mem::take(&mut self.places));
        self.begins = Some(Resize {
            from,
            to,
            round: boundary,
            stop_ns: asked_ns.map_or(0, |asked_ns| stood_ns.saturating_sub(asked_ns)),
            checkpoint_ns: now_ns.saturating_sub(stood_ns),
            lease_ns: 0,
            start_ns: 0,
            since_ns: now_ns,
        });
        self.begin_cohort(places, boundary);
        let turn = self.turn;
        self.out.extend(over.into_iter().map(|rank| Out::Order(rank, turn, RoundOrder::Bye)));
        self.lease();
    }

    pub(super) fn note_resize(&mut self, resize: Resize) {
        if self.resizes.len() >= RESIZES_MAX {
            self.resizes.pop_front();
        }
        self.resizes.push_back(resize);
    }

    /// Ranks that have a stream.
    pub(super) fn attached_ranks(&self) -> impl Iterator<Item = Rank> + '_ {
        let attached = self.workers.iter().zip(0u8..).filter(|(worker, _)| worker.is_attached);
        attached.filter_map(|(_, rank)| Rank::new(rank))
    }

    fn count_round(&mut self, now_ns: u64) {
        let width = u64::from(self.cohort.workers);
        if let Some(last_ns) = self.seen.last_ns.replace(now_ns) {
            let span_ns = now_ns.saturating_sub(last_ns);
            self.seen.rounds += 1;
            // While it is told to stop, or stood still since, time passes that it did not work.
            if self.phase == Phase::Running {
                self.seen.executed_ns = self.seen.executed_ns.saturating_add(span_ns);
                self.seen.service_ns = self.seen.service_ns.saturating_add(span_ns * width);
                let old_ns = self.seen.round_ns;
                self.seen.round_ns =
                    if old_ns == 0 { span_ns } else { old_ns - old_ns / 8 + span_ns / 8 };
            }
        }
    }
}

/// Resizes that are remembered.
const RESIZES_MAX: usize = 16;
