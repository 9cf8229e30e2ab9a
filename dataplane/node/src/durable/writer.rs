//! The writer's thread: appends records, makes them durable, and says so. Does I/O, decides
//! nothing.
//!
//! Everything that waits is appended at once and made durable by one `fdatasync` per job: the
//! slower the disk, the larger the batches. A mark behind them tells the next start that they were
//! durable, for somebody may be told of them from then on. A journal that has grown too long is
//! left to a thread of its own, which applies it to the checkpoint, while the next journal is
//! written.

use std::io;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use weft_engine::role::model::journal::Mark;
use weft_engine::role::model::{ModelState, Replay};
use weft_kernel::Kernels;
use weft_wire::JobId;

use super::StoredJob;
use super::directory::journal_name;
use crate::error::{NodeError, remedy};

/// A record on its way to the disk, and its memory on its way back.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) job: JobId,
    pub(super) position: u64,
    pub(super) record: Vec<u8>,
    /// On its way back: it is on the disk.
    pub(super) is_durable: bool,
}

/// A checkpoint that is being made.
pub(super) type Compaction = JoinHandle<Result<(), NodeError>>;

/// What makes a checkpoint.
pub(super) type Work = Box<dyn FnOnce() -> Result<(), NodeError> + Send>;

/// Starts it.
pub(super) type Start = fn(Work) -> io::Result<Compaction>;

/// The files of all jobs.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: Vec<OpenJournal>,
    start: Start,
}

#[derive(Debug)]
struct OpenJournal {
    stored: StoredJob,
    is_dirty: bool,
    compaction: Option<Compaction>,
    /// The reason that ended the job's journal: later records do not become durable.
    failure: Option<NodeError>,
    is_told: bool,
}

impl Writer {
    /// Appends to these jobs' journals.
    pub(super) fn new(jobs: Vec<StoredJob>, start: Start) -> Self {
        let open = |stored| OpenJournal {
            stored,
            is_dirty: false,
            compaction: None,
            failure: None,
            is_told: false,
        };
        Self { jobs: jobs.into_iter().map(open).collect(), start }
    }

    /// Writes parcels until the lane has ended. A job ends alone when its files fail; when all
    /// have, the writer ends.
    pub(super) fn run(
        mut self,
        parcels: &Receiver<Parcel>,
        done: &Sender<Parcel>,
    ) -> Result<(), NodeError> {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while let Ok(first) = parcels.recv() {
            batch.push(first);
            batch.extend(parcels.try_iter().take(BATCH_MAX - 1));
            self.write(&mut batch, done)?;
        }
        self.jobs.iter_mut().for_each(|open| open.attempt(OpenJournal::end_compaction));
        self.jobs.iter_mut().find_map(|open| open.failure.take()).map_or(Ok(()), Err)
    }

    /// Makes a batch durable, says so, and then looks after the files.
    pub(super) fn write(
        &mut self,
        batch: &mut Vec<Parcel>,
        done: &Sender<Parcel>,
    ) -> Result<(), NodeError> {
        let start = self.start;
        for parcel in batch.iter() {
            if let Some(open) = self.job(parcel.job) {
                open.attempt(|open| open.take(&parcel.record, start));
            }
        }
        for open in &mut self.jobs {
            open.attempt(OpenJournal::settle);
        }
        for mut parcel in batch.drain(..) {
            let open = self.job(parcel.job);
            parcel.is_durable = open.is_some_and(|open| open.failure.is_none());
            // The lane may have ended.
            let _ = done.send(parcel);
        }
        for open in &mut self.jobs {
            open.attempt(|open| open.rotate_long(start));
        }
        self.judge()
    }

    /// Logs jobs that have failed; returns the first reason if all have.
    fn judge(&mut self) -> Result<(), NodeError> {
        if self.jobs.iter().all(|open| open.failure.is_some()) {
            return self.jobs.iter_mut().find_map(|open| open.failure.take()).map_or(Ok(()), Err);
        }
        for open in self.jobs.iter_mut().filter(|open| !open.is_told) {
            if let Some(error) = &open.failure {
                let JobId(job) = open.stored.config.model.job;
                weft_process::say!("weft-node: job {job} is not served any more: {error}");
                open.is_told = true;
            }
        }
        Ok(())
    }

    fn job(&mut self, job: JobId) -> Option<&mut OpenJournal> {
        self.jobs.iter_mut().find(|open| open.stored.config.model.job == job)
    }
}

impl OpenJournal {
    /// Does what may fail, unless something has failed before.
    fn attempt(&mut self, work: impl FnOnce(&mut Self) -> Result<(), NodeError>) {
        if self.failure.is_none() {
            self.failure = work(self).err();
        }
    }

    /// Takes a record. One that would make the journal longer than it may be waits for the
    /// checkpoint that is being made, and begins the next journal.
    fn take(&mut self, record: &[u8], start: Start) -> Result<(), NodeError> {
        let len = self.stored.journal.len + record.len() as u64;
        if len > self.stored.journal_bytes_max {
            self.settle()?;
            self.rotate(start)?;
        }
        self.is_dirty = true;
        self.append(record)
    }

    /// Makes durable what was taken, and notes it.
    fn settle(&mut self) -> Result<(), NodeError> {
        if !self.is_dirty {
            return Ok(());
        }
        self.sync()?;
        self.is_dirty = false;
        self.mark(None)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), NodeError> {
        let journal = &mut self.stored.journal;
        journal.len += bytes.len() as u64;
        journal.file.append(bytes).map_err(|error| self.failed(&error))
    }

    fn sync(&mut self) -> Result<(), NodeError> {
        self.stored.journal.file.sync().map_err(|error| self.failed(&error))
    }

    /// Notes that all so far is durable.
    fn mark(&mut self, next: Option<u64>) -> Result<(), NodeError> {
        let mut mark = Vec::new();
        Mark { offset: self.stored.journal.len, next }.write(&mut mark);
        self.append(&mark)
    }

    fn failed(&self, error: &io::Error) -> NodeError {
        let name = journal_name(self.stored.journal.number);
        let remedy = remedy(error).unwrap_or("see to that");
        let problem = format!(
            "cannot be written: {error}; nothing that is not in it was told to anybody; {remedy} \
             and start the node again"
        );
        self.stored.directory.problem(&name, &problem)
    }

    /// Leaves a long journal to a checkpoint, unless one is being made.
    fn rotate_long(&mut self, start: Start) -> Result<(), NodeError> {
        let is_busy = self.compaction.as_ref().is_some_and(|thread| !thread.is_finished());
        if self.stored.journal.len < self.stored.journal_bytes_max || is_busy {
            return Ok(());
        }
        self.rotate(start)
    }

    /// Leaves the journal to a checkpoint, once there is none being made.
    fn rotate(&mut self, start: Start) -> Result<(), NodeError> {
        self.end_compaction()?;
        let old = self.stored.journal.number;
        let next = self.stored.directory.next_journal(old)?;
        self.mark(Some(next.number))?;
        self.sync()?;
        self.stored.journal = next;
        let directory = self.stored.directory.clone();
        let (model, workers) = (self.stored.config.model.clone(), self.stored.config.workers.len());
        let work = move || {
            directory.compact(old, |state: &ModelState| {
                Replay::new(&model, workers, state, Kernels::detect())
                    .map_err(|error| error.to_string())
            })
        };
        self.compaction = Some(start(Box::new(work)).map_err(|error| self.failed(&error))?);
        Ok(())
    }

    fn end_compaction(&mut self) -> Result<(), NodeError> {
        let Some(thread) = self.compaction.take() else { return Ok(()) };
        let broken = self.stored.directory.problem("checkpoint", "the thread that makes it died");
        thread.join().unwrap_or(Err(broken))
    }
}

/// On a thread of its own.
pub(super) fn start_thread(work: Work) -> io::Result<Compaction> {
    std::thread::Builder::new().name("weft-checkpoint".to_owned()).spawn(work)
}

/// Records that one `fdatasync` makes durable.
const BATCH_MAX: usize = 64;
