//! Memory that is taken at the start and given out by number.

use alloc::vec::Vec;

/// No place.
pub(super) const NONE: u32 = u32::MAX;

/// Items by number; free ones form a stack.
#[derive(Debug)]
pub(super) struct Pool<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T: Clone> Pool<T> {
    /// As many items as there will ever be.
    pub(super) fn new(len: usize, item: &T) -> Self {
        let count = u32::try_from(len).expect("maxima fit 32 bits");
        Self { items: alloc::vec![item.clone(); len], free: (0..count).rev().collect() }
    }

    /// Gives an item out; `None` when all are.
    pub(super) fn take(&mut self, item: T) -> Option<u32> {
        let place = self.free.pop()?;
        self.items[place as usize] = item;
        Some(place)
    }

    /// Takes an item back.
    pub(super) fn give_back(&mut self, place: u32) {
        self.free.push(place);
    }

    /// How many are left.
    pub(super) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// How many are given out.
    pub(super) fn used_count(&self) -> usize {
        self.items.len() - self.free.len()
    }
}

impl<T> core::ops::Index<u32> for Pool<T> {
    type Output = T;

    fn index(&self, place: u32) -> &T {
        &self.items[place as usize]
    }
}

impl<T> core::ops::IndexMut<u32> for Pool<T> {
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.items[place as usize]
    }
}
