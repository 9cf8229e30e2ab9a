//! The replica: stages copies like its server, and applies the server's decisions in their
//! sequence (SPEC#replica, PROTOCOL section 7).
//!
//! | file | what it decides |
//! | --- | --- |
//! | `config.rs` | whether a job can be followed |
//! | `job.rs` | what a job owns; groups |
//! | `apply.rs` | when a decision can be applied |
//! | `receive.rs` | whose a frame is, and what it does |
//! | `follow.rs` | what to ask the server for: decisions, chunks, a snapshot |
//! | `fetch.rs` | when to ask again |
//!
//! Invariant (I3): at equal order number, model and momentum term are the server's, bit for bit:
//! the same sums with the same group boundaries, in the same sequence, by the same code
//! ([`crate::role::model`]). Copies are best effort; what is missing comes from the server's log,
//! and what the log no longer has, as a snapshot.

mod apply;
mod config;
mod fetch;
mod follow;
mod job;
mod receive;
mod stats;

use alloc::vec;
use alloc::vec::Vec;

use weft_kernel::Kernels;
use weft_wire::frame::{Endpoint, UdpAddr};
use weft_wire::{JobId, Nanos};

use crate::classify::{Class, classify};
use crate::drops::DropReason;
use crate::push::{Command, Event, InstallError};
use crate::random::SplitMix64;
use crate::role::aggregator::Verdict;
use crate::role::server::{Incoming, ModelView, Refusal, ServerConfigError};
use crate::table::JOBS_MAX;

pub use config::ReplicaJobConfig;
pub use stats::{ReplicaJobStats, ReplicaStats};

use job::Job;

/// A replica of one or more jobs on one port.
#[derive(Debug)]
pub struct Replica {
    local: UdpAddr,
    jobs: Vec<Job>,
    by_id: Vec<Option<u8>>,
    foreign: Option<(JobId, Event)>,
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
    ) -> Result<Self, (usize, ServerConfigError)> {
        let mut random = SplitMix64::new(seed);
        let mut by_id = vec![None; JOBS_MAX];
        let mut followed = Vec::with_capacity(jobs.len());
        for (index, config) in jobs.iter().enumerate() {
            config.check(&local, mtu).map_err(|error| (index, error))?;
            let problem = "must be below 256, and different for each job";
            let error = (index, ServerConfigError { field: "job", problem });
            let place = by_id.get_mut(usize::from(config.model.job.0)).ok_or(error)?;
            if place.is_some() {
                return Err(error);
            }
            *place = Some(u8::try_from(index).map_err(|_| error)?);
            followed.push(Job::new(config, local, SplitMix64::new(random.next_u64()), kernels));
        }
        Ok(Self {
            local: local.addr.into(),
            jobs: followed,
            by_id,
            foreign: None,
            stats: ReplicaStats::default(),
        })
    }

    /// Decides the fate of the frame in `buffer[..len]`. Never panics on any content.
    pub fn handle_frame(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Verdict {
        self.stats.frames += 1;
        match self.take(now, buffer, len) {
            Ok(verdict) => verdict,
            Err(refusal) => {
                self.stats.drops.count(refusal.reason);
                match refusal.reply {
                    Some(len) => Verdict::Send { len },
                    None => Verdict::Drop(refusal.reason),
                }
            }
        }
    }

    fn take(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Result<Verdict, Refusal> {
        match classify(&buffer[..len], |port| port == self.local.port()) {
            Class::Host => Ok(Verdict::Host),
            Class::Drop(reason) => Err(reason.into()),
            Class::Weft(udp, header) => {
                if !udp.target(buffer).is_same_host(self.local) {
                    return Err(DropReason::NotForUs.into());
                }
                let index = self.job_index(header.job).ok_or(DropReason::UnknownJob)?;
                self.jobs[index].handle_frame(&mut Incoming { now, udp, header, buffer })
            }
        }
    }

    /// Takes a controller's word.
    pub fn handle_command(&mut self, now: Nanos, command: Command) {
        let job = match &command {
            Command::Install(descriptor) => descriptor.job,
            Command::Remove { job, .. }
            | Command::CloseMember { job, .. }
            | Command::SetRate { job, .. } => *job,
        };
        match (self.job_index(job), command) {
            (Some(index), command) => self.jobs[index].handle_command(now, &command),
            (None, Command::Install(descriptor)) => {
                let error = InstallError::UnknownJob;
                self.foreign = Some((job, Event::Refused { group: descriptor.group, error }));
            }
            // Groups of a job that is not followed here need no closing.
            (None, _) => {}
        }
    }

    /// Writes the next frame that no incoming frame asked for, and returns its length.
    pub fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.jobs.iter_mut().find_map(|job| job.poll_transmit(now, frame))
    }

    /// When [`Replica::poll_transmit`] will have something to do; [`Nanos::MAX`]: never.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.jobs.iter().map(Job::poll_timeout).min().unwrap_or(Nanos::MAX)
    }

    /// The next event, and its job.
    pub fn poll_event(&mut self) -> Option<(JobId, Event)> {
        let foreign = self.foreign.take();
        foreign.or_else(|| self.jobs.iter_mut().find_map(|job| Some((job.id(), job.poll_event()?))))
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

    /// A job's model.
    #[must_use]
    pub fn model(&self, job: JobId) -> Option<ModelView<'_>> {
        Some(self.jobs[self.job_index(job)?].view())
    }

    /// True Euclidean distance of a job's model to the server's, in f64, if there is such a job and
    /// the models have the same length.
    #[must_use]
    pub fn distance(&self, job: JobId, server: &[f32]) -> Option<f64> {
        let own = self.model(job)?.weights;
        (own.len() == server.len()).then(|| crate::role::model::distance(own, server))
    }

    fn job_index(&self, job: JobId) -> Option<usize> {
        self.by_id.get(usize::from(job.0)).copied().flatten().map(usize::from)
    }
}
