//! A table's checkpoint in a folder that all its processes see: two parts of each process for every
//! round, and which round is whole (docs/checkpoint.md). Puts them on the disk and takes them from
//! there.
//!
//! Invariants: a part is there whole, or not at all; of a round that lacks the part of anybody who
//! lived then, nothing is used; parts of a whole round are removed only when a later one is whole.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use weft_engine::role::keys::TableConfig;
use weft_wire::Members;

use super::part::{HEADER_BYTES, KeptRow, Part, Phase};
use crate::checkpoint::CheckpointError;
use crate::checkpoint::file::{open, read_bytes, write_bytes};

/// Why there is no checkpoint of a table.
#[derive(thiserror::Error)]
pub enum TableFileError {
    /// A part could not be written; what was whole before is still there.
    #[error("cannot write `{path}`; give the table a folder that this user may write: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Error,
    },
    /// A part, or the folder, could not be read.
    #[error("cannot read `{path}`: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: Error,
    },
    /// A part of the newest whole round was read, and is not what is wanted.
    #[error("the checkpoint `{path}` is refused: {source}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        source: CheckpointError,
    },
    /// No round is whole.
    #[error("`{folder}` has no whole checkpoint of this table: keep one, with all processes")]
    None {
        /// The folder.
        folder: PathBuf,
    },
}

/// The folder, for one table.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    folder: PathBuf,
    table: TableConfig,
    run: u64,
}

/// A whole round: its rows by key, each as it was seen last.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Round {
    pub(super) number: u64,
    pub(super) rows: BTreeMap<u64, KeptRow>,
}

impl Parts {
    /// Of this run of the table.
    pub(super) fn new(folder: &Path, table: TableConfig, run: u64) -> Self {
        Self { folder: folder.to_owned(), table, run }
    }

    pub(super) fn run(&self) -> u64 {
        self.run
    }

    /// Writes a part.
    pub(super) fn write(&self, part: &Part) -> Result<(), TableFileError> {
        let path = self.path(part.round, part.process, part.phase);
        let failed = |source| TableFileError::Write { path: path.clone(), source };
        std::fs::create_dir_all(&self.folder).map_err(failed)?;
        write_bytes(&path, &part.encode()).map_err(failed)
    }

    /// Whether all of these have written their part of a phase, in this run.
    pub(super) fn has_all(&self, round: u64, phase: Phase, processes: Members) -> bool {
        let is_there = |process| run_of(&self.path(round, process, phase)) == Some(self.run);
        members(processes).all(is_there)
    }

    /// Removes what this process has of rounds before one that is whole. What cannot be removed
    /// only takes room.
    pub(super) fn forget_before(&self, round: u64, process: u8) {
        for old in self.rounds().unwrap_or_default().range(..round) {
            for phase in [Phase::Swept, Phase::Came] {
                let _ = std::fs::remove_file(self.path(*old, process, phase));
            }
        }
    }

    /// Reads the newest round that is whole.
    pub(super) fn newest(&self) -> Result<Round, TableFileError> {
        for round in self.rounds()?.into_iter().rev() {
            if let Some(round) = self.read(round)? {
                return Ok(round);
            }
        }
        Err(TableFileError::None { folder: self.folder.clone() })
    }

    /// Reads a round; nothing if it is not whole.
    fn read(&self, number: u64) -> Result<Option<Round>, TableFileError> {
        let first = (0..64).find(|process| self.path(number, *process, Phase::Swept).exists());
        let Some(first) = first else { return Ok(None) };
        let Part { living, run, .. } = self.read_part(number, first, Phase::Swept)?;
        let is_there = |process, phase| self.path(number, process, phase).exists();
        let is_whole = |phase| members(living).all(|process| is_there(process, phase));
        if !is_whole(Phase::Swept) || !is_whole(Phase::Came) {
            return Ok(None);
        }
        let mut rows: BTreeMap<u64, (Phase, KeptRow)> = BTreeMap::new();
        for process in members(living) {
            for phase in [Phase::Came, Phase::Swept] {
                let part = self.read_part(number, process, phase)?;
                // One that was left by an earlier life or run, at the same number.
                if (part.living, part.run) != (living, run) {
                    return Ok(None);
                }
                for row in part.rows {
                    // The later of two, and of one stay the row itself, as it was seen last.
                    let age = |phase: Phase, row: &KeptRow| (row.epoch, !row.is_copy, phase);
                    let known = rows.get(&row.key);
                    if known.is_none_or(|(of, known)| age(*of, known) < age(phase, &row)) {
                        rows.insert(row.key, (phase, row));
                    }
                }
            }
        }
        let rows = rows.into_iter().map(|(key, (_, row))| (key, row)).collect();
        Ok(Some(Round { number, rows }))
    }

    /// Reads the part that is to be in a file of this name.
    fn read_part(&self, round: u64, process: u8, phase: Phase) -> Result<Part, TableFileError> {
        let path = self.path(round, process, phase);
        let bytes = read_bytes(&path)
            .map_err(|source| TableFileError::Read { path: path.clone(), source })?;
        let mut part = Part::decode(&bytes, &self.table)
            .and_then(|part| match (part.round, part.process, part.phase) {
                own if own == (round, process, phase) => Ok(part),
                _ => Err(CheckpointError::Number("round, process or phase, for this name,")),
            })
            .map_err(|source| TableFileError::Refused { path, source })?;
        if part.run != self.run {
            part.rows.iter_mut().for_each(|row| row.lasts.clear());
        }
        Ok(part)
    }

    /// Rounds of which there is anything.
    fn rounds(&self) -> Result<BTreeSet<u64>, TableFileError> {
        let failed = |source| TableFileError::Read { path: self.folder.clone(), source };
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(source) => return Err(failed(source)),
        };
        let prefix = self.prefix();
        let number = |name: &OsStr| {
            let rest = name.to_str()?.strip_prefix(&prefix)?;
            rest.split('.').next()?.parse::<u64>().ok()
        };
        let mut rounds = BTreeSet::new();
        for entry in entries {
            rounds.extend(number(&entry.map_err(failed)?.file_name()));
        }
        Ok(rounds)
    }

    fn prefix(&self) -> String {
        format!("job{}-table{}.", self.table.job.0, self.table.table)
    }

    fn path(&self, round: u64, process: u8, phase: Phase) -> PathBuf {
        let word = match phase {
            Phase::Came => "came",
            Phase::Swept => "swept",
        };
        self.folder.join(format!("{}{round}.p{process}.{word}", self.prefix()))
    }
}

/// Of which run the part in a file is; `None` where there is none.
fn run_of(path: &Path) -> Option<u64> {
    let mut head = [0; HEADER_BYTES];
    open(path).ok()?.read_exact(&mut head).ok()?;
    Some(Part::run_of(&head))
}

fn members(members: Members) -> impl Iterator<Item = u8> {
    (0..64).filter(move |process| members.contains(Members(1 << process)))
}

#[cfg(test)]
mod tests {
    use weft_wire::JobId;
    use weft_wire::keys::{Number, RowEpoch};

    use super::*;

    const TABLE: TableConfig = TableConfig {
        job: JobId(1),
        table: 2,
        row_len: 1,
        first_key: 0,
        key_count: 10,
        processes: 2,
        payload_max: 1472,
        in_flight: 1,
    };

    fn row(key: u64, moves: u64, is_copy: bool, value: f32) -> KeptRow {
        let epoch = RowEpoch(RowEpoch::born(1).0 + moves);
        KeptRow { key, epoch, is_copy, lasts: vec![Number::NONE; 2], value: vec![value] }
    }

    fn write(parts: &Parts, round: u64, process: u8, phase: Phase, rows: Vec<KeptRow>) {
        let living = Members(0b11);
        let part = Part { table: TABLE, round, phase, process, run: 7, living, rows };
        parts.write(&part).unwrap();
    }

    fn values(parts: &Parts) -> (u64, Vec<f32>) {
        let round = parts.newest().unwrap();
        (round.number, round.rows.values().map(|row| row.value[0]).collect())
    }

    #[test]
    fn the_newest_whole_round_counts_with_each_row_as_it_was_seen_last() {
        let folder = tempfile();
        let parts = Parts::new(&folder, TABLE, 7);
        assert!(matches!(parts.newest(), Err(TableFileError::None { .. })));
        write(&parts, 9, 0, Phase::Swept, vec![row(0, 0, false, 1.0), row(1, 1, true, 2.0)]);
        write(&parts, 9, 1, Phase::Swept, vec![row(1, 1, false, 3.0), row(2, 0, false, 4.0)]);
        write(&parts, 9, 0, Phase::Came, vec![row(2, 1, false, 5.0)]);
        assert!(matches!(parts.newest(), Err(TableFileError::None { .. })), "one part is missing");
        // The row of key 1 came in that time and was seen again: as it was seen last.
        write(&parts, 9, 1, Phase::Came, vec![row(1, 1, false, 2.5)]);
        assert_eq!(values(&parts), (9, vec![1.0, 3.0, 5.0]));
        write(&parts, 10, 0, Phase::Swept, vec![row(0, 0, false, 8.0)]);
        write(&parts, 10, 0, Phase::Came, Vec::new());
        write(&parts, 10, 1, Phase::Swept, Vec::new());
        assert_eq!(values(&parts).0, 9, "round 10 is not whole");
        write(&parts, 10, 1, Phase::Came, Vec::new());
        parts.forget_before(10, 0);
        assert!(!parts.path(9, 0, Phase::Swept).exists(), "it is of no use any more");
        let of_other_run = Parts::new(&folder, TABLE, 8).newest().unwrap();
        assert!(of_other_run.rows.values().all(|row| row.lasts.is_empty()), "numbers of old");
        assert!(parts.newest().unwrap().rows.values().all(|row| row.lasts.len() == 2));
        assert_eq!(values(&parts), (10, vec![8.0]));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_damaged_part_of_the_newest_round_is_refused_by_its_name() {
        let folder = tempfile();
        let parts = Parts::new(&folder, TABLE, 7);
        for process in [0, 1] {
            write(&parts, 1, process, Phase::Swept, vec![row(process.into(), 0, false, 1.0)]);
            write(&parts, 1, process, Phase::Came, Vec::new());
        }
        let path = parts.path(1, 1, Phase::Swept);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        let error = parts.newest().unwrap_err().to_string();
        assert!(error.contains("job1-table2.1.p1.swept") && error.contains("torn"), "{error}");
        let other = Parts::new(&folder, TableConfig { row_len: 2, ..TABLE }, 7);
        let error = other.newest().unwrap_err().to_string();
        assert!(error.contains("row length is 1, and 2 is wanted"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// As a copy of files under other names, or a run that begins at round 1 again, makes them.
    #[test]
    fn parts_of_another_name_or_run_or_no_file_are_no_part_of_a_round() {
        let folder = tempfile();
        let parts = Parts::new(&folder, TABLE, 7);
        let whole = |parts: &Parts| {
            for process in [0, 1] {
                write(parts, 1, process, Phase::Swept, vec![row(process.into(), 0, false, 1.0)]);
                write(parts, 1, process, Phase::Came, Vec::new());
            }
        };
        whole(&parts);
        let path = |process, phase| parts.path(1, process, phase);
        for (from, to) in [
            (path(0, Phase::Swept), path(1, Phase::Swept)),
            (path(1, Phase::Came), path(1, Phase::Swept)),
            (path(1, Phase::Swept), parts.path(2, 1, Phase::Swept)),
        ] {
            std::fs::copy(from, &to).unwrap();
            let error = parts.newest().unwrap_err().to_string();
            assert!(error.contains("for this name"), "{error}");
            std::fs::remove_file(to).unwrap();
            whole(&parts);
        }
        let later = Parts::new(&folder, TABLE, 8);
        assert!(parts.has_all(1, Phase::Came, Members(0b11)));
        assert!(!later.has_all(1, Phase::Came, Members(0b11)), "they are of the run before");
        let part = |phase| Part {
            table: TABLE,
            round: 1,
            phase,
            process: 0,
            run: 8,
            living: Members(0b11),
            rows: Vec::new(),
        };
        later.write(&part(Phase::Swept)).unwrap();
        assert!(matches!(later.newest(), Err(TableFileError::None { .. })), "of two runs");
        whole(&parts);
        std::fs::remove_file(path(1, Phase::Swept)).unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(path(1, Phase::Swept)).status();
        assert!(fifo.unwrap().success());
        let (done, is_done) = std::sync::mpsc::channel();
        let reading = std::thread::spawn(move || {
            let has_all = parts.has_all(1, Phase::Swept, Members(0b11));
            done.send((has_all, parts.newest().unwrap_err().to_string())).unwrap();
        });
        let waited = is_done.recv_timeout(std::time::Duration::from_secs(20));
        let (has_all, error) = waited.expect("it waits for a writer");
        assert!(!has_all && error.contains("no regular file"), "{error}");
        reading.join().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn tempfile() -> PathBuf {
        let of_test = std::thread::current().name().unwrap_or_default().replace("::", "-");
        std::env::temp_dir().join(format!("weft-{}-{of_test}", std::process::id()))
    }
}
