//! What a contribution or a credit does to its slot: SPEC#push's table, cell by cell.

use weft_control::Event;
use weft_wire::header::{Flags, HEADER_LEN, Header, Kind, Operation, Outcome};
use weft_wire::{Members, Rank};

use super::group::Group;
use super::job::Job;
use super::stats::Transition;
use super::{Arrival, HAVES_MAX, Have, Outbox};
use crate::drops::{DropCounters, DropReason};
use crate::role::Verdict;
use crate::role::channel::Peer;
use crate::send::datagram::is_intact;
use crate::slot::State;
use crate::slot::accumulate::Contribution;
use crate::slot::bitmap::{Seen, hold};
use crate::slot::next_step::{self, NextStep};

impl Job {
    /// CONTRIB of a worker whose channel was checked.
    pub(super) fn handle_contribution(
        &mut self,
        rank: Rank,
        arrival: &mut Arrival<'_>,
        outbox: &mut Outbox,
        drops: &mut DropCounters,
    ) -> Result<Verdict, DropReason> {
        let header = arrival.header;
        let group = self.groups.find(header.group);
        let group = match group {
            Ok(group) if group.mask.contains(rank.bit()) => group,
            // Not with this member (any more): it asks the server.
            Ok(_) => return self.refuse_stale(rank, DropReason::BadMembers, arrival, drops),
            Err(reason) => return self.refuse_stale(rank, reason, arrival, drops),
        };
        if header.chunk.0 >= group.range.len {
            return Err(DropReason::ChunkOutOfRange);
        }
        self.check_elements(&header, &group)?;
        let range = arrival.udp.payload_range();
        if !is_intact(self.config.integrity, arrival.buffer, range) {
            return Err(DropReason::Integrity);
        }
        let slot = self.arena.slot(group.place(header.chunk.0));
        let seen = slot.look(rank.bit());
        // A sum left whole, and masks only shrink: whoever is in the mask is in what was sent.
        debug_assert!(seen != Seen::New || slot.state() != State::Sent, "a mask has grown");
        match next_step::transition(slot.state(), next_step::Event::Contribution(seen), false) {
            NextStep::Claim | NextStep::Add => self.take(rank, &group, arrival, outbox),
            _ => {
                self.stats.count(match slot.state() {
                    State::Sent | State::Answered => Transition::RepeatSent,
                    State::Empty | State::Collecting => Transition::RepeatCollecting,
                });
                self.stats.duplicates += 1;
                drops.count(DropReason::Duplicate);
                self.have(rank, &header, slot.members(), arrival)
            }
        }
    }

    /// Puts a contribution into its slot.
    fn take(
        &mut self,
        rank: Rank,
        group: &Group,
        arrival: &mut Arrival<'_>,
        outbox: &mut Outbox,
    ) -> Result<Verdict, DropReason> {
        let header = arrival.header;
        let place = group.place(header.chunk.0);
        let from = Contribution { rank: rank.index(), limit: group.limit };
        let is_marked = arrival.udp.congestion();
        let flags = header.flags.union(if is_marked { Flags::CONGESTION } else { Flags::NONE });
        let payload_start = arrival.udp.payload_start() + HEADER_LEN;
        let wire = &mut arrival.buffer[payload_start..arrival.udp.payload_range().end];
        let entered = self.arena.enter(place, from, rank.bit(), group.mask, flags, wire);
        self.stats.contributions_added += 1;
        self.stats.bytes_accepted += arrival.len_bytes() as u64;
        self.stats.contributions_clamped += u64::from(entered.clamped);
        self.stats.contributions_marked += u64::from(is_marked);
        self.stats.chunks_completed += u64::from(entered.completes);
        self.stats.count(if entered.claims { Transition::Store } else { Transition::Add });
        self.advance(rank, group, arrival, outbox);
        if entered.releases
            && let Some(verdict) = self.send_sum(group, arrival)
        {
            self.stats.count(Transition::SendOnContribution);
            // The buffer is the sum now; the member's acknowledgement goes by itself.
            let have = Have {
                push: self.push,
                peer: Peer::Worker(rank),
                group: group.id,
                chunk: header.chunk,
                members: entered.members,
            };
            if outbox.haves.len() < HAVES_MAX {
                outbox.haves.push_back(have);
            } else {
                self.stats.haves_lost += 1;
            }
            return Ok(verdict);
        }
        self.have(rank, &header, entered.members, arrival)
    }

    /// Counts a chunk of a member's update.
    fn advance(&mut self, rank: Rank, group: &Group, arrival: &Arrival<'_>, outbox: &mut Outbox) {
        let now = arrival.now;
        let progress = self.groups.progress_mut(group.id, rank);
        if progress.chunks == 0 {
            progress.first_at = now;
        }
        progress.chunks += 1;
        let header = &arrival.header;
        if header.chunk.0 < u32::from(group.train_chunks) {
            let id = (self.config.job, group.id, Some(rank));
            let is_repeat = header.flags.contains(Flags::RETRANSMIT);
            outbox.trains.on_chunk(id, group.train_chunks, self.frame_len, is_repeat);
        }
        if progress.chunks < group.range.len {
            return;
        }
        let duration_ns = now.since(progress.first_at).0;
        let bytes = self.frame_len * u64::from(group.range.len);
        let job = self.config.job;
        let events = [
            Event::Gathered { group: group.id, rank },
            Event::Transferred {
                group: group.id,
                rank: Some(rank),
                bytes,
                duration_ns,
                wait_ns: 0,
                idle_ns: 0,
            },
        ];
        for event in events {
            self.stats.events_lost += u64::from(!outbox.report(job, event));
        }
    }

    /// A PULL of the server.
    pub(super) fn handle_credit(
        &mut self,
        arrival: &mut Arrival<'_>,
    ) -> Result<Verdict, DropReason> {
        let header = arrival.header;
        let found = self.groups.find(header.group);
        let Some(group) = found.ok().filter(|group| header.chunk.0 < group.range.len) else {
            // The server asks the members themselves then.
            self.stats.count(Transition::CreditStale);
            return self.answer_server(Outcome::Stale, Members::EMPTY, arrival);
        };
        let stays = Members(group.mask.0 & header.members.0);
        if !stays.is_empty() && self.groups.narrow(group.id, stays) {
            self.stats.count(Transition::Narrow);
        }
        let group = self.groups.find(header.group)?;
        let place = group.place(header.chunk.0);
        let slot = self.arena.slot(place);
        let mask = if stays.is_empty() { stays } else { group.mask };
        let credit = next_step::Event::Credit(hold(slot.members(), mask));
        let next = next_step::transition(slot.state(), credit, false);
        if next == NextStep::Stale {
            self.stats.count(Transition::CreditStale);
            return self.answer_server(Outcome::Stale, slot.members(), arrival);
        }
        if matches!(next, NextStep::SumUp | NextStep::SumUpAgain)
            && let Some(verdict) = self.send_sum(&group, arrival)
        {
            self.stats.count(match next {
                NextStep::SumUp => Transition::SendOnCredit,
                _ => Transition::SendAgain,
            });
            return Ok(verdict);
        }
        self.arena.remember_credit(place);
        self.stats.count(match slot.state() {
            State::Empty => Transition::CreditEmpty,
            _ => Transition::CreditCollecting,
        });
        self.answer_server(Outcome::Have, slot.members(), arrival)
    }

    /// Turns the frame into the sum of its chunk, on its way to the server: a credit gets the kept
    /// sum, a contribution has become the sum already. `None` while there is no channel to it.
    fn send_sum(&mut self, group: &Group, arrival: &mut Arrival<'_>) -> Option<Verdict> {
        let chunk = arrival.header.chunk;
        let place = group.place(chunk.0);
        let slot = self.arena.slot(place);
        let again = slot.state() == State::Sent;
        let mut header = Header {
            members: slot.members(),
            flags: slot.flags(),
            ..self.data_header(group.id, chunk, group.exponent)
        };
        if again {
            header.flags = header.flags.union(Flags::RETRANSMIT);
        }
        let payload_len = header.payload_len();
        let start = self.server.payload_start();
        if arrival.header.kind == Kind::Pull {
            let wire = arrival.buffer.get_mut(start..start + payload_len)?;
            self.arena.emit(place, wire);
        }
        let len = self.server.write(&header, arrival.buffer, payload_len)?;
        self.arena.release(place);
        self.stats.sums_sent += 1;
        // Copies are best effort; what a replica misses it asks the server for, not this box.
        if !group.replicate || again {
            return Some(Verdict::Send { len });
        }
        if self.replica.as_ref().is_some_and(|replica| replica.path().is_some()) {
            Some(Verdict::Fan { len, push: self.push })
        } else {
            self.stats.copies_skipped += 1;
            Some(Verdict::Send { len })
        }
    }

    fn check_elements(&self, header: &Header, group: &Group) -> Result<(), DropReason> {
        if header.count != self.config.elements {
            return Err(DropReason::ElementCount);
        }
        if header.element_type != self.config.element_type {
            return Err(DropReason::ElementType);
        }
        if header.operation != Operation::Sum {
            return Err(DropReason::Operation);
        }
        if header.exponent != group.exponent {
            return Err(DropReason::Exponent);
        }
        Ok(())
    }

    /// Tells a member that its group is not open here, or not with it.
    fn refuse_stale(
        &mut self,
        rank: Rank,
        reason: DropReason,
        arrival: &mut Arrival<'_>,
        drops: &mut DropCounters,
    ) -> Result<Verdict, DropReason> {
        let header = arrival.header;
        let state = Header {
            chunk: header.chunk,
            ..self.state(Outcome::Stale, header.group, Members::EMPTY)
        };
        let len = self.workers.write(Peer::Worker(rank), &state, arrival.buffer, 0);
        let len = len.ok_or(reason)?;
        self.stats.count(Transition::RefuseStale);
        drops.count(reason);
        Ok(Verdict::Send { len })
    }

    /// Acknowledges a contribution.
    fn have(
        &self,
        rank: Rank,
        header: &Header,
        members: Members,
        arrival: &mut Arrival<'_>,
    ) -> Result<Verdict, DropReason> {
        let state =
            Header { chunk: header.chunk, ..self.state(Outcome::Have, header.group, members) };
        let len = self.workers.write(Peer::Worker(rank), &state, arrival.buffer, 0);
        len.map_or(Err(DropReason::StaleEpoch), |len| Ok(Verdict::Send { len }))
    }

    /// Turns a credit into a STATE for the server.
    fn answer_server(
        &self,
        outcome: Outcome,
        members: Members,
        arrival: &mut Arrival<'_>,
    ) -> Result<Verdict, DropReason> {
        let header = arrival.header;
        let state = Header { chunk: header.chunk, ..self.state(outcome, header.group, members) };
        let len = self.server.write(&state, arrival.buffer, 0);
        len.map_or(Err(DropReason::StaleEpoch), |len| Ok(Verdict::Send { len }))
    }
}
