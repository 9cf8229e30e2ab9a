//! The replica: stages copies like its server, and applies the server's decisions in their
//! sequence (SPEC#replica, PROTOCOL section 7).
//!
//! | file | what it decides |
//! | --- | --- |
//! | `config.rs` | whether a job can be followed |
//! | `job.rs` | what a job owns; commands |
//! | `copies.rs` | what of every group has come |
//! | `decisions.rs` | what the server decided and is not applied |
//! | `draft.rs` | when a fetched model is whole |
//! | `apply.rs` | when a decision can be applied |
//! | `receive.rs` | whose a frame is, and what it does |
//! | `follow.rs` | what to ask the server for: decisions, chunks, a snapshot |
//! | `fetch.rs` | when to ask again |
//! | `fitness.rs` | whether it could take its server's place |
//! | `promotion.rs` | when a job is followed no more, but served |
//!
//! Invariant (I3): at equal order number, model and momentum term are the server's, bit for bit:
//! the same sums with the same group boundaries, in the same sequence, by the same code
//! ([`crate::role::model`]). Copies are best effort; what is missing comes from the server's log,
//! and what the log no longer has, as a snapshot.

mod apply;
mod config;
mod copies;
mod decisions;
mod draft;
mod fetch;
mod fitness;
mod follow;
mod job;
mod promotion;
mod receive;
mod stats;

use weft_control::{Command, Event, ServerEpoch, Train};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, Nanos};

use crate::random::{Owner, Seed};
use crate::role::Verdict;
use crate::role::model::ModelConfigError;
use crate::role::model::{Jobs, ModelJob as _, ModelState, ModelView};
use crate::role::server::ServerJobStats;
use crate::send::train::Trains;

pub use config::ReplicaJobConfig;
pub use stats::{ReplicaJobStats, ReplicaStats};

use job::Job;
use promotion::ReplicaJob;

/// A replica of one or more jobs on one port.
#[derive(Debug)]
pub struct Replica {
    jobs: Jobs<ReplicaJob>,
    /// Of transfers into a replica that became the server; those that it follows have none.
    trains: Trains,
    stats: ReplicaStats,
}

impl Replica {
    /// Takes the memory of all jobs. `seed` must differ from start to start.
    ///
    /// # Errors
    /// The job's position and what is wrong with it.
    pub fn new(
        local: Endpoint,
        mtu: u16,
        jobs: &[ReplicaJobConfig],
        seed: u64,
        kernels: &'static Kernels,
    ) -> Result<Self, (usize, ModelConfigError)> {
        Self::of_seed(local, mtu, jobs, seed.into(), kernels)
    }

    /// The same of a seed that may have a tape.
    ///
    /// # Errors
    /// As of [`Replica::new`].
    pub fn of_seed(
        local: Endpoint,
        mtu: u16,
        jobs: &[ReplicaJobConfig],
        seed: Seed,
        kernels: &'static Kernels,
    ) -> Result<Self, (usize, ModelConfigError)> {
        let mut random = seed.random(Owner::Lane);
        let mut all = Jobs::new(local, jobs.len());
        for (index, config) in jobs.iter().enumerate() {
            config.check(&local, mtu).map_err(|error| (index, error))?;
            let seeds = random.child(Owner::Replica(config.model.job.0));
            let job = Job::new(config, local, seeds, kernels);
            let later = random.child(Owner::Successor(config.model.job.0));
            let job = ReplicaJob::new(job, local, later, kernels);
            all.add(job).map_err(|error| (index, error))?;
        }
        Ok(Self { jobs: all, trains: Trains::new(), stats: ReplicaStats::default() })
    }

    /// Decides the fate of the frame in `buffer[..len]`. Never panics on any content.
    pub fn handle_frame(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
        self.stats.frames += 1;
        let result = self.jobs.handle_frame(now, buffer, len, &mut self.trains);
        result.unwrap_or_else(|refusal| refusal.settle(&mut self.stats.drops))
    }

    /// Takes a controller's word.
    pub fn handle_command(&mut self, now: Nanos, command: Command) {
        self.jobs.handle_command(now, &command);
    }

    /// A controller has attached, or its stream has ended
    /// ([`crate::role::server::Server::handle_controller`]).
    pub fn handle_controller(&mut self, now: Nanos, is_there: bool) {
        self.jobs.iter_mut().for_each(|job| job.note_controller(now, is_there));
    }

    /// Writes the next frame that no incoming frame asked for, and returns its length.
    pub fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.jobs.poll_transmit(now, frame)
    }

    /// When [`Replica::poll_transmit`] will have something to do; [`Nanos::MAX`]: never.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.jobs.poll_timeout()
    }

    /// The next event, and its job.
    pub fn poll_event(&mut self) -> Option<(JobId, Event)> {
        self.jobs.poll_event()
    }

    /// When the frame that is handled next arrived ([`crate::send::train::Trains::note_arrival`]).
    pub fn note_arrival(&mut self, at_ns: u64) {
        self.trains.note_arrival(at_ns);
    }

    /// The next train that has arrived at a job that is served here.
    pub fn poll_train(&mut self) -> Option<Train> {
        self.trains.poll()
    }

    /// Counters of the replica.
    #[must_use]
    pub fn stats(&self) -> &ReplicaStats {
        &self.stats
    }

    /// Counters of the jobs.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, &ReplicaJobStats)> {
        self.jobs.iter().map(|job| (job.id(), job.stats()))
    }

    /// Epochs and counters of the jobs whose server this is now (SPEC#promotion).
    pub fn served(&self) -> impl Iterator<Item = (JobId, ServerEpoch, &ServerJobStats)> {
        self.jobs.iter().filter_map(|job| {
            let (epoch, stats) = job.served()?;
            Some((job.id(), epoch, stats))
        })
    }

    /// A job's model.
    #[must_use]
    pub fn model(&self, job: JobId) -> Option<ModelView<'_>> {
        Some(self.jobs.find(job)?.ledger().view())
    }

    /// Everything of a job that a server in the place of this one's must know. Copies the model.
    #[must_use]
    pub fn state(&self, job: JobId) -> Option<ModelState> {
        Some(self.jobs.find(job)?.ledger().state())
    }

    /// True Euclidean distance of a job's model to the server's, in f64, if there is such a job and
    /// the models have the same length.
    #[must_use]
    pub fn distance(&self, job: JobId, server: &[f32]) -> Option<f64> {
        let own = self.model(job)?.weights;
        (own.len() == server.len()).then(|| crate::role::model::distance(own, server))
    }
}
