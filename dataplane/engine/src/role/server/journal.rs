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
use weft_control::{OrderNumber, Version};
use weft_wire::{GroupId, MEMBERS_MAX, Members, Rank};

use super::config::ServerJobConfig;
use super::log::{Log, LogEntry};
use super::places::Places;
use super::staging::Staging;
use crate::role::channel::Peer;
use crate::role::model::journal::{DecisionRecord, Lives, Record};
use crate::role::model::{Ledger, ModelState, Offer, StageIndex};

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
    /// Versions that peers asked for and that are not durable.
    offers: Vec<Option<Offer>>,
    places: Places,
}

/// A record that is not taken yet.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Decision { entry: LogEntry, sum: Option<(StageIndex, f32)> },
    Withdrawn { rank: Rank, group: GroupId },
}

impl Journal {
    pub(super) fn new(config: &ServerJobConfig, places: Places) -> Self {
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
            offers: vec![None; places.workers + places.boxes],
            places,
        }
    }

    /// Begins where a former life stopped.
    pub(super) fn begin(&mut self, state: &ModelState) {
        self.untold = state.next_order.0;
        self.version = state.version.0;
    }

    /// False while there is no room for another decision.
    pub(super) fn may_decide(&self, next_order: u64) -> bool {
        self.waiting.is_none() && next_order - self.untold < self.untold_max
    }

    /// The first order number that nobody was told of.
    pub(super) fn untold(&self) -> u64 {
        self.untold
    }

    /// The position of the next record.
    pub(super) fn next_position(&self) -> u64 {
        self.made + 1
    }

    /// True when the record at this position is kept.
    pub(super) fn is_durable(&self, position: u64) -> bool {
        position <= self.durable
    }

    /// True while a record is not kept yet.
    pub(super) fn is_behind(&self) -> bool {
        self.made > self.durable
    }

    /// True while a record waits to be taken.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Takes a decision, and the stage and the scale of the sum that it committed.
    pub(super) fn decide(&mut self, entry: &LogEntry, sum: Option<(StageIndex, f32)>) {
        debug_assert!(self.waiting.is_none(), "decisions wait for their turn");
        self.made = entry.position;
        self.waiting = Some(Waiting::Decision { entry: *entry, sum });
    }

    /// Takes the word that a group is not known; returns its position, or none while there is no
    /// room for it.
    pub(super) fn withdraw(&mut self, rank: Rank, group: GroupId) -> Option<u64> {
        if self.waiting.is_some() {
            return None;
        }
        self.made += 1;
        self.waiting = Some(Waiting::Withdrawn { rank, group });
        Some(self.made)
    }

    /// Writes the record that waits, and returns its position, and the stage of its sum if the log
    /// does not keep that.
    pub(super) fn take_record(
        &mut self,
        staging: &Staging,
        ledger: &Ledger,
        out: &mut Vec<u8>,
    ) -> Option<(u64, Option<StageIndex>)> {
        let mut stage = None;
        match self.waiting.take()? {
            Waiting::Decision { entry, sum } => {
                write_decision(&entry, sum, staging, ledger, out);
                stage = sum.map(|(stage, _)| stage).filter(|_| entry.stage.is_none());
            }
            Waiting::Withdrawn { rank, group } => {
                let life = ledger.outcomes().life(rank);
                let version = Version(ledger.model().version());
                Record::Withdrawn { rank, life, group, version }.write(out);
            }
        }
        Some((self.made, stage))
    }

    /// Records up to this position are kept.
    pub(super) fn note_durable(&mut self, position: u64) {
        self.durable = self.durable.max(position.min(self.made));
    }

    /// The next decision that may be told now. Call until there is none.
    pub(super) fn next_told(&mut self, log: &Log) -> Option<LogEntry> {
        let entry = log.get(self.untold).copied()?;
        if entry.position > self.durable {
            return None;
        }
        self.untold = entry.after;
        self.version = entry.version;
        Some(entry)
    }

    fn has_told(&self, offer: Offer) -> bool {
        offer.version <= self.version && offer.next_order <= self.untold
    }

    /// True when a version must not be offered yet; then it will be, to this peer.
    pub(super) fn hold_offer(&mut self, peer: Peer, offer: Offer) -> bool {
        if self.has_told(offer) {
            return false;
        }
        if let Some(place) = self.offers.get_mut(self.places.of(peer)) {
            *place = Some(offer);
        }
        true
    }

    /// True while a peer will be offered a version once that is durable. It stays that version:
    /// each newer one would have to be waited for as long, and the peer asks faster than disks are.
    pub(super) fn holds_offer(&self, peer: Peer) -> bool {
        self.offers.get(self.places.of(peer)).is_some_and(Option::is_some)
    }

    /// A version that may be offered now, and to whom. Call until there is none.
    pub(super) fn next_offer(&mut self) -> Option<(Peer, Offer)> {
        let may_tell = |offer: &Option<Offer>| offer.is_some_and(|offer| self.has_told(offer));
        let place = self.offers.iter().position(may_tell)?;
        Some((self.places.peer(place), self.offers[place].take()?))
    }
}

fn write_decision(
    entry: &LogEntry,
    sum: Option<(StageIndex, f32)>,
    staging: &Staging,
    ledger: &Ledger,
    out: &mut Vec<u8>,
) {
    let outcomes = ledger.outcomes();
    let lives: ArrayVec<u64, MEMBERS_MAX> =
        entry.audience.iter().map(|rank| outcomes.life(rank)).collect();
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
        sum: sum.map_or(&[], |(stage, _)| staging.sums(stage)),
    };
    Record::Decision(record).write(out);
}

/// Order numbers that may be on their way to the disk.
const UNTOLD_MAX: u64 = 64;
