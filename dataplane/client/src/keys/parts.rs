//! A table's checkpoint in a folder that all its processes see: two parts of each process for every
//! round, and which round is whole (docs/checkpoint.md). Puts them on the disk and takes them from
//! there.
//!
//! Invariants: a part is there whole, or not at all; of a round that lacks the part of anybody who
//! lived then, nothing is used; parts of a whole round are removed only when a later one is whole.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use weft_engine::role::keys::TableConfig;
use weft_wire::Members;

use super::part::{KeptRow, Part, Phase};
use crate::checkpoint::CheckpointError;
use crate::checkpoint::file::write_bytes;

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

    /// Whether all of these have written their part of a phase.
    pub(super) fn has_all(&self, round: u64, phase: Phase, processes: Members) -> bool {
        members(processes).all(|process| self.path(round, process, phase).exists())
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
        let first = (0..64).find_map(|process| {
            let path = self.path(number, process, Phase::Swept);
            path.exists().then_some((process, path))
        });
        let Some((_, path)) = first else { return Ok(None) };
        let living = self.read_part(&path)?.living;
        let is_whole = |phase| self.has_all(number, phase, living);
        if !is_whole(Phase::Swept) || !is_whole(Phase::Came) {
            return Ok(None);
        }
        let mut rows: BTreeMap<u64, (Phase, KeptRow)> = BTreeMap::new();
        for process in members(living) {
            for phase in [Phase::Came, Phase::Swept] {
                let part = self.read_part(&self.path(number, process, phase))?;
                if part.living != living {
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

    fn read_part(&self, path: &Path) -> Result<Part, TableFileError> {
        let bytes = std::fs::read(path)
            .map_err(|source| TableFileError::Read { path: path.to_owned(), source })?;
        let mut part = Part::decode(&bytes, &self.table)
            .map_err(|source| TableFileError::Refused { path: path.to_owned(), source })?;
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

    fn tempfile() -> PathBuf {
        let of_test = std::thread::current().name().unwrap_or_default().replace("::", "-");
        std::env::temp_dir().join(format!("weft-{}-{of_test}", std::process::id()))
    }
}
