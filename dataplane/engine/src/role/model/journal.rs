//! The form of what a server keeps on disk: records of its journal, and checkpoints of its model.
//!
//! A journal is a header that names the job and the journal's number, then records. Each has a head
//! (length, CRC32C of the body, CRC32C of these) and a body; all little-endian but the sum, which
//! stays as it came. A *mark* says that the disk has all before it; the last one of a journal that
//! is finished names the next journal, and a checkpoint the journal that follows it: so what is
//! missing has a name.
//!
//! What a crash leaves of a record behind the last mark is left out, for nobody was told of it: a
//! record that the end of the file cuts short, or one with a sector that was never written. All
//! other damage is an error with its offset: somebody may have been told of what is there.
//! Pure; no read panics on any content.

mod checkpoint;
mod header;
mod mark;

use alloc::vec::Vec;
use core::fmt;

use weft_control::{OrderNumber, Version};
use weft_kernel::crc32c;
use weft_wire::header::{ElementType, Outcome};
use weft_wire::{GroupId, Members, Rank};

use super::outcomes::outcome_of;
use crate::role::model::ModelConfig;

pub use checkpoint::{Checkpoint, read_checkpoint, write_checkpoint};
pub use header::JournalHeader;
pub use mark::Mark;

use header::{Fields, Kind};

/// What a server must keep before it tells anybody.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record<'a> {
    /// An order number is decided.
    Decision(DecisionRecord<'a>),
    /// A worker was told VOID of a group that this server did not know.
    Withdrawn {
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
        write_entry(out, |out| match self {
            Self::Decision(decision) => decision.write(out),
            Self::Withdrawn { rank, life, group, version } => {
                out.push(KIND_WITHDRAWN);
                out.push(u8::try_from(rank.index()).unwrap_or(u8::MAX));
                out.extend(life.to_le_bytes());
                out.extend(group.0.to_le_bytes());
                out.extend(version.0.to_le_bytes());
            }
        });
    }

    fn read(body: &[u8]) -> Option<Record<'_>> {
        let (kind, body) = body.split_first()?;
        let mut fields = Fields { bytes: body };
        match *kind {
            KIND_DECISION => DecisionRecord::read(&mut fields).map(Record::Decision),
            KIND_WITHDRAWN => Some(Record::Withdrawn {
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

/// Appends a body with its head.
fn write_entry(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; HEAD_BYTES]);
    body(out);
    let body = &out[start + HEAD_BYTES..];
    let len = u32::try_from(body.len()).expect("an update is below 4 GiB");
    let body_crc = crc32c(body);
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&body_crc.to_le_bytes());
    let head_crc = crc32c(&out[start..start + 8]);
    out[start + 8..start + HEAD_BYTES].copy_from_slice(&head_crc.to_le_bytes());
}

/// The records of a journal, in their sequence.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    number: Option<u64>,
    end: Option<End>,
}

/// How a journal ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// With a whole record; more would have come behind it.
    Open,
    /// With what a crash left of a record that nobody was told of.
    Torn,
    /// It is finished, and the journal with this number follows.
    Finished(u64),
}

/// What stands at a place of a journal.
enum Entry<'a> {
    Record(Record<'a>),
    Mark(Mark),
}

/// Why there is nothing at a place of a journal.
struct Unread {
    problem: &'static str,
    /// Where the part ends that is wrong, behind the file's end if it is cut short; 0 if every
    /// octet is as it was written.
    end: usize,
}

impl<'a> Records<'a> {
    /// Reads a journal's header; its records follow.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn new(bytes: &'a [u8]) -> Result<(JournalHeader, Self), Damage> {
        let (header, number, at) = JournalHeader::read(Kind::Journal, bytes)?;
        Ok((header, Self { bytes, at, number, end: None }))
    }

    /// The journal's number; `None` in files of version 1, which have neither numbers nor marks.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// [`Damage`] that no crash leaves behind.
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>, Damage> {
        while self.end.is_none() {
            let (start, damage) = (self.at, |problem| Damage { offset: self.at as u64, problem });
            if start == self.bytes.len() {
                self.end = Some(End::Open);
                break;
            }
            match self.entry() {
                Ok((Entry::Record(record), end)) => {
                    self.at = end;
                    return Ok(Some(record));
                }
                Ok((Entry::Mark(mark), _)) if mark.offset != start as u64 => {
                    return Err(damage("a mark is not where it was written"));
                }
                Ok((Entry::Mark(Mark { next: Some(_), .. }), end)) if end < self.bytes.len() => {
                    return Err(damage("more follows the end of a journal that is finished"));
                }
                Ok((Entry::Mark(mark), end)) => {
                    self.at = end;
                    self.end = mark.next.map(End::Finished);
                }
                Err(unread) if self.is_torn(&unread) => self.end = Some(End::Torn),
                Err(unread) => return Err(damage(unread.problem)),
            }
        }
        Ok(None)
    }

    /// Where the records end that are whole.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.at as u64
    }

    /// How the journal ends; `None` before its end.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// What stands here, and where it ends.
    fn entry(&self) -> Result<(Entry<'a>, usize), Unread> {
        let rest = &self.bytes[self.at..];
        let unread = |problem, end| Err(Unread { problem, end });
        let past_end = self.bytes.len() + 1;
        let Some((head, body)) = rest.split_at_checked(HEAD_BYTES) else {
            return unread("a record is cut short, and others follow it", past_end);
        };
        let mut fields = Fields { bytes: head };
        let words = [fields.take(), fields.take(), fields.take()];
        let [len, body_crc, head_crc] = words.map(|word| word.map_or(0, u32::from_le_bytes));
        if head_crc != crc32c(&head[..8]) {
            return unread("the head of a record is damaged", self.at + HEAD_BYTES);
        }
        let Some(body) = body.get(..len as usize) else {
            return unread("a record is cut short, and others follow it", past_end);
        };
        let end = self.at + HEAD_BYTES + body.len();
        if body_crc != crc32c(body) {
            return unread("a record is damaged", end);
        }
        let entry = Mark::read(body).map(Entry::Mark);
        let Some(entry) = entry.or_else(|| Record::read(body).map(Entry::Record)) else {
            return unread("a record has no such form", 0);
        };
        Ok((entry, end))
    }

    /// True for what a crash may leave of a record that was never durable.
    fn is_torn(&self, unread: &Unread) -> bool {
        let is_short = unread.end > self.bytes.len();
        let is_unwritten = || {
            let first = self.at / SECTOR_BYTES * SECTOR_BYTES;
            (first..unread.end).step_by(SECTOR_BYTES).any(|sector| {
                let end = (sector + SECTOR_BYTES).min(self.bytes.len());
                self.bytes[sector.max(self.at)..end].iter().all(|byte| *byte == 0)
            })
        };
        (is_short || is_unwritten()) && !mark::follows(self.bytes, self.at + 1)
    }
}

fn outcome(code: u8) -> Option<Outcome> {
    [Outcome::Committed, Outcome::Void, Outcome::Dropped]
        .into_iter()
        .find(|outcome| *outcome as u8 == code)
}

/// Octets of a record's head.
const HEAD_BYTES: usize = 12;
/// What a disk writes whole or not at all. A file system may grow a file before it has written what
/// belongs there; until then zeros are read.
const SECTOR_BYTES: usize = 512;
/// Octets of a decision before lives and sum.
const DECISION_BYTES: usize = 52;
const KIND_DECISION: u8 = 1;
const KIND_WITHDRAWN: u8 = 2;
