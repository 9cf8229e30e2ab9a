//! Runs: contributions to one bank that were entered one by one and are summed in one pass.
//!
//! Invariant: the data is what it would be had each been summed when it was entered.

use core::ops::Range;

use weft_kernel::RUN_MAX;

use super::accumulate::{Contribution, Store};
use super::{Bank, BankIndex};
use crate::slot::Slots;

impl Slots {
    /// Sums a run into the bank that it waits for; returns the bank's step.
    #[inline(always)]
    pub(crate) fn sum_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        place: BankIndex,
        run: Run,
        frames: &mut [F],
        payload: Range<usize>,
    ) -> u32 {
        let (bank, store) = self.bank_and_store(place);
        bank.run = Bank::NO_RUN;
        let step = bank.step;
        sum(store, place, run, frames, payload);
        step
    }
}

/// What is special about a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Its first is the step's first.
    pub(crate) claims: bool,
    /// Its last is the step's last: the sum is written over every payload.
    pub(crate) completes: bool,
}

#[inline(always)]
pub(super) fn sum<F: AsRef<[u8]> + AsMut<[u8]>>(
    store: &mut Store,
    place: BankIndex,
    Run { claims, completes }: Run,
    frames: &mut [F],
    payload: Range<usize>,
) {
    let len = frames.len();
    match (&mut *frames, completes) {
        ([one], _) => {
            // Whose a single one is matters in rank order alone; and no row with runs clamps.
            let from = Contribution { rank: 0, limit: 0 };
            store.put(place, from, &mut one.as_mut()[payload], claims, completes);
        }
        (frames, true) => {
            let mut wires: [&mut [u8]; RUN_MAX] = Default::default();
            for (wire, frame) in wires.iter_mut().zip(&mut *frames) {
                *wire = &mut frame.as_mut()[payload.clone()];
            }
            store.add_run_emit(place, claims, &mut wires[..len]);
        }
        (frames, false) => {
            let mut wires: [&[u8]; RUN_MAX] = Default::default();
            for (wire, frame) in wires.iter_mut().zip(&*frames) {
                *wire = &frame.as_ref()[payload.clone()];
            }
            store.add_run(place, claims, &wires[..len]);
        }
    }
}
