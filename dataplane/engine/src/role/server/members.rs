//! Members of open groups at the server: how they leave, and what they are told (SPEC#push "Close",
//! "Decision").

use weft_control::Event;
use weft_wire::header::{Header, Kind, Outcome};
use weft_wire::{ChunkIndex, GroupId, Members, Rank};

use super::group::{Group, OpenIndex};
use super::job::Job;
use crate::role::channel::Peer;
use crate::role::model::{Decided, low_bits};
use crate::send::datagram::plain_header;

impl Job {
    /// Takes a member out of an open group (SPEC#push "Close").
    pub(super) fn close_member(&mut self, index: OpenIndex, rank: Rank, is_told: bool) {
        let Some(is_staged) = self.staging.close_member(index, rank, is_told) else { return };
        self.credits.rewind(index);
        self.stats.members_closed += 1;
        self.stats.voids += 1;
        self.is_dirty = true;
        if is_staged {
            self.tell(Event::Staged { group: self.staging.get(index).id });
        }
    }

    /// Takes a member out of all open groups in which its contribution is not complete.
    pub(super) fn close_everywhere(&mut self, rank: Rank, is_told: bool) {
        let mut place = 0;
        while let Some((index, group)) = self.staging.at(place) {
            place += 1;
            let lacks = |group: &Group| !self.staging.has_all_of(group, rank);
            if group.is_some_and(|group| group.mask.contains(rank.bit()) && lacks(group)) {
                self.close_member(index, rank, is_told);
            }
        }
    }

    /// A worker began a new life: it knows nothing of what the old one pushed. After a restart of
    /// this server it may be the old one, whose updates are still under way.
    pub(super) fn begin_life(&mut self, rank: Rank) {
        let life = self.host.life(Peer::Worker(rank));
        let is_same = self.ledger.begin_life(rank, life) && self.is_restored;
        self.credits.begin_life(rank);
        if !is_same {
            self.close_everywhere(rank, false);
            self.staging.forget_closed(rank);
        }
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
        self.outbox.push((peer, header), &mut self.stats.acks_lost);
    }
}
