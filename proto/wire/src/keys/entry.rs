//! The entries of a body, read one by one.

use super::{ACCESS_LEN, CLAIM_LEN, ELEMENT_LEN, Frame, KEY_LEN, LAST_LEN, ROW_HEAD_LEN};
use super::{Number, RowEpoch, word};

const PARTS_AT: usize = KEY_LEN;
const EPOCH_AT: usize = KEY_LEN;
const WHERE_AT: usize = 16;
const LASTS_AT: usize = 16;

/// What an access does, in this sequence.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Parts(pub u8);

impl Parts {
    /// Nothing; an answer without a value.
    pub const NONE: Self = Self(0);
    /// Sets the row; a value follows.
    pub const SET: Self = Self(1);
    /// Adds to the row; a value follows.
    pub const ADD: Self = Self(2);
    /// Asks for the row. In an answer: the value follows.
    pub const PULL: Self = Self(4);
    /// Beside PULL: takes the row itself from a process that does not mean to use it.
    pub const TAKE: Self = Self(8);

    /// Every part with its name.
    pub const ALL: &'static [(Self, &'static str)] =
        &[(Self::SET, "set"), (Self::ADD, "add"), (Self::PULL, "pull"), (Self::TAKE, "take")];

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if all of `other` is in this.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Values that follow an access; `None`: it does nothing, or what nobody knows.
    #[must_use]
    pub const fn value_count(self) -> Option<usize> {
        match self.0 {
            1..=7 | 12..=15 => Some((self.0 & 1) as usize + (self.0 >> 1 & 1) as usize),
            _ => None,
        }
    }
}

/// One access, or the answer to one, as it is in a frame.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The key.
    pub key: u64,
    /// What it does; of an answer, whether it has a value.
    pub parts: Parts,
    /// The value to set.
    pub set: Option<&'a [u8]>,
    /// The value to add; of an answer, the row's.
    pub value: Option<&'a [u8]>,
    /// The whole entry.
    pub octets: &'a [u8],
}

/// Where a claim says that a row is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum At {
    /// At the sender, which holds it.
    Here,
    /// This row itself is spoken of.
    This,
    /// On its way: the sender keeps a copy of what it gave to this process.
    Process(u32),
}

impl At {
    const HERE: u32 = u32::MAX;
    const THIS: u32 = u32::MAX - 1;

    pub(super) const fn word(self) -> u32 {
        match self {
            Self::Here => Self::HERE,
            Self::This => Self::THIS,
            Self::Process(process) => process,
        }
    }
}

/// One entry of a claim, of a row's ACK, or of a word of the box on rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Claim {
    /// The key.
    pub key: u64,
    /// The row's epoch.
    pub epoch: RowEpoch,
    /// Where the row is.
    pub at: At,
}

/// A row on its way.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The key.
    pub key: u64,
    /// Its epoch.
    pub epoch: RowEpoch,
    /// Its value.
    pub value: &'a [u8],
    lasts: &'a [u8],
}

impl<'a> Row<'a> {
    /// By process the last numbers that it was applied for, one for each lane that has one.
    pub fn lasts(&self) -> impl Iterator<Item = (u32, Number)> + use<'a> {
        numbers(self.lasts)
    }
}

impl<'a> Frame<'a> {
    /// The entries of an access or an answer; of another frame none.
    pub fn accesses(&self) -> impl Iterator<Item = Access<'a>> + use<'a> {
        let is_answer = self.what == super::What::Answer;
        self.split(move |rest, value_len| {
            let parts = parts(rest)?;
            let count = match is_answer {
                true => usize::from(parts == Parts::PULL),
                false => parts.value_count()?,
            };
            let len = ACCESS_LEN + count * value_len;
            let octets = rest.get(..len)?;
            let mut values = octets[ACCESS_LEN..].chunks_exact(value_len.max(1));
            let has_set = !is_answer && parts.contains(Parts::SET);
            let set = if has_set { values.next() } else { None };
            let access =
                Access { key: word(&octets[..KEY_LEN]), parts, set, value: values.next(), octets };
            Some((access, len))
        })
    }

    /// The keys of a localize, a WAIT or a STALE.
    pub fn keys(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.split(|rest, _| Some((word(rest.get(..KEY_LEN)?), KEY_LEN)))
    }

    /// The entries of a claim, of a row's ACK, or of a word of the box on rows.
    pub fn claims(&self) -> impl Iterator<Item = Claim> + use<'a> {
        self.split(|rest, _| {
            let octets = rest.get(..CLAIM_LEN)?;
            let at = match u32::from_be_bytes(*octets[WHERE_AT..].first_chunk()?) {
                At::HERE => At::Here,
                At::THIS => At::This,
                process => At::Process(process),
            };
            let epoch = RowEpoch(word(&octets[EPOCH_AT..WHERE_AT]));
            Some((Claim { key: word(&octets[..KEY_LEN]), epoch, at }, CLAIM_LEN))
        })
    }

    /// The rows.
    pub fn rows(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        self.split(|rest, value_len| {
            let lasts_len = lasts_len(rest)?;
            let len = ROW_HEAD_LEN + lasts_len + value_len;
            let octets = rest.get(..len)?;
            let (lasts, value) = octets[ROW_HEAD_LEN..].split_at(lasts_len);
            let epoch = RowEpoch(word(&octets[EPOCH_AT..LASTS_AT]));
            Some((Row { key: word(&octets[..KEY_LEN]), epoch, value, lasts }, len))
        })
    }

    /// Per process the number below which nothing is open; of rows alone.
    pub fn floors(&self) -> impl Iterator<Item = (u32, Number)> + use<'a> {
        numbers(self.floors)
    }
}

/// The elements of a value.
pub fn values(octets: &[u8]) -> impl Iterator<Item = f32> + '_ {
    let (elements, _) = octets.as_chunks::<ELEMENT_LEN>();
    elements.iter().map(|element| f32::from_be_bytes(*element))
}

fn numbers(octets: &[u8]) -> impl Iterator<Item = (u32, Number)> + use<'_> {
    let (pairs, _) = octets.as_chunks::<LAST_LEN>();
    pairs.iter().map(|pair| {
        let process = u32::from_be_bytes([pair[0], pair[1], pair[2], pair[3]]);
        (process, Number(word(&pair[4..])))
    })
}

/// The parts of the access that `octets` begin with.
pub(super) fn parts(octets: &[u8]) -> Option<Parts> {
    octets.get(..ACCESS_LEN).map(|head| Parts(head[PARTS_AT]))
}

/// Bytes of the last numbers of the row that `octets` begin with.
pub(super) fn lasts_len(octets: &[u8]) -> Option<usize> {
    let head = octets.get(..ROW_HEAD_LEN)?;
    Some(usize::from(u16::from_be_bytes([head[LASTS_AT], head[LASTS_AT + 1]])) * LAST_LEN)
}
