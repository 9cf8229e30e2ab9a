//! How groups come to be open at a server, and end.

use arrayvec::ArrayVec;
use weft_control::{CommitMode, GroupDescriptor, GroupMember, InstallError, is_pushed};
use weft_wire::quant::is_exponent;
use weft_wire::{MEMBERS_MAX, Members, Nanos, Rank};

use super::group::{Group, OpenIndex, Opening, bucket};
use super::job::{DIRECT_OPEN_MAX, Job};

impl Job {
    /// Opens a group that a controller planned.
    pub(super) fn install(
        &mut self,
        now: Nanos,
        descriptor: &GroupDescriptor,
    ) -> Result<(), InstallError> {
        let row = usize::from(descriptor.group.row());
        if row >= self.rows.len() {
            return Err(InstallError::Shape);
        }
        if let Some(index) = self.rows[row] {
            // A controller that lost the answer asks again.
            let group = self.group(index);
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
        let order = match self.config.commit {
            CommitMode::Order => descriptor.order.0,
            CommitMode::Arrival => self.order_after_all(),
        };
        let is_taken = self.plan.iter().any(|index| self.group(*index).order == order);
        let is_far = order.saturating_sub(self.next_order) >= ORDERS_AHEAD_MAX;
        if order < self.next_order || is_far || is_taken {
            return Err(InstallError::Order);
        }
        let index = self.open_group(now, &opening, order)?;
        self.rows[row] = Some(index);
        Ok(())
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

    /// Opens a group of one that its worker announced; true when it is open now.
    pub(super) fn open_direct(&mut self, now: Nanos, rank: Rank, of: &Opening<'_>) -> bool {
        let place = usize::from(of.id.generation()) % DIRECT_OPEN_MAX;
        if self.direct[rank.index()][place].is_some() || self.check_shape(of).is_err() {
            return false;
        }
        let Ok(index) = self.open_group(now, of, self.order_after_all()) else {
            self.stats.groups_refused += 1;
            return false;
        };
        self.direct[rank.index()][place] = Some(index);
        true
    }

    fn order_after_all(&self) -> u64 {
        let last = self.plan.last().map_or(0, |index| self.group(*index).order + 1);
        last.max(self.next_order)
    }

    fn open_group(
        &mut self,
        now: Nanos,
        opening: &Opening<'_>,
        order: u64,
    ) -> Result<OpenIndex, InstallError> {
        let free = self.groups.iter().position(Option::is_none).ok_or(InstallError::Full)?;
        if self.open_count >= self.config.stages_open() as usize {
            return Err(InstallError::Full);
        }
        let stage = self.pool.take().ok_or(InstallError::Full)?;
        let index = OpenIndex(u16::try_from(free).map_err(|_| InstallError::Full)?);
        let members: ArrayVec<_, MEMBERS_MAX> = opening.members.iter().copied().collect();
        let granted = mask_of(opening.members);
        let mask = granted.without(self.told(opening));
        self.groups[free] = Some(Group {
            id: opening.id,
            order,
            members,
            granted,
            mask,
            closed: Members::EMPTY,
            element_type: opening.element_type,
            exponent: opening.exponent,
            via: opening.via,
            is_direct: opening.via.is_none(),
            bucket: opening.rate_bytes_per_sec.map(bucket),
            is_begun: false,
            train_chunks: opening.train_chunks,
            after: opening.after,
            lateness_ns: opening.lateness_ns,
            stage,
            chunks_staged: 0,
            is_staged: false,
            is_composed: false,
            cursor: 0,
            cursors: [0; MEMBERS_MAX],
            installed_at: now,
            head_since: None,
            called_at: None,
            first_at: None,
            idle_ns: 0,
            bytes: 0,
        });
        let at = self.plan.partition_point(|index| self.group(*index).order < order);
        self.plan.insert(at, index);
        self.open_count += 1;
        self.stats.groups_installed += 1;
        self.is_dirty = true;
        Ok(index)
    }

    /// Members of a group that were told what became of their updates in it, before it was given to
    /// this life of the server.
    fn told(&self, opening: &Opening<'_>) -> Members {
        let members = opening.members.iter().filter(|_| self.is_restored);
        let told = members.filter(|member| self.outcomes.get(member.rank, opening.id).is_some());
        told.fold(Members::EMPTY, |told, member| told.union(member.rank.bit()))
    }

    /// Takes a decided group out of all tables. Its stage is the caller's.
    pub(super) fn shut_group(&mut self, index: OpenIndex) -> Group {
        let group = self.groups[index.index()].take().expect("only open groups are decided");
        self.plan.retain(|other| *other != index);
        self.open_count -= 1;
        for source in &mut self.sources {
            source.forget(index);
        }
        let row = usize::from(group.id.row());
        if let Some(place) = self.rows.get_mut(row) {
            *place = None;
        } else {
            for place in self.direct.iter_mut().flatten().filter(|place| **place == Some(index)) {
                *place = None;
            }
        }
        group
    }
}

fn mask_of(members: &[GroupMember]) -> Members {
    members.iter().fold(Members::EMPTY, |mask, member| mask.union(member.rank.bit()))
}

/// Frames carry the low 32 bits of order numbers: those in use lie well within half of that.
const ORDERS_AHEAD_MAX: u64 = 1 << 30;
