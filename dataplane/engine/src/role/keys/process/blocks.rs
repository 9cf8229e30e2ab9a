//! Which blocks of keys are to be claimed in this life, and when; and how often was claimed.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::Nanos;
use weft_wire::keys::Number;

/// Which blocks are to be claimed.
#[derive(Debug)]
pub(super) struct Claims {
    /// By block, a bit each.
    open: Vec<u64>,
    block_count: u32,
    /// The next block that is looked at.
    pub(super) cursor: u32,
    pub(super) unanswered: u32,
    pub(super) at: Nanos,
    pause: Nanos,
    /// Counts the claims of this life.
    count: u64,
    is_counted: bool,
}

impl Claims {
    pub(super) fn new(block_count: u32) -> Self {
        let words = block_count.div_ceil(64) as usize;
        Self {
            open: vec![0; words],
            block_count,
            cursor: 0,
            unanswered: 0,
            at: Nanos::MAX,
            pause: Nanos(0),
            count: 0,
            is_counted: false,
        }
    }

    /// A life has begun; in every one but the first all is to be claimed.
    pub(super) fn begin(&mut self, is_first_life: bool, now: Nanos, pause: Nanos) {
        self.open.fill(if is_first_life { 0 } else { u64::MAX });
        if let (Some(last), rest @ 1..) = (self.open.last_mut(), self.block_count % 64) {
            *last &= (1 << rest) - 1;
        }
        (self.cursor, self.unanswered, self.count) = (0, 0, 0);
        self.at = if is_first_life { Nanos::MAX } else { now };
        self.pause = pause;
    }

    /// When something is to be told.
    pub(super) fn timeout(&self) -> Nanos {
        self.at
    }

    /// The count of a claim that is made now; all of one turn have the same.
    pub(super) fn count_of_turn(&mut self) -> Number {
        if !core::mem::replace(&mut self.is_counted, true) {
            self.count += 1;
        }
        Number(self.count)
    }

    /// A window of blocks has been told: when to go on, and where.
    pub(super) fn end_window(&mut self, now: Nanos, len_max: u32) {
        if self.unanswered == 0 && self.open.iter().all(|word| *word == 0) {
            self.at = Nanos::MAX;
            return;
        }
        if self.unanswered < len_max {
            self.cursor = 0;
        }
        self.at = now.saturating_add(self.pause);
    }

    /// The turn is over.
    pub(super) fn end_turn(&mut self) {
        self.is_counted = false;
    }

    pub(super) fn next_count(&mut self) -> Number {
        self.count += 1;
        Number(self.count)
    }

    /// The next block that is to be claimed; `None` at the end of a round.
    pub(super) fn next_block(&mut self) -> Option<u32> {
        let is_open = |block: &u32| self.open[*block as usize / 64] >> (block % 64) & 1 == 1;
        let block = (self.cursor..self.block_count).find(is_open)?;
        self.cursor = block + 1;
        Some(block)
    }

    pub(super) fn close(&mut self, block: u32) {
        self.open[block as usize / 64] &= !(1 << (block % 64));
    }
}
