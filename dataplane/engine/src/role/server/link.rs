//! The link to the replica: what it was told, what it has, how far away it may be (DESIGN I5).
//!
//! Invariant: the bound is said not to hold before a commit breaks it, and to hold only while the
//! distance that the log proves is within it. What the replica has only grows within its life.

use core::ops::Range;

use weft_control::{AckMode, Event, OrderNumber, divergence_bound};
use weft_wire::Nanos;
use weft_wire::header::Outcome;

use super::config::ServerJobConfig;
use super::log::{Log, LogEntry};
use super::stats::ServerJobStats;
use crate::role::channel::Peer;
use crate::role::model::Ledger;

/// What a server knows of its replica.
#[derive(Debug)]
pub(super) struct ReplicaLink {
    peer: Peer,
    ack: AckMode,
    div_max: Option<f64>,
    divergence_wait_ns: u64,
    /// What a new life of it has.
    initial_order: u64,
    /// The next order number that it wants: it has applied all before.
    wanted: u64,
    /// Norm of the momentum term there.
    momentum_norm: f64,
    /// Bound of the distance, when it was last measured.
    bound: f64,
    is_held: bool,
    /// Its present life has asked for decisions.
    is_met: bool,
    /// Acknowledgements do not wait for it any more.
    is_left: bool,
    /// Since when the commit that is next waits for it.
    waiting_since: Option<Nanos>,
}

impl ReplicaLink {
    /// None for a job without a replica.
    pub(super) fn new(config: &ServerJobConfig) -> Option<Self> {
        Some(Self {
            peer: Peer::Box(config.replica?),
            ack: config.ack,
            div_max: config.div_max,
            divergence_wait_ns: config.divergence_wait_ns,
            initial_order: config.initial_order.0,
            wanted: config.initial_order.0,
            momentum_norm: 0.0,
            bound: 0.0,
            is_held: true,
            is_met: false,
            is_left: false,
            waiting_since: None,
        })
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// True when commits are acknowledged only after it.
    pub(super) fn gates_acks(&self) -> bool {
        self.ack == AckMode::Replica
    }

    /// True when it has applied this order number.
    pub(super) fn has(&self, order: u64) -> bool {
        self.wanted > order
    }

    /// True when acknowledgements do not wait for it any more.
    pub(super) fn is_left(&self) -> bool {
        self.is_left
    }

    /// The versions that may be shown: while acknowledgements wait for it, those that it has. A
    /// worker then never computes on a model that its promotion would take back.
    pub(super) fn shown_below(&self) -> u64 {
        if self.gates_acks() { self.wanted } else { u64::MAX }
    }

    /// True while the next decision would take the place of one in the log that workers wait to be
    /// told of, or that it needs next: where acknowledgements wait for it, decisions wait too.
    pub(super) fn needs_log(&self, log: &Log) -> bool {
        let is_needed = |entry: &LogEntry| !entry.is_told || entry.has(self.wanted);
        self.gates_acks() && log.next_evicted().any(is_needed)
    }

    /// Bound of the distance to it, with one more commit of this norm.
    fn bound_with(&self, log: &Log, ledger: &Ledger, next: Option<f64>) -> f64 {
        if self.wanted < log.front(ledger.next_order()) {
            // What it lacks is no longer known.
            return f64::INFINITY;
        }
        let committed = |entry: &&LogEntry| entry.outcome == Outcome::Committed;
        let missing = log.since(self.wanted).filter(committed).map(|entry| entry.norm);
        let norms = missing.chain(next);
        divergence_bound(ledger.model().momentum(), self.momentum_norm, norms)
    }

    /// Whether the next commit, of this norm, must wait for it: until when at most. Else what is to
    /// be told before the commit.
    pub(super) fn judge(
        &mut self,
        now: Nanos,
        log: &Log,
        ledger: &Ledger,
        norm: impl FnOnce() -> f64,
        stats: &mut ServerJobStats,
    ) -> Result<Option<Event>, Nanos> {
        let Some(div_max) = self.div_max else { return Ok(None) };
        let bound = self.bound_with(log, ledger, Some(norm()));
        if bound <= div_max {
            self.waiting_since = None;
            return Ok(None);
        }
        let lags = self.wanted < ledger.next_order();
        let is_first = lags && self.waiting_since.is_none();
        let since = *self.waiting_since.get_or_insert(now);
        let until = since.saturating_add(Nanos(self.divergence_wait_ns));
        stats.bound_waits += u64::from(is_first);
        // Once the bound is broken, a replica that does not come back holds up nothing more; one
        // that has everything cannot come nearer.
        if lags && self.is_held && now < until {
            return Err(until);
        }
        self.waiting_since = None;
        stats.bound_broken += 1;
        Ok(self.declare(false, bound))
    }

    /// Whether the bound is held: an event, when that changes.
    fn declare(&mut self, is_held: bool, divergence_bound: f64) -> Option<Event> {
        let order = OrderNumber(self.wanted);
        let changed = core::mem::replace(&mut self.is_held, is_held) != is_held;
        changed.then_some(Event::ReplicaAt { order, divergence_bound, is_held })
    }

    /// Measures how far away it is; returns what is to be told of it.
    pub(super) fn measure(
        &mut self,
        log: &Log,
        ledger: &Ledger,
        stats: &mut ServerJobStats,
    ) -> Option<Event> {
        let bound = self.bound_with(log, ledger, None);
        let lag = ledger.next_order().saturating_sub(self.wanted);
        self.bound = bound;
        stats.divergence_bound = bound;
        stats.divergence_bound_max = stats.divergence_bound_max.max(bound);
        stats.replica_lag = lag;
        stats.replica_lag_max = stats.replica_lag_max.max(lag);
        self.declare(self.div_max.is_none_or(|div_max| bound <= div_max), bound)
    }

    /// It has applied all before `wanted`. Returns the order numbers that are news, or none: a late
    /// word of it changes nothing, unless it began anew; then the log tells.
    pub(super) fn take_progress(&mut self, wanted: u64, log: &Log) -> Option<Range<u64>> {
        let is_first = !core::mem::replace(&mut self.is_met, true);
        if wanted <= self.wanted && !is_first {
            return None;
        }
        let before = self.wanted;
        self.wanted = wanted.max(before);
        self.momentum_norm = log.momentum_norm_at(self.wanted);
        self.waiting_since = None;
        Some(before.max(log.front(self.wanted))..self.wanted)
    }

    /// Where it is, for the controller.
    pub(super) fn progress(&self) -> Event {
        let (order, is_held) = (OrderNumber(self.wanted), self.is_held);
        Event::ReplicaAt { order, divergence_bound: self.bound, is_held }
    }

    /// Acknowledgements wait for it no more: it is gone (SPEC#promotion).
    pub(super) fn leave(&mut self) -> Option<Event> {
        self.ack = AckMode::Commit;
        self.is_left = true;
        self.declare(false, self.bound)
    }

    /// It began a new life: it has nothing until it says otherwise.
    pub(super) fn forget(&mut self) {
        self.wanted = self.initial_order;
        self.is_met = false;
        self.momentum_norm = 0.0;
    }
}
