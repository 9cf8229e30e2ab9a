//! What is said of jobs that are paused and resized: by whom, why not, and how long it took.

use alloc::string::String;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weft_control::JobState;

/// Who steers a job. The greater one's pause is not the lesser one's to end.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Steerer {
    /// The policy of jobs.
    Policy,
    /// A person, or a person's tool.
    Operator,
}

/// Why a job was not steered. Nothing changed.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum SteerError {
    /// There is none of that name.
    #[error("name: there is no such job; status lists those that there are")]
    Unknown,
    /// It is paused, or about to be.
    #[error("name: the job is {} already; resume it first", .0)]
    Paused(JobState),
    /// It is not.
    #[error("name: the job is {}, not paused; there is nothing to resume", .0)]
    NotPaused(JobState),
    /// It is being resized.
    #[error("name: the job is being resized; wait until it runs, or the resize is given up")]
    Resizing,
    /// The workers of its last resize have not come in time.
    #[error(
        "name: the workers of the job's last resize have not begun; start them, or resize it again"
    )]
    Unbegun,
    /// It has that many workers.
    #[error("workers: the job has {0} already")]
    SameWidth(u16),
    /// There are no such places.
    #[error("workers: {wanted} are wanted, and the job has {places} places; give it 1 to {places}")]
    Places {
        /// Workers wanted.
        wanted: u32,
        /// Places that the job may use.
        places: usize,
    },
    /// A host has no room.
    #[error("workers: host `{host}` has {free} slots free, and {wanted} workers would be there")]
    Slots {
        /// The host.
        host: String,
        /// Workers that would be there.
        wanted: usize,
        /// Slots that others leave.
        free: usize,
    },
    /// Its hosts have no room.
    #[error("workers: {wanted} are wanted, and the job's hosts have {free} slots free")]
    Room {
        /// Workers wanted.
        wanted: u16,
        /// Slots that others leave, at most as many as the job has places there.
        free: u32,
    },
    /// It has no round left to stop before.
    #[error("name: the job has begun the last of its {rounds} rounds; it ends by itself")]
    Ending {
        /// Rounds of the whole job.
        rounds: u64,
    },
    /// A push job's workers come and go by themselves.
    #[error("name: a push job has no lease to resize; register it with other workers")]
    Pushed,
    /// An operator paused it.
    #[error("name: an operator paused the job; only an operator resumes it")]
    Operators,
}

/// What a job's pauses came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PauseStatus {
    /// Pauses that came to a standstill.
    pub pauses: u64,
    /// From the word to the standstill: the last one,
    pub standstill_last_ns: u64,
    /// and the longest.
    pub standstill_max_ns: u64,
}

impl PauseStatus {
    pub(super) fn note(&mut self, after_ns: u64) {
        self.pauses += 1;
        self.standstill_last_ns = after_ns;
        self.standstill_max_ns = self.standstill_max_ns.max(after_ns);
    }
}

/// A resize, and how long each of its parts took.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Resize {
    /// Workers before.
    pub from: u16,
    /// Workers afterwards.
    pub to: u16,
    /// The first round that the new ones computed.
    pub round: u64,
    /// From the word until all stood at the boundary; the job ran on meanwhile.
    pub stop_ns: u64,
    /// From there until the checkpoint was kept,
    pub checkpoint_ns: u64,
    /// until the box had the new lease,
    pub lease_ns: u64,
    /// until all new workers had begun a round.
    pub start_ns: u64,
    #[serde(skip)]
    pub(super) since_ns: u64,
}

impl Resize {
    /// How long nobody worked.
    #[must_use]
    pub const fn pause_ns(&self) -> u64 {
        self.checkpoint_ns.saturating_add(self.lease_ns).saturating_add(self.start_ns)
    }

    pub(super) fn leased(&mut self, now_ns: u64) {
        self.lease_ns = now_ns.saturating_sub(self.since_ns);
        self.since_ns = now_ns;
    }

    pub(super) fn begun(&mut self, now_ns: u64) {
        self.start_ns = now_ns.saturating_sub(self.since_ns);
    }
}
