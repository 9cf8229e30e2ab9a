//! The body of a datagram about keys (`proto/SPEC.md`, section "Keys"; PROTOCOL section 13).
//!
//! [`Frame::parse`] decides what a datagram is and checks that its entries fill it, so that reading
//! them cannot fail; whether a key, a process or a number means anything here is its receiver's to
//! judge. The functions of [`emit`] write entries. Invariant: what was parsed and is emitted again
//! is the same bytes, but for the fields that say zero.

use core::fmt;
use core::ops::Range;

use crate::header::{Flags, Header, Kind, Outcome};

pub mod emit;
mod entry;
mod number;
#[cfg(test)]
mod tests;

pub use entry::{Access, At, Claim, Parts, Row, values};
pub use number::{Number, RowEpoch};

mod field {
    use core::ops::Range;

    pub(super) const ROW_LEN: Range<usize> = 0..2;
    pub(super) const ENTRIES: Range<usize> = 2..4;
    pub(super) const FLOORS: Range<usize> = 4..6;
    pub(super) const HOPS: usize = 6;
    pub(super) const PEER: usize = 7;
    pub(super) const NUMBER: Range<usize> = 8..16;
    pub(super) const LOW: Range<usize> = 16..24;
}

/// Length of the head, which entries follow.
pub const HEAD_LEN: usize = field::LOW.end;

/// Every field of the head as (name, first byte, bytes).
pub const LAYOUT: &[(&str, usize, usize)] = &[
    ("row_len", field::ROW_LEN.start, 2),
    ("entries", field::ENTRIES.start, 2),
    ("floors", field::FLOORS.start, 2),
    ("hops", field::HOPS, 1),
    ("peer", field::PEER, 1),
    ("number", field::NUMBER.start, 8),
    ("low", field::LOW.start, 8),
];

/// Length of a key alone.
pub const KEY_LEN: usize = 8;
/// Length of a floor, and of a last number: process (4 bytes), number.
pub const LAST_LEN: usize = 12;
/// Length of an access or an answer without its values: key, parts, three bytes of 0.
pub const ACCESS_LEN: usize = 12;
/// Length of an entry of a claim: key, epoch, where (4 bytes).
pub const CLAIM_LEN: usize = 20;
/// Length of a row without last numbers and value: key, epoch, last numbers (2 bytes), 2 of 0.
pub const ROW_HEAD_LEN: usize = 20;
/// Length of one element of a row.
pub const ELEMENT_LEN: usize = 4;

/// What a datagram about keys is.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum What {
    /// Asks for sets, adds and values.
    Access,
    /// Answers an access: values, or just that it was done.
    Answer,
    /// Asks for rows themselves.
    Localize,
    /// Rows that move.
    Row,
    /// Rows have arrived; with what its sender has of them now.
    RowAck,
    /// What a process has of some keys; the box answers with the same.
    Claim,
    /// Not now.
    Wait,
    /// The number is of a life that the row cannot tell of, or the frame of one that is over.
    Stale,
    /// Kept copies are not needed any more.
    Void,
    /// Kept copies are the rows now.
    TakeBack,
    /// Nobody has the rows.
    Restore,
    /// Nothing, but that its sender is there.
    Beat,
}

impl What {
    /// Every meaning with its name and how the header says it, as in SPEC: kind, whether DIRECT is
    /// set, outcome.
    pub const ALL: &'static [(Self, &'static str, Kind, bool, Outcome)] = &[
        (Self::Access, "access", Kind::Contrib, false, Outcome::None),
        (Self::Answer, "answer", Kind::Answer, false, Outcome::None),
        (Self::Answer, "done", Kind::Ack, false, Outcome::None),
        (Self::Localize, "localize", Kind::Pull, false, Outcome::None),
        (Self::Row, "row", Kind::Answer, true, Outcome::None),
        (Self::RowAck, "row_ack", Kind::Ack, true, Outcome::None),
        (Self::Claim, "claim", Kind::State, false, Outcome::Have),
        (Self::Wait, "wait", Kind::State, false, Outcome::Wait),
        (Self::Stale, "stale", Kind::State, false, Outcome::Stale),
        (Self::Void, "void", Kind::State, false, Outcome::Void),
        (Self::TakeBack, "take_back", Kind::State, false, Outcome::Committed),
        (Self::Restore, "restore", Kind::State, false, Outcome::Dropped),
        (Self::Beat, "beat", Kind::Status, false, Outcome::None),
    ];

    /// What a header says; `None`: nothing about keys.
    #[must_use]
    pub fn of(header: &Header) -> Option<Self> {
        let direct = header.flags.contains(Flags::DIRECT);
        let said = (header.kind, direct, header.outcome);
        let known = Self::ALL
            .iter()
            .find(|(_, _, kind, direct, outcome)| (*kind, *direct, *outcome) == said);
        known.map(|(what, ..)| *what)
    }

    /// Kind, flags and outcome that say this.
    #[must_use]
    pub fn header_fields(self) -> (Kind, Flags, Outcome) {
        let row = Self::ALL.iter().find(|(what, ..)| *what == self);
        let &(_, _, kind, direct, outcome) = row.unwrap_or(&Self::ALL[0]);
        (kind, if direct { Flags::DIRECT } else { Flags::NONE }, outcome)
    }
}

/// Why octets are no body about keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeysError {
    /// No meaning has this kind, flag and outcome.
    What,
    /// The entries do not fill the body.
    Length,
    /// An access with parts that mean nothing.
    Parts,
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::What => "no frame about keys has this kind, flag and outcome",
            Self::Length => "body about keys longer or shorter than its entries",
            Self::Parts => "access whose parts mean nothing",
        })
    }
}

impl core::error::Error for KeysError {}

/// The head of a body.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Head {
    /// Elements of a row of the table.
    pub row_len: u16,
    /// Entries that follow.
    pub entries: u16,
    /// Floors that stand before the entries; only rows have some.
    pub floors: u16,
    /// How often it was sent on.
    pub hops: u8,
    /// A row: the taker. Its ACK: the giver. A claim: how many keys; the box's answer to one: 1,
    /// once these keys need no claim any more.
    pub peer: u8,
    /// The number of an access or a localize, and of what answers it. A claim or an ACK of a row:
    /// its count.
    pub number: Number,
    /// What its sender has open is not below this. A claim: its first key.
    pub low: u64,
}

impl Head {
    /// Reads the head.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let head = body.first_chunk::<HEAD_LEN>()?;
        let short =
            |range: Range<usize>| u16::from_be_bytes([head[range.start], head[range.end - 1]]);
        Some(Self {
            row_len: short(field::ROW_LEN),
            entries: short(field::ENTRIES),
            floors: short(field::FLOORS),
            hops: head[field::HOPS],
            peer: head[field::PEER],
            number: Number(word(&head[field::NUMBER])),
            low: word(&head[field::LOW]),
        })
    }

    /// Writes the head.
    pub fn emit(&self, head: &mut [u8; HEAD_LEN]) {
        head[field::ROW_LEN].copy_from_slice(&self.row_len.to_be_bytes());
        head[field::ENTRIES].copy_from_slice(&self.entries.to_be_bytes());
        head[field::FLOORS].copy_from_slice(&self.floors.to_be_bytes());
        head[field::HOPS] = self.hops;
        head[field::PEER] = self.peer;
        head[field::NUMBER].copy_from_slice(&self.number.0.to_be_bytes());
        head[field::LOW].copy_from_slice(&self.low.to_be_bytes());
    }
}

/// The body of a datagram about keys, all of whose entries are whole.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What it is.
    pub what: What,
    /// Its head.
    pub head: Head,
    floors: &'a [u8],
    entries: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads what follows `header`.
    ///
    /// # Errors
    /// [`KeysError`], in the order of its variants.
    pub fn parse(header: &Header, body: &'a [u8]) -> Result<Self, KeysError> {
        let what = What::of(header).ok_or(KeysError::What)?;
        let head = Head::parse(body).ok_or(KeysError::Length)?;
        if head.floors > 0 && what != What::Row {
            return Err(KeysError::Length);
        }
        let rest = &body[HEAD_LEN..];
        let (floors, entries) =
            rest.split_at_checked(usize::from(head.floors) * LAST_LEN).ok_or(KeysError::Length)?;
        let frame = Self { what, head, floors, entries };
        frame.check()?;
        Ok(frame)
    }

    fn check(&self) -> Result<(), KeysError> {
        let mut rest = self.entries;
        for _ in 0..self.head.entries {
            let len = self.entry_len(rest)?;
            rest = rest.get(len..).ok_or(KeysError::Length)?;
        }
        if rest.is_empty() { Ok(()) } else { Err(KeysError::Length) }
    }

    /// Length of the first entry of `rest`.
    fn entry_len(&self, rest: &[u8]) -> Result<usize, KeysError> {
        let value_len = usize::from(self.head.row_len) * ELEMENT_LEN;
        match self.what {
            What::Access => {
                let parts = entry::parts(rest).ok_or(KeysError::Length)?;
                let len = parts.value_count().ok_or(KeysError::Parts)? * value_len;
                Ok(ACCESS_LEN + len)
            }
            What::Answer => {
                let parts = entry::parts(rest).ok_or(KeysError::Length)?;
                match parts {
                    Parts::NONE => Ok(ACCESS_LEN),
                    Parts::PULL => Ok(ACCESS_LEN + value_len),
                    _ => Err(KeysError::Parts),
                }
            }
            What::Localize | What::Wait | What::Stale => Ok(KEY_LEN),
            What::Row => {
                let lasts = entry::lasts_len(rest).ok_or(KeysError::Length)?;
                Ok(ROW_HEAD_LEN + lasts + value_len)
            }
            What::RowAck | What::Claim | What::Void | What::TakeBack | What::Restore => {
                Ok(CLAIM_LEN)
            }
            What::Beat => Err(KeysError::Length),
        }
    }

    /// Goes through the entries: what is read of each, and how long it is.
    fn split<T, F>(&self, read: F) -> impl Iterator<Item = T> + use<'a, T, F>
    where
        F: Fn(&'a [u8], usize) -> Option<(T, usize)>,
    {
        let value_len = usize::from(self.head.row_len) * ELEMENT_LEN;
        let mut rest = self.entries;
        core::iter::from_fn(move || {
            let (item, len) = read(rest, value_len)?;
            rest = rest.get(len..)?;
            Some(item)
        })
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
