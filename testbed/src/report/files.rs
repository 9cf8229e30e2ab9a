//! Writes and reads a run directory: `run.json`, `rounds.csv`, `transfers.csv`, `events.jsonl`; of
//! a run that pushes also `updates.csv`, `commits.csv` and `replica.csv`.
//!
//! Invariants: `run.json` is there from the start and is replaced as a whole, so a directory whose
//! run crashed still says what was run; no run overwrites another.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::columns::{
    COMMITS, CommitRow, EVENTS, EventRow, REPLICA, ROUNDS, ReplicaRow, RoundRow, TRANSFERS,
    TransferRow, UPDATES, UpdateRow,
};
use super::record::Record;
use super::{RunOutcome, RunRecord};

/// A run directory that is being written.
#[derive(Debug)]
pub struct RunWriter {
    directory: PathBuf,
    record: RunRecord,
    rounds: csv::Writer<File>,
    transfers: csv::Writer<File>,
    events: BufWriter<File>,
}

impl RunWriter {
    /// Creates `directory` and its files.
    ///
    /// # Errors
    /// When a run is there already, or a file cannot be written.
    pub fn create(directory: &Path, record: RunRecord) -> Result<Self, FilesError> {
        record.create(directory, RECORD)?;
        let create = |name: &str| {
            let path = directory.join(name);
            File::create(&path).map_err(|e| FilesError::io(&path, e))
        };
        Ok(Self {
            rounds: csv::Writer::from_writer(create(ROUNDS)?),
            transfers: csv::Writer::from_writer(create(TRANSFERS)?),
            events: BufWriter::new(create(EVENTS)?),
            directory: directory.to_owned(),
            record,
        })
    }

    /// Where the run is written.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Adds a round.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn round(&mut self, row: &RoundRow) -> Result<(), FilesError> {
        self.rounds.serialize(row).map_err(|e| FilesError::csv(&self.directory.join(ROUNDS), e))
    }

    /// Adds a worker's part in a round.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn transfer(&mut self, row: &TransferRow) -> Result<(), FilesError> {
        let path = || self.directory.join(TRANSFERS);
        self.transfers.serialize(row).map_err(|e| FilesError::csv(&path(), e))
    }

    /// Writes the tables of a run that pushes.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn push_tables(
        &self,
        updates: &[UpdateRow],
        commits: &[CommitRow],
        replica: &[ReplicaRow],
    ) -> Result<(), FilesError> {
        write_csv(&self.directory.join(UPDATES), updates)?;
        write_csv(&self.directory.join(COMMITS), commits)?;
        write_csv(&self.directory.join(REPLICA), replica)
    }

    /// Adds an event.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn event(&mut self, row: &EventRow) -> Result<(), FilesError> {
        let path = self.directory.join(EVENTS);
        let line = serde_json::to_string(row).map_err(|e| FilesError::json(&path, 0, e))?;
        writeln!(self.events, "{line}").map_err(|e| FilesError::io(&path, e))
    }

    /// Writes the outcome and closes the directory.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn finish(mut self, outcome: RunOutcome) -> Result<(), FilesError> {
        let failed = |name: &str| {
            let path = self.directory.join(name);
            move |error| FilesError::Io { path, reason: error }
        };
        self.rounds.flush().map_err(failed(ROUNDS))?;
        self.transfers.flush().map_err(failed(TRANSFERS))?;
        self.events.flush().map_err(failed(EVENTS))?;
        self.record.outcome = Some(outcome);
        self.write_record()
    }

    fn write_record(&self) -> Result<(), FilesError> {
        write_json(&self.directory.join(RECORD), &self.record)
    }
}

impl<O: Serialize> Record<O> {
    /// Makes the directory, with this record as its first file. One that is there must be empty:
    /// a run overwrites nothing.
    ///
    /// # Errors
    /// When something is there already, or the file cannot be written.
    pub fn create(&self, directory: &Path, file: &str) -> Result<(), FilesError> {
        match fs::read_dir(directory).map(|mut entries| entries.next().is_some()) {
            Ok(true) => return Err(FilesError::Exists { directory: directory.to_owned() }),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FilesError::io(directory, error));
            }
            Ok(false) | Err(_) => {}
        }
        fs::create_dir_all(directory).map_err(|e| FilesError::io(directory, e))?;
        self.write(directory, file)
    }

    /// Writes it anew: who reads meanwhile reads this one or the one before.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, directory: &Path, file: &str) -> Result<(), FilesError> {
        write_json(&directory.join(file), self)
    }
}

/// A run directory that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFiles {
    /// `run.json`.
    pub record: RunRecord,
    /// `rounds.csv`.
    pub rounds: Vec<RoundRow>,
    /// `transfers.csv`.
    pub transfers: Vec<TransferRow>,
    /// `events.jsonl`.
    pub events: Vec<EventRow>,
    /// `updates.csv`; empty when nothing was pushed.
    pub updates: Vec<UpdateRow>,
    /// `commits.csv`; empty when nothing was pushed.
    pub commits: Vec<CommitRow>,
    /// `replica.csv`; empty without a replica.
    pub replica: Vec<ReplicaRow>,
}

impl RunFiles {
    /// Reads a run directory.
    ///
    /// # Errors
    /// Names the file, and the line where its content is at fault.
    pub fn read(directory: &Path) -> Result<Self, FilesError> {
        let path = directory.join(RECORD);
        let text = fs::read_to_string(&path).map_err(|e| FilesError::io(&path, e))?;
        let record =
            serde_json::from_str(&text).map_err(|e| FilesError::json(&path, e.line(), e))?;
        Ok(Self {
            record,
            rounds: read_csv(&directory.join(ROUNDS))?,
            transfers: read_csv(&directory.join(TRANSFERS))?,
            events: read_events(&directory.join(EVENTS))?,
            updates: read_csv_if_there(&directory.join(UPDATES))?,
            commits: read_csv_if_there(&directory.join(COMMITS))?,
            replica: read_csv_if_there(&directory.join(REPLICA))?,
        })
    }
}

fn read_csv<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, FilesError> {
    let file = File::open(path).map_err(|e| FilesError::io(path, e))?;
    let reader = csv::Reader::from_reader(BufReader::new(file));
    reader.into_deserialize().collect::<Result<_, _>>().map_err(|e| FilesError::csv(path, e))
}

fn read_csv_if_there<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, FilesError> {
    if path.exists() { read_csv(path) } else { Ok(Vec::new()) }
}

fn write_csv<T: Serialize>(path: &Path, rows: &[T]) -> Result<(), FilesError> {
    let mut writer = csv::Writer::from_path(path).map_err(|e| FilesError::csv(path, e))?;
    for row in rows {
        writer.serialize(row).map_err(|e| FilesError::csv(path, e))?;
    }
    writer.flush().map_err(|e| FilesError::io(path, e))
}

fn read_events(path: &Path) -> Result<Vec<EventRow>, FilesError> {
    let file = File::open(path).map_err(|e| FilesError::io(path, e))?;
    let mut events = Vec::new();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|e| FilesError::io(path, e))?;
        let event =
            serde_json::from_str(&line).map_err(|e| FilesError::json(path, index + 1, e))?;
        events.push(event);
    }
    Ok(events)
}

/// Replaces a file as a whole.
fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), FilesError> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| FilesError::json(path, 0, e))?;
    text.push('\n');
    let temporary = path.with_extension("json.tmp");
    fs::write(&temporary, text).map_err(|e| FilesError::io(&temporary, e))?;
    fs::rename(&temporary, path).map_err(|e| FilesError::io(path, e))
}

/// What is wrong with a run directory.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// Something is there already.
    #[error("{} is there already and not empty; pass another --out", directory.display())]
    Exists {
        /// Where.
        directory: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{}: {reason}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// A table has a wrong row.
    #[error("{}: {reason}", path.display())]
    Csv {
        /// Which.
        path: PathBuf,
        /// Why, with the line.
        reason: csv::Error,
    },
    /// JSON does not hold what it should.
    #[error("{}:{line}: {reason}", path.display())]
    Json {
        /// Which.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why.
        reason: serde_json::Error,
    },
}

impl FilesError {
    fn io(path: &Path, reason: io::Error) -> Self {
        Self::Io { path: path.to_owned(), reason }
    }

    fn csv(path: &Path, reason: csv::Error) -> Self {
        Self::Csv { path: path.to_owned(), reason }
    }

    fn json(path: &Path, line: usize, reason: serde_json::Error) -> Self {
        Self::Json { path: path.to_owned(), line, reason }
    }
}

const RECORD: &str = "run.json";
