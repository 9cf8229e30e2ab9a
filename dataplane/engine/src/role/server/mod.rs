//! The parameter server: holds the model, conducts the transfers into it, and judges them.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `config.rs` | whether a job can be served |
//! | `job.rs` | what a job owns; installing groups; commands |
//! | `members.rs` | how members leave a group, and what they are told |
//! | `receive.rs` | whose a frame is, and what it does |
//! | `conduct.rs` | who may send the next chunk (SPEC#push "Credits") |
//! | `commit.rs` | what becomes of an order number (SPEC#push "Decision") |
//! | `follow.rs` | what the replica is told, and how far behind it may be (SPEC#replica) |
//! | `pull.rs` | which version somebody pulls (SPEC#pull) |
//! | `group.rs`, `source.rs`, `log.rs` | an open group, a sender's credits, past decisions |
//!
//! Sans-IO: frames, commands and time go in; frames, events and deadlines come out. All memory is
//! taken at the start; what does not fit later is a counted outcome (I8). A frame costs a look at
//! its row, its chunk's bitmap and one pass over its payload; a commit one pass over the model.
//! Invariants: I1 (staging and atomic commit), I3 (in sequence), I4 (judged at the commit), I5.

mod commit;
mod conduct;
mod config;
mod follow;
mod group;
mod job;
mod log;
mod members;
mod pull;
mod receive;
mod source;
mod stats;
#[cfg(test)]
mod tests;

use alloc::vec;
use alloc::vec::Vec;

use weft_kernel::Kernels;
use weft_wire::frame::{Datagram, Endpoint, UdpAddr};
use weft_wire::header::Header;
use weft_wire::{JobId, Nanos};

use crate::classify::{Class, classify};
use crate::drops::DropReason;
use crate::push::{Command, Event, InstallError, OrderNumber, Version};
use crate::random::SplitMix64;
use crate::role::aggregator::Verdict;
use crate::table::JOBS_MAX;

pub(crate) use config::check_peers;
pub use config::{
    AckMode, CommitMode, ConductMode, ModelConfig, SNAPSHOTS_MAX, ServerConfigError,
    ServerJobConfig, WINDOW_MAX,
};
pub use stats::{DELAYS_MAX, ServerJobStats, ServerStats};

use job::Job;

/// A server for one or more jobs on one port.
#[derive(Debug)]
pub struct Server {
    local: UdpAddr,
    jobs: Vec<Job>,
    /// Job index on the wire to its place in `jobs`.
    by_id: Vec<Option<u8>>,
    /// The job that is polled first.
    turn: usize,
    /// Events of jobs that are not served here.
    foreign: Option<(JobId, Event)>,
    stats: ServerStats,
}

/// The model of a job, to look at.
#[derive(Clone, Copy, Debug)]
pub struct ModelView<'a> {
    /// Its version.
    pub version: Version,
    /// The order number that is decided next.
    pub next_order: OrderNumber,
    /// The weights, without padding.
    pub weights: &'a [f32],
    /// The momentum term, without padding.
    pub momentum: &'a [f32],
}

/// A frame under examination.
pub(crate) struct Incoming<'a> {
    pub(crate) now: Nanos,
    pub(crate) udp: Datagram,
    pub(crate) header: Header,
    pub(crate) buffer: &'a mut [u8],
}

impl Incoming<'_> {
    pub(crate) fn source(&self) -> UdpAddr {
        self.udp.source(self.buffer)
    }
}

/// Why a frame changed nothing, and what its sender is told about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: DropReason,
    /// Length of the frame that now stands in the buffer.
    pub(crate) reply: Option<usize>,
}

impl From<DropReason> for Refusal {
    fn from(reason: DropReason) -> Self {
        Self { reason, reply: None }
    }
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
    ) -> Result<Self, (usize, ServerConfigError)> {
        let mut random = SplitMix64::new(seed);
        let mut by_id = vec![None; JOBS_MAX];
        let mut served = Vec::with_capacity(jobs.len());
        for (index, config) in jobs.iter().enumerate() {
            config.check(&local, mtu).map_err(|error| (index, error))?;
            let problem = "must be below 256, and different for each job";
            let error = (index, ServerConfigError { field: "job", problem });
            let place = by_id.get_mut(usize::from(config.model.job.0)).ok_or(error)?;
            if place.is_some() {
                return Err(error);
            }
            *place = Some(u8::try_from(index).map_err(|_| error)?);
            let random = SplitMix64::new(random.next_u64());
            served.push(Job::new(config, local, random, kernels));
        }
        Ok(Self {
            local: local.addr.into(),
            jobs: served,
            by_id,
            turn: 0,
            foreign: None,
            stats: ServerStats::default(),
        })
    }

    /// Decides the fate of the frame in `buffer[..len]`. The rest of `buffer` is room for a longer
    /// answer. Never panics on any content.
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
            // Groups of a job that is not served here need no closing.
            (None, _) => {}
        }
    }

    /// Writes the next frame that no incoming frame asked for, and returns its length. Call after
    /// each burst and at [`Server::poll_timeout`], until it returns `None`.
    pub fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        for _ in 0..self.jobs.len() {
            self.turn = (self.turn + 1) % self.jobs.len();
            if let Some(len) = self.jobs[self.turn].poll_transmit(now, frame) {
                return Some(len);
            }
        }
        None
    }

    /// When [`Server::poll_transmit`] will have something to do; [`Nanos::MAX`]: never.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.jobs.iter().map(Job::poll_timeout).min().unwrap_or(Nanos::MAX)
    }

    /// The next event, and its job.
    pub fn poll_event(&mut self) -> Option<(JobId, Event)> {
        let foreign = self.foreign.take();
        foreign.or_else(|| self.jobs.iter_mut().find_map(|job| Some((job.id(), job.poll_event()?))))
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
        Some(self.jobs[self.job_index(job)?].view())
    }

    fn job_index(&self, job: JobId) -> Option<usize> {
        self.by_id.get(usize::from(job.0)).copied().flatten().map(usize::from)
    }
}
