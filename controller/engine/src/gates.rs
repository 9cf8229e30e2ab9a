//! Decides which gates are shut: what a granted segment waits for, and when it need not any more.
//!
//! Invariants: segments of an update begin in their order; what waits is released once.

use alloc::vec::Vec;

use weft_wire::GroupId;

use weft_plan::case::{HostId, Segment};

use super::Controller;
use super::flights::WaitingSegment;
use super::message::{Action, Gate, Reply, TransferKey};

impl Controller {
    /// The gate of a planned segment.
    pub(super) fn gate(&self, path: (HostId, HostId), wanted: &Segment) -> Gate {
        self.opener(path, wanted, |_| true).map_or(Gate::Open, Gate::After)
    }

    /// The flight whose end opens the way to a planned segment, among those that may.
    pub(super) fn opener(
        &self,
        path: (HostId, HostId),
        wanted: &Segment,
        is_eligible: impl Fn(TransferKey) -> bool,
    ) -> Option<TransferKey> {
        let capacities = self.links.usable();
        self.flights.opener(self.links.topology(), capacities, path, wanted, is_eligible)
    }

    /// Another job's transfer that a group's transfer into its server must still wait for. Neither
    /// server knows of the other, so the grants see to it: a direct update's waits, and of a sum's
    /// members the last one does. Once granted, a transfer does not pause for others, even where
    /// the plan wove it around them. Where the network shares itself nobody waits.
    pub(super) fn sum_blocker(&self, id: GroupId) -> Option<TransferKey> {
        let job = self.groups.get(&id)?.job;
        if self.jobs.get(&job)?.is_fair() {
            return None;
        }
        let is_own = |key: TransferKey| self.job_of(key) == Some(job);
        let (topology, capacities) = (self.links.topology(), self.links.usable());
        self.flights.blocker(topology, capacities, TransferKey::Sum(id), is_own)
    }

    /// The gate as it is now; one that is closed has the segment wait. Segments begin in their
    /// order: behind one that is `shut`, none is open.
    pub(super) fn open_or_wait(
        &mut self,
        gate: Gate,
        shut: Option<TransferKey>,
        waiter: WaitingSegment,
    ) -> Gate {
        let planned = match gate {
            Gate::After(key) if self.flights.get(key).is_some() => Some(key),
            Gate::Open | Gate::After(_) => None,
        };
        match planned.or_else(|| self.in_the_way(&waiter)).or(shut) {
            Some(key) => {
                self.flights.wait(key, waiter);
                Gate::After(key)
            }
            None => {
                self.flights.begin(waiter.transfer());
                Gate::Open
            }
        }
    }

    /// What a segment of an aggregated member waits for now. A direct one has its server's credits.
    fn in_the_way(&self, waiter: &WaitingSegment) -> Option<TransferKey> {
        let WaitingSegment { group, segment, keeps_sum, .. } = *waiter;
        self.groups.get(&group)?.descriptor.via?;
        let (topology, capacities) = (self.links.topology(), self.links.usable());
        let own =
            self.flights.obstacle_of(topology, capacities, waiter.transfer(), segment as usize);
        own.or_else(|| keeps_sum.then(|| self.sum_blocker(group)).flatten())
    }

    /// Tells those whose gate has opened, unless something else is in their way by now.
    pub(super) fn release(&mut self, mut waiters: Vec<WaitingSegment>) {
        // Of one update, too: what a segment must still wait for, those behind it wait for with it.
        waiters.sort_by_key(|waiter| waiter.segment);
        for waiter in waiters {
            if self.flights.waits_for_an_earlier(waiter) {
                continue;
            }
            if let Some(key) = self.in_the_way(&waiter) {
                self.flights.wait(key, waiter);
                continue;
            }
            self.flights.begin(waiter.transfer());
            let WaitingSegment { job, rank, update_id, segment, .. } = waiter;
            let reply = Reply::Release { update_id, segment };
            self.actions.push_back(Action::Reply { job, rank, reply });
        }
    }
}
