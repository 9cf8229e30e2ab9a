//! Whose a frame is, as far as the tables tell, and who pays for it (SPEC#checks).
//!
//! Finds the job and the lease that a frame names, has what is wrong for both refused, and charges
//! each frame once: as soon as it has shown whose it is, or at the end if it never has.

use weft_wire::Rank;
use weft_wire::header::{HEADER_LEN, Kind};

use super::lease::Lease;
use super::{Aggregator, Incoming};
use crate::admit::quota::Payer;
use crate::admit::refuse::{hello_in, refuse_unknown};
use crate::drops::DropReason;
use crate::role::PushIndex;
use crate::role::gather::Arrival;
use crate::role::{LeaseIndex, Verdict};

impl Aggregator {
    /// The box's own port, or one that a leaf's lane speaks to its root from.
    pub(super) fn listens(&self, port: u16) -> bool {
        port == self.local_addr.port() || self.roots.answer_to(port)
    }

    pub(super) fn dispatch(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, DropReason> {
        let result = match self.gather.find(incoming.header.job) {
            Some(push) => self.dispatch_push(push, incoming),
            None => self.find_lease(incoming).and_then(|index| self.dispatch_to(index, incoming)),
        };
        let result = match result {
            Err(reason @ (DropReason::UnknownJob | DropReason::UnknownGroup)) => {
                self.refuse_unknown(reason, incoming)
            }
            result => result,
        };
        if result.is_err() && incoming.payer == Payer::Strangers {
            // It costs what it costs; without an answer it needs nobody's leave.
            let _ = self.pay(incoming.len_bytes(), incoming);
        }
        result
    }

    fn dispatch_push(
        &mut self,
        push: PushIndex,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        let Incoming { udp, header, ref mut buffer, now, payer } = *incoming;
        if header.kind == Kind::Contrib && udp.payload_len() != HEADER_LEN + header.payload_len() {
            return Err(DropReason::Length);
        }
        let mut arrival = Arrival { udp, header, buffer, now, payer };
        let (strangers, drops) = (&mut self.strangers, &mut self.stats.drops);
        let result = self.gather.handle(push, &mut arrival, strangers, drops);
        incoming.payer = arrival.payer;
        result
    }

    fn dispatch_to(
        &mut self,
        index: LeaseIndex,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        let lease = &self.leases[index.index()];
        let result = if lease.is_from_root(incoming.source()) {
            self.handle_from_root(index, incoming)
        } else {
            match incoming.header.kind {
                Kind::Hello => self.handle_hello(index, incoming),
                Kind::Contrib | Kind::Status => self.handle_step(index, incoming),
                Kind::Answer => self.handle_hand_over(index, incoming),
                Kind::Ack | Kind::Pull | Kind::State => Err(DropReason::Kind),
            }
        };
        self.renew_timer(index);
        result
    }

    /// The lease that a frame's row names: the root's row for what comes from there, else ours.
    fn find_lease(&self, incoming: &Incoming<'_>) -> Result<LeaseIndex, DropReason> {
        let (job, row) = (incoming.header.job, incoming.header.group.row());
        if !self.jobs.get(usize::from(job.0)).is_some_and(Option::is_some) {
            return Err(DropReason::UnknownJob);
        }
        let is_of_job = |index: &LeaseIndex| self.leases[index.index()].row.job == job;
        let from_root = self.roots.find(incoming.source(), row).filter(is_of_job);
        let own = || self.rows.get(usize::from(row)).copied().flatten().filter(is_of_job);
        from_root.or_else(own).ok_or(DropReason::UnknownGroup)
    }

    /// A frame of a job or row that is not served here. A HELLO is told so (SPEC#handshake), once
    /// it is known that it will not be.
    fn refuse_unknown(
        &mut self,
        reason: DropReason,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        if hello_in(&incoming.udp, &incoming.header, incoming.buffer).is_none() {
            return Err(reason);
        }
        if !self.settled.may_refuse(incoming.now) {
            return Err(reason);
        }
        self.pay(incoming.len_bytes(), incoming)?;
        let Incoming { udp, header, buffer, .. } = incoming;
        let len = refuse_unknown(self.local, self.shards, udp, header, buffer).ok_or(reason)?;
        self.stats.drops.count(reason);
        Ok(Verdict::Send { len })
    }

    /// Has a frame paid for at `cost_bytes` by whoever it has turned out to be from.
    pub(super) fn pay(
        &mut self,
        cost_bytes: usize,
        incoming: &mut Incoming<'_>,
    ) -> Result<(), DropReason> {
        let (now, job) = (incoming.now, usize::from(incoming.header.job.0));
        match core::mem::replace(&mut incoming.payer, Payer::Nobody) {
            Payer::Job => match self.jobs.get_mut(job) {
                Some(Some(job)) => job.charge(now, cost_bytes),
                _ => Err(DropReason::UnknownJob),
            },
            Payer::Strangers => self.strangers.take(incoming.source(), now, cost_bytes),
            Payer::Nobody => Ok(()),
        }
    }

    /// The lane that a frame belongs to by its source port, and by its chunk.
    pub(super) fn check_lane(
        &self,
        lease: &Lease,
        rank: Rank,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        let source = incoming.source();
        let addr = lease.members[rank.index()].peer.addr();
        if !source.is_same_host(addr) {
            return Err(DropReason::WrongSource);
        }
        let base = addr.port() - self.lane;
        match source.port().checked_sub(base) {
            Some(lane) if lane == self.lane => Ok(()),
            Some(lane) if lane < self.shards => Err(DropReason::WrongShard),
            _ => Err(DropReason::WrongSource),
        }
    }
}
