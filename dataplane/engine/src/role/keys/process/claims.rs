//! What the box is told after it has begun a life: block by block, what is here of all keys, until
//! it needs no claim of a block any more (PROTOCOL section 13, "Restart").
//!
//! A window of blocks is told at a time; the next follows when all of it is answered, or after a
//! pause. A block is done when the box says so and no copy of it is kept for the dead. Claims are
//! counted, and the newest counts: what it says is of the moment in which it is written.

use weft_wire::Nanos;
use weft_wire::keys::What;

use super::moves::ClaimOfKey;
use super::state::Core;
use super::{Presence, Process, Sink};
use crate::role::keys::config::BLOCK_LEN;
use crate::role::keys::frames::{Kinship, To};
use crate::role::keys::store::Store;

/// Blocks that are told before an answer is waited for.
const WINDOW: u32 = 16;

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
        self.core.claims.end_window(now, WINDOW);
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
