//! Operations that wait, in lists, with their values; all memory is taken at the start.

use alloc::vec;
use alloc::vec::Vec;

use crate::role::keys::pool::{NONE, Pool};

/// What an operation does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Set,
    Add,
    Pull,
    Localize,
}

/// One operation of the application.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// What its caller knows it by; the clock, if nobody waits for it.
    pub(super) call: u64,
    pub(super) is_background: bool,
    next: u32,
}

/// Some operations in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: u16,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, len: 0 };

    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub(super) fn len(&self) -> u16 {
        self.len
    }
}

/// All operations that wait.
#[derive(Debug)]
pub(super) struct Operations {
    pool: Pool<Item>,
    values: Vec<f32>,
    row_len: usize,
}

impl Operations {
    pub(super) fn new(len: usize, row_len: usize) -> Self {
        let item = Item { kind: Kind::Pull, call: 0, is_background: false, next: NONE };
        Self { pool: Pool::new(len, &item), values: vec![0.0; len * row_len], row_len }
    }

    /// How many more there can be.
    pub(super) fn free_count(&self) -> usize {
        self.pool.free_count()
    }

    /// Appends an operation; false when there are too many.
    pub(super) fn push(&mut self, list: &mut List, kind: Kind, call: u64, value: &[f32]) -> bool {
        let item = Item { kind, call, is_background: false, next: NONE };
        let Some(place) = self.pool.take(item) else { return false };
        self.value_mut(place)[..value.len()].copy_from_slice(value);
        self.append(list, place);
        true
    }

    /// Appends an add that nobody waits for, called in this clock: to the last operation, if that
    /// is another one. `None` when there are too many, else whether there is one more.
    pub(super) fn push_background(
        &mut self,
        list: &mut List,
        clock: u32,
        value: &[f32],
    ) -> Option<bool> {
        let call = u64::from(clock);
        if list.tail != NONE {
            let Item { is_background, call: last, .. } = self.pool[list.tail];
            if is_background && last == call {
                let sum = self.value_mut(list.tail).iter_mut();
                sum.zip(value).for_each(|(sum, term)| *sum += term);
                return Some(false);
            }
        }
        if !self.push(list, Kind::Add, call, value) {
            return None;
        }
        self.pool[list.tail].is_background = true;
        Some(true)
    }

    /// Appends an operation that was taken out of another list.
    pub(super) fn append(&mut self, list: &mut List, place: u32) {
        self.pool[place].next = NONE;
        match list.tail {
            NONE => list.head = place,
            tail => self.pool[tail].next = place,
        }
        (list.tail, list.len) = (place, list.len.saturating_add(1));
    }

    /// The first operation, if there is one.
    pub(super) fn first(&self, list: &List) -> Option<(u32, Item)> {
        (list.head != NONE).then(|| (list.head, self.pool[list.head]))
    }

    /// Takes the first operation out. It is not free yet.
    pub(super) fn pop(&mut self, list: &mut List) -> Option<(u32, Item)> {
        let (place, item) = self.first(list)?;
        (list.head, list.len) = (item.next, list.len - 1);
        if list.head == NONE {
            list.tail = NONE;
        }
        Some((place, item))
    }

    /// Puts all of `first` before `list`.
    pub(super) fn prepend(&mut self, list: &mut List, first: List) {
        if first.is_empty() {
            return;
        }
        self.pool[first.tail].next = list.head;
        let tail = if list.is_empty() { first.tail } else { list.tail };
        *list = List { head: first.head, tail, len: list.len.saturating_add(first.len) };
    }

    /// An operation is over.
    pub(super) fn free(&mut self, place: u32) {
        self.pool.give_back(place);
    }

    pub(super) fn value(&self, place: u32) -> &[f32] {
        &self.values[place as usize * self.row_len..][..self.row_len]
    }

    fn value_mut(&mut self, place: u32) -> &mut [f32] {
        &mut self.values[place as usize * self.row_len..][..self.row_len]
    }

    /// Adds the value of `from` to that of `to`, and leaves zeros.
    pub(super) fn merge(&mut self, to: u32, from: u32) {
        let (to, from) = (to as usize * self.row_len, from as usize * self.row_len);
        for element in 0..self.row_len {
            let value = core::mem::take(&mut self.values[from + element]);
            self.values[to + element] += value;
        }
    }
}

/// Places at which something is to be done at the end of the turn, each once.
#[derive(Debug)]
pub(super) struct Marks {
    places: Vec<u32>,
    is_marked: Vec<bool>,
}

impl Marks {
    pub(super) fn new(len: usize) -> Self {
        Self { places: Vec::with_capacity(len), is_marked: vec![false; len] }
    }

    pub(super) fn mark(&mut self, place: u32) {
        let is_marked = &mut self.is_marked[place as usize];
        if !core::mem::replace(is_marked, true) {
            self.places.push(place);
        }
    }

    /// The marked place with this position in the order of marking; [`Marks::clear`] ends it.
    pub(super) fn get(&self, position: usize) -> Option<u32> {
        self.places.get(position).copied()
    }

    pub(super) fn clear(&mut self) {
        for place in self.places.drain(..) {
            self.is_marked[place as usize] = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn calls(operations: &mut Operations, list: &mut List) -> Vec<u64> {
        let mut calls = Vec::new();
        while let Some((place, item)) = operations.pop(list) {
            operations.free(place);
            calls.push(item.call);
        }
        calls
    }

    #[test]
    fn what_returns_to_the_head_is_first_again() {
        let mut operations = Operations::new(4, 1);
        let (mut queue, mut flight) = (List::EMPTY, List::EMPTY);
        for call in 0..4 {
            assert!(operations.push(&mut queue, Kind::Add, call, &[1.0]));
        }
        assert!(
            !operations.push(&mut queue, Kind::Add, 4, &[1.0]),
            "no more than there is room for"
        );
        for _ in 0..2 {
            let (place, _) = operations.pop(&mut queue).unwrap();
            operations.append(&mut flight, place);
        }
        operations.prepend(&mut queue, flight);
        assert_eq!((queue.len(), calls(&mut operations, &mut queue)), (4, alloc::vec![0, 1, 2, 3]));
        assert!(queue.is_empty());
        assert_eq!(operations.free_count(), 4);
    }

    #[test]
    fn values_that_merge_count_once() {
        let mut operations = Operations::new(2, 2);
        let mut list = List::EMPTY;
        operations.push(&mut list, Kind::Add, 0, &[1.0, 2.0]);
        operations.push(&mut list, Kind::Add, 1, &[3.0, 5.0]);
        let (first, _) = operations.pop(&mut list).unwrap();
        let (second, _) = operations.pop(&mut list).unwrap();
        operations.merge(first, second);
        assert_eq!(
            (operations.value(first), operations.value(second)),
            (&[4.0, 7.0][..], &[0.0; 2][..])
        );
    }
}
