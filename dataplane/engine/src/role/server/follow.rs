//! What the replica is told, and how it goes on (SPEC#replica).

use weft_wire::header::{Flags, HEADER_LEN, Header, Kind, Operation, Outcome};
use weft_wire::rows::ROW_LOG;
use weft_wire::{ChunkIndex, GroupId, Members};

use super::job::Job;
use super::log::LogEntry;
use super::receive::send;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::role::channel::Peer;
use crate::role::model::{Incoming, Refusal, low_bits, near};
use crate::send::datagram::plain_header;

impl Job {
    /// True when commits are acknowledged only after the replica.
    pub(super) fn is_held_for_replica(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.gates_acks())
    }

    /// Tells the replica of a decision, once; it asks for what is lost.
    pub(super) fn tell_replica(&mut self, entry: &LogEntry) {
        let Some(peer) = self.replica.as_ref().map(|replica| replica.peer()) else { return };
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

    fn measure_bound(&mut self) {
        let Some(replica) = &mut self.replica else { return };
        let event = replica.measure(&self.log, &self.ledger, &mut self.stats);
        event.into_iter().for_each(|event| self.tell(event));
    }

    /// STATUS(0xfffc): the replica says what it has, and asks for the next decisions.
    pub(super) fn handle_log_status(
        &mut self,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, Refusal> {
        let peer = self.named_replica(incoming)?;
        self.check_intact(incoming)?;
        let next_order = self.ledger.next_order();
        let wanted = near(next_order, incoming.header.chunk.0);
        let is_past = wanted < self.log.front(next_order) || wanted > next_order;
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
    /// every answer: it may not have heard it from a controller, and is not fit to take over.
    fn log_state(&self, outcome: Outcome, asked: u64) -> Header {
        let group = GroupId::new(ROW_LOG, 0);
        let chunk = ChunkIndex(low_bits(self.told_order()));
        let is_left = self.replica.as_ref().is_some_and(|replica| replica.is_left());
        let left = if is_left { Flags::DIRECT } else { Flags::NONE };
        Header {
            outcome,
            chunk,
            flags: Flags::REPLICA.union(left),
            ..plain_header(Kind::State, self.id(), group, Members(asked))
        }
    }

    /// The replica has applied all before `wanted`. The controller hears of the first word of its
    /// life, for who would take over must have been met (SPEC#promotion).
    fn take_progress(&mut self, wanted: u64) {
        let Some(replica) = &mut self.replica else { return };
        let Some(orders) = replica.take_progress(wanted, &self.log) else { return };
        self.release_all(orders);
        self.measure_bound();
        let progress = self.replica.as_ref().map(|replica| replica.progress());
        progress.into_iter().for_each(|event| self.tell(event));
        self.is_dirty = true;
    }

    /// Tells the members of these decisions who were not told yet; returns how many those are.
    fn release_all(&mut self, orders: core::ops::Range<u64>) -> u64 {
        let mut told = 0;
        let mut order = orders.start;
        while order < orders.end {
            let Some((entry, was_told)) = self.log.mark_told(order) else { break };
            order = entry.after;
            if !was_told {
                told += entry.members.len() as u64;
                self.release(&entry);
            }
        }
        told
    }

    /// Acknowledges without the replica from now on: it is gone (SPEC#promotion).
    pub(super) fn leave_replica(&mut self) {
        let event = self.replica.as_mut().and_then(|replica| replica.leave());
        // What is not durable yet is told when it is.
        let told = self.release_all(self.log.front(self.ledger.next_order())..self.told_order());
        self.stats.acks_without_replica += told;
        event.into_iter().for_each(|event| self.tell(event));
        self.is_dirty = true;
    }

    /// The replica began a new life: it has nothing until it says otherwise.
    pub(super) fn forget_replica(&mut self) {
        if let Some(replica) = &mut self.replica {
            replica.forget();
            self.measure_bound();
        }
    }

    /// PULL(group, chunk, REPLICA): a chunk of a committed sum, from the log.
    pub(super) fn handle_repair(
        &mut self,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, Refusal> {
        if incoming.udp.payload_range().len() > HEADER_LEN {
            return Err(DropReason::Length.into());
        }
        if !incoming.header.flags.contains(Flags::REPLICA) {
            return Err(DropReason::Kind.into());
        }
        let Some(peer) = self.replica.as_ref().map(|replica| replica.peer()) else {
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
        let data = self.staging.data(stage, chunk.0);
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
        if self.replica.as_ref().is_none_or(|replica| replica.peer() != peer) {
            return Err(DropReason::BadMembers.into());
        }
        self.identify(peer, incoming)?;
        Ok(peer)
    }
}

/// Decisions repeated for one question.
const DECISIONS_REPEATED_MAX: usize = 32;
