//! Which sums the members hold, and which this box holds for its root (SPEC#resync).

use weft_wire::Rank;
use weft_wire::hello::Hello;

use super::lease::{Lease, Phase};
use crate::drops::DropReason;
use crate::slot::State;
use crate::steps::StepSet;

impl Lease {
    /// Notes which sums a joining member holds. A repeat of a JOIN that the lease has already
    /// acted on changes nothing: what it says is old news.
    pub(super) fn load_held(
        &mut self,
        rank: Rank,
        hello: &Hello,
        bitmap: &[u8],
    ) -> Result<(), DropReason> {
        let settled = self.phase != Phase::Forming
            && self.joined.contains(rank.bit())
            && self.members[rank.index()].peer.lives().is_present(hello.life);
        if settled {
            return Ok(());
        }
        let held = &mut self.members[rank.index()].held;
        if hello.session == 0 {
            held.reset(0);
            return Ok(());
        }
        if hello.low_step > self.step_count || !held.load(hello.low_step, bitmap) {
            return Err(DropReason::Handshake);
        }
        Ok(())
    }

    /// What this box can say upwards about the sums it keeps.
    pub(super) fn held(&self, into: &mut StepSet) {
        let window = u32::from(self.window);
        let frontier = |slot: u32| {
            let index = self.slots.locate(slot);
            let answered = [index, index.other()].map(|index| {
                let bank = self.slots.bank(index);
                (bank.state() == State::Answered).then_some(bank.step())
            });
            answered.into_iter().flatten().max().map_or(slot, |step| step + window)
        };
        let low = (0..window).map(frontier).min().unwrap_or(0);
        into.reset(low);
        for slot in 0..window {
            let mut step = low + (slot.wrapping_sub(low) & (window - 1));
            while step < frontier(slot) {
                into.insert(step);
                step += window;
            }
        }
    }
}
