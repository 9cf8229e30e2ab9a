//! Members of open groups at the server: how they leave, and what they are told (SPEC#push "Close",
//! "Decision").

use weft_control::Event;
use weft_wire::header::{Header, Kind, Outcome};
use weft_wire::{ChunkIndex, GroupId, Members, Rank};

use super::group::OpenIndex;
use super::job::Job;
use super::source::Source;
use crate::role::channel::Peer;
use crate::role::model::{Decided, low_bits};
use crate::send::datagram::plain_header;

impl Job {
    /// Takes a member out of an open group (SPEC#push "Close").
    pub(super) fn close_member(&mut self, index: OpenIndex, rank: Rank, tell_it: bool) {
        let group = self.groups[index.index()].as_mut().expect("the caller found it open");
        if !group.mask.contains(rank.bit()) {
            return;
        }
        group.mask = group.mask.without(rank.bit());
        // It hears of its VOID with the group's decision: until that is durable, a server that
        // begins anew may be given the group with all its members.
        if tell_it {
            group.closed = group.closed.union(rank.bit());
        }
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

    /// A worker began a new life: it knows nothing of what the old one pushed. After a restart of
    /// this server it may be the old one, whose updates are still under way.
    pub(super) fn begin_life(&mut self, rank: Rank) {
        let life = self.host.life(Peer::Worker(rank));
        let is_same = self.outcomes.begin_life(rank, life) && self.is_restored;
        self.sources[rank.index()] = Source::new(&self.config, true);
        if is_same {
            return;
        }
        self.close_everywhere(rank, false);
        for group in self.groups.iter_mut().flatten() {
            group.closed = group.closed.without(rank.bit());
        }
    }

    /// Queues the ACK of a decided update.
    pub(super) fn acknowledge(&mut self, rank: Rank, decided: &Decided) {
        let header = self.ack(decided, rank.bit());
        self.queue(Peer::Worker(rank), header);
    }

    pub(super) fn ack(&self, decided: &Decided, members: Members) -> Header {
        self.word_of(decided.group, decided.outcome, decided.version, members)
    }

    /// The ACK of a group; `members` are the committed ones.
    pub(super) fn word_of(
        &self,
        group: GroupId,
        outcome: Outcome,
        version: u64,
        members: Members,
    ) -> Header {
        let is_committed = outcome == Outcome::Committed;
        let members = if is_committed { members } else { Members::EMPTY };
        Header {
            outcome,
            chunk: ChunkIndex(low_bits(version)),
            ..plain_header(Kind::Ack, self.id(), group, members)
        }
    }

    pub(super) fn queue(&mut self, peer: Peer, header: Header) {
        if self.outbox.len() < self.outbox_max {
            self.outbox.push_back((peer, header));
        } else {
            self.stats.acks_lost += 1;
        }
    }
}
