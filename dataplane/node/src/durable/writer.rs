//! The writer's thread: appends records, makes them durable, and says so. Does I/O, decides
//! nothing.
//!
//! Everything that waits is appended at once and made durable by one `fdatasync` per job: the
//! slower the disk, the larger the batches. A journal that has grown too long is left to a thread
//! of its own, which applies it to the checkpoint, while the next journal is written.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use weft_engine::role::model::{ModelState, Replay};
use weft_kernel::Kernels;
use weft_wire::JobId;

use super::StoredJob;
use crate::error::NodeError;

/// A record on its way to the disk, and its memory on its way back.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) job: JobId,
    pub(super) position: u64,
    pub(super) record: Vec<u8>,
}

/// The files of all jobs.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: Vec<OpenJournal>,
}

#[derive(Debug)]
struct OpenJournal {
    stored: StoredJob,
    file: File,
    number: u64,
    len: u64,
    is_dirty: bool,
    compaction: Option<JoinHandle<Result<(), NodeError>>>,
}

impl Writer {
    /// Begins a journal for each job.
    pub(super) fn open(jobs: Vec<StoredJob>) -> Result<Self, NodeError> {
        let open = |mut stored: StoredJob| {
            let (file, number) = stored.directory.next_journal()?;
            Ok(OpenJournal { stored, file, number, len: 0, is_dirty: false, compaction: None })
        };
        Ok(Self { jobs: jobs.into_iter().map(open).collect::<Result<_, NodeError>>()? })
    }

    /// Writes what comes until nobody can send any more.
    pub(super) fn run(
        mut self,
        parcels: &Receiver<Parcel>,
        done: &Sender<Parcel>,
    ) -> Result<(), NodeError> {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while let Ok(first) = parcels.recv() {
            batch.push(first);
            batch.extend(parcels.try_iter().take(BATCH_MAX - 1));
            for parcel in &batch {
                if let Some(open) = self.job(parcel.job) {
                    open.append(&parcel.record)?;
                }
            }
            for open in self.jobs.iter_mut().filter(|open| open.is_dirty) {
                open.sync()?;
            }
            for parcel in batch.drain(..) {
                // The lane may have ended.
                let _ = done.send(parcel);
            }
            for open in &mut self.jobs {
                open.rotate()?;
            }
        }
        for open in &mut self.jobs {
            open.end_compaction()?;
        }
        Ok(())
    }

    fn job(&mut self, job: JobId) -> Option<&mut OpenJournal> {
        self.jobs.iter_mut().find(|open| open.stored.config.model.job == job)
    }
}

impl OpenJournal {
    fn append(&mut self, record: &[u8]) -> Result<(), NodeError> {
        self.is_dirty = true;
        self.len += record.len() as u64;
        self.file.write_all(record).map_err(|error| self.failed(&error))
    }

    fn sync(&mut self) -> Result<(), NodeError> {
        self.is_dirty = false;
        self.file.sync_data().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> NodeError {
        NodeError::State {
            path: self.stored.directory.journal_path(self.number),
            problem: format!(
                "cannot be written: {error}; nothing that is not in it was told to anybody; make \
                 room and start the node again"
            ),
        }
    }

    /// Leaves a long journal to a checkpoint, unless one is being made.
    fn rotate(&mut self) -> Result<(), NodeError> {
        let is_busy = self.compaction.as_ref().is_some_and(|thread| !thread.is_finished());
        if self.len < self.stored.journal_bytes_max || is_busy {
            return Ok(());
        }
        self.end_compaction()?;
        let old = self.stored.directory.journal_path(self.number);
        (self.file, self.number) = self.stored.directory.next_journal()?;
        self.len = 0;
        let compactor = self.stored.directory.compactor();
        let (model, workers) = (self.stored.config.model.clone(), self.stored.config.workers.len());
        let work = move || {
            compactor.compact(Path::new(&old), |state: &ModelState| {
                Replay::new(&model, workers, state, Kernels::detect())
                    .map_err(|error| error.to_string())
            })
        };
        let thread = std::thread::Builder::new().name("weft-checkpoint".to_owned()).spawn(work);
        self.compaction = Some(thread.map_err(|error| self.failed(&error))?);
        Ok(())
    }

    fn end_compaction(&mut self) -> Result<(), NodeError> {
        let Some(thread) = self.compaction.take() else { return Ok(()) };
        let broken = self.stored.directory.problem("checkpoint", "the thread that makes it died");
        thread.join().unwrap_or(Err(broken))
    }
}

/// Records that one `fdatasync` makes durable.
const BATCH_MAX: usize = 64;
