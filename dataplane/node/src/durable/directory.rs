//! The files of one job. Does I/O; what they mean is the engine's.
//!
//! A checkpoint is written beside the old one and renamed over it, so that there is always one that
//! is whole. A journal is removed only when a durable checkpoint holds what it says.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use weft_engine::push::Event;
use weft_engine::role::model::journal::{
    JournalHeader, Records, read_checkpoint, write_checkpoint,
};
use weft_engine::role::model::{ModelState, Replay};

use crate::error::NodeError;

/// A job's directory, locked.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    header: JournalHeader,
    /// Held for the lock that is on it.
    _lock: File,
    /// The journal that is written now; 0 before [`Directory::begin`].
    journal: u64,
}

impl Directory {
    /// Makes the directory if need be, and locks it.
    pub(super) fn open(path: PathBuf, header: JournalHeader) -> Result<Self, NodeError> {
        let denied = |error: std::io::Error| NodeError::State {
            path: path.clone(),
            problem: format!(
                "cannot be written: {error}; give server.state_dir a directory that this user may \
                 write"
            ),
        };
        fs::create_dir_all(&path).map_err(denied)?;
        let lock = OpenOptions::new().create(true).append(true).open(path.join("lock"));
        let lock = lock.map_err(denied)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(NodeError::State {
                    path,
                    problem: "another weft-node serves from it; end that one first".to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(denied(error)),
        }
        Ok(Self { path, header, _lock: lock, journal: 0 })
    }

    /// The checkpoint, if there is one.
    pub(super) fn checkpoint(&self) -> Result<Option<ModelState>, NodeError> {
        let path = self.path.join(CHECKPOINT);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let journals = self.journals()?;
                let Some((_, journal)) = journals.first() else { return Ok(None) };
                let problem = format!(
                    "is there without {}; put that back, or remove the directory to begin anew",
                    path.display()
                );
                return Err(NodeError::State { path: journal.clone(), problem });
            }
            Err(error) => return Err(self.failed(CHECKPOINT, "reading it", &error)),
        };
        let (header, state) = read_checkpoint(&bytes)
            .map_err(|damage| self.problem(CHECKPOINT, &format!("{damage}; {LOST}")))?;
        self.check(&path, &header)?;
        Ok(Some(state))
    }

    /// Applies all journals to a model; `told` hears what they decided.
    pub(super) fn replay(
        &self,
        replay: &mut Replay,
        told: &mut dyn FnMut(Event),
    ) -> Result<(), NodeError> {
        let journals = self.journals()?;
        let count = journals.len();
        for (index, (_, path)) in journals.iter().enumerate() {
            self.replay_journal(path, index + 1 == count, replay, told)?;
        }
        Ok(())
    }

    fn replay_journal(
        &self,
        path: &Path,
        is_last: bool,
        replay: &mut Replay,
        told: &mut dyn FnMut(Event),
    ) -> Result<(), NodeError> {
        let damaged = |problem: String| NodeError::State { path: path.to_owned(), problem };
        let bytes = fs::read(path).map_err(|error| damaged(format!("reading it: {error}")))?;
        if is_last && Records::is_unused(&bytes) {
            return Ok(());
        }
        let (header, mut records) =
            Records::new(&bytes).map_err(|damage| damaged(format!("{damage}; {LOST}")))?;
        self.check(path, &header)?;
        loop {
            let at = records.offset();
            let record = records.next_record().map_err(|damage| {
                damaged(format!(
                    "{damage}; restore the file, or cut it to {at} bytes if this machine lost \
                     power: what follows is then forgotten"
                ))
            })?;
            let Some(record) = record else { break };
            let event = replay
                .apply(&record)
                .map_err(|error| damaged(format!("at byte {at}: {error}; {LOST}")))?;
            if let Some(event) = event {
                told(event);
            }
        }
        if records.is_cut() && !is_last {
            let at = records.offset();
            return Err(damaged(format!("it ends within a record, at byte {at}; {LOST}")));
        }
        Ok(())
    }

    fn check(&self, path: &Path, header: &JournalHeader) -> Result<(), NodeError> {
        if *header == self.header {
            return Ok(());
        }
        let words = |header: &JournalHeader| {
            format!(
                "job {} with {} parameters in chunks of {}, {} workers, momentum {}",
                header.job.0,
                header.dimension,
                header.elements,
                header.workers,
                f32::from_bits(header.momentum_bits)
            )
        };
        let problem = format!(
            "is of {}, the configuration has {}; choose another server.state_dir, or remove the \
             directory to begin anew",
            words(header),
            words(&self.header)
        );
        Err(NodeError::State { path: path.to_owned(), problem })
    }

    /// Makes this state the checkpoint, and begins a journal behind it; the old ones go.
    pub(super) fn begin(&mut self, state: &ModelState) -> Result<(), NodeError> {
        let old = self.journals()?;
        self.write_checkpoint(state)?;
        self.journal = old.last().map_or(0, |(number, _)| *number);
        for (_, path) in old {
            remove(&path)?;
        }
        Ok(())
    }

    /// Begins the next journal; returns it and its number.
    pub(super) fn next_journal(&mut self) -> Result<(File, u64), NodeError> {
        self.journal += 1;
        let path = self.journal_path(self.journal);
        let failed = |error: std::io::Error| NodeError::State {
            path: path.clone(),
            problem: format!("cannot be begun: {error}; make room, or choose another state_dir"),
        };
        let mut file =
            OpenOptions::new().create_new(true).write(true).open(&path).map_err(failed)?;
        let mut header = Vec::new();
        self.header.begin_journal(&mut header);
        file.write_all(&header).and_then(|()| file.sync_all()).map_err(failed)?;
        sync_directory(&self.path).map_err(failed)?;
        Ok((file, self.journal))
    }

    /// Where a journal is.
    pub(super) fn journal_path(&self, number: u64) -> PathBuf {
        self.path.join(format!("{JOURNAL}{number}"))
    }

    /// What makes checkpoints of this directory's journals, on another thread.
    pub(super) fn compactor(&self) -> Compactor {
        Compactor { path: self.path.clone(), header: self.header }
    }

    fn write_checkpoint(&self, state: &ModelState) -> Result<(), NodeError> {
        self.compactor().write(state)
    }

    /// The journals that are there, in their sequence.
    fn journals(&self) -> Result<Vec<(u64, PathBuf)>, NodeError> {
        let failed = |error: std::io::Error| self.failed("", "listing it", &error);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let number = name.and_then(|name| name.strip_prefix(JOURNAL)?.parse().ok());
            found.extend(number.map(|number| (number, path)));
        }
        found.sort_unstable();
        Ok(found)
    }

    fn failed(&self, file: &str, doing: &str, error: &std::io::Error) -> NodeError {
        self.problem(file, &format!("{doing}: {error}"))
    }

    pub(super) fn problem(&self, file: &str, problem: &str) -> NodeError {
        NodeError::State { path: self.path.join(file), problem: problem.to_owned() }
    }
}

/// Puts checkpoints into a directory that somebody else has locked.
#[derive(Clone, Debug)]
pub(super) struct Compactor {
    path: PathBuf,
    header: JournalHeader,
}

impl Compactor {
    /// Applies a journal that is complete to the checkpoint, and removes it.
    pub(super) fn compact(
        &self,
        journal: &Path,
        begin: impl FnOnce(&ModelState) -> Result<Replay, String>,
    ) -> Result<(), NodeError> {
        let path = self.path.join(CHECKPOINT);
        let failed = |problem: String| NodeError::State { path: path.clone(), problem };
        let bytes = fs::read(&path).map_err(|error| failed(error.to_string()))?;
        let (_, state) = read_checkpoint(&bytes).map_err(|damage| failed(damage.to_string()))?;
        let mut replay = begin(&state).map_err(failed)?;
        let damaged = |problem: String| NodeError::State { path: journal.to_owned(), problem };
        let bytes = fs::read(journal).map_err(|error| damaged(error.to_string()))?;
        let (_, mut records) =
            Records::new(&bytes).map_err(|damage| damaged(damage.to_string()))?;
        while let Some(record) =
            records.next_record().map_err(|damage| damaged(damage.to_string()))?
        {
            replay.apply(&record).map_err(|error| damaged(error.to_string()))?;
        }
        self.write(&replay.state())?;
        remove(journal)
    }

    fn write(&self, state: &ModelState) -> Result<(), NodeError> {
        let (new, path) = (self.path.join("checkpoint.new"), self.path.join(CHECKPOINT));
        let mut bytes = Vec::new();
        write_checkpoint(&self.header, state, &mut bytes);
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync_directory(&self.path)
        };
        write().map_err(|error| NodeError::State {
            path: path.clone(),
            problem: format!("cannot be written: {error}; make room, or choose another state_dir"),
        })
    }
}

fn remove(path: &Path) -> Result<(), NodeError> {
    fs::remove_file(path).map_err(|error| NodeError::State {
        path: path.to_owned(),
        problem: format!("cannot be removed: {error}"),
    })
}

/// A new name is durable only when its directory is.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

const CHECKPOINT: &str = "checkpoint";
const JOURNAL: &str = "journal-";
const LOST: &str = "restore it from a copy, or remove the directory to begin anew";
