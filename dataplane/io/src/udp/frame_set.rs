//! Positions in a burst as bits: which frames are still to be sent, and which were refused.

use crate::port::BURST_MAX;

/// A set of positions in a burst.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct FrameSet(u64);

const _: () = assert!(BURST_MAX <= u64::BITS as usize);

impl FrameSet {
    pub(super) fn of<T>(items: &[T], belongs: impl Fn(&T) -> bool) -> Self {
        let bit = |(index, item): (usize, &T)| u64::from(belongs(item)) << index;
        Self(items.iter().enumerate().map(bit).fold(0, |set, bit| set | bit))
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) const fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 != 0
    }

    pub(super) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn first(self) -> Option<usize> {
        self.iter().next()
    }

    /// The set without its `count` lowest positions.
    pub(super) fn skip(self, count: usize) -> Self {
        (0..count).fold(self, |set, _| Self(set.0 & set.0.wrapping_sub(1)))
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> + Clone {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let index = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (index < u64::BITS).then_some(index as usize)
        })
    }
}
