//! The replica, as its server sees it: what it is told, what it has, how far away it may be
//! (SPEC#replica, DESIGN I5).

use weft_control::{AckMode, BoxIndex, Event, OrderNumber, divergence_bound};
use weft_wire::header::{Flags, Header, Kind, Operation, Outcome};
use weft_wire::rows::ROW_LOG;
use weft_wire::{ChunkIndex, GroupId, Members, Nanos};

use super::group::OpenIndex;
use super::job::Job;
use super::log::LogEntry;
use super::receive::send;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::role::channel::Peer;
use crate::role::model::{Incoming, Refusal, low_bits, near};
use crate::send::datagram::plain_header;

/// What a server knows of its replica.
#[derive(Debug)]
pub(super) struct ReplicaLink {
    pub(super) peer: Peer,
    /// The next order number that it wants: it has applied all before.
    wanted: u64,
    /// Norm of the momentum term there.
    momentum_norm: f64,
    is_held: bool,
    /// Its present life has asked for decisions.
    is_met: bool,
    /// Acknowledgements do not wait for it any more.
    is_left: bool,
    /// Since when the commit that is next waits for it.
    waiting_since: Option<Nanos>,
}

impl ReplicaLink {
    pub(super) fn new(index: BoxIndex, wanted: u64) -> Self {
        Self {
            peer: Peer::Box(index),
            wanted,
            momentum_norm: 0.0,
            is_held: true,
            is_met: false,
            is_left: false,
            waiting_since: None,
        }
    }
}

impl Job {
    /// True when commits are acknowledged only after the replica.
    pub(super) fn is_held_for_replica(&self) -> bool {
        self.replica.is_some() && self.config.ack == AckMode::Replica
    }

    /// True when the replica has applied this order number.
    pub(super) fn has_replica(&self, order: u64) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.wanted > order)
    }

    /// True while the next decision would take the place of one in the log that workers wait to be
    /// told of, or that the replica needs next: where acknowledgements wait for it, decisions wait
    /// too.
    pub(super) fn log_waits_for_replica(&self) -> bool {
        let Some(replica) = self.replica.as_ref().filter(|_| self.is_held_for_replica()) else {
            return false;
        };
        let is_needed = |entry: &LogEntry| !entry.is_told || entry.has(replica.wanted);
        self.log.next_evicted().any(is_needed)
    }

    /// Tells the replica of a decision, once; it asks for what is lost.
    pub(super) fn tell_replica(&mut self, entry: &LogEntry) {
        let Some(peer) = self.replica.as_ref().map(|replica| replica.peer) else { return };
        let header = self.decision(entry);
        self.queue(peer, header);
        self.measure_bound();
    }

    fn decision(&self, entry: &LogEntry) -> Header {
        let composed = if entry.is_composed { Flags::DIRECT } else { Flags::NONE };
        // Of a run it says where that ends.
        let members = entry.run_end().map_or(entry.members, Members);
        Header {
            flags: Flags::REPLICA.union(composed),
            outcome: entry.outcome,
            chunk: ChunkIndex(low_bits(entry.order)),
            element_type: entry.element_type,
            exponent: entry.exponent,
            count: entry.delay,
            ..plain_header(Kind::Ack, self.id(), entry.group, members)
        }
    }

    /// Bound of the distance to the replica, with one more commit of this norm.
    fn bound_with(&self, next: Option<f64>) -> f64 {
        let Some(replica) = &self.replica else { return 0.0 };
        if replica.wanted < self.log.front(self.next_order) {
            // What it lacks is no longer known.
            return f64::INFINITY;
        }
        let committed = |entry: &&LogEntry| entry.outcome == Outcome::Committed;
        let missing = self.log.since(replica.wanted).filter(committed).map(|entry| entry.norm);
        let norms = missing.chain(next);
        divergence_bound(self.model.momentum(), replica.momentum_norm, norms)
    }

    /// When the next commit must wait for the replica, until when at most.
    pub(super) fn wait_for_replica(&mut self, now: Nanos, index: OpenIndex) -> Option<Nanos> {
        let div_max = self.config.div_max?;
        let bound = self.bound_with(Some(self.sum_of(index).norm(self.model.kernels())));
        let wait_ns = self.config.divergence_wait_ns;
        let (next_order, was_held) = (self.next_order, self.replica.as_ref()?.is_held);
        let replica = self.replica.as_mut()?;
        if bound <= div_max {
            replica.waiting_since = None;
            return None;
        }
        let lags = replica.wanted < next_order;
        let is_first = lags && replica.waiting_since.is_none();
        let since = *replica.waiting_since.get_or_insert(now);
        let until = since.saturating_add(Nanos(wait_ns));
        self.stats.bound_waits += u64::from(is_first);
        // Once the bound is broken, a replica that does not come back holds up nothing more; one
        // that has everything cannot come nearer.
        if lags && was_held && now < until {
            return Some(until);
        }
        replica.waiting_since = None;
        self.stats.bound_broken += 1;
        self.declare(false, bound);
        None
    }

    /// Says whether the bound is held, when that changes.
    fn declare(&mut self, is_held: bool, divergence_bound: f64) {
        let Some(replica) = &mut self.replica else { return };
        if core::mem::replace(&mut replica.is_held, is_held) != is_held {
            let order = OrderNumber(replica.wanted);
            self.tell(Event::ReplicaAt { order, divergence_bound, is_held });
        }
    }

    fn measure_bound(&mut self) {
        let bound = self.bound_with(None);
        let Some(replica) = &self.replica else { return };
        let lag = self.next_order.saturating_sub(replica.wanted);
        let stats = &mut self.stats;
        stats.divergence_bound = bound;
        stats.divergence_bound_max = stats.divergence_bound_max.max(bound);
        stats.replica_lag = lag;
        stats.replica_lag_max = stats.replica_lag_max.max(lag);
        let fits = self.config.div_max.is_none_or(|div_max| bound <= div_max);
        self.declare(fits, bound);
    }

    /// STATUS(0xfffc): the replica says what it has, and asks for the next decisions.
    pub(super) fn handle_log_status(
        &mut self,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, Refusal> {
        let peer = self.named_replica(incoming)?;
        self.check_intact(incoming)?;
        let wanted = near(self.next_order, incoming.header.chunk.0);
        let is_past = wanted < self.log.front(self.next_order) || wanted > self.next_order;
        if is_past {
            let state = self.log_state(Outcome::Stale, wanted);
            return send(self.host.write(peer, &state, incoming.buffer, 0));
        }
        self.take_progress(wanted);
        let told = self.told_order();
        let entries = self.log.since(wanted).take_while(|entry| entry.order < told);
        let entries = entries.take(DECISIONS_REPEATED_MAX);
        let headers: arrayvec::ArrayVec<Header, DECISIONS_REPEATED_MAX> =
            entries.map(|entry| self.decision(entry)).collect();
        self.stats.decisions_repeated += headers.len() as u64;
        headers.into_iter().for_each(|header| self.queue(peer, header));
        // With them goes how many there are, by which it knows when it is level.
        let state = self.log_state(Outcome::Wait, wanted);
        send(self.host.write(peer, &state, incoming.buffer, 0))
    }

    /// What the log says of the order number that was asked for. One that is left is told so with
    /// every answer: it may not have heard it from a controller, and is nobody's heir.
    fn log_state(&self, outcome: Outcome, asked: u64) -> Header {
        let group = GroupId::new(ROW_LOG, 0);
        let chunk = ChunkIndex(low_bits(self.told_order()));
        let is_left = self.replica.as_ref().is_some_and(|replica| replica.is_left);
        let left = if is_left { Flags::DIRECT } else { Flags::NONE };
        Header {
            outcome,
            chunk,
            flags: Flags::REPLICA.union(left),
            ..plain_header(Kind::State, self.id(), group, Members(asked))
        }
    }

    /// The replica has applied all before `wanted`. A late word of it changes nothing, unless the
    /// replica began anew; then the log tells. The controller hears of the first word of its life,
    /// for who would take over must have been met (SPEC#promotion).
    fn take_progress(&mut self, wanted: u64) {
        let Some(replica) = &mut self.replica else { return };
        let is_first = !core::mem::replace(&mut replica.is_met, true);
        if wanted <= replica.wanted && !is_first {
            return;
        }
        let told_from = replica.wanted;
        replica.wanted = wanted.max(told_from);
        let wanted = replica.wanted;
        replica.momentum_norm = self.log.momentum_norm_at(wanted);
        replica.waiting_since = None;
        self.release_all(told_from.max(self.log.front(wanted))..wanted);
        self.measure_bound();
        let Some(replica) = &self.replica else { return };
        let (is_held, order) = (replica.is_held, OrderNumber(wanted));
        let divergence_bound = self.stats.divergence_bound;
        self.tell(Event::ReplicaAt { order, divergence_bound, is_held });
        self.is_dirty = true;
    }

    /// Tells the members of these decisions who were not told yet; returns how many those are.
    fn release_all(&mut self, orders: core::ops::Range<u64>) -> u64 {
        let mut told = 0;
        let mut order = orders.start;
        while order < orders.end {
            let Some(entry) = self.log.get_mut(order) else { break };
            order = entry.after;
            if !core::mem::replace(&mut entry.is_told, true) {
                let entry = *entry;
                told += entry.members.len() as u64;
                self.release(&entry);
            }
        }
        told
    }

    /// Acknowledges without the replica from now on: it is gone (SPEC#promotion).
    pub(super) fn leave_replica(&mut self) {
        self.config.ack = AckMode::Commit;
        if let Some(replica) = &mut self.replica {
            replica.is_left = true;
        }
        // What is not durable yet is told when it is.
        let told = self.release_all(self.log.front(self.next_order)..self.told_order());
        self.stats.acks_without_replica += told;
        let bound = self.stats.divergence_bound;
        self.declare(false, bound);
        self.is_dirty = true;
    }

    /// The versions that may be shown: while acknowledgements wait for the replica, those that it
    /// has. A worker then never computes on a model that its promotion would take back.
    pub(super) fn shown_below(&self) -> u64 {
        let held = self.replica.as_ref().filter(|_| self.is_held_for_replica());
        held.map_or(u64::MAX, |replica| replica.wanted)
    }

    /// The replica began a new life: it has nothing until it says otherwise.
    pub(super) fn forget_replica(&mut self) {
        let initial = self.config.initial_order.0;
        let Some(replica) = &mut self.replica else { return };
        replica.wanted = initial;
        replica.is_met = false;
        replica.momentum_norm = 0.0;
        self.measure_bound();
    }

    /// PULL(group, chunk, REPLICA): a chunk of a committed sum, from the log.
    pub(super) fn handle_repair(
        &mut self,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, Refusal> {
        if !incoming.header.flags.contains(Flags::REPLICA) {
            return Err(DropReason::Kind.into());
        }
        let Some(peer) = self.replica.as_ref().map(|replica| replica.peer) else {
            return Err(DropReason::UnknownGroup.into());
        };
        self.identify(peer, incoming)?;
        if incoming.header.chunk.0 >= self.chunks {
            return Err(DropReason::ChunkOutOfRange.into());
        }
        self.check_intact(incoming)?;
        let (order, group) = (incoming.header.members.0, incoming.header.group);
        let kept = self.log.get(order).filter(|entry| entry.group == group);
        let Some((entry, stage)) = kept.and_then(|entry| Some((*entry, entry.stage?))) else {
            let state = self.log_state(Outcome::Stale, order);
            return send(self.host.write(peer, &state, incoming.buffer, 0));
        };
        let chunk = incoming.header.chunk;
        let data = self.pool.data(stage, chunk.0);
        let start = self.host.payload_start(peer);
        let room = incoming.buffer.get_mut(start..start + data.len());
        room.ok_or(DropReason::Length)?.copy_from_slice(data);
        let header = Header {
            flags: Flags::REPLICA,
            chunk,
            element_type: entry.element_type,
            operation: Operation::Sum,
            exponent: entry.exponent,
            count: self.config.model.elements,
            ..plain_header(Kind::Answer, self.id(), group, entry.members)
        };
        let len = self.host.write(peer, &header, incoming.buffer, data.len());
        self.stats.repairs += 1;
        self.stats.replica_repair_bytes += len.unwrap_or(0) as u64;
        send(len)
    }

    fn named_replica(&self, incoming: &mut Incoming<'_>) -> Result<Peer, Refusal> {
        let peer = Peer::of_box(incoming.header.members)?;
        if self.replica.as_ref().is_none_or(|replica| replica.peer != peer) {
            return Err(DropReason::BadMembers.into());
        }
        self.identify(peer, incoming)?;
        Ok(peer)
    }
}

/// Decisions repeated for one question.
const DECISIONS_REPEATED_MAX: usize = 32;
