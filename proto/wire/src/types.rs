//! Newtypes shared by every crate. Each is a plain number on the wire; the type says which one.

use core::fmt;

#[cfg(test)]
mod tests;

/// A point in time, or a span, in nanoseconds. The origin is the caller's: engines only compare
/// and subtract. Decision code never reads a clock (DESIGN I10).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The latest representable time; "no deadline".
    pub const MAX: Self = Self(u64::MAX);

    /// Builds a span from milliseconds, stopping at [`Nanos::MAX`].
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Builds a span from microseconds, stopping at [`Nanos::MAX`].
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// Adds a span, stopping at [`Nanos::MAX`].
    #[must_use]
    pub const fn saturating_add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Span from `earlier` to `self`, zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// ff:ff:ff:ff:ff:ff
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// 06:57:45:46:54:00, locally administered: the source of frames that come through memory which
    /// two processes share (SPEC#handshake). Nothing on the way can change a bit of them.
    pub const MEMORY: Self = Self([0x06, b'W', b'E', b'F', b'T', 0]);
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error of [`MacAddr`]'s `FromStr`: the text is not six hex octets separated by colons.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MacAddrError;

impl fmt::Display for MacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected an Ethernet address such as 02:00:00:00:00:01")
    }
}

impl core::error::Error for MacAddrError {}

impl core::str::FromStr for MacAddr {
    type Err = MacAddrError;

    fn from_str(text: &str) -> Result<Self, MacAddrError> {
        let mut octets = [0u8; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            // from_str_radix alone would take a sign.
            let two_digits = |p: &&str| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit());
            let part = parts.next().filter(two_digits).ok_or(MacAddrError)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| MacAddrError)?;
        }
        if parts.next().is_some() { Err(MacAddrError) } else { Ok(Self(octets)) }
    }
}

/// Index of a job in the aggregator's table. Never learnt from the network alone: a frame that
/// names an unknown job is dropped.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct JobId(pub u16);

/// A group: row index in the high 16 bits, generation in the low 16, compared whole
/// (PROTOCOL section 6). The generation grows with every formation of the group.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GroupId(pub u32);

impl GroupId {
    /// Puts a row index and a generation together.
    #[must_use]
    pub const fn new(row: u16, generation: u16) -> Self {
        Self(((row as u32) << 16) | generation as u32)
    }

    /// The row of the group table.
    #[must_use]
    pub const fn row(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// How many times the row has been formed, modulo 2^16.
    #[must_use]
    pub const fn generation(self) -> u16 {
        (self.0 & 0xffff) as u16
    }
}

/// Index of a chunk within its group. It runs on over the rounds of an allreduce.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ChunkIndex(pub u32);

/// Position of a member in its group's member list, 0 to 63.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u8", into = "u8"))]
pub struct Rank(u8);

impl Rank {
    /// Builds a rank; `None` at [`MEMBERS_MAX`] and above.
    #[must_use]
    pub const fn new(rank: u8) -> Option<Self> {
        if (rank as usize) < MEMBERS_MAX { Some(Self(rank)) } else { None }
    }

    /// The rank as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The rank as a number, below [`MEMBERS_MAX`].
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The set that holds this rank alone.
    #[must_use]
    pub const fn bit(self) -> Members {
        Members(1 << self.0)
    }
}

#[cfg(feature = "serde")]
impl From<Rank> for u8 {
    fn from(rank: Rank) -> Self {
        rank.0
    }
}

#[cfg(feature = "serde")]
impl TryFrom<u8> for Rank {
    type Error = &'static str;

    fn try_from(rank: u8) -> Result<Self, Self::Error> {
        Self::new(rank).ok_or("a rank is 0 to 63")
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A set of ranks. A contribution carries exactly its own bit, a sum all its contributors
/// (PROTOCOL section 8).
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct Members(pub u64);

impl Members {
    /// No member.
    pub const EMPTY: Self = Self(0);

    /// Ranks 0 to `count - 1`. `count` above 64 gives all 64.
    #[must_use]
    pub const fn first(count: usize) -> Self {
        if count >= MEMBERS_MAX { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// The one rank of a singleton set, else `None`.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a u64 has at most 64 trailing zeros")]
    pub const fn single(self) -> Option<Rank> {
        if self.0.is_power_of_two() { Some(Rank(self.0.trailing_zeros() as u8)) } else { None }
    }

    /// How many ranks the set holds.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True for the empty set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True when every rank of `other` is in `self`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Ranks in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Ranks in `self` that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The ranks in increasing order.
    pub fn iter(self) -> impl Iterator<Item = Rank> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let rank = Self(rest & rest.wrapping_neg()).single()?;
            rest &= rest - 1;
            Some(rank)
        })
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Counts the formations of a lease at a box. A restarted box starts from a random value, so it
/// cannot look like its former self (PROTOCOL section 6).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Epoch(pub u32);

/// Random word that proves membership of one epoch and one life. The top 8 bits are the low bits
/// of the epoch, so that a stale frame and a foreign one count apart (PROTOCOL section 6).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Cookie(pub u32);

impl Cookie {
    /// Puts an epoch's low 8 bits above 24 random bits.
    #[must_use]
    pub const fn new(epoch: Epoch, random: u32) -> Self {
        Self((epoch.0 << 24) | (random & 0x00ff_ffff))
    }

    /// True when the cookie was made in an epoch with the same low 8 bits.
    #[must_use]
    pub const fn is_of(self, epoch: Epoch) -> bool {
        self.0 >> 24 == epoch.0 & 0xff
    }
}

/// Most members of one group at one aggregator: the width of the bitmap.
pub const MEMBERS_MAX: usize = 64;
