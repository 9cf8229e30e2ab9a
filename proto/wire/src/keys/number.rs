//! Numbers of accesses and localizes, and epochs of rows: 16 bits of life, 48 of count.

/// The number of an access or a localize: the directory's life when it was given, then a count that
/// the process never repeats. 0 is none.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Number(pub u64);

impl Number {
    /// No number.
    pub const NONE: Self = Self(0);
    /// The highest count of a life.
    pub const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

    /// The number of this count, which is at most [`Number::COUNT_MAX`].
    #[must_use]
    pub const fn new(life: u16, count: u64) -> Self {
        Self((life as u64) << COUNT_BITS | count & Self::COUNT_MAX)
    }

    /// The directory's life when it was given.
    #[must_use]
    pub const fn life(self) -> u16 {
        (self.0 >> COUNT_BITS) as u16
    }

    /// The count.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.0 & Self::COUNT_MAX
    }

    /// True for a number.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// The epoch of a row: the life that it was born in, then its moves. 0 is none.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RowEpoch(pub u64);

impl RowEpoch {
    /// No epoch: not held.
    pub const NONE: Self = Self(0);

    /// Of a row that is born in `life`, from 1.
    #[must_use]
    pub const fn born(life: u16) -> Self {
        Self((life as u64) << COUNT_BITS)
    }

    /// The life that it was born in.
    #[must_use]
    pub const fn birth(self) -> u16 {
        (self.0 >> COUNT_BITS) as u16
    }

    /// After one more move.
    #[must_use]
    pub const fn moved(self) -> Self {
        Self(self.0 + 1)
    }

    /// True for an epoch.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// Bits of a count. At a thousand million a second they last three days; at a million, nine years.
const COUNT_BITS: u32 = 48;
