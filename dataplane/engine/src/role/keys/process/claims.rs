//! What the box is told after it has begun a life: block by block, what is here of all keys, until
//! it needs no claim of a block any more (PROTOCOL section 13, "Restart").
//!
//! A window of blocks is told at a time; the next follows when all of it is answered, or after a
//! pause. A block is done when the box says so and no copy of it is kept for the dead. Claims are
//! counted, and the newest counts: what it says is of the moment in which it is written.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::Nanos;
use weft_wire::keys::{Number, What};

use super::moves::ClaimOfKey;
use super::state::Core;
use super::{Presence, Process, Sink};
use crate::role::keys::config::BLOCK_LEN;
use crate::role::keys::frames::{Kinship, To};
use crate::role::keys::store::Store;

/// Blocks that are told before an answer is waited for.
const WINDOW: u32 = 16;

/// Which blocks are to be claimed.
#[derive(Debug)]
pub(super) struct Claims {
    /// By block, a bit each.
    open: Vec<u64>,
    block_count: u32,
    /// The next block that is looked at.
    cursor: u32,
    unanswered: u32,
    at: Nanos,
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

    /// The turn is over.
    pub(super) fn end_turn(&mut self) {
        self.is_counted = false;
    }

    fn next_count(&mut self) -> Number {
        self.count += 1;
        Number(self.count)
    }

    /// The next block that is to be claimed; `None` at the end of a round.
    fn next_block(&mut self) -> Option<u32> {
        let is_open = |block: &u32| self.open[*block as usize / 64] >> (block % 64) & 1 == 1;
        let block = (self.cursor..self.block_count).find(is_open)?;
        self.cursor = block + 1;
        Some(block)
    }

    fn close(&mut self, block: u32) {
        self.open[block as usize / 64] &= !(1 << (block % 64));
    }
}

impl<S: Store> Process<S> {
    /// Claims the blocks that are due.
    pub(super) fn send_claims(&mut self, now: Nanos, sink: &mut impl Sink) {
        if now < self.core.claims.at || self.core.presence() != Presence::Present {
            return;
        }
        self.core.claims.unanswered = 0;
        while self.core.claims.unanswered < WINDOW {
            let Some(block) = self.core.claims.next_block() else { break };
            self.claim_block(block, sink);
            self.core.claims.unanswered += 1;
        }
        let claims = &mut self.core.claims;
        if claims.unanswered == 0 && claims.open.iter().all(|word| *word == 0) {
            claims.at = Nanos::MAX;
            return;
        }
        if claims.unanswered < WINDOW {
            claims.cursor = 0;
        }
        claims.at = now.saturating_add(claims.pause);
    }

    fn claim_block(&mut self, block: u32, sink: &mut impl Sink) {
        let Self { store, core } = self;
        let first = block * BLOCK_LEN;
        let end = (first + BLOCK_LEN).min(core.table.key_count);
        let kinship = Kinship {
            peer: u8::try_from(end - first).unwrap_or(0),
            low: core.table.key(first),
            ..Kinship::new(What::Claim, core.me, core.claims.next_count())
        };
        // A block of which nothing is here is told as well.
        core.frames.open(To::Home, kinship, 0, 0, sink);
        for index in first..end {
            let mut claim = ClaimOfKey::new();
            let held = store.with(index, |slot| *slot.epoch);
            core.claim_of(held, index, &mut claim);
            if !claim.is_empty() {
                core.frames.put_claims(To::Home, kinship, &claim, sink);
            }
        }
        core.frames.flush(To::Home, sink);
    }
}

impl Core {
    /// The box has taken the claim of the block that begins with this key.
    pub(super) fn take_claim_answer(&mut self, now: Nanos, index: u32, is_settled: bool) {
        let block = index / BLOCK_LEN;
        let end = ((block + 1) * BLOCK_LEN).min(self.table.key_count);
        let keeps_for_dead = (block * BLOCK_LEN..end)
            .any(|index| self.kept_of(index).any(|(_, kept)| !self.is_living(kept.to)));
        if is_settled && !keeps_for_dead {
            self.claims.close(block);
        }
        self.claims.unanswered = self.claims.unanswered.saturating_sub(1);
        if self.claims.unanswered == 0 && self.claims.cursor > 0 && self.claims.at != Nanos::MAX {
            self.claims.at = now;
        }
    }
}
