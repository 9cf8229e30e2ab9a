//! A short list without heap memory, so that states stay small and quick to compare.

use std::fmt;

/// At most `CAPACITY` items; the places after them hold `T::default()`, so that equal lists are
/// equal memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct List<T, const CAPACITY: usize> {
    len: u8,
    items: [T; CAPACITY],
}

impl<T: Copy + Default, const CAPACITY: usize> Default for List<T, CAPACITY> {
    fn default() -> Self {
        Self { len: 0, items: [T::default(); CAPACITY] }
    }
}

impl<T: Copy + Default, const CAPACITY: usize> List<T, CAPACITY> {
    /// Appends `item`.
    ///
    /// # Panics
    /// If the list is full: the model's bounds are too small for what is asked of it.
    pub fn push(&mut self, item: T) {
        assert!(usize::from(self.len) < CAPACITY, "the model needs longer lists than {CAPACITY}");
        self.items[usize::from(self.len)] = item;
        self.len += 1;
    }

    /// Removes every item that `keep` says false to.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let before = *self;
        *self = Self::default();
        for item in before.as_slice().iter().filter(|item| keep(item)) {
            self.push(*item);
        }
    }

    /// Returns the items in their order.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }

    /// Returns the items in their order, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }

    /// Iterates over the items in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.as_slice().iter()
    }

    /// True if there is no item.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }
}

impl<T: Copy + Default + fmt::Debug, const CAPACITY: usize> fmt::Debug for List<T, CAPACITY> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
