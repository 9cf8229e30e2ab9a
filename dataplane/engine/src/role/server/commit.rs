//! What becomes of an order number: COMMITTED or VOID, once, in sequence (SPEC#push "Decision").
//!
//! A group is committed whole: its stage is complete, no member is too old, and the replica is near
//! enough. The model changes in one step, its version by the number of members. Nothing else in
//! the server changes the model (I1, I3, I4).

use weft_control::{CommitMode, Decision, Event, OrderNumber, Version};
use weft_wire::header::{ElementType, Outcome};
use weft_wire::{GroupId, Members, Nanos};

use super::group::{Group, OpenIndex};
use super::job::Job;
use super::log::LogEntry;
use super::stats::DELAYS_MAX;
use crate::role::channel::Peer;
use crate::role::model::{Decided, StageIndex, Sum, scale};

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

/// Order numbers that nobody installed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holes {
    /// How long the next number has been one.
    since: Option<Nanos>,
    /// Below this they are meant, and not waited for.
    skip_below: u64,
}

impl Job {
    /// Numbers below that nobody has installed stay unused.
    pub(super) fn skip(&mut self, below: OrderNumber) {
        self.holes.skip_below = self.holes.skip_below.max(below.0);
        self.is_dirty = true;
    }

    /// Decides all that can be decided now.
    pub(super) fn advance(&mut self, now: Nanos) {
        loop {
            self.judge_at = Nanos::MAX;
            if !self.may_decide() || self.log_waits_for_replica() {
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
        let Some(index) = self.plan.first().copied() else {
            self.holes.since = None;
            return false;
        };
        let first = self.group(index).order;
        if first != self.next_order {
            return self.skip_hole(now, first);
        }
        self.holes.since = None;
        self.decide(now, index)
    }

    /// Order numbers that nobody installs hold up those behind them for a bounded time, and not at
    /// all once the controller has said that nobody will. All that end so are one decision, however
    /// many they are.
    fn skip_hole(&mut self, now: Nanos, first: u64) -> bool {
        let since = *self.holes.since.get_or_insert(now);
        let until = since.saturating_add(Nanos(self.config.lateness_ns));
        let after = if now >= until { first } else { first.min(self.holes.skip_below) };
        if after <= self.next_order {
            self.judge_at = self.judge_at.min(until);
            return false;
        }
        self.record(LogEntry { after, ..self.empty_entry() }, None);
        true
    }

    /// A decision that changes nothing.
    fn empty_entry(&self) -> LogEntry {
        LogEntry {
            order: self.next_order,
            after: self.next_order + 1,
            group: GroupId::default(),
            outcome: Outcome::Void,
            members: Members::EMPTY,
            element_type: ElementType::None,
            exponent: 0,
            delay: 0,
            version: self.model.version,
            is_composed: false,
            stage: None,
            norm: 0.0,
            momentum_norm: self.model.momentum_norm,
            audience: Members::EMPTY,
            old: Members::EMPTY,
            via: None,
            position: 0,
            is_told: false,
        }
    }

    /// Any group that can be decided. True when one is.
    fn decide_any(&mut self, now: Nanos) -> bool {
        (0..self.plan.len()).any(|at| {
            let index = self.plan[at];
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
        let (version, tau_max) = (self.model.version, self.config.tau_max);
        let group = self.group_mut(index);
        let late_at = group.head_since.get_or_insert(now).saturating_add(Nanos(group.lateness_ns));
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
        match self.wait_for_replica(now, index) {
            Some(until) => Ruling::Wait(until),
            None => Ruling::Commit,
        }
    }

    /// The delay that scales a group: the greatest of its members'.
    fn delay_of(&self, group: &Group) -> u16 {
        let delays = group.delays(self.model.version).filter_map(|(_, delay)| delay);
        u16::try_from(delays.max().unwrap_or(0)).unwrap_or(u16::MAX)
    }

    /// The staged sum as it would be applied now.
    pub(super) fn sum_of(&self, index: OpenIndex) -> Sum<'_> {
        let group = self.group(index);
        let rate = self.config.model.learning_rate;
        Sum {
            wire: self.pool.sums(group.stage),
            element_type: group.element_type,
            exponent: group.exponent,
            scale: scale(rate, self.model.version, self.delay_of(group)),
        }
    }

    fn commit(&mut self, now: Nanos, index: OpenIndex) {
        let delay = self.delay_of(self.group(index));
        let count = self.group(index).mask.len() as u64;
        self.count_delays(index);
        let (group, rate) = (self.group(index), self.config.model.learning_rate);
        let sum = Sum {
            wire: self.pool.sums(group.stage),
            element_type: group.element_type,
            exponent: group.exponent,
            scale: scale(rate, self.model.version, delay),
        };
        let scale = sum.scale;
        let norm = self.model.apply(&sum, count);
        let group = self.shut_group(index);
        self.stats.groups_committed += 1;
        self.stats.commits += count;
        self.stats.commit_latency_total_ns += now.since(group.installed_at).0;
        let keep = self.log.keeps_sums();
        let sum = Some((group.stage, scale)).filter(|_| self.journal.is_some());
        if !keep && sum.is_none() {
            self.pool.give_back(group.stage);
        }
        let entry = LogEntry {
            group: group.id,
            outcome: Outcome::Committed,
            members: group.mask,
            element_type: group.element_type,
            exponent: group.exponent,
            delay,
            is_composed: group.is_composed,
            stage: keep.then_some(group.stage),
            norm,
            audience: group.mask.union(group.closed),
            via: group.via,
            ..self.empty_entry()
        };
        self.record(entry, sum);
    }

    fn count_delays(&mut self, index: OpenIndex) {
        let version = self.model.version;
        let group = self.groups[index.index()].as_ref().expect("the caller found it open");
        for delay in group.delays(version).filter_map(|(_, delay)| delay) {
            let place = usize::try_from(delay).unwrap_or(usize::MAX).min(DELAYS_MAX - 1);
            self.stats.delays[place] += 1;
            self.stats.delay_max = self.stats.delay_max.max(delay);
        }
    }

    /// Judges a group VOID; `old` are the members because of whose age.
    fn void(&mut self, index: OpenIndex, old: Members) {
        let group = self.shut_group(index);
        self.pool.give_back(group.stage);
        self.stats.dropped += old.len() as u64;
        self.stats.voids += group.mask.without(old).len() as u64;
        let outcome = if old.is_empty() { Outcome::Void } else { Outcome::Dropped };
        let entry = LogEntry {
            group: group.id,
            outcome,
            element_type: group.element_type,
            exponent: group.exponent,
            audience: group.mask.union(group.closed),
            old,
            via: group.via,
            ..self.empty_entry()
        };
        self.record(entry, None);
    }

    /// Puts a decision into the log, notes its outcomes, and moves on to the next order number. It
    /// is told when it is durable. `sum` is what was committed, with its scale, if that must be
    /// kept.
    fn record(&mut self, entry: LogEntry, sum: Option<(StageIndex, f32)>) {
        let entry = LogEntry { position: self.journal_position(), ..entry };
        while let Some(evicted) = self.log.evict(entry.stage.is_some()) {
            if let Some(stage) = evicted.stage {
                self.pool.give_back(stage);
            }
        }
        self.log.push(entry);
        self.next_order = entry.after;
        for rank in entry.audience.iter() {
            let decided = Decided::new(entry.group, entry.outcome_of(rank), entry.version);
            let (held_by, position) = (Some(entry.order), entry.position);
            self.outcomes.push(rank, Decided { held_by, position, ..decided });
        }
        if self.journal.is_some() {
            self.journal_decision(&entry, sum);
        } else {
            self.publish(&entry);
        }
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
        if let Some(kept) = self.log.get_mut(entry.order) {
            kept.is_told = true;
        }
        self.release(entry);
    }

    /// Tells the members of a decision what became of their updates.
    pub(super) fn release(&mut self, entry: &LogEntry) {
        for rank in entry.audience.iter() {
            let Some(decided) = self.outcomes.get_mut(rank, entry.group) else { continue };
            decided.held_by = None;
            let decided = *decided;
            self.acknowledge(rank, &decided);
        }
    }
}
