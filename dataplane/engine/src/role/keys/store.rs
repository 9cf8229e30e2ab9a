//! Where a process's rows lie.
//!
//! The engine asks for one key at a time and does all that belongs together within one call, so a
//! store that other threads use as well holds that key's lock for the length of the call. What such
//! threads may do by themselves: run an operation on a row that is held, in one turn of the lock.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::keys::{Number, RowEpoch};

use super::config::TableConfig;

/// One key of a store. A row without an epoch is not held: its value is old.
#[derive(Debug)]
pub struct Slot<'a> {
    /// The row's epoch.
    pub epoch: &'a mut RowEpoch,
    /// Its value.
    pub value: &'a mut [f32],
    /// Per process and lane the last number that it was applied for.
    pub lasts: &'a mut [Number],
    /// While the row is elsewhere: the last clock in which the value may be read as a copy of it;
    /// 0: it is none.
    pub fresh: &'a mut u32,
}

impl Slot<'_> {
    /// True if the row is here.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.epoch.is_some()
    }

    /// True if a pull in this clock may have the value: the row, or a copy that is new enough.
    #[must_use]
    pub fn is_readable(&self, clock: u32) -> bool {
        self.is_held() || *self.fresh >= clock
    }
}

/// Rows by place in the table.
pub trait Store {
    /// Does something with one key, whose place is below the table's key count.
    fn with<R>(&mut self, index: u32, work: impl FnOnce(Slot<'_>) -> R) -> R;
}

/// A store of one thread. Memory: 4 bytes an element, 8 a process and lane, and 12, for each key.
#[derive(Clone, Debug)]
pub struct OwnStore {
    row_len: usize,
    lasts_len: usize,
    epochs: Vec<RowEpoch>,
    values: Vec<f32>,
    lasts: Vec<Number>,
    fresh: Vec<u32>,
}

impl OwnStore {
    /// Room for all rows of the table, of which none is held.
    #[must_use]
    pub fn new(table: &TableConfig) -> Self {
        let keys = table.key_count as usize;
        let (row_len, lasts_len) = (usize::from(table.row_len), table.lasts_per_row());
        Self {
            row_len,
            lasts_len,
            epochs: vec![RowEpoch::NONE; keys],
            values: vec![0.0; keys * row_len],
            lasts: vec![Number::NONE; keys * lasts_len],
            fresh: vec![0; keys],
        }
    }
}

impl Store for OwnStore {
    fn with<R>(&mut self, index: u32, work: impl FnOnce(Slot<'_>) -> R) -> R {
        let index = index as usize;
        let value = &mut self.values[index * self.row_len..][..self.row_len];
        let lasts = &mut self.lasts[index * self.lasts_len..][..self.lasts_len];
        let (epoch, fresh) = (&mut self.epochs[index], &mut self.fresh[index]);
        work(Slot { epoch, value, lasts, fresh })
    }
}
