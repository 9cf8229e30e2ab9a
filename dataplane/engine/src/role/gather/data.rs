//! What a contribution or a credit does to its slot: SPEC#push's table, cell by cell.

use weft_control::Event;
use weft_wire::header::{Flags, HEADER_LEN, Header, Operation, Outcome};
use weft_wire::{ChunkIndex, GroupId, Members, Nanos, Rank};

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
use crate::slot::whole::Entered;

/// What is known of a contribution when it has passed all checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contributed {
    pub(super) rank: Rank,
    pub(super) chunk: ChunkIndex,
    pub(super) flags: Flags,
    /// It met congestion.
    pub(super) is_marked: bool,
    pub(super) payload_start: usize,
    /// Bytes up to the end of the datagram.
    pub(super) frame_len: usize,
    pub(super) now: Nanos,
}

impl Contributed {
    /// Its flags, with CONGESTION where it was marked.
    #[inline]
    pub(super) fn all_flags(&self) -> Flags {
        let mark = if self.is_marked { Flags::CONGESTION } else { Flags::NONE };
        self.flags.union(mark)
    }
}

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
            NextStep::Claim | NextStep::Add => {
                let from = Contributed {
                    rank,
                    chunk: header.chunk,
                    flags: header.flags,
                    is_marked: arrival.udp.congestion(),
                    payload_start: arrival.udp.payload_start() + HEADER_LEN,
                    frame_len: arrival.len_bytes(),
                    now: arrival.now,
                };
                self.take(&from, &group, arrival.buffer, outbox)
            }
            _ => {
                self.stats.count(match slot.state() {
                    State::Sent | State::Answered | State::Refused => Transition::RepeatSent,
                    State::Empty | State::Collecting => Transition::RepeatCollecting,
                });
                self.stats.duplicates += 1;
                drops.count(DropReason::Duplicate);
                self.have(rank, group.id, header.chunk, slot.members(), arrival.buffer)
            }
        }
    }

    /// Puts a contribution into its slot.
    pub(super) fn take(
        &mut self,
        from: &Contributed,
        group: &Group,
        buffer: &mut [u8],
        outbox: &mut Outbox,
    ) -> Result<Verdict, DropReason> {
        let Contributed { rank, chunk, .. } = *from;
        let place = group.place(chunk.0);
        let whose = Contribution { rank: rank.index(), limit: group.limit };
        let wire = &mut buffer[from.payload_start..from.frame_len];
        let flags = from.all_flags();
        let entered = self.arena.enter(place, whose, rank.bit(), group.mask, flags, wire);
        self.count(from, group, &entered, outbox);
        if entered.releases
            && let Some(verdict) = self.send_sum(group, chunk, buffer, false)
        {
            self.stats.count(Transition::SendOnContribution);
            // The buffer is the sum now; the member's acknowledgement goes by itself.
            let have = Have {
                push: self.push,
                peer: Peer::Worker(rank),
                group: group.id,
                chunk,
                members: entered.members,
            };
            if outbox.haves.len() < HAVES_MAX {
                outbox.haves.push_back(have);
            } else {
                self.stats.haves_lost += 1;
            }
            return Ok(verdict);
        }
        self.have(rank, group.id, chunk, entered.members, buffer)
    }

    /// Counts a contribution that was entered.
    #[inline]
    fn count(&mut self, from: &Contributed, group: &Group, entered: &Entered, outbox: &mut Outbox) {
        self.stats.contributions_added += 1;
        self.stats.bytes_accepted += from.frame_len as u64;
        self.stats.contributions_clamped += u64::from(entered.clamped);
        self.stats.contributions_marked += u64::from(from.is_marked);
        self.stats.chunks_completed += u64::from(entered.completes);
        self.stats.count(if entered.claims { Transition::Store } else { Transition::Add });
        self.advance(from, group, outbox);
    }

    /// Counts a chunk of a member's update.
    #[inline(always)]
    pub(super) fn advance(&mut self, from: &Contributed, group: &Group, outbox: &mut Outbox) {
        let Contributed { rank, now, .. } = *from;
        let progress = self.groups.progress_mut(group.id, rank);
        if progress.chunks == 0 {
            progress.first_at = now;
        }
        progress.chunks += 1;
        if from.chunk.0 < u32::from(group.train_chunks) {
            let id = (self.config.job, group.id, Some(rank));
            let is_repeat = from.flags.contains(Flags::RETRANSMIT);
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
            && let Some(verdict) = self.send_sum(&group, header.chunk, arrival.buffer, true)
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
    fn send_sum(
        &mut self,
        group: &Group,
        chunk: ChunkIndex,
        buffer: &mut [u8],
        is_credit: bool,
    ) -> Option<Verdict> {
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
        if is_credit {
            let wire = buffer.get_mut(start..start + payload_len)?;
            self.arena.emit(place, wire);
        }
        let len = self.server.write(&header, buffer, payload_len)?;
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
    #[inline]
    fn have(
        &self,
        rank: Rank,
        group: GroupId,
        chunk: ChunkIndex,
        members: Members,
        buffer: &mut [u8],
    ) -> Result<Verdict, DropReason> {
        let state = Header { chunk, ..self.state(Outcome::Have, group, members) };
        let len = self.workers.write(Peer::Worker(rank), &state, buffer, 0);
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
