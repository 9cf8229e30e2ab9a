//! How groups come to be open at a server.

use weft_control::{CommitMode, GroupDescriptor, InstallError, is_pushed};
use weft_wire::quant::is_exponent;
use weft_wire::{MEMBERS_MAX, Members, Nanos};

use super::group::Opening;
use super::job::Job;
use super::staging::mask_of;

impl Job {
    /// Opens a group that a controller planned.
    pub(super) fn install(
        &mut self,
        now: Nanos,
        descriptor: &GroupDescriptor,
    ) -> Result<(), InstallError> {
        if descriptor.group.row() >= weft_control::GROUPS_OPEN_MAX {
            return Err(InstallError::Shape);
        }
        if let Some(index) = self.staging.in_place(descriptor.group) {
            // A controller that lost the answer asks again.
            let group = self.staging.get(index);
            let is_known = group.id == descriptor.group
                && group.order == descriptor.order.0
                && group.members[..] == descriptor.members[..];
            return if is_known { Ok(()) } else { Err(InstallError::RowTaken) };
        }
        let opening = Opening::from(descriptor);
        let shape = &self.config.model;
        if descriptor.chunks != self.chunks || descriptor.elements != shape.elements {
            return Err(InstallError::Shape);
        }
        self.check_shape(&opening)?;
        let next_order = self.ledger.next_order();
        let order = match self.config.commit {
            CommitMode::Order => descriptor.order.0,
            CommitMode::Arrival => self.staging.order_after_all(next_order),
        };
        let mut open = self.staging.plan().iter();
        let is_taken = open.any(|index| self.staging.get(*index).order == order);
        let is_far = order.saturating_sub(next_order) >= ORDERS_AHEAD_MAX;
        if order < next_order || is_far || is_taken {
            return Err(InstallError::Order);
        }
        self.open_group(now, &opening, order)
    }

    fn check_shape(&self, opening: &Opening<'_>) -> Result<(), InstallError> {
        let mask = mask_of(opening.members);
        let count = opening.members.len();
        let via_known = match opening.via {
            None => count == 1,
            Some(index) => self.config.boxes.get(usize::from(index.0)).is_some_and(Option::is_some),
        };
        let fits = (1..=MEMBERS_MAX).contains(&count)
            && mask.len() == count
            && self.host.worker_mask().contains(mask)
            && is_pushed(opening.element_type)
            && is_exponent(opening.exponent)
            && opening.rate_bytes_per_sec != Some(0)
            && via_known;
        if fits { Ok(()) } else { Err(InstallError::Shape) }
    }

    /// Opens a group of one that its worker announced, if it fits and there is room.
    pub(super) fn open_direct(&mut self, now: Nanos, opening: &Opening<'_>) {
        if self.staging.in_place(opening.id).is_some() || self.check_shape(opening).is_err() {
            return;
        }
        let order = self.staging.order_after_all(self.ledger.next_order());
        if self.open_group(now, opening, order).is_err() {
            self.stats.groups_refused += 1;
        }
    }

    fn open_group(
        &mut self,
        now: Nanos,
        opening: &Opening<'_>,
        order: u64,
    ) -> Result<(), InstallError> {
        let index = self.staging.open(now, opening, order, self.told(opening))?;
        self.credits.open(index, opening);
        self.stats.groups_installed += 1;
        self.is_dirty = true;
        Ok(())
    }

    /// Members of a group that were told what became of their updates in it, before it was given to
    /// this life of the server.
    fn told(&self, opening: &Opening<'_>) -> Members {
        let outcomes = self.ledger.outcomes();
        let members = opening.members.iter().filter(|_| self.is_restored);
        let told = members.filter(|member| outcomes.get(member.rank, opening.id).is_some());
        told.fold(Members::EMPTY, |told, member| told.union(member.rank.bit()))
    }
}

/// Frames carry the low 32 bits of order numbers: those in use lie well within half of that.
const ORDERS_AHEAD_MAX: u64 = 1 << 30;
