//! A lane whose slots are in a switch: what `role/switch` asks of it, and tells it.
//!
//! The lane judges handshakes and hand-overs as ever. A lease that is complete waits for the
//! switch, and its own slots hold no sums but those that were handed over. Decides nothing but when
//! a lease that waits is open.

use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, HEADER_LEN, Operation};
use weft_wire::{ChunkIndex, Epoch, GroupId, JobId, Members, Rank};

use super::lease::{Lease, Phase};
use super::{Aggregator, dispatch_out};
use crate::role::LeaseIndex;
use crate::role::way::Way;
use crate::slot::{Bank, State};
use crate::table::JobConfig;

/// A lease, as the switch needs to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseView<'a> {
    pub(crate) index: LeaseIndex,
    lease: &'a Lease,
}

/// A bank that the switch is to hold before frames reach the lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Seeded {
    /// The bank, counted from the lease's first.
    pub(crate) bank: u32,
    pub(crate) step: u32,
    pub(crate) exponent: i8,
    pub(crate) has_data: bool,
}

impl<'a> LeaseView<'a> {
    pub(crate) fn job(&self) -> JobId {
        self.lease.row.job
    }

    pub(crate) fn group(&self) -> GroupId {
        self.lease.group
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.lease.epoch
    }

    /// All members are here: the switch is to serve it.
    pub(crate) fn is_formed(&self) -> bool {
        self.lease.phase != Phase::Forming
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.lease.phase == Phase::AwaitingSwitch
    }

    pub(crate) fn mask(&self) -> Members {
        self.lease.mask
    }

    /// Slots of the lease.
    pub(crate) fn window(&self) -> u32 {
        u32::from(self.lease.window)
    }

    pub(crate) fn chunks(&self) -> u32 {
        self.lease.step_count
    }

    pub(crate) fn kind(&self) -> (ElementType, Operation) {
        (self.lease.row.element_type, self.lease.row.operation)
    }

    pub(crate) fn exponent(&self) -> Option<i8> {
        self.lease.row.exponent
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = (Rank, Way<'a>)> + use<'a> {
        let lease = self.lease;
        (0..).zip(&lease.members).filter_map(move |(rank, member)| {
            let (cookie_up, cookie_down) = (member.peer.cookie_up(), lease.cookie_down);
            Some((Rank::new(rank)?, Way { encap: &member.encap, cookie_up, cookie_down }))
        })
    }

    /// What the formation left in the slots: answered predecessors, and sums handed over since.
    pub(crate) fn seeds(&self) -> impl Iterator<Item = Seeded> + use<'a> {
        self.lease.slots.banks().filter(|(_, bank)| bank.state() == State::Answered).map(seeded)
    }

    /// The bank of a step, if a sum was handed over to it.
    pub(crate) fn handed_over(&self, step: u32) -> Option<Seeded> {
        let slots = &self.lease.slots;
        let index = slots.locate(step);
        let bank = slots.bank(index);
        bank.keeps_answer(step).then(|| seeded((index.number(), bank)))
    }

    /// Writes the sum of a step, which was handed over.
    pub(crate) fn write_sum(&self, step: u32, out: &mut [u8]) {
        let slots = &self.lease.slots;
        slots.store().emit(slots.locate(step), out);
    }

    /// Bytes of a chunk's elements.
    pub(crate) fn payload_len(&self) -> usize {
        self.lease.payload_len
    }
}

fn seeded((bank, of): (u32, &Bank)) -> Seeded {
    Seeded { bank, step: of.step(), exponent: of.exponent(), has_data: of.has_data() }
}

impl Aggregator {
    /// Has leases wait for a switch, which has the slots that contributions go to.
    pub(crate) fn behind_switch(mut self) -> Self {
        self.is_behind_switch = true;
        self
    }

    /// Where the box is.
    pub(crate) fn local(&self) -> Endpoint {
        self.local
    }

    /// A job that is reduced here.
    pub(crate) fn job_config(&self, job: JobId) -> Option<&JobConfig> {
        self.jobs.get(usize::from(job.0))?.as_ref().map(|job| &job.config)
    }

    /// The jobs that are reduced here.
    pub(crate) fn job_configs(&self) -> impl Iterator<Item = &JobConfig> {
        self.jobs.iter().flatten().map(|job| &job.config)
    }

    /// Ends a lease that the switch does not take. Its members hear that it is not served.
    pub(crate) fn drop_lease(&mut self, job: JobId, row: u16) {
        // It was found a moment ago.
        let _ = self.remove_lease(job, row);
    }

    /// The leases that are there.
    pub(crate) fn views(&self) -> impl Iterator<Item = LeaseView<'_>> {
        let places = self.leases.iter().zip(0..).filter(|(lease, _)| lease.is_installed);
        places.map(|(lease, index)| LeaseView { index: LeaseIndex(index), lease })
    }

    pub(crate) fn view(&self, index: LeaseIndex) -> LeaseView<'_> {
        LeaseView { index, lease: &self.leases[index.index()] }
    }

    /// The lease of a row.
    pub(crate) fn view_of(&self, job: JobId, row: u16) -> Option<LeaseView<'_>> {
        let index = self.rows.get(usize::from(row)).copied().flatten()?;
        Some(self.view(index)).filter(|view| view.job() == job)
    }

    /// The switch serves the lease now: its members are welcome.
    pub(crate) fn open_behind(&mut self, index: LeaseIndex) {
        let lease = &mut self.leases[index.index()];
        if lease.phase == Phase::AwaitingSwitch {
            lease.phase = Phase::Open;
            lease.renew_expected();
        }
    }

    /// Writes the answer to a step that was handed over, for one member; returns its length.
    pub(crate) fn write_handed_over(
        &self,
        index: LeaseIndex,
        member: usize,
        step: u32,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let lease = &self.leases[index.index()];
        let encap = &lease.members.get(member)?.encap;
        let place = lease.slots.locate(step);
        if !lease.slots.bank(place).keeps_answer(step) {
            return None;
        }
        let start = encap.header_len() + HEADER_LEN;
        lease.slots.store().emit(place, buffer.get_mut(start..start + lease.payload_len)?);
        self.answer_header(lease, step, 0).emit(encap.payload_mut(buffer));
        let datagram_len = HEADER_LEN + lease.payload_len;
        Some(dispatch_out(encap, lease.row.integrity, buffer, datagram_len))
    }

    /// The bit of `step` and the lease that a chunk of a row is of, if it is.
    pub(crate) fn step_of(
        &self,
        job: JobId,
        group: GroupId,
        chunk: ChunkIndex,
    ) -> Option<(LeaseIndex, u32)> {
        let view = self.view_of(job, group.row()).filter(|view| view.group() == group)?;
        Some((view.index, chunk.0 >> self.shards_log2))
    }
}
