//! What servers keep on disk, so that one that begins anew goes on where it was (PROTOCOL section
//! 4).
//!
//! | file | what it does |
//! | --- | --- |
//! | `disk.rs` | the system calls that a job's files are kept with |
//! | `directory.rs` | a job's files: checkpoint and journals, and which there must be |
//! | `writer.rs` | the thread that appends records and makes checkpoints |
//! | `link.rs` | hands records from the lane to the writer, and back what is durable |
//!
//! `state_dir/job-N/` holds `checkpoint`, the journals `journal-K` after it, and `lock`. At the
//! start the journals are applied to the checkpoint, a new journal is begun and a new checkpoint
//! written that names it. The form of the files is [`weft_engine::role::model::journal`]'s.

mod directory;
mod disk;
mod link;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use weft_control::{Decision, Event, OrderNumber, Version};
use weft_engine::role::model::ModelConfigError;
use weft_engine::role::model::journal::{Checkpoint, JournalHeader, record_len_max};
use weft_engine::role::model::{ModelState, Replay, WorkerOutcomes};
use weft_engine::role::server::ServerJobConfig;
use weft_kernel::Kernels;
use weft_lane::Settings;
use weft_wire::JobId;

use crate::error::NodeError;
use crate::model;
use directory::{Directory, Journal};
use disk::{Disk, LockedDirectory};
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
    journal: Journal,
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
            let path = Path::new(section.state_dir.as_ref()?).join(format!("job-{}", section.job));
            let open = |path| {
                let disk = Arc::new(LockedDirectory::open(path)?);
                StoredJob::open(job, section.journal_bytes_max, disk)
            };
            Some(open(path))
        });
        Ok(Self { jobs: stored.collect::<Result<_, _>>()? })
    }

    /// The jobs that go on where a former life stopped.
    pub fn resumed(&self) -> impl Iterator<Item = &Resumed> {
        self.jobs.iter().filter_map(|job| job.resumed.as_ref())
    }

    /// The jobs that go on, and with what.
    pub(crate) fn configured(&self) -> impl Iterator<Item = (&ServerJobConfig, &ModelState)> {
        self.jobs.iter().filter_map(|job| Some((&job.config, job.state.as_ref()?)))
    }

    /// What their servers begin with.
    pub(crate) fn states(&self) -> impl Iterator<Item = (JobId, &ModelState)> {
        self.jobs.iter().filter_map(|job| Some((job.config.model.job, job.state.as_ref()?)))
    }
}

impl StoredJob {
    fn open(
        config: ServerJobConfig,
        journal_bytes_max: u64,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, NodeError> {
        let header = JournalHeader::new(&config.model, config.workers.len());
        let directory = Directory::new(disk, header);
        let found = directory.checkpoint()?;
        let (state, first) = match found {
            None => (initial(&config), None),
            Some(Checkpoint { state, journal: Some(journal), .. }) => (state, Some(journal)),
            Some(Checkpoint { state, .. }) => (state, Some(directory.first_journal()?)),
        };
        let damaged = |error: ModelConfigError| directory.problem("checkpoint", &error.to_string());
        let mut replay =
            Replay::new(&config.model, config.workers.len(), &state, Kernels::detect())
                .map_err(damaged)?;
        let mut resumed = Resumed {
            job: config.model.job,
            version: state.version,
            next_order: state.next_order,
            momentum_norm: 0.0,
            last: VecDeque::new(),
            version_before: state.version,
        };
        let last = match first {
            None => 0,
            Some(first) => {
                directory.replay(first, &mut replay, &mut |event| resumed.note(event))?
            }
        };
        let state = replay.state();
        resumed.version = state.version;
        resumed.next_order = state.next_order;
        resumed.momentum_norm = replay.momentum_norm();
        let journal = directory.begin(&state, last)?;
        let record_len = record_len_max(&config.model) as u64;
        Ok(Self {
            journal_bytes_max: journal_bytes_max.max(RECORDS_MIN * record_len),
            config,
            directory,
            journal,
            resumed: first.map(|_| resumed),
            state: first.map(|_| state),
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
