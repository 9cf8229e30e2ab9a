//! Allreduce jobs: what their workers, their boxes and people say, and what each is told.
//!
//! | file | decides |
//! | --- | --- |
//! | `job` | what is known of a job |
//! | `words` | what people and policies may have it do |
//! | `steps` | which round workers stop before, and when a cohort is over |
//! | `stop`, `stopping` | how long a stop may take, and what is said of one that takes longer |
//! | `begin`, `beginning` | when a cohort has begun, and what becomes of one that does not |
//! | `holding` | what the box is told to hold, one command at a time |
//! | `placing` | which places a cohort gets (pure) |
//! | `room` | whether hosts have room for it |
//! | `sizes` | how large the tensors are (pure) |
//! | `lease` | what a lease is |
//! | `status` | what is told of a job |
//! | `places` | lists of places |
//! | `save`, `saved` | what outlives the controller |

use alloc::vec::Vec;
use core::net::IpAddr;

use weft_config::controller::ReduceConfig;
use weft_control::{Cohort, CohortId, Command, Event, Holding, Messages, RoundPosition, RoundWord};
use weft_wire::{JobId, Rank};

use super::Controller;
use super::check::{self, ConfigError};
use super::message::{Action, NodeId, Refusal};
use super::steered::{SteerError, Steerer};
use job::Out;

mod begin;
mod beginning;
mod holding;
mod job;
mod lease;
mod places;
mod placing;
mod room;
mod save;
mod saved;
mod sizes;
mod status;
mod steps;
mod stop;
mod stopping;
mod words;

pub(super) use job::Reduce;
pub use saved::SavedReduce;
pub use status::ReduceStatus;

/// A worker of an allreduce begins a round.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BegunRound {
    /// Which.
    pub round: u64,
    /// Bytes that it gives to the sum.
    pub bytes: u64,
    /// What it has summed since it began the one before, if it counts; they are sound.
    pub messages: Option<Messages>,
}

impl Controller {
    pub(super) fn add_reduce(
        &mut self,
        at: &str,
        config: ReduceConfig,
        known: Option<&SavedReduce>,
    ) -> Result<(), ConfigError> {
        check::reduce(at, &config, &self.config)?;
        let id = JobId(config.index);
        let is_index = |taken: &JobId| *taken == id;
        if self.jobs.keys().chain(self.reduces.keys()).any(is_index) {
            let problem = format!("{} is another job's already", config.index);
            return Err(ConfigError::taken(format!("{at}index"), problem));
        }
        if self.job_by_name(&config.name).is_some() || self.reduce_by_name(&config.name).is_some() {
            let problem = format!("`{}` is given twice; names are unique", config.name);
            return Err(ConfigError::taken(format!("{at}name"), problem));
        }
        let position = self.nodes.iter().position(|node| node.name() == config.aggregator);
        let node = NodeId(position.and_then(|i| u16::try_from(i).ok()).unwrap_or_default());
        let empty = SavedReduce::default();
        let known = known.unwrap_or(&empty);
        let places = config.places.len();
        if let Some(workers) = known.workers.filter(|workers| usize::from(*workers) > places) {
            let problem = format!(
                "has {places}, and `{}` runs with {workers} workers, as the state file has it; give \
                 as many places, or move the file away: the job then begins anew",
                config.name
            );
            return Err(ConfigError::new(format!("{at}places"), problem));
        }
        if known.workers == Some(0) || known.before == Some(0) {
            let problem = format!(
                "are 0 of `{}`, as the state file has it, and there is always one; restore the \
                 file, or move it away: the job then begins anew",
                config.name
            );
            return Err(ConfigError::new(format!("{at}workers"), problem));
        }
        let (workers, is_new) = (config.workers, known == &empty);
        self.reduces.insert(id, Reduce::new(config, node, known));
        if is_new && let Ok(places) = self.room_for(id, workers) {
            // Where there is no room, it begins at its first places, as it was configured.
            self.reduces.get_mut(&id).expect("just put there").begin_at(places);
        }
        Ok(())
    }

    /// The allreduce job of that name.
    #[must_use]
    pub fn reduce_by_name(&self, name: &str) -> Option<JobId> {
        self.reduces.values().find(|job| job.config.name == name).map(|job| job.id)
    }

    /// An allreduce job: its configuration, and whose turn it is.
    #[must_use]
    pub fn reduce(&self, job: JobId) -> Option<(&ReduceConfig, Cohort)> {
        self.reduces.get(&job).map(|job| (&job.config, job.cohort()))
    }

    /// A worker of an allreduce job attaches. It is welcomed when its lease is in.
    ///
    /// # Errors
    /// No such job or rank, not from where that worker may call, or of another cohort.
    pub fn handle_reducer(
        &mut self,
        job: JobId,
        rank: Rank,
        (life, from): (u64, Option<IpAddr>),
        (cohort, position): (CohortId, RoundPosition),
    ) -> Result<(), Refusal> {
        let pushed = self.jobs.get(&job).map(|pushed| {
            let name = &pushed.config.name;
            let problem = format!("is of no use; `{name}` is a push job: say hello without one");
            Refusal::new("position", problem)
        });
        let none = || Refusal::new("job", format!("there is no job {}", job.0));
        let known = self.reduces.get_mut(&job).ok_or_else(|| pushed.unwrap_or_else(none));
        let attached = known.and_then(|known| {
            // A cohort that is over had other places, and must hear that it is over.
            known.check_cohort(cohort).map_err(|problem| Refusal::new("cohort", problem))?;
            let place = known.address(rank).map(|address| address.ip());
            match (place, from) {
                (Some(place), Some(from))
                    if place.to_canonical() != from.to_canonical() && !place.is_loopback() =>
                {
                    let problem = format!("{rank} of `{}` calls from {place}", known.config.name);
                    Err(Refusal::new("rank", problem))
                }
                _ => known
                    .attach(rank, life, position)
                    .map_err(|problem| Refusal::new("cohort", problem)),
            }
        });
        self.checked(attached)?;
        self.settle_reduce(job);
        Ok(())
    }

    /// A worker's stream has ended.
    pub fn handle_reducer_gone(&mut self, job: JobId, rank: Rank) {
        if let Some(known) = self.reduces.get_mut(&job) {
            known.detach(rank);
        }
    }

    /// A worker of an allreduce begins a round.
    ///
    /// # Errors
    /// It has no stream.
    pub fn handle_round(
        &mut self,
        now_ns: u64,
        job: JobId,
        rank: Rank,
        begun: BegunRound,
    ) -> Result<(), Refusal> {
        let checked = self.check_reducer(job, rank, begun.round);
        self.checked(checked)?;
        if let Some(known) = self.reduces.get_mut(&job) {
            known.begin(now_ns, rank, begun);
        }
        self.settle_reduce(job);
        Ok(())
    }

    /// A worker of an allreduce says where it is.
    ///
    /// # Errors
    /// It has no stream.
    pub fn handle_position(
        &mut self,
        now_ns: u64,
        job: JobId,
        rank: Rank,
        position: RoundPosition,
    ) -> Result<(), Refusal> {
        let checked = self.check_reducer(job, rank, position.next);
        self.checked(checked)?;
        if let Some(known) = self.reduces.get_mut(&job) {
            known.position(now_ns, rank, position);
        }
        self.settle_reduce(job);
        Ok(())
    }

    fn check_reducer(&self, job: JobId, rank: Rank, round: u64) -> Result<(), Refusal> {
        if !self.reduces.get(&job).is_some_and(|known| known.is_attached(rank)) {
            return Err(Refusal::new("hello", "say hello before reporting rounds"));
        }
        if round >= ROUNDS_MAX {
            return Err(Refusal::new("round", format!("is beyond {ROUNDS_MAX}")));
        }
        Ok(())
    }

    fn steer_reduce(
        &mut self,
        id: JobId,
        steer: impl FnOnce(&mut Reduce) -> Result<(), SteerError>,
    ) -> Result<JobId, SteerError> {
        steer(self.reduces.get_mut(&id).expect("the caller's job"))?;
        self.settle_reduce(id);
        Ok(id)
    }

    pub(super) fn pause_reduce(
        &mut self,
        now_ns: u64,
        id: JobId,
        by: Steerer,
    ) -> Result<JobId, SteerError> {
        self.steer_reduce(id, |job| job.pause(now_ns, by))
    }

    pub(super) fn resume_reduce(&mut self, id: JobId, by: Steerer) -> Result<JobId, SteerError> {
        self.steer_reduce(id, |job| job.resume(by))
    }

    /// A box attached: which leases it lacks it is told.
    pub(super) fn attach_reduce_box(&mut self, node: NodeId) {
        let held: Vec<(JobId, Holding)> = self.nodes[node.index()].holdings().collect();
        for id in self.reduces_of(node) {
            let job = self.reduces.get_mut(&id).expect("just listed");
            job.attach_box(|holding| held.contains(&(id, holding)));
            self.settle_reduce(id);
        }
        self.settle_box(node);
    }

    /// Tells a box that it holds all that there is for it, once it does: till then it does not say
    /// of any lease that it has none.
    fn settle_box(&mut self, node: NodeId) {
        let mut jobs = self.reduces.values().filter(|job| job.node == node);
        let is_restored = self.kept.is_settled(node);
        if is_restored && jobs.all(Reduce::is_box_settled) && self.nodes[node.index()].settle() {
            self.actions.push_back(Action::Settled { node });
        }
    }

    pub(super) fn detach_reduce_box(&mut self, node: NodeId) {
        for id in self.reduces_of(node) {
            self.reduces.get_mut(&id).expect("just listed").detach_box();
        }
    }

    fn reduces_of(&self, node: NodeId) -> Vec<JobId> {
        self.reduces.values().filter(|job| job.node == node).map(|job| job.id).collect()
    }

    /// A box answers about what it holds.
    pub(super) fn hear_reduce_box(&mut self, now_ns: u64, node: NodeId, job: JobId, event: &Event) {
        if let Some(known) = self.reduces.get_mut(&job).filter(|known| known.node == node) {
            known.handle_box(now_ns, event);
            self.settle_reduce(job);
        }
        if event.holding().is_some() {
            self.settle_box(node);
        }
    }

    pub(super) fn reduce_due_ns(&self) -> Option<u64> {
        self.reduces.values().filter_map(Reduce::due_ns).min()
    }

    pub(super) fn check_reduces(&mut self, now_ns: u64) {
        let ids: Vec<JobId> = self.reduces.keys().copied().collect();
        for id in ids {
            self.reduces.get_mut(&id).expect("just listed").handle_timeout(now_ns);
            self.settle_reduce(id);
        }
    }

    /// Does what a job wants done.
    fn settle_reduce(&mut self, id: JobId) {
        let job = self.reduces.get_mut(&id).expect("the caller's job");
        if job.take_unsaved() {
            (self.is_saved, self.is_steering_unsaved) = (false, true);
        }
        let node = job.node;
        for out in job.poll_out() {
            match out {
                Out::Welcome(rank) => {
                    let word = RoundWord::Cohort(self.reduces[&id].cohort());
                    self.actions.push_back(Action::Rounds { job: id, rank, word });
                }
                Out::Order(rank, turn, order) => {
                    let word = RoundWord::Order(turn, order);
                    self.actions.push_back(Action::Rounds { job: id, rank, word });
                }
                Out::Hold(command) => self.command(node, Command::Holding(command)),
                Out::State(state, after_ns) => {
                    self.actions.push_back(Action::State { job: id, state, after_ns });
                }
                Out::Unpaused(problem) => {
                    self.actions.push_back(Action::Unpaused { job: id, problem });
                }
                Out::Resized(outcome) => {
                    self.actions.push_back(Action::Resized { job: id, outcome });
                }
            }
        }
    }
}

/// Rounds of a job.
const ROUNDS_MAX: u64 = 1 << 48;
