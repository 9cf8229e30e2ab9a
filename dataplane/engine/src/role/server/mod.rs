//! The parameter server: holds the model, conducts the transfers into it, and judges them.
//!
//! A job consists of parts with private fields; each keeps its own rule, and what they owe each
//! other goes through arguments:
//!
//! | file | what it holds |
//! | --- | --- |
//! | `staging.rs`, `group.rs` | updates that are not committed: open groups and their sums |
//! | `credits.rs`, `source.rs` | who may send the next chunk (SPEC#push "Credits") |
//! | `budget.rs` | what of the server's link credits may call for |
//! | `../model/ledger.rs` | what was decided: the model, the sequence, the workers' outcomes |
//! | `log.rs` | past decisions and their sums, for the replica |
//! | `link.rs` | what the replica has, and how far behind it may be |
//! | `journal.rs` | what must be kept before it is told |
//! | `holes.rs` | order numbers that no group has |
//! | `presence.rs` | whether a controller plans the job |
//! | `places.rs` | where a peer stands in a table |
//!
//! The rest hands the findings of one part to the next:
//!
//! | file | what it decides |
//! | --- | --- |
//! | `config.rs` | whether a job can be served |
//! | `job.rs` | what a job owns; commands |
//! | `announce.rs` | which update gets an order number without a plan |
//! | `install.rs` | how groups come to be open |
//! | `members.rs` | how members leave a group, and what they are told |
//! | `receive.rs` | whose a frame is, and what it does |
//! | `status.rs` | what a worker that asks is told |
//! | `commit.rs` | what becomes of an order number (SPEC#push "Decision") |
//! | `durable.rs` | what may be told once it is kept |
//! | `follow.rs` | what the replica is told (SPEC#replica) |
//! | `pull.rs` | which version a peer pulls (SPEC#pull) |
//! | `succession.rs` | which server a job has (SPEC#promotion) |
//!
//! Sans-IO: frames, commands and time go in; frames, events and deadlines come out. All memory is
//! taken at the start; what does not fit later is a counted outcome (I8). A frame costs a look at
//! its row, its chunk's bitmap and one pass over its payload; a commit one pass over the model.
//! Invariants: I1 (staging and atomic commit), I3 (in sequence), I4 (judged at the commit), I5.

mod announce;
mod budget;
mod commit;
mod config;
mod credits;
mod durable;
mod follow;
mod group;
mod holes;
mod install;
mod job;
mod journal;
mod link;
mod log;
mod members;
mod places;
mod presence;
mod pull;
mod receive;
mod source;
mod staging;
mod stats;
mod status;
mod succession;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use weft_control::{Command, Event, Train};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, Nanos};

use crate::random::{Owner, Seed};
use crate::role::Verdict;
use crate::role::model::{Jobs, ModelConfigError};
use crate::send::train::Trains;

pub use crate::role::model::{ModelState, ModelView};

pub use config::{SNAPSHOTS_MAX, ServerJobConfig, WINDOW_MAX, snapshots_for};
pub(crate) use presence::Presence;
pub use stats::{DELAYS_MAX, ServerJobStats, ServerStats};

pub(crate) use job::Job;

/// A server for one or more jobs on one port.
#[derive(Debug)]
pub struct Server {
    jobs: Jobs<Job>,
    trains: Trains,
    stats: ServerStats,
}

impl Server {
    /// Takes the memory of all jobs. `seed` must differ from start to start: epochs, cookies and
    /// tokens come from it (PROTOCOL section 6).
    ///
    /// # Errors
    /// The job's position and what is wrong with it.
    pub fn new(
        local: Endpoint,
        mtu: u16,
        jobs: &[ServerJobConfig],
        seed: u64,
        kernels: &'static Kernels,
    ) -> Result<Self, (usize, ModelConfigError)> {
        Self::of_seed(local, mtu, jobs, seed.into(), kernels)
    }

    /// The same of a seed that may have a tape.
    ///
    /// # Errors
    /// As of [`Server::new`].
    pub fn of_seed(
        local: Endpoint,
        mtu: u16,
        jobs: &[ServerJobConfig],
        seed: Seed,
        kernels: &'static Kernels,
    ) -> Result<Self, (usize, ModelConfigError)> {
        let mut random = seed.random(Owner::Lane);
        let mut all = Jobs::new(local, jobs.len());
        for (index, config) in jobs.iter().enumerate() {
            config.check(&local, mtu).map_err(|error| (index, error))?;
            let random = random.child(Owner::Server(config.model.job.0));
            let job = Job::new(config, local, random, kernels);
            all.add(job).map_err(|error| (index, error))?;
        }
        Ok(Self { jobs: all, trains: Trains::new(), stats: ServerStats::default() })
    }

    /// Decides the fate of the frame in `buffer[..len]`. The rest of `buffer` is room for a longer
    /// answer. Never panics on any content.
    pub fn handle_frame(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
        self.stats.frames += 1;
        let result = self.jobs.handle_frame(now, buffer, len, &mut self.trains);
        result.unwrap_or_else(|refusal| refusal.settle(&mut self.stats.drops))
    }

    /// Takes a controller's word.
    pub fn handle_command(&mut self, now: Nanos, command: Command) {
        self.jobs.handle_command(now, &command);
    }

    /// A controller has attached, or its stream has ended; the box's own agent says so. While one
    /// is there and has spoken of a job, and for [`ServerJobConfig::fallback_ns`] afterwards,
    /// updates that the job's workers announce without a grant are refused. A server that was never
    /// told so takes them.
    pub fn handle_controller(&mut self, now: Nanos, is_there: bool) {
        self.jobs.iter_mut().for_each(|job| job.note_controller(now, is_there));
    }

    /// Writes the next frame that no incoming frame asked for, and returns its length. Call after
    /// each burst and at [`Server::poll_timeout`], until it returns `None`.
    pub fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.jobs.poll_transmit(now, frame)
    }

    /// When [`Server::poll_transmit`] will have something to do; [`Nanos::MAX`]: never.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.jobs.poll_timeout()
    }

    /// Writes the next record for a durable job's journal over `record`, and returns the job and
    /// the record's position. Records are kept in the order in which they come. Call after each
    /// burst; `record` needs [`crate::role::model::journal::record_len_max`] octets, or it grows.
    pub fn poll_journal(&mut self, record: &mut Vec<u8>) -> Option<(JobId, u64)> {
        record.clear();
        self.jobs.iter_mut().find_map(|job| Some((job.id(), job.take_record(record)?)))
    }

    /// There is no room for records: decisions wait.
    pub fn handle_journal_full(&mut self) {
        self.jobs.iter_mut().for_each(Job::wait_for_journal);
    }

    /// All records of a job up to this position are kept for good: what they decided may be told.
    pub fn handle_durable(&mut self, job: JobId, position: u64) {
        if let Some(job) = self.jobs.find_mut(job) {
            job.handle_durable(position);
        }
    }

    /// True while a decision waits for its record to be durable.
    #[must_use]
    pub fn awaits_journal(&self) -> bool {
        self.jobs.iter().any(Job::awaits_journal)
    }

    /// The next event, and its job.
    pub fn poll_event(&mut self) -> Option<(JobId, Event)> {
        self.jobs.poll_event()
    }

    /// When the frame that is handled next arrived ([`crate::send::train::Trains::note_arrival`]).
    pub fn note_arrival(&mut self, at_ns: u64) {
        self.trains.note_arrival(at_ns);
    }

    /// The next train that has arrived.
    pub fn poll_train(&mut self) -> Option<Train> {
        self.trains.poll()
    }

    /// Counters of the server.
    #[must_use]
    pub fn stats(&self) -> &ServerStats {
        &self.stats
    }

    /// Counters of the jobs.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, &ServerJobStats)> {
        self.jobs.iter().map(|job| (job.id(), job.stats()))
    }

    /// A job's model.
    #[must_use]
    pub fn model(&self, job: JobId) -> Option<ModelView<'_>> {
        Some(self.jobs.find(job)?.ledger().view())
    }

    /// Everything of a job that must survive this server. Copies the model.
    #[must_use]
    pub fn state(&self, job: JobId) -> Option<ModelState> {
        Some(self.jobs.find(job)?.ledger().state())
    }

    /// Takes a job over from a former life of its server, or from its replica. Call before the
    /// first frame; peers find a new epoch and open their channels anew.
    ///
    /// # Errors
    /// The job is not served here, or its shape is not the state's.
    pub fn restore(&mut self, job: JobId, state: &ModelState) -> Result<(), ModelConfigError> {
        let unknown = ModelConfigError { field: "job", problem: "is not served here" };
        self.jobs.find_mut(job).ok_or(unknown)?.restore(state)
    }
}
