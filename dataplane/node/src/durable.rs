//! What servers keep on disk, so that one that begins anew goes on where it was (PROTOCOL section
//! 4).
//!
//! | file | what it does |
//! | --- | --- |
//! | `directory.rs` | reads and writes a job's files: checkpoint, journals, lock |
//! | `writer.rs` | the thread that appends records and makes checkpoints |
//! | `link.rs` | hands records from the lane to the writer, and back what is durable |
//!
//! `state_dir/job-N/` holds `checkpoint`, the journals `journal-K` after it, and `lock`. At the
//! start the journals are applied to the checkpoint, a new checkpoint is written and a new journal
//! begun. The form of the files is [`weft_engine::role::model::journal`]'s.

mod directory;
mod link;
mod writer;

use std::collections::VecDeque;

use weft_engine::push::{Decision, Event, OrderNumber, Version};
use weft_engine::role::model::journal::{JournalHeader, record_len_max};
use weft_engine::role::model::{ModelState, Replay, WorkerOutcomes};
use weft_engine::role::server::ServerJobConfig;
use weft_kernel::Kernels;
use weft_wire::JobId;

use crate::config::{ServerSection, Settings};
use crate::error::NodeError;
use crate::model;
use directory::Directory;
pub use link::{JournalLink, Keeper};

/// What the jobs of a node have on disk.
#[derive(Debug, Default)]
pub struct Stored {
    jobs: Vec<StoredJob>,
}

/// A job that keeps its state.
#[derive(Debug)]
struct StoredJob {
    config: ServerJobConfig,
    directory: Directory,
    /// Octets of a journal before a checkpoint takes its place.
    journal_bytes_max: u64,
    resumed: Option<Resumed>,
    state: Option<ModelState>,
}

/// Where a job goes on that a former life of this node served.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// The job.
    pub job: JobId,
    /// Version of its model.
    pub version: Version,
    /// The order number that is decided next.
    pub next_order: OrderNumber,
    /// Norm of the momentum term.
    pub momentum_norm: f64,
    /// The last decisions, some of which nobody may have been told, in their sequence.
    pub last: VecDeque<Event>,
    /// Version before the first of them.
    pub version_before: Version,
}

impl Stored {
    /// Opens and reads what the configuration's servers keep.
    ///
    /// # Errors
    /// [`NodeError::State`] naming the file and the remedy; [`NodeError::Model`].
    pub fn open(settings: &Settings) -> Result<Self, NodeError> {
        let jobs = model::server_jobs(settings)?;
        let sections = settings.config.server.iter().zip(jobs);
        let stored = sections.filter_map(|(section, job)| {
            let path = section.state_dir.as_ref()?.join(format!("job-{}", section.job));
            Some(StoredJob::open(section, job, path))
        });
        Ok(Self { jobs: stored.collect::<Result<_, _>>()? })
    }

    /// The jobs that go on where a former life stopped.
    pub fn resumed(&self) -> impl Iterator<Item = &Resumed> {
        self.jobs.iter().filter_map(|job| job.resumed.as_ref())
    }

    /// What their servers begin with.
    pub(crate) fn states(&self) -> impl Iterator<Item = (JobId, &ModelState)> {
        self.jobs.iter().filter_map(|job| Some((job.config.model.job, job.state.as_ref()?)))
    }
}

impl StoredJob {
    fn open(
        section: &ServerSection,
        config: ServerJobConfig,
        path: std::path::PathBuf,
    ) -> Result<Self, NodeError> {
        let header = JournalHeader::new(&config.model, config.workers.len());
        let mut directory = Directory::open(path, header)?;
        let found = directory.checkpoint()?;
        let is_new = found.is_none();
        let state = found.unwrap_or_else(|| initial(&config));
        let damaged = |problem: String| directory.problem("checkpoint", &problem);
        let mut replay =
            Replay::new(&config.model, config.workers.len(), &state, Kernels::detect())
                .map_err(|error| damaged(error.to_string()))?;
        let mut resumed = Resumed {
            job: config.model.job,
            version: state.version,
            next_order: state.next_order,
            momentum_norm: 0.0,
            last: VecDeque::new(),
            version_before: state.version,
        };
        directory.replay(&mut replay, &mut |event| resumed.note(event))?;
        let state = replay.state();
        resumed.version = state.version;
        resumed.next_order = state.next_order;
        resumed.momentum_norm = replay.momentum_norm();
        directory.begin(&state)?;
        let record_len = record_len_max(&config.model) as u64;
        Ok(Self {
            journal_bytes_max: section.journal_bytes_max.max(RECORDS_MIN * record_len),
            config,
            directory,
            resumed: (!is_new).then_some(resumed),
            state: (!is_new).then_some(state),
        })
    }
}

impl Resumed {
    /// Keeps the newest decisions.
    fn note(&mut self, event: Event) {
        self.last.push_back(event);
        if self.last.len() > LAST_MAX
            && let Some(Event::Decided { decision: Decision::Committed(version), .. }) =
                self.last.pop_front()
        {
            self.version_before = version;
        }
    }
}

/// What a job begins with that has nothing on disk.
fn initial(config: &ServerJobConfig) -> ModelState {
    let mut weights = config.initial.clone();
    weights.resize(config.model.dimension, 0.0);
    ModelState {
        version: config.initial_version,
        next_order: config.initial_order,
        momentum: vec![0.0; weights.len()],
        weights,
        workers: vec![WorkerOutcomes::default(); config.workers.len()],
    }
}

/// Decisions that are told again after a start: more than can be on their way to the disk.
const LAST_MAX: usize = 128;
/// A journal holds at least this many records before a checkpoint takes its place.
const RECORDS_MIN: u64 = 8;
