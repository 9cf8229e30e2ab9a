//! What must be durable before it is told (PROTOCOL section 4): decisions, and the word that a
//! group is not known.
//!
//! Nobody hears of a decision whose record is not kept for good: neither its members and its
//! aggregator, nor the controller, nor the replica, nor a worker by pulling the version that it
//! made. So a server that begins anew from its journal knows everything that any of them was told
//! (I1, I3). One record at a time waits to be taken; decisions wait behind it, and behind a bounded
//! number of records that are on their way to the disk (I8).

use alloc::vec;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use weft_control::{BoxIndex, OrderNumber, Version};
use weft_wire::header::Outcome;
use weft_wire::{GroupId, MEMBERS_MAX, Members, Rank};

use super::config::ServerJobConfig;
use super::job::Job;
use super::log::LogEntry;
use crate::role::channel::Peer;
use crate::role::model::journal::{DecisionRecord, Lives, Record};
use crate::role::model::{Decided, ModelState, Offer, StageIndex};

/// The way of decisions to the disk.
#[derive(Debug)]
pub(super) struct Journal {
    /// Position of the last record.
    made: u64,
    /// All records up to this one are kept.
    durable: u64,
    waiting: Option<Waiting>,
    /// The first order number that nobody was told of.
    untold: u64,
    /// Most order numbers that may be untold.
    untold_max: u64,
    /// Version after the last decision that was told.
    version: u64,
    /// Versions that peers asked for and that are not durable: workers by rank, then boxes.
    offers: Vec<Option<Offer>>,
}

/// A record that is not taken yet.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Decision { entry: LogEntry, sum: Option<(StageIndex, f32)> },
    Forsworn { rank: Rank, group: GroupId },
}

impl Journal {
    pub(super) fn new(config: &ServerJobConfig) -> Self {
        // What is not told must still be in the log when its time comes.
        let logged = match config.stages_logged() {
            0 => config.log_entries_max,
            stages => config.log_entries_max.min(stages as usize),
        };
        Self {
            made: 0,
            durable: 0,
            waiting: None,
            untold: config.initial_order.0,
            untold_max: UNTOLD_MAX.min(logged as u64),
            version: config.initial_version.0,
            offers: vec![None; config.workers.len() + config.boxes.len()],
        }
    }

    /// Begins where a former life stopped.
    pub(super) fn begin(&mut self, state: &ModelState) {
        self.untold = state.next_order.0;
        self.version = state.version.0;
    }

    fn has_told(&self, offer: Offer) -> bool {
        offer.version <= self.version && offer.next_order <= self.untold
    }
}

impl Job {
    /// False while the journal has no room for another decision.
    pub(super) fn may_decide(&self) -> bool {
        self.journal.as_ref().is_none_or(|journal| {
            journal.waiting.is_none() && self.next_order - journal.untold < journal.untold_max
        })
    }

    /// The first order number that nobody was told of.
    pub(super) fn told_order(&self) -> u64 {
        self.journal.as_ref().map_or(self.next_order, |journal| journal.untold)
    }

    /// The position of the next record; 0 without a journal.
    pub(super) fn journal_position(&self) -> u64 {
        self.journal.as_ref().map_or(0, |journal| journal.made + 1)
    }

    pub(super) fn is_durable(&self, position: u64) -> bool {
        self.journal.as_ref().is_none_or(|journal| position <= journal.durable)
    }

    pub(super) fn awaits_journal(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.made > journal.durable)
    }

    pub(super) fn journal_decision(&mut self, entry: &LogEntry, sum: Option<(StageIndex, f32)>) {
        let Some(journal) = &mut self.journal else { return };
        debug_assert!(journal.waiting.is_none(), "decisions wait for their turn");
        journal.made = entry.position;
        journal.waiting = Some(Waiting::Decision { entry: *entry, sum });
    }

    /// Nothing is known of this group. A server that began anew may yet be given it, and must then
    /// remember what it has said.
    pub(super) fn forswear(&mut self, rank: Rank, group: GroupId) -> Outcome {
        if !self.is_restored {
            return Outcome::Stale;
        }
        let decided = Decided::new(group, Outcome::Void, self.model.version);
        let position = self.journal_position();
        if let Some(journal) = &mut self.journal {
            if journal.waiting.is_none() {
                journal.made = position;
                journal.waiting = Some(Waiting::Forsworn { rank, group });
                self.outcomes.push(rank, Decided { position, ..decided });
            }
            // It is told when it asks again.
            return Outcome::Wait;
        }
        self.outcomes.push(rank, decided);
        Outcome::Stale
    }

    /// Writes the record that waits, and returns its position.
    pub(super) fn take_record(&mut self, out: &mut Vec<u8>) -> Option<u64> {
        let journal = self.journal.as_mut()?;
        let (waiting, position) = (journal.waiting.take()?, journal.made);
        match waiting {
            Waiting::Decision { entry, sum } => self.write_decision(&entry, sum, out),
            Waiting::Forsworn { rank, group } => {
                let (life, version) = (self.outcomes.life(rank), Version(self.model.version));
                Record::Forsworn { rank, life, group, version }.write(out);
            }
        }
        self.stats.journal_records += 1;
        self.stats.journal_bytes += out.len() as u64;
        self.is_dirty = true;
        Some(position)
    }

    fn write_decision(
        &mut self,
        entry: &LogEntry,
        sum: Option<(StageIndex, f32)>,
        out: &mut Vec<u8>,
    ) {
        let lives: ArrayVec<u64, MEMBERS_MAX> =
            entry.audience.iter().map(|rank| self.outcomes.life(rank)).collect();
        let record = DecisionRecord {
            order: OrderNumber(entry.order),
            group: entry.group,
            outcome: entry.outcome,
            element_type: entry.element_type,
            exponent: entry.exponent,
            scale: sum.map_or(0.0, |(_, scale)| scale),
            version: Version(entry.version),
            members: entry.run_end().map_or(entry.members, Members),
            audience: entry.audience,
            old: entry.old,
            lives: Lives::Numbers(&lives),
            sum: sum.map_or(&[], |(stage, _)| self.pool.sums(stage)),
        };
        Record::Decision(record).write(out);
        if let (None, Some((stage, _))) = (entry.stage, sum) {
            self.pool.give_back(stage);
        }
    }

    pub(super) fn wait_for_journal(&mut self) {
        let is_full = self.journal.as_ref().is_some_and(|journal| journal.waiting.is_some());
        self.stats.journal_waits += u64::from(is_full);
    }

    /// Records up to this position are kept: tells what they decided.
    pub(super) fn handle_durable(&mut self, position: u64) {
        let Some(journal) = &mut self.journal else { return };
        journal.durable = journal.durable.max(position.min(journal.made));
        loop {
            let Some(journal) = &mut self.journal else { return };
            let Some(entry) = self.log.get(journal.untold).copied() else { break };
            if entry.position > journal.durable {
                break;
            }
            journal.untold = entry.after;
            journal.version = entry.version;
            self.publish(&entry);
        }
        self.tell_offers();
        self.is_dirty = true;
    }

    /// True when a version must not be offered yet; then it will be, to this peer.
    pub(super) fn hold_offer(&mut self, peer: Peer, offer: Offer) -> bool {
        let place = self.peer_place(peer);
        let Some(journal) = &mut self.journal else { return false };
        if journal.has_told(offer) {
            return false;
        }
        if let Some(place) = journal.offers.get_mut(place) {
            *place = Some(offer);
        }
        true
    }

    fn tell_offers(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        for place in 0..journal.offers.len() {
            let Some(journal) = &mut self.journal else { return };
            let Some(offer) = journal.offers[place].filter(|offer| journal.has_told(*offer)) else {
                continue;
            };
            journal.offers[place] = None;
            let peer = self.peer_at_place(place);
            let header = self.offer(peer, offer);
            self.queue(peer, header);
        }
    }

    fn peer_place(&self, peer: Peer) -> usize {
        match peer {
            Peer::Worker(rank) => rank.index(),
            Peer::Box(BoxIndex(index)) => self.config.workers.len() + usize::from(index),
        }
    }

    fn peer_at_place(&self, place: usize) -> Peer {
        match place.checked_sub(self.config.workers.len()) {
            None => {
                let rank = u8::try_from(place).ok().and_then(Rank::new);
                Peer::Worker(rank.expect("at most 64 workers"))
            }
            Some(index) => Peer::Box(BoxIndex(u8::try_from(index).expect("at most 64 boxes"))),
        }
    }
}

/// Order numbers that may be on their way to the disk.
const UNTOLD_MAX: u64 = 64;
