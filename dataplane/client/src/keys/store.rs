//! The rows of a process, which all its threads use.
//!
//! Keys are spread over stripes, each behind a lock: key `i` of the table is in stripe `i` modulo
//! their number. A lock is held for one operation on one row. Nobody takes a second lock while it
//! holds one, but for the engine's, which is taken before. Memory: 4 bytes an element, 8 a process
//! and 8, for each key of the table, whether its row is here or not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_engine::role::keys::{Slot, Store, TableConfig};
use weft_wire::keys::{Number, RowEpoch};

/// Stripes of a store, unless there are fewer keys.
const STRIPES_MAX: u32 = 1024;

/// Rows in stripes.
#[derive(Debug)]
pub(super) struct Rows {
    row_len: usize,
    processes: usize,
    stripes: Vec<Mutex<Stripe>>,
}

#[derive(Debug)]
struct Stripe {
    epochs: Vec<RowEpoch>,
    values: Vec<f32>,
    lasts: Vec<Number>,
}

impl Rows {
    pub(super) fn new(table: &TableConfig) -> Self {
        let (row_len, processes) = (usize::from(table.row_len), usize::from(table.processes));
        let stripe_count = table.key_count.clamp(1, STRIPES_MAX);
        let stripe = |stripe: u32| {
            let keys = table.key_count.saturating_sub(stripe).div_ceil(stripe_count) as usize;
            Mutex::new(Stripe {
                epochs: vec![RowEpoch::NONE; keys],
                values: vec![0.0; keys * row_len],
                lasts: vec![Number::NONE; keys * processes],
            })
        };
        Self { row_len, processes, stripes: (0..stripe_count).map(stripe).collect() }
    }

    /// Does something with one key, in one turn of its stripe's lock.
    pub(super) fn with<R>(&self, index: u32, work: impl FnOnce(Slot<'_>) -> R) -> R {
        let (mut stripe, place) = self.lock(index);
        let Stripe { epochs, values, lasts } = &mut *stripe;
        let value = &mut values[place * self.row_len..][..self.row_len];
        let lasts = &mut lasts[place * self.processes..][..self.processes];
        work(Slot { epoch: &mut epochs[place], value, lasts })
    }

    /// Reads or changes the value of a row that is here; false if it is not.
    pub(super) fn with_held(&self, index: u32, work: impl FnOnce(&mut [f32])) -> bool {
        let (mut stripe, place) = self.lock(index);
        let is_held = stripe.epochs[place].is_some();
        if is_held {
            work(&mut stripe.values[place * self.row_len..][..self.row_len]);
        }
        is_held
    }

    fn lock(&self, index: u32) -> (MutexGuard<'_, Stripe>, usize) {
        let count = self.stripes.len();
        let stripe = &self.stripes[index as usize % count];
        // A thread that panicked with a lock has left a row that may be half written, and goes down
        // with its process; the others need not.
        let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        (stripe, index as usize / count)
    }
}

/// The store as the engine sees it.
#[derive(Debug)]
pub(super) struct SharedRows(pub(super) Arc<Rows>);

impl Store for SharedRows {
    fn with<R>(&mut self, index: u32, work: impl FnOnce(Slot<'_>) -> R) -> R {
        self.0.with(index, work)
    }
}
