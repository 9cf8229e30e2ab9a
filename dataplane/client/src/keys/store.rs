//! The rows of a process, which its worker threads and its engine share.
//!
//! Rows lie in stripes, at most [`STRIPES_MAX`]: key `i` of the table is in stripe `i % count`,
//! each under a lock of its own. Invariants: a thread holds at most one of these locks, for one
//! row's operation and no longer; whoever finds a row held may run an operation on it in that turn
//! of the lock, for the engine empties a key's queue in the same turn in which it installs the row.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_engine::role::keys::{OwnStore, Slot, Store, TableConfig};

/// All rows; clones are of the same.
#[derive(Clone, Debug)]
pub(super) struct SharedStore {
    stripes: Arc<[Stripe]>,
    /// Bits of a place that say which stripe.
    bits: u32,
    /// Whether callers' threads may run operations.
    is_fast: bool,
}

/// In lines of its own, so that threads that work in two stripes do not meet.
#[repr(align(128))]
#[derive(Debug)]
struct Stripe(Mutex<Rows>);

#[derive(Debug)]
struct Rows {
    store: OwnStore,
    /// Operations that ran here without the engine.
    local_count: u64,
}

impl SharedStore {
    /// Room for all rows, of which none is held.
    pub(super) fn new(table: &TableConfig, is_fast: bool) -> Self {
        let count = table.key_count.clamp(1, STRIPES_MAX).next_power_of_two().min(STRIPES_MAX);
        let bits = count.trailing_zeros();
        let part = TableConfig { key_count: table.key_count.div_ceil(count), ..*table };
        let rows = || Rows { store: OwnStore::new(&part), local_count: 0 };
        let stripes = (0..count).map(|_| Stripe(Mutex::new(rows()))).collect();
        Self { stripes, bits, is_fast }
    }

    /// Runs an operation if the row is held and callers' threads may; `None` if not.
    #[inline]
    pub(super) fn with_held<R>(&self, index: u32, work: impl FnOnce(&mut [f32]) -> R) -> Option<R> {
        if !self.is_fast {
            return None;
        }
        let mut rows = self.lock(index);
        let Rows { store, local_count } = &mut *rows;
        store.with(index >> self.bits, |slot| {
            slot.is_held().then(|| {
                *local_count += 1;
                work(slot.value)
            })
        })
    }

    /// Reads the row, or a copy that may be read in this clock; `None` if there is neither, or if
    /// callers' threads may not.
    #[inline]
    pub(super) fn with_readable<R>(
        &self,
        index: u32,
        clock: u32,
        work: impl FnOnce(&[f32]) -> R,
    ) -> Option<R> {
        if !self.is_fast {
            return None;
        }
        let mut rows = self.lock(index);
        let Rows { store, local_count } = &mut *rows;
        store.with(index >> self.bits, |slot| {
            slot.is_readable(clock).then(|| {
                *local_count += 1;
                work(slot.value)
            })
        })
    }

    /// Whether the row is held and callers' threads may use it.
    pub(super) fn is_held(&self, index: u32) -> bool {
        self.is_fast && self.lock(index).store.with(index >> self.bits, |slot| slot.is_held())
    }

    /// Operations that ran in callers' threads.
    pub(super) fn local_count(&self) -> u64 {
        let count = |index| self.lock(index).local_count;
        (0..1 << self.bits).map(count).sum()
    }

    #[inline]
    fn lock(&self, index: u32) -> MutexGuard<'_, Rows> {
        let stripe = index & ((1 << self.bits) - 1);
        // What runs under the lock leaves a row whole or as it was.
        self.stripes[stripe as usize].0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for SharedStore {
    fn with<R>(&mut self, index: u32, work: impl FnOnce(Slot<'_>) -> R) -> R {
        self.lock(index).store.with(index >> self.bits, work)
    }
}

/// Stripes of a table at most.
pub const STRIPES_MAX: u32 = 1024;
