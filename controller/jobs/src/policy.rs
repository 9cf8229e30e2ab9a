//! What policies of a cluster's jobs are asked and what they answer; the list of those built in.
//!
//! The contract is `weft_plan::policy`'s, as for the network; here the [`Subject`] is [`Jobs`]. A
//! policy is asked with a [`Setting`] and answers with a [`Scheduler`], which from then on is told
//! what happened, one [`Delta`] at a time, and says what changes: so a decision costs what changed,
//! and not what there is. The simulator and the controller drive the same schedulers.
//!
//! A new policy is one file with a type that implements [`Policy`] for [`Jobs`], and one line in
//! [`BUILT_IN`].

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

pub use weft_plan::policy::{
    AnyPolicy, Family, Policy, PolicyError, Registry, Subject, UnknownPolicy,
};

use crate::cluster::Cluster;
use crate::job::{Job, JobId};
use attained_service::AttainedService;
use remaining::BySize;
use sliced::Sliced;

pub mod attained_service;
pub mod elastic;
pub mod elasticflow_compat;
pub mod fifo;
pub mod gittins;
mod greedy;
#[cfg(feature = "json")]
pub mod outside;
pub mod remaining;
pub mod sliced;
pub mod tiresias_compat;

/// Built-in policies of jobs; the first is the default.
pub const BUILT_IN: Registry<Jobs> = Registry {
    listed: &[
        &AttainedService::GPU_TIME,
        &AttainedService::GITTINS,
        &AttainedService::TIME,
        &Sliced::LEAST_SERVED,
        &Sliced::GITTINS,
        &fifo::Fifo,
        &fifo::Backfill,
        &BySize::NARROWEST,
        &BySize::TIME,
        &BySize::SERVICE,
        &fifo::YarnCs,
        &Sliced::TURNS,
        &elastic::Doubling,
        &elastic::DoublingExplore,
        &elastic::Optimus,
    ],
    families: &[attained_service::WITH_KNOB, attained_service::GITTINS_WITH_KNOB, elastic::FIXED],
};

/// The number in a name like `dlas-gpu-8`; `05` is a half, for names have no points.
fn knob_of(name: &str, prefix: &str) -> Option<f64> {
    let digits = name.strip_prefix(prefix)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let knob = match digits.strip_prefix('0') {
        Some(rest) if !rest.is_empty() => format!("0.{rest}").parse(),
        _ => digits.parse(),
    };
    knob.ok().filter(|knob| *knob > 0.0)
}

/// Which jobs of a cluster run, and on how many GPUs each.
#[derive(Clone, Copy, Debug)]
pub enum Jobs {}

impl Subject for Jobs {
    type Question = Setting;
    type Answer = Box<dyn Scheduler>;
    type Manner = Manner;
}

/// What a simulator or controller does otherwise under a policy of jobs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Manner {
    /// Rows do not count when a job goes on after a stop, as in the public simulator's policies
    /// that never stop a job.
    pub counts_no_resumes: bool,
    /// Which of two jobs that end at one time ends first.
    pub end_order: EndOrder,
    /// The placement of those who name none; `None`: the first of the list.
    pub placement: Option<&'static str>,
}

/// Which of two jobs that end at one time ends first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EndOrder {
    /// The one that came first.
    #[default]
    Arrival,
    /// The one that started first.
    Start,
    /// The one on fewer GPUs, then the one that came first.
    Narrow,
}

/// What a policy has to know before the first job comes.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The cluster.
    pub cluster: Cluster,
    /// What can be turned.
    pub knobs: Knobs,
    /// How fast jobs are at which width, as far as a policy may know it.
    pub widths: Arc<dyn Widths>,
    /// For policies that draw lots.
    pub seed: u64,
}

impl Setting {
    /// A setting with every knob at its default, where jobs run at the width that they ask for.
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, knobs: Knobs::default(), widths: Arc::new(AsAsked), seed: 0 }
    }
}

/// What can be turned at the built-in policies; each says which it looks at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Knobs {
    /// Limits of the upper queues, in GPU-nanoseconds (nanoseconds for `dlas`), growing; the last
    /// queue has none. Empty: the policy's own.
    pub queue_limits_ns: Vec<u64>,
    /// PROMOTEKNOB: a job that waited this many times as long as it ran goes back to the first
    /// queue. `None`: never.
    pub promote_knob: Option<f64>,
    /// A job that waited this long goes back to the first queue. `None`: never.
    pub starvation_limit_ns: Option<u64>,
    /// How long a choice of the continuous policies holds. 0: the policy's own.
    pub quantum_ns: u64,
    /// Total GPU time of earlier jobs in GPU-nanoseconds, from small to large: the sample of the
    /// Gittins index. Empty: the built-in copy.
    pub history_gpu_ns: Arc<[u64]>,
    /// Attained service in GPU-nanoseconds, growing, and the index from there on: instead of the
    /// index by its formula.
    pub gittins_table: Arc<[(u64, f64)]>,
    /// What a change of width, or going on after a stop, takes before the job works again.
    pub restart_ns: u64,
}

impl Knobs {
    /// Times of more than [`NEVER_NS`] are as good as that; sums with them do not overflow.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let limits_ns = self.queue_limits_ns.iter().map(|limit_ns| (*limit_ns).min(NEVER_NS));
        Self {
            queue_limits_ns: limits_ns.collect(),
            starvation_limit_ns: self.starvation_limit_ns.map(|limit_ns| limit_ns.min(NEVER_NS)),
            quantum_ns: self.quantum_ns.min(NEVER_NS),
            restart_ns: self.restart_ns.min(NEVER_NS),
            ..self.clone()
        }
    }
}

/// A time that never comes: 146 years, in nanoseconds.
pub const NEVER_NS: u64 = 1 << 62;

/// How fast jobs are at which width.
pub trait Widths: fmt::Debug + Send + Sync {
    /// How much faster than on the GPUs that it asked for the job is on `gpus`; 0 when it cannot
    /// run on so many. At `job.gpus` it is 1, for `duration_ns` is measured there.
    fn speedup(&self, job: &Job, gpus: u32) -> f64;

    /// The most GPUs on which a job is ever faster than on fewer.
    fn gpus_max(&self, job: &Job) -> u32;

    /// Whether the job has a curve; one without runs as wide as it asks.
    fn knows(&self, _: &Job) -> bool {
        false
    }
}

/// Jobs that run at the width that they ask for and at no other.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsAsked;

impl Widths for AsAsked {
    fn speedup(&self, job: &Job, gpus: u32) -> f64 {
        if gpus == job.gpus { 1.0 } else { 0.0 }
    }

    fn gpus_max(&self, job: &Job) -> u32 {
        job.gpus
    }
}

/// What happened to one job.
#[derive(Clone, Copy, Debug)]
pub enum Delta<'a> {
    /// It came. Its id is free before, and its own until [`Delta::Ended`].
    Arrived {
        /// Which.
        id: JobId,
        /// All that the trace says. A policy without knowledge of the future does not look at
        /// `duration_ns` and `iterations`.
        job: &'a Job,
    },
    /// It ended; its GPUs are free, its id is no longer its own.
    Ended {
        /// Which.
        id: JobId,
    },
    /// What it has been served so far, exactly. Told when it was stopped or changed its width, and
    /// whenever the driver knows better; between two of these a running job is served as time goes.
    Served {
        /// Which.
        id: JobId,
        /// Time on GPUs, since it came.
        executed_ns: u64,
        /// That times the GPUs of the time.
        gpu_ns: u64,
        /// What is left of its `duration_ns`. A policy without knowledge of the future does not
        /// look.
        remaining_ns: u64,
    },
    /// There was no place for it where it was to run, though GPUs are free: it does not run. Asked
    /// for again before something else stopped or ended, it would get the same answer.
    Unplaced {
        /// Which.
        id: JobId,
    },
}

/// That a job shall run on so many GPUs from now on; 0 stops it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Change {
    /// Which.
    pub id: JobId,
    /// On how many.
    pub gpus: u32,
}

/// What a scheduler wants changed. Jobs that are not named go on as they are.
///
/// Invariant, which the driver checks: after all changes no more GPUs are in use than there are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Decision {
    /// At most one for each job; stops and shrinking are done before what needs their GPUs.
    pub changes: Vec<Change>,
    /// When it wants to be asked again even if nothing happens; `None`: only when something does.
    /// Now: at once, when this decision has been carried out.
    pub again_at_ns: Option<u64>,
    /// Jobs that went back to the first queue for having waited long; only counted.
    pub promoted: Vec<JobId>,
}

impl Decision {
    /// Empties it, and keeps its memory.
    pub fn clear(&mut self) {
        self.changes.clear();
        self.promoted.clear();
        self.again_at_ns = None;
    }
}

/// A policy at work on one cluster.
///
/// At one time it is told all that happened (ends first, then arrivals), then polled once; after
/// [`Delta::Unplaced`] it is polled again. Times never go back.
pub trait Scheduler: fmt::Debug + Send {
    /// Takes in what happened.
    ///
    /// # Errors
    /// [`PolicyError`] when a job is nothing that it can handle, or an outside policy failed.
    fn handle(&mut self, now_ns: u64, delta: Delta<'_>) -> Result<(), PolicyError>;

    /// Says what shall change now, into an empty `decision`.
    ///
    /// # Errors
    /// [`PolicyError`] when an outside policy failed.
    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError>;
}

/// The example of docs/job-policies.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/job-policies.md")]
struct PoliciesGuide;
