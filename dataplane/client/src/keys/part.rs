//! Part of a table's checkpoint, as bytes (docs/checkpoint.md): rows as one process saw them. Pure;
//! `parts.rs` puts parts on a disk.
//!
//! Invariants: what is read back is bit for bit what was written, or it is refused with the one
//! reason; no bytes make it panic, or allocate beyond their own length.

use std::array;

use weft_engine::role::keys::{IN_FLIGHT_MAX, PROCESSES_MAX, TableConfig};
use weft_kernel::crc32c;
use weft_wire::Members;
use weft_wire::keys::{Number, RowEpoch};

use crate::checkpoint::CheckpointError;

/// What a process saw of its table in one phase of a round.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) table: TableConfig,
    pub(super) round: u64,
    pub(super) phase: Phase,
    pub(super) process: u8,
    /// Which run of the table: last numbers mean nothing in another.
    pub(super) run: u64,
    /// Who lived then: the round is whole with parts of all of these.
    pub(super) living: Members,
    pub(super) rows: Vec<KeptRow>,
}

/// When rows were seen.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Phase {
    /// After the process had gone through all keys, until all processes had.
    Came,
    /// While it went through all keys.
    Swept,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeptRow {
    pub(super) key: u64,
    pub(super) epoch: RowEpoch,
    /// A copy of a row that was on its way to another process.
    pub(super) is_copy: bool,
    /// Per process and lane the last number that it was applied for.
    pub(super) lasts: Vec<Number>,
    pub(super) value: Vec<f32>,
}

impl Part {
    /// Its bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let TableConfig { row_len, first_key, key_count, processes, in_flight, .. } = self.table;
        let lasts_len = self.table.lasts_per_row();
        let mut out = Vec::with_capacity(
            HEADER_BYTES + self.rows.len() * row_bytes(row_len, lasts_len) + CRC_BYTES,
        );
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(row_len.to_le_bytes());
        // Of one access in flight nothing is said.
        let lanes = if in_flight > 1 { in_flight } else { 0 };
        out.extend([processes, self.process, self.phase as u8, lanes]);
        out.extend(key_count.to_le_bytes());
        out.extend([0; 4]);
        out.extend(first_key.to_le_bytes());
        out.extend(self.round.to_le_bytes());
        out.extend(self.living.0.to_le_bytes());
        out.extend((self.rows.len() as u64).to_le_bytes());
        out.extend(self.run.to_le_bytes());
        for row in &self.rows {
            out.extend(row.key.to_le_bytes());
            out.extend(row.epoch.0.to_le_bytes());
            out.extend(u64::from(row.is_copy).to_le_bytes());
            for place in 0..lasts_len {
                let last = row.lasts.get(place).copied().unwrap_or(Number::NONE);
                out.extend(last.0.to_le_bytes());
            }
            for element in 0..usize::from(row_len) {
                let value = row.value.get(element).copied().unwrap_or(0.0);
                out.extend(value.to_bits().to_le_bytes());
            }
        }
        let crc = crc32c(&out);
        out.extend(crc.to_le_bytes());
        out
    }

    /// Of which run the part is that begins with these octets.
    pub(super) fn run_of(head: &[u8; HEADER_BYTES]) -> u64 {
        u64_at(head, 56)
    }

    /// Reads bytes that are to be a part of a checkpoint of a table with these keys and rows. Of
    /// the table only its processes may be others.
    pub(super) fn decode(bytes: &[u8], table: &TableConfig) -> Result<Self, CheckpointError> {
        let found = bytes.len() as u64;
        let torn = |expected| CheckpointError::Torn { found, expected };
        let magic = &bytes[..bytes.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) || magic.is_empty() {
            return Err(CheckpointError::Magic);
        }
        let head: &[u8; HEADER_BYTES] =
            bytes.first_chunk().ok_or_else(|| torn((HEADER_BYTES + CRC_BYTES) as u64))?;
        let version = u16::from_le_bytes(at(head, 8));
        if version != VERSION {
            return Err(CheckpointError::Version { found: version });
        }
        let row_len = u16::from_le_bytes(at(head, 10));
        let [processes, process, phase, lanes] = at(head, 12);
        let of_writer = TableConfig { processes, in_flight: lanes.max(1), ..*table };
        let lasts_len = of_writer.lasts_per_row();
        let key_count = u32::from_le_bytes(at(head, 16));
        let [first_key, round, living, rows, run] =
            [24, 32, 40, 48, 56].map(|place| u64_at(head, place));
        let of_row = row_bytes(row_len, lasts_len) as u64;
        let expected = rows.checked_mul(of_row);
        let expected = expected.and_then(|len| len.checked_add((HEADER_BYTES + CRC_BYTES) as u64));
        let expected = expected.ok_or(CheckpointError::Number("length"))?;
        if found != expected {
            return Err(torn(expected));
        }
        let (content, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or_else(|| torn(expected))?;
        if u32::from_le_bytes(*crc) != crc32c(content) {
            return Err(CheckpointError::Checksum);
        }
        for (field, found, expected) in [
            ("row length", row_len.into(), table.row_len.into()),
            ("first key", first_key, table.first_key),
            ("number of keys", key_count.into(), u64::from(table.key_count)),
        ] {
            if found != expected {
                return Err(CheckpointError::Shape { field, found, expected });
            }
        }
        let phase = match phase {
            0 => Phase::Came,
            1 => Phase::Swept,
            _ => return Err(CheckpointError::Number("phase")),
        };
        if usize::from(processes) > PROCESSES_MAX || process >= processes {
            return Err(CheckpointError::Number("process"));
        }
        let living = Members(living);
        let all = Members::first(processes.into());
        if !living.contains(Members(1 << process)) || !all.contains(living) {
            return Err(CheckpointError::Number("list of living processes"));
        }
        if at(head, 20) != [0; 4] {
            return Err(CheckpointError::Number("unused octets"));
        }
        if lanes == 1 || lanes > IN_FLIGHT_MAX {
            return Err(CheckpointError::Number("accesses in flight"));
        }
        let table = of_writer;
        let rows = content[HEADER_BYTES..].chunks_exact(row_bytes(row_len, lasts_len).max(1));
        let rows = rows.map(|octets| KeptRow::decode(octets, &table));
        let rows = rows.collect::<Option<Vec<_>>>().ok_or(CheckpointError::Number("row"))?;
        Ok(Self { table, round, phase, process, run, living, rows })
    }
}

impl KeptRow {
    fn decode(octets: &[u8], table: &TableConfig) -> Option<Self> {
        let (words, rest) = octets.split_at_checked(8 * (3 + table.lasts_per_row()))?;
        let mut words = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let (key, epoch, flags) = (words.next()?, words.next()?, words.next()?);
        table.index(key)?;
        let is_copy = (flags <= 1).then_some(flags == 1)?;
        let elements = rest.as_chunks::<4>().0.iter();
        Some(Self {
            key,
            epoch: RowEpoch(epoch),
            is_copy,
            lasts: words.map(Number).collect(),
            value: elements.map(|bits| f32::from_bits(u32::from_le_bytes(*bits))).collect(),
        })
    }
}

fn row_bytes(row_len: u16, lasts_len: usize) -> usize {
    8 * (3 + lasts_len) + 4 * usize::from(row_len)
}

fn at<const LEN: usize>(head: &[u8; HEADER_BYTES], place: usize) -> [u8; LEN] {
    array::from_fn(|index| head[place + index])
}

fn u64_at(head: &[u8; HEADER_BYTES], place: usize) -> u64 {
    u64::from_le_bytes(at(head, place))
}

const MAGIC: [u8; 8] = *b"WEFTTAB\n";
const VERSION: u16 = 1;
pub(super) const HEADER_BYTES: usize = 64;
const CRC_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use weft_wire::JobId;

    use super::*;

    fn part() -> Part {
        let table = TableConfig {
            job: JobId(1),
            table: 0,
            row_len: 3,
            first_key: 100,
            key_count: 50,
            processes: 2,
            payload_max: 1472,
            in_flight: 1,
        };
        let row = |key, is_copy| KeptRow {
            key,
            epoch: RowEpoch::born(3).moved(),
            is_copy,
            lasts: vec![Number(7), Number::NONE],
            value: vec![0.1, -0.0, f32::MAX],
        };
        let rows = vec![row(100, false), row(149, true)];
        let living = Members(0b11);
        Part { table, round: 9, phase: Phase::Swept, process: 1, run: 77, living, rows }
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let part = part();
        assert_eq!(Part::decode(&part.encode(), &part.table), Ok(part.clone()));
        let lanes = TableConfig { in_flight: 2, ..part.table };
        let rows = part.rows.iter().cloned().map(|row| {
            let lasts = (0..4).map(Number).collect();
            KeptRow { lasts, ..row }
        });
        let several = Part { table: lanes, rows: rows.collect(), ..part.clone() };
        assert_eq!(Part::decode(&several.encode(), &lanes), Ok(several));
        let empty = Part { rows: Vec::new(), phase: Phase::Came, ..part };
        assert_eq!(Part::decode(&empty.encode(), &empty.table), Ok(empty));
    }

    #[test]
    fn a_torn_or_damaged_part_or_one_of_another_table_is_refused_by_name() {
        let Part { table, .. } = part();
        let bytes = part().encode();
        for len in 0..bytes.len() {
            let error = Part::decode(&bytes[..len], &table).unwrap_err();
            let is_named = matches!(error, CheckpointError::Torn { .. } | CheckpointError::Magic);
            assert!(is_named, "{len} bytes: {error}");
        }
        for place in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[place] ^= 4;
            assert!(Part::decode(&bytes, &table).is_err(), "byte {place}");
        }
        for (other, field) in [
            (TableConfig { row_len: 4, ..table }, "row length"),
            (TableConfig { first_key: 99, ..table }, "first key"),
            (TableConfig { key_count: 51, ..table }, "number of keys"),
        ] {
            let error = Part::decode(&bytes, &other).unwrap_err();
            let CheckpointError::Shape { field: found, .. } = error else { panic!("{error}") };
            assert_eq!(found, field);
        }
        // Whole, with a right checksum, and with numbers that cannot be.
        for (place, octet, field) in [
            (14, 2, "phase"),
            (13, 2, "process"),
            (15, 1, "accesses in flight"),
            (21, 1, "unused octets"),
            (40, 0b01, "list of living processes"),
            (40, 0b111, "list of living processes"),
            (HEADER_BYTES, 99, "row"),
            (HEADER_BYTES + 16, 2, "row"),
            (HEADER_BYTES + 23, 1, "row"),
        ] {
            let mut bytes = bytes.clone();
            bytes[place] = octet;
            let (content, crc) = bytes.split_last_chunk_mut::<CRC_BYTES>().unwrap();
            *crc = crc32c(content).to_le_bytes();
            let error = Part::decode(&bytes, &table).unwrap_err();
            assert_eq!(error, CheckpointError::Number(field), "octet {place}");
        }
        let other = TableConfig { processes: 5, ..table };
        assert!(Part::decode(&bytes, &other).is_ok(), "other processes may go on with it");
    }
}
