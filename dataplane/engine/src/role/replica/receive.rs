//! Frames of a job at its replica: copies from workers and aggregators, and what the server says.

use weft_control::Event;
use weft_wire::header::{ElementType, Flags, Header, Kind, Outcome};
use weft_wire::rows::{ROW_DIRECT, ROW_LOG, ROW_MODEL};
use weft_wire::{Members, Nanos};

use super::decisions::PendingDecision;
use super::job::{Job, Phase};
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::role::channel::{ClientEvent, Peer, PeerChange};
use crate::role::model::{Incoming, Refusal, Staged, generation_of, low_bits, near};

impl Job {
    pub(super) fn receive(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, Refusal> {
        self.is_dirty = true;
        if self.server.is_from_host(incoming.source()) {
            return self.handle_server(incoming);
        }
        match incoming.header.kind {
            Kind::Hello => {
                let (udp, header) = (incoming.udp, incoming.header);
                let reply = self.host.handle_hello(&udp, &header, incoming.buffer)?;
                if let Some(PeerChange::NewLife(peer @ Peer::Worker(rank))) = reply.change {
                    self.ledger.begin_life(rank, self.host.life(peer));
                }
                Ok(Verdict::Send { len: reply.len })
            }
            Kind::Contrib => self.handle_copy(incoming),
            _ => Err(DropReason::Kind.into()),
        }
    }

    fn handle_server(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, Refusal> {
        let (now, udp, header) = (incoming.now, incoming.udp, incoming.header);
        let had_terms = self.server.terms().copied();
        match self.server.handle_frame(now, &udp, &header, incoming.buffer)? {
            ClientEvent::Handshake | ClientEvent::Closed | ClientEvent::Lost => {}
            ClientEvent::Opened => {
                let epoch = self.server.terms().map(|terms| terms.epoch);
                if had_terms.is_some_and(|terms| Some(terms.epoch) != epoch) {
                    // A restarted server may have another history behind the same numbers.
                    self.is_anew = true;
                    self.begin_snapshot();
                }
                self.owes_status = true;
                self.heard_at = now;
            }
            ClientEvent::Frame => {
                self.heard_at = now;
                self.take_word(now, &header, incoming)?;
            }
        }
        Ok(Verdict::Hold)
    }

    fn take_word(
        &mut self,
        now: Nanos,
        header: &Header,
        incoming: &mut Incoming<'_>,
    ) -> Result<(), DropReason> {
        if !header.flags.contains(Flags::REPLICA) {
            return Err(DropReason::Unsolicited);
        }
        match (header.kind, header.group.row()) {
            (Kind::Ack, ROW_MODEL) => self.take_offer(header),
            (Kind::Ack, _) => self.take_decision(now, header),
            (Kind::State, ROW_LOG) => self.take_log_state(header),
            (Kind::State, ROW_MODEL) => {
                let is_ours = matches!(self.phase, Phase::Copy { generation }
                    if header.outcome == Outcome::Stale && generation == header.group.generation());
                if !is_ours {
                    return Err(DropReason::Unsolicited);
                }
                self.begin_snapshot();
                Ok(())
            }
            (Kind::Answer, ROW_MODEL) => self.take_model_chunk(now, header, incoming),
            (Kind::Answer, _) => self.take_repair(now, header, incoming),
            _ => Err(DropReason::Kind),
        }
    }

    fn take_decision(&mut self, now: Nanos, header: &Header) -> Result<(), DropReason> {
        let order = near(self.ledger.next_order(), header.chunk.0);
        let is_run = header.outcome == Outcome::Void && !header.members.is_empty();
        let (after, members) = match is_run {
            true => (header.members.0, Members::EMPTY),
            false => (order + 1, header.members),
        };
        if after <= order || after - order > RUN_MAX {
            return Err(DropReason::BadMembers);
        }
        self.decisions.note_server_order(after);
        self.measure_lag();
        let decision = PendingDecision {
            after,
            group: header.group,
            outcome: header.outcome,
            members,
            element_type: header.element_type,
            exponent: header.exponent,
            delay: header.count,
            is_composed: header.flags.contains(Flags::DIRECT),
            at: now,
        };
        self.decisions.add(self.ledger.next_order(), order, decision)?;
        // A decision behind a gap: what is before it was lost.
        self.owes_status |= self.decisions.first().is_none();
        Ok(())
    }

    fn take_log_state(&mut self, header: &Header) -> Result<(), DropReason> {
        let server_order = near(self.ledger.next_order(), header.chunk.0);
        self.decisions.note_server_order(server_order);
        self.measure_lag();
        if header.flags.contains(Flags::DIRECT) {
            self.note_left();
        }
        // A late STALE, of an order number that is applied by now, must not cost a snapshot.
        let is_asked = low_bits(header.members.0) == low_bits(self.ledger.next_order());
        match (header.outcome, self.phase) {
            (Outcome::Stale, Phase::Follow | Phase::Repair) if is_asked => {
                self.begin_snapshot();
                Ok(())
            }
            (Outcome::Wait, _) => {
                self.fitness.note_level(server_order);
                self.tell_fitness();
                Ok(())
            }
            _ => Err(DropReason::Unsolicited),
        }
    }

    /// The version to begin with.
    fn take_offer(&mut self, header: &Header) -> Result<(), DropReason> {
        if self.phase != Phase::Ask {
            return Err(DropReason::Unsolicited);
        }
        let version = near(self.ledger.model().version(), header.chunk.0);
        if generation_of(version) != header.group.generation() {
            return Err(DropReason::StaleGroup);
        }
        if header.members.0 < self.ledger.next_order() && !self.is_anew {
            // What is here is newer: the STALE that asked for a version answered an old question.
            // To go back would break the bound that the server holds (I5).
            self.phase = Phase::Follow;
            self.owes_status = true;
            self.is_dirty = true;
            return Ok(());
        }
        self.fetch.begin(self.draft.begin(version, header.members.0));
        self.phase = Phase::Copy { generation: header.group.generation() };
        Ok(())
    }

    fn take_model_chunk(
        &mut self,
        now: Nanos,
        header: &Header,
        incoming: &mut Incoming<'_>,
    ) -> Result<(), DropReason> {
        let Phase::Copy { generation } = self.phase else { return Err(DropReason::Unsolicited) };
        if header.group.generation() != generation {
            return Err(DropReason::StaleGroup);
        }
        let has = self.draft.has(header.chunk.0).ok_or(DropReason::ChunkOutOfRange)?;
        if header.count != self.config.model.elements {
            return Err(DropReason::ElementCount);
        }
        if header.element_type != ElementType::F32 {
            return Err(DropReason::ElementType);
        }
        if has {
            return Err(DropReason::Duplicate);
        }
        self.fetch.answer(now, header.chunk.0);
        let (wire, _) = incoming.payload();
        self.stats.snapshot_chunks += 1;
        if self.draft.add(header.chunk.0, wire, self.ledger.model().kernels()) {
            self.adopt_draft();
        }
        Ok(())
    }

    fn take_repair(
        &mut self,
        now: Nanos,
        header: &Header,
        incoming: &mut Incoming<'_>,
    ) -> Result<(), DropReason> {
        if self.phase != Phase::Repair {
            return Err(DropReason::Unsolicited);
        }
        let decision = self.decisions.first().ok_or(DropReason::Unsolicited)?;
        if header.group != decision.group || header.members != decision.members {
            return Err(DropReason::StaleGroup);
        }
        self.config.model.check_chunk(header, decision.element_type, decision.exponent)?;
        let (wire, frame_len) = incoming.payload();
        let (chunk, kind) = (header.chunk.0, decision.element_type);
        if !self.copies.add_repair(chunk, kind, decision.members, wire) {
            return Err(DropReason::Duplicate);
        }
        self.fetch.answer(now, chunk);
        self.stats.chunks_repaired += 1;
        self.stats.replica_repair_bytes += frame_len;
        Ok(())
    }

    /// A copy of a chunk, from a member or an aggregator.
    fn handle_copy(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, Refusal> {
        let header = incoming.header;
        if !header.flags.contains(Flags::REPLICA) {
            return Err(DropReason::Kind.into());
        }
        let is_direct = header.flags.contains(Flags::DIRECT) || header.group.row() >= ROW_DIRECT;
        let via = self.copies.get(header.group).and_then(|group| group.via);
        let peer = match (is_direct, via) {
            (true, _) => Peer::worker(header.members)?,
            (false, Some(via)) => Peer::Box(via),
            (false, None) => incoming.box_at_source(&self.host)?,
        };
        incoming.identify(&self.host, peer)?;
        let group = self.copies.get(header.group).ok_or(DropReason::StaleGroup)?;
        self.config.model.check_chunk(&header, group.element_type, group.exponent)?;
        incoming.check_intact(self.config.model.integrity)?;
        let (wire, frame_len) = incoming.payload();
        self.stage_copy(&header, frame_len, wire)?;
        Ok(Verdict::Hold)
    }

    fn stage_copy(
        &mut self,
        header: &Header,
        frame_len: u64,
        wire: &mut [u8],
    ) -> Result<(), DropReason> {
        let copied = self.copies.add(header, wire).ok_or(DropReason::StaleGroup)?;
        self.stats.copy_bytes += frame_len;
        match copied.staged {
            Staged::Added(_) => {
                self.stats.chunks_copied += 1;
                if copied.is_whole {
                    self.tell(Event::Staged { group: header.group });
                }
                Ok(())
            }
            Staged::Duplicate => {
                self.stats.duplicates += 1;
                Err(DropReason::Duplicate)
            }
            Staged::Overlap => Err(DropReason::Unwanted),
            Staged::Outside => Err(DropReason::BadMembers),
        }
    }
}

/// Order numbers of one run; its server takes no group that is farther ahead.
const RUN_MAX: u64 = 1 << 30;
