//! What becomes of an order number: COMMITTED or VOID, once, in sequence (SPEC#push "Decision").
//!
//! A group is committed whole: its stage is complete, no member is too old, and the replica is near
//! enough. The model changes in one step, its version by the number of members: the ledger does
//! both, and nothing else can (I1, I3, I4).

use weft_control::{CommitMode, Decision, Event, OrderNumber, Version};
use weft_wire::header::Outcome;
use weft_wire::{Members, Nanos};

use super::group::{Group, OpenIndex};
use super::job::Job;
use super::journal::Journal;
use super::log::LogEntry;
use super::stats::DELAYS_MAX;
use crate::role::channel::Peer;
use crate::role::model::{Entry, StageIndex};

/// What can be done about a group now.
enum Ruling {
    /// It must wait, at most until then.
    Wait(Nanos),
    /// All that is left of it may be committed.
    Commit,
    /// It is late, or nobody is left.
    Void,
    /// These members are too old.
    TooOld(Members),
}

impl Job {
    /// Decides all that can be decided now.
    pub(super) fn advance(&mut self, now: Nanos) {
        loop {
            self.judge_at = Nanos::MAX;
            let next_order = self.ledger.next_order();
            let journal = self.journal.as_ref();
            let is_full = journal.is_some_and(|journal| !journal.may_decide(next_order));
            if is_full || self.replica.as_ref().is_some_and(|replica| replica.needs_log(&self.log))
            {
                return;
            }
            let decided = match self.config.commit {
                CommitMode::Order => self.decide_next(now),
                CommitMode::Arrival => self.decide_any(now),
            };
            if !decided {
                return;
            }
        }
    }

    /// The group of the next order number. True when it is decided.
    fn decide_next(&mut self, now: Nanos) -> bool {
        let Some(index) = self.staging.plan().first().copied() else {
            self.holes.close();
            return false;
        };
        let (next_order, first) = (self.ledger.next_order(), self.staging.get(index).order);
        if first == next_order {
            self.holes.close();
            return self.decide(now, index);
        }
        // All holes that end together are one decision, however many they are.
        match self.holes.pass(now, next_order, first, self.config.lateness_ns) {
            Ok(after) => {
                self.record(LogEntry { after, ..LogEntry::empty(next_order) }, None);
                true
            }
            Err(until) => {
                self.judge_at = self.judge_at.min(until);
                false
            }
        }
    }

    /// Any group that can be decided. True when one is.
    fn decide_any(&mut self, now: Nanos) -> bool {
        (0..self.staging.plan().len()).any(|at| {
            let index = self.staging.plan()[at];
            self.decide(now, index)
        })
    }

    fn decide(&mut self, now: Nanos, index: OpenIndex) -> bool {
        match self.rule(now, index) {
            Ruling::Wait(until) => {
                self.judge_at = self.judge_at.min(until);
                return false;
            }
            Ruling::Commit => self.commit(now, index),
            Ruling::Void => self.void(index, Members::EMPTY),
            Ruling::TooOld(old) => self.void(index, old),
        }
        true
    }

    fn rule(&mut self, now: Nanos, index: OpenIndex) -> Ruling {
        let (version, tau_max) = (self.ledger.model().version(), self.config.tau_max);
        let late_at = self.staging.note_head(now, index);
        let group = self.staging.get(index);
        if group.mask.is_empty() {
            return Ruling::Void;
        }
        // At the head the version cannot change any more: what is too old now stays so.
        let old = group.delays(version).fold(Members::EMPTY, |old, (bit, delay)| {
            if delay.is_some_and(|delay| delay <= tau_max) { old } else { old.union(bit) }
        });
        if !old.is_empty() {
            return Ruling::TooOld(old);
        }
        if !group.is_staged {
            return if now >= late_at { Ruling::Void } else { Ruling::Wait(late_at) };
        }
        let Some(replica) = &mut self.replica else { return Ruling::Commit };
        let (ledger, staging) = (&self.ledger, &self.staging);
        let norm = || {
            let (kind, delay) = (group.element_type, group.delay(version));
            let sum = ledger.sum(staging.sums(group.stage), kind, group.exponent, delay);
            sum.norm(ledger.model().kernels())
        };
        match replica.judge(now, &self.log, ledger, norm, &mut self.stats) {
            Err(until) => Ruling::Wait(until),
            Ok(event) => {
                event.into_iter().for_each(|event| self.tell(event));
                Ruling::Commit
            }
        }
    }

    fn commit(&mut self, now: Nanos, index: OpenIndex) {
        let version = self.ledger.model().version();
        let group = self.shut_group(index);
        for delay in group.delays(version).filter_map(|(_, delay)| delay) {
            let place = usize::try_from(delay).unwrap_or(usize::MAX).min(DELAYS_MAX - 1);
            self.stats.delays[place] += 1;
            self.stats.delay_max = self.stats.delay_max.max(delay);
        }
        self.stats.groups_committed += 1;
        self.stats.commits += group.mask.len() as u64;
        self.stats.commit_latency_total_ns += now.since(group.installed_at).0;
        let entry = LogEntry {
            outcome: Outcome::Committed,
            members: group.mask,
            delay: group.delay(version),
            is_composed: group.is_composed,
            ..self.entry_of(&group)
        };
        self.record(entry, Some(group.stage));
    }

    /// Judges a group VOID; `old` are the members because of whose age.
    fn void(&mut self, index: OpenIndex, old: Members) {
        let group = self.shut_group(index);
        self.staging.give_back(group.stage);
        self.stats.dropped += old.len() as u64;
        self.stats.voids += group.mask.without(old).len() as u64;
        let outcome = if old.is_empty() { Outcome::Void } else { Outcome::Dropped };
        self.record(LogEntry { outcome, old, ..self.entry_of(&group) }, None);
    }

    /// Takes a decided group out of all tables. Its stage is the caller's.
    fn shut_group(&mut self, index: OpenIndex) -> Group {
        self.credits.shut(index);
        self.staging.shut(index)
    }

    /// The decision on a group, before it is known what it does.
    fn entry_of(&self, group: &Group) -> LogEntry {
        LogEntry {
            group: group.id,
            element_type: group.element_type,
            exponent: group.exponent,
            audience: group.mask.union(group.closed),
            via: group.via,
            ..LogEntry::empty(self.ledger.next_order())
        }
    }

    /// Decides the next order number, commits the sum of `stage` if there is one, and puts the
    /// decision into the log. It is told when it is durable.
    fn record(&mut self, entry: LogEntry, stage: Option<StageIndex>) {
        let LogEntry { after, group, members, audience, old, .. } = entry;
        let position = self.journal.as_ref().map_or(0, Journal::next_position);
        let held_by = Some(entry.order);
        let decision = Entry { after, group, members, audience, old, held_by, position };
        let sum = stage.map(|stage| {
            let wire = self.staging.sums(stage);
            self.ledger.sum(wire, entry.element_type, entry.exponent, entry.delay)
        });
        let norm = self.ledger.decide(&decision, sum.as_ref());
        let sum = stage.zip(sum.map(|sum| sum.scale));
        let (model, kept) = (self.ledger.model(), stage.filter(|_| self.log.keeps_sums()));
        let (version, momentum_norm) = (model.version(), model.momentum_norm());
        let entry = LogEntry { stage: kept, version, norm, momentum_norm, position, ..entry };
        self.log.push(entry, |stage| self.staging.give_back(stage));
        if let Some(journal) = &mut self.journal {
            journal.decide(&entry, sum);
            return;
        }
        if let (Some(stage), None) = (stage, kept) {
            self.staging.give_back(stage);
        }
        self.publish(&entry);
    }

    /// Tells everybody of a decision: the controller, the replica, the aggregator, whose lease this
    /// frees, and the members, unless these are told when the replica has it.
    pub(super) fn publish(&mut self, entry: &LogEntry) {
        let decision = match entry.outcome {
            Outcome::Committed => Decision::Committed(Version(entry.version)),
            Outcome::Dropped => Decision::Dropped,
            _ => Decision::Void,
        };
        self.tell(Event::Decided {
            group: entry.group,
            // All below it are decided, too.
            order: OrderNumber(entry.after - 1),
            decision,
            members: entry.members,
            norm: entry.norm,
            momentum_norm: entry.momentum_norm,
        });
        self.tell_replica(entry);
        if let Some(via) = entry.via {
            // To an aggregator all that is not committed is VOID.
            let outcome = if entry.members.is_empty() { Outcome::Void } else { Outcome::Committed };
            let header = self.word_of(entry.group, outcome, entry.version, entry.members);
            self.queue(Peer::Box(via), header);
        }
        if entry.outcome == Outcome::Committed && self.is_held_for_replica() {
            return;
        }
        self.log.mark_told(entry.order);
        self.release(entry);
    }

    /// Tells the members of a decision what became of their updates.
    pub(super) fn release(&mut self, entry: &LogEntry) {
        for rank in entry.audience.iter() {
            if let Some(decided) = self.ledger.release(rank, entry.group) {
                let header = self.ack(&decided, rank.bit());
                self.queue(Peer::Worker(rank), header);
            }
        }
    }
}
