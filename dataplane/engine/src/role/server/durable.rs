//! How the journal and the rest of a job meet: what it takes, and what may be told when it is kept.

use alloc::vec::Vec;

use weft_wire::header::Outcome;
use weft_wire::{GroupId, Rank};

use super::job::Job;

impl Job {
    /// The first order number that nobody was told of.
    pub(super) fn told_order(&self) -> u64 {
        let next_order = self.ledger.next_order();
        self.journal.as_ref().map_or(next_order, |journal| journal.untold())
    }

    pub(super) fn is_durable(&self, position: u64) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.is_durable(position))
    }

    pub(super) fn awaits_journal(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.is_behind())
    }

    /// Nothing is known of this group. A server that began anew may yet be given it, and must then
    /// remember what it has said.
    pub(super) fn withdraw(&mut self, rank: Rank, group: GroupId) -> Outcome {
        if !self.is_restored {
            return Outcome::Stale;
        }
        let version = self.ledger.model().version();
        let Some(journal) = &mut self.journal else {
            self.ledger.withdraw(rank, group, version, 0);
            return Outcome::Stale;
        };
        if let Some(position) = journal.withdraw(rank, group) {
            self.ledger.withdraw(rank, group, version, position);
        }
        // It is told when it asks again.
        Outcome::Wait
    }

    /// Writes the record that waits, and returns its position.
    pub(super) fn take_record(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        let journal = self.journal.as_mut()?;
        let (position, stage) = journal.take_record(&self.staging, &self.ledger, out)?;
        if let Some(stage) = stage {
            self.staging.give_back(stage);
        }
        self.stats.journal_records += 1;
        self.stats.journal_bytes += out.len() as u64;
        self.is_dirty = true;
        Some(position)
    }

    pub(super) fn wait_for_journal(&mut self) {
        let is_full = self.journal.as_ref().is_some_and(|journal| journal.has_waiting());
        self.stats.journal_waits += u64::from(is_full);
    }

    /// Records up to this position are kept: tells what they decided.
    pub(super) fn handle_durable(&mut self, position: u64) {
        let Some(journal) = &mut self.journal else { return };
        journal.note_durable(position);
        while let Some(entry) =
            self.journal.as_mut().and_then(|journal| journal.next_told(&self.log))
        {
            self.publish(&entry);
        }
        while let Some((peer, offer)) =
            self.journal.as_mut().and_then(|journal| journal.next_offer())
        {
            let header = self.offer(peer, offer);
            self.queue(peer, header);
        }
        self.is_dirty = true;
    }
}
