//! Frames of a job: whose they are and what they do. Checks run in the order of SPEC#checks, all
//! before anything changes (I7).

use weft_control::{BoxIndex, Event, GROUPS_OPEN_MAX};
use weft_wire::header::{Flags, Kind, Outcome};
use weft_wire::rows::{ROW_DIRECT, ROW_LOG, ROW_MODEL};
use weft_wire::{GroupId, Nanos, Rank};

use super::group::{Group, OpenIndex};
use super::job::Job;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::role::channel::{Peer, PeerChange};
use crate::role::model::{Incoming, Refusal, Staged};

/// Whom a frame of a group's row can be from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RowKind {
    Installed,
    Direct(Rank),
    Log,
    Model,
}

impl RowKind {
    fn of(row: u16) -> Result<Self, DropReason> {
        match row {
            ROW_LOG => Ok(Self::Log),
            ROW_MODEL => Ok(Self::Model),
            _ if row < GROUPS_OPEN_MAX => Ok(Self::Installed),
            _ => {
                let rank = row.checked_sub(ROW_DIRECT).and_then(|rank| u8::try_from(rank).ok());
                rank.and_then(Rank::new).map(Self::Direct).ok_or(DropReason::UnknownGroup)
            }
        }
    }
}

/// The frame in the buffer is the answer, if there was somebody to answer and room for it.
pub(super) fn send(len: Option<usize>) -> Result<Verdict, Refusal> {
    Ok(len.map_or(Verdict::Hold, |len| Verdict::Send { len }))
}

impl Job {
    pub(super) fn receive(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, Refusal> {
        if incoming.header.kind == Kind::Hello {
            return self.handle_hello(incoming);
        }
        let row = RowKind::of(incoming.header.group.row())?;
        match (incoming.header.kind, row) {
            (Kind::Contrib, RowKind::Model) => self.handle_model_pull(incoming),
            (Kind::Contrib, RowKind::Installed | RowKind::Direct(_)) => {
                self.handle_chunk(row, incoming)
            }
            (Kind::Status, RowKind::Model) => self.handle_model_status(incoming),
            (Kind::Status, RowKind::Log) => self.handle_log_status(incoming),
            (Kind::Status, _) => self.handle_status(row, incoming),
            (Kind::State, RowKind::Installed | RowKind::Direct(_)) => {
                self.handle_state(row, incoming)
            }
            (Kind::Pull, RowKind::Installed | RowKind::Direct(_)) => self.handle_repair(incoming),
            _ => Err(DropReason::Kind.into()),
        }
    }

    fn handle_hello(&mut self, incoming: &mut Incoming<'_>) -> Result<Verdict, Refusal> {
        let (udp, header) = (incoming.udp, incoming.header);
        let known = Peer::of_channel(&header).is_ok_and(|peer| self.host.is_open(peer));
        let reply = self.host.handle_hello(&udp, &header, incoming.buffer)?;
        match reply.change {
            Some(PeerChange::NewLife(Peer::Worker(rank))) => {
                self.begin_life(rank);
                if known {
                    self.tell(Event::MemberLost { job: self.id(), rank });
                }
            }
            Some(PeerChange::Closed(Peer::Worker(rank))) => {
                self.close_everywhere(rank, true);
                self.tell(Event::MemberLost { job: self.id(), rank });
            }
            Some(PeerChange::NewLife(peer @ Peer::Box(index))) => {
                if self.replica.as_ref().is_some_and(|replica| replica.peer() == peer) {
                    self.forget_replica();
                }
                // The first life of a box takes nothing from anybody.
                if known {
                    self.leave_box(index);
                }
            }
            Some(PeerChange::Closed(Peer::Box(index))) => {
                self.leave_box(index);
            }
            None => {}
        }
        self.is_dirty = true;
        Ok(Verdict::Send { len: reply.len })
    }

    /// Checks cookie and source; a peer that lost its channel is told so.
    pub(super) fn identify(&self, peer: Peer, incoming: &mut Incoming<'_>) -> Result<(), Refusal> {
        incoming.identify(&self.host, peer)
    }

    pub(super) fn check_intact(&self, incoming: &Incoming<'_>) -> Result<(), DropReason> {
        incoming.check_intact(self.config.model.integrity)
    }

    /// The worker or the aggregator that a frame about a group is from, identified.
    fn sender(&self, row: RowKind, incoming: &mut Incoming<'_>) -> Result<Peer, Refusal> {
        let header = incoming.header;
        let peer = match row {
            RowKind::Direct(rank) => {
                if header.members != rank.bit() {
                    return Err(DropReason::BadMembers.into());
                }
                Peer::Worker(rank)
            }
            _ if header.flags.contains(Flags::DIRECT) => Peer::worker(header.members)?,
            _ => match self.open_in_place(header.group).and_then(|group| group.via) {
                Some(via) => Peer::Box(via),
                // A late frame of a group that is decided.
                None => incoming.box_at_source(&self.host)?,
            },
        };
        self.identify(peer, incoming)?;
        Ok(peer)
    }

    /// A chunk of an update, or of a sum of updates.
    fn handle_chunk(
        &mut self,
        row: RowKind,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, Refusal> {
        let peer = self.sender(row, incoming)?;
        let header = incoming.header;
        let index = self.staging.find(header.group).ok_or(DropReason::StaleGroup)?;
        let group = self.staging.get(index);
        if let Peer::Worker(rank) = peer
            && !group.granted.contains(rank.bit())
        {
            return Err(DropReason::BadMembers.into());
        }
        self.config.model.check_chunk(&header, group.element_type, group.exponent)?;
        self.check_intact(incoming)?;
        self.take_chunk(peer, index, incoming)?;
        self.is_dirty = true;
        Ok(Verdict::Hold)
    }

    /// Stages a chunk that has passed all checks.
    fn take_chunk(
        &mut self,
        peer: Peer,
        index: OpenIndex,
        incoming: &mut Incoming<'_>,
    ) -> Result<(), Refusal> {
        let (now, header) = (incoming.now, incoming.header);
        let chunk = header.chunk.0;
        let congested = incoming.udp.congestion() || header.flags.contains(Flags::CONGESTION);
        let answered = self.credits.answer(now, peer, index, chunk, congested);
        self.stats.window_reductions += u64::from(answered.is_some_and(|a| a.is_halved));
        let is_in_turn = answered.is_some_and(|answered| answered.is_in_turn);
        let (wire, frame_len) = incoming.payload();
        self.stats.chunk_bytes += frame_len;
        let arrival = self.staging.add(now, index, &header, frame_len, wire);
        match arrival.staged {
            Staged::Added(_) => {
                let train_chunks = self.credits.train_chunks(index);
                let rank = match peer {
                    Peer::Worker(rank) => Some(rank),
                    Peer::Box(_) => None,
                };
                if chunk < u32::from(train_chunks) {
                    let id = (self.config.model.job, header.group, rank);
                    incoming.trains.on_chunk(id, train_chunks, frame_len, !is_in_turn);
                }
                self.stats.chunks_composed += u64::from(arrival.is_composed);
                match peer {
                    Peer::Worker(_) => self.stats.chunks_direct += 1,
                    Peer::Box(_) => self.stats.chunks_aggregated += 1,
                }
                if arrival.is_last {
                    self.tell_staged(index, now);
                }
                Ok(())
            }
            Staged::Duplicate => {
                self.stats.duplicates += 1;
                Err(DropReason::Duplicate.into())
            }
            Staged::Overlap => {
                self.stats.overlaps += 1;
                self.fall_back(index);
                Err(DropReason::Unwanted.into())
            }
            Staged::Outside => {
                if matches!(peer, Peer::Box(_)) {
                    // It summed before a member was closed.
                    self.fall_back(index);
                }
                Err(DropReason::BadMembers.into())
            }
        }
    }

    /// The group that is open in the place of this id, whatever its generation.
    fn open_in_place(&self, id: GroupId) -> Option<&Group> {
        self.staging.in_place(id).map(|index| self.staging.get(index))
    }

    /// Asks the members of one group themselves.
    fn fall_back(&mut self, index: OpenIndex) {
        self.credits.fall_back(index, &self.staging, &mut self.stats);
        self.is_dirty = true;
    }

    /// Asks the members of everything that was to come through a box.
    fn leave_box(&mut self, index: BoxIndex) {
        self.credits.leave_box(index, &self.staging, &mut self.stats);
        self.is_dirty = true;
    }

    fn tell_staged(&mut self, index: OpenIndex, now: Nanos) {
        let group = self.staging.get(index);
        let id = group.id;
        let rank = group.mask.single().filter(|_| self.credits.is_direct(index));
        let first_at = group.first_at.unwrap_or(now);
        let duration_ns = now.since(first_at).0;
        let wait_ns = first_at.since(self.credits.called_at(index).unwrap_or(first_at)).0;
        let (bytes, idle_ns) = (group.bytes, group.idle_ns);
        self.tell(Event::Staged { group: id });
        self.tell(Event::Transferred { group: id, rank, bytes, duration_ns, wait_ns, idle_ns });
    }

    /// STATE: an aggregator that waits or has left, a member that gave up.
    fn handle_state(
        &mut self,
        row: RowKind,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, Refusal> {
        let peer = match row {
            RowKind::Installed if incoming.header.flags.contains(Flags::DIRECT) => {
                Peer::worker(incoming.header.members)?
            }
            RowKind::Installed => incoming.box_at_source(&self.host)?,
            RowKind::Direct(rank) => Peer::Worker(rank),
            _ => return Err(DropReason::Kind.into()),
        };
        self.identify(peer, incoming)?;
        let header = incoming.header;
        let index = self.staging.find(header.group).ok_or(DropReason::StaleGroup)?;
        self.check_intact(incoming)?;
        match (peer, header.outcome) {
            (Peer::Box(via), outcome) => {
                let group = self.staging.get(index);
                if group.via != Some(via) {
                    return Err(DropReason::WrongSource.into());
                }
                self.credits.hear(peer, incoming.now);
                let train_chunks = u32::from(self.credits.train_chunks(index));
                if outcome == Outcome::Have && header.chunk.0 < train_chunks {
                    incoming.trains.spoil(self.id(), header.group);
                }
                // An aggregator that holds nothing of a young group may not have been told of it
                // yet.
                let age_ns = incoming.now.since(group.installed_at).0;
                let may_come = header.members.is_empty() && age_ns < self.config.source_timeout_ns;
                if outcome == Outcome::Stale && !may_come {
                    self.fall_back(index);
                }
            }
            (Peer::Worker(rank), Outcome::Stale) => self.close_member(index, rank, true),
            (Peer::Worker(_), _) => return Err(DropReason::Unsolicited.into()),
        }
        Ok(Verdict::Hold)
    }
}
