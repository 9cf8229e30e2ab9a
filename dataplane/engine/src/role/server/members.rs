//! Members of open groups at the server: how they leave, and what they are told (SPEC#push "Close",
//! "Decision").

use weft_wire::header::{Header, Kind, Outcome};
use weft_wire::{ChunkIndex, GroupId, Members, Rank};

use super::group::OpenIndex;
use super::job::{DECIDED_KEPT, Decided, Job};
use super::source::Source;
use crate::push::Event;
use crate::role::channel::Peer;
use crate::role::model::low_bits;
use crate::send::datagram::plain_header;

impl Job {
    /// Takes a member out of an open group (SPEC#push "Close").
    pub(super) fn close_member(&mut self, index: OpenIndex, rank: Rank, tell_it: bool) {
        let group = self.groups[index.index()].as_mut().expect("the caller found it open");
        if !group.mask.contains(rank.bit()) {
            return;
        }
        group.mask = group.mask.without(rank.bit());
        group.chunks_staged = self.pool.restage(group.stage, rank.bit(), group.mask);
        group.rewind();
        let (id, was_staged) = (group.id, group.is_staged);
        group.is_staged = !group.mask.is_empty() && group.chunks_staged == self.chunks;
        let is_staged = group.is_staged;
        for source in &mut self.sources {
            source.forget(index);
        }
        self.stats.members_closed += 1;
        self.stats.voids += 1;
        self.is_dirty = true;
        if is_staged && !was_staged {
            self.tell(Event::Staged { group: id });
        }
        if tell_it {
            let version = self.model.version;
            self.decide_for(
                rank,
                Decided { group: id, outcome: Outcome::Void, version, held_by: None },
            );
        }
    }

    /// Takes a member out of all open groups in which its contribution is not complete.
    pub(super) fn close_everywhere(&mut self, rank: Rank, tell_it: bool) {
        for place in 0..self.groups.len() {
            let Some(group) = &self.groups[place] else { continue };
            let held = |chunk| self.pool.holders(group.stage, chunk).contains(rank.bit());
            if group.mask.contains(rank.bit()) && !(0..self.chunks).all(held) {
                let index = OpenIndex(u16::try_from(place).expect("at most 1024 groups"));
                self.close_member(index, rank, tell_it);
            }
        }
    }

    /// A worker began a new life: it knows nothing of what the old one pushed.
    pub(super) fn forget_life(&mut self, rank: Rank) {
        self.close_everywhere(rank, false);
        self.decided[rank.index()].clear();
        self.sources[rank.index()] = Source::new(&self.config);
    }

    /// Notes what became of a worker's update, and tells the worker unless that must wait.
    pub(super) fn decide_for(&mut self, rank: Rank, decided: Decided) {
        let ring = &mut self.decided[rank.index()];
        if ring.len() == DECIDED_KEPT {
            ring.pop_front();
        }
        ring.push_back(decided);
        if decided.held_by.is_none() {
            self.acknowledge(rank, &decided);
        }
    }

    /// Queues the ACK of a decided update.
    pub(super) fn acknowledge(&mut self, rank: Rank, decided: &Decided) {
        let header = self.ack(decided, rank.bit());
        self.queue(Peer::Worker(rank), header);
    }

    pub(super) fn ack(&self, decided: &Decided, members: Members) -> Header {
        let committed = decided.outcome == Outcome::Committed;
        let members = if committed { members } else { Members::EMPTY };
        Header {
            outcome: decided.outcome,
            chunk: ChunkIndex(low_bits(decided.version)),
            ..plain_header(Kind::Ack, self.id(), decided.group, members)
        }
    }

    /// What became of a worker's update, if it is kept.
    pub(super) fn decided(&self, rank: Rank, group: GroupId) -> Option<&Decided> {
        self.decided[rank.index()].iter().rev().find(|decided| decided.group == group)
    }

    pub(super) fn decided_mut(&mut self, rank: Rank, group: GroupId) -> Option<&mut Decided> {
        self.decided[rank.index()].iter_mut().rev().find(|decided| decided.group == group)
    }

    /// True when a direct update with this number is older than what the worker's are by now.
    pub(super) fn is_old_news(&self, rank: Rank, group: GroupId) -> bool {
        let direct = self.decided[rank.index()].iter().filter(|d| d.group.row() == group.row());
        let ages = direct.map(|d| d.group.generation().wrapping_sub(group.generation()));
        let mut ages = ages.filter(|age| *age < 1 << 15);
        ages.any(|age| usize::from(age) >= DECIDED_KEPT / 2)
    }

    pub(super) fn queue(&mut self, peer: Peer, header: Header) {
        if self.outbox.len() < self.outbox_max {
            self.outbox.push_back((peer, header));
        } else {
            self.stats.acks_lost += 1;
        }
    }
}
