//! The form of what a server keeps on disk: records of its journal, and checkpoints of its model.
//!
//! A journal is a header that names the job, then records. Each has a head (length, CRC32C of the
//! body, CRC32C of these) and a body; all little-endian but the sum, which stays as it came. A
//! record that the end of the file cuts short was never acknowledged, and is left out. Damage
//! before the end is an error with its offset: what follows it may have been told to somebody.
//! Pure; no read panics on any content.

mod checkpoint;
mod header;

use alloc::vec::Vec;
use core::fmt;

use weft_kernel::crc32c;
use weft_wire::header::{ElementType, Outcome};
use weft_wire::{GroupId, Members, Rank};

use super::outcomes::outcome_of;
use crate::push::{OrderNumber, Version};
use crate::role::server::ModelConfig;

pub use checkpoint::{read_checkpoint, write_checkpoint};
pub use header::JournalHeader;

use header::{Fields, HEADER_BYTES, JOURNAL_MAGIC};

/// What a server must keep before it tells anybody.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record<'a> {
    /// An order number is decided.
    Decision(DecisionRecord<'a>),
    /// A worker was told VOID of a group that this server did not know.
    Forsworn {
        /// The worker.
        rank: Rank,
        /// Its life.
        life: u64,
        /// The group.
        group: GroupId,
        /// Version of the model then.
        version: Version,
    },
}

/// A decided order number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecisionRecord<'a> {
    /// The order number.
    pub order: OrderNumber,
    /// The group.
    pub group: GroupId,
    /// COMMITTED, VOID or DROPPED.
    pub outcome: Outcome,
    /// What the sum's elements are.
    pub element_type: ElementType,
    /// Its scale exponent.
    pub exponent: i8,
    /// What the sum was multiplied by.
    pub scale: f32,
    /// Version of the model afterwards.
    pub version: Version,
    /// The members that were committed; of a VOID, if any: the order number that is decided next,
    /// for a run of numbers that nobody had.
    pub members: Members,
    /// All whose updates it decides.
    pub audience: Members,
    /// Of these, the ones that were too old.
    pub old: Members,
    /// The audience's lives, u64 each, by rank.
    pub lives: Lives<'a>,
    /// The sum as it was added; empty unless committed.
    pub sum: &'a [u8],
}

/// Lives of workers, as they stand in a record or in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lives<'a> {
    /// As numbers, one per member of the audience.
    Numbers(&'a [u64]),
    /// As octets of a record.
    Octets(&'a [u8]),
}

impl Lives<'_> {
    /// The life at a position in the audience; 0 when there is none.
    #[must_use]
    pub fn get(&self, position: usize) -> u64 {
        match self {
            Self::Numbers(lives) => lives.get(position).copied().unwrap_or(0),
            Self::Octets(octets) => {
                octets.as_chunks::<8>().0.get(position).map_or(0, |life| u64::from_le_bytes(*life))
            }
        }
    }
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Damage {
    /// Where, in octets from its beginning.
    pub offset: u64,
    /// What.
    pub problem: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.problem)
    }
}

impl core::error::Error for Damage {}

/// Octets that the longest record of a job takes.
#[must_use]
pub fn record_len_max(model: &ModelConfig) -> usize {
    let sum = model.chunks() as usize * usize::from(model.elements) * 4;
    HEAD_BYTES + DECISION_BYTES + 64 * 8 + sum
}

impl Record<'_> {
    /// Appends the record to `out`. Allocates only when `out` has no room.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; HEAD_BYTES]);
        match self {
            Self::Decision(decision) => decision.write(out),
            Self::Forsworn { rank, life, group, version } => {
                out.push(KIND_FORSWORN);
                out.push(u8::try_from(rank.index()).unwrap_or(u8::MAX));
                out.extend(life.to_le_bytes());
                out.extend(group.0.to_le_bytes());
                out.extend(version.0.to_le_bytes());
            }
        }
        let body = &out[start + HEAD_BYTES..];
        let len = u32::try_from(body.len()).expect("an update is below 4 GiB");
        let body_crc = crc32c(body);
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        out[start + 4..start + 8].copy_from_slice(&body_crc.to_le_bytes());
        let head_crc = crc32c(&out[start..start + 8]);
        out[start + 8..start + HEAD_BYTES].copy_from_slice(&head_crc.to_le_bytes());
    }

    fn read(body: &[u8]) -> Option<Record<'_>> {
        let (kind, body) = body.split_first()?;
        let mut fields = Fields { bytes: body };
        match *kind {
            KIND_DECISION => DecisionRecord::read(&mut fields).map(Record::Decision),
            KIND_FORSWORN => Some(Record::Forsworn {
                rank: Rank::new(fields.byte()?)?,
                life: fields.u64()?,
                group: GroupId(u32::from_le_bytes(fields.take()?)),
                version: Version(fields.u64()?),
            }),
            _ => None,
        }
    }
}

impl<'a> DecisionRecord<'a> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend([
            KIND_DECISION,
            self.outcome as u8,
            self.element_type as u8,
            self.exponent.to_le_bytes()[0],
        ]);
        out.extend(self.scale.to_bits().to_le_bytes());
        out.extend(self.order.0.to_le_bytes());
        out.extend(self.group.0.to_le_bytes());
        out.extend(self.version.0.to_le_bytes());
        for mask in [self.members, self.audience, self.old] {
            out.extend(mask.0.to_le_bytes());
        }
        for position in 0..self.audience.len() {
            out.extend(self.lives.get(position).to_le_bytes());
        }
        out.extend(self.sum);
    }

    /// What became of this member's update.
    #[must_use]
    pub fn outcome_of(&self, rank: Rank) -> Outcome {
        outcome_of(rank, self.members, self.old)
    }

    fn read(fields: &mut Fields<'a>) -> Option<Self> {
        let outcome = outcome(fields.byte()?)?;
        let element_type = match fields.byte()? {
            0 => ElementType::None,
            1 => ElementType::I32,
            2 => ElementType::F32,
            _ => return None,
        };
        let exponent = i8::from_le_bytes(fields.take()?);
        let scale = f32::from_bits(u32::from_le_bytes(fields.take()?));
        let order = OrderNumber(fields.u64()?);
        let group = GroupId(u32::from_le_bytes(fields.take()?));
        let version = Version(fields.u64()?);
        let (members, audience) = (Members(fields.u64()?), Members(fields.u64()?));
        let old = Members(fields.u64()?);
        let (lives, sum) = fields.bytes.split_at_checked(audience.len() * 8)?;
        let lives = Lives::Octets(lives);
        Some(Self {
            order,
            group,
            outcome,
            element_type,
            exponent,
            scale,
            version,
            members,
            audience,
            old,
            lives,
            sum,
        })
    }
}

/// The records of a journal, in their sequence.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    is_cut: bool,
}

impl<'a> Records<'a> {
    /// Reads a journal's header; its records follow.
    ///
    /// # Errors
    /// [`Damage`]. A header that is cut short is that of a journal that was never used: check for
    /// [`Records::is_unused`] before.
    pub fn new(bytes: &'a [u8]) -> Result<(JournalHeader, Self), Damage> {
        let header = JournalHeader::read(JOURNAL_MAGIC, bytes)?;
        Ok((header, Self { bytes, at: HEADER_BYTES, is_cut: false }))
    }

    /// True for a file that its writer had not yet begun when it died.
    #[must_use]
    pub fn is_unused(bytes: &[u8]) -> bool {
        bytes.len() < HEADER_BYTES
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// [`Damage`] before the end of the file.
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>, Damage> {
        let rest = &self.bytes[self.at..];
        let damage = |problem| Damage { offset: self.at as u64, problem };
        let Some((head, body)) = rest.split_at_checked(HEAD_BYTES) else {
            self.is_cut = !rest.is_empty();
            return Ok(None);
        };
        let mut fields = Fields { bytes: head };
        let words = [fields.take(), fields.take(), fields.take()];
        let [len, body_crc, head_crc] = words.map(|word| word.map_or(0, u32::from_le_bytes));
        if head_crc != crc32c(&head[..8]) {
            // A file system may grow a file before it has written what belongs there.
            if rest.iter().all(|byte| *byte == 0) {
                self.is_cut = true;
                return Ok(None);
            }
            return Err(damage("the head of a record is damaged"));
        }
        let Some(body) = body.get(..len as usize) else {
            self.is_cut = true;
            return Ok(None);
        };
        let end = self.at + HEAD_BYTES + body.len();
        if body_crc != crc32c(body) {
            if end == self.bytes.len() {
                self.is_cut = true;
                return Ok(None);
            }
            return Err(damage("a record is damaged, and others follow it"));
        }
        let record = Record::read(body).ok_or_else(|| damage("a record has no such form"))?;
        self.at = end;
        Ok(Some(record))
    }

    /// Where the records end that are whole.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.at as u64
    }

    /// True when the end of the file cut a record short.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

fn outcome(code: u8) -> Option<Outcome> {
    [Outcome::Committed, Outcome::Void, Outcome::Dropped]
        .into_iter()
        .find(|outcome| *outcome as u8 == code)
}

/// Octets of a record's head.
const HEAD_BYTES: usize = 12;
/// Octets of a decision before lives and sum.
const DECISION_BYTES: usize = 52;
const KIND_DECISION: u8 = 1;
const KIND_FORSWORN: u8 = 2;
