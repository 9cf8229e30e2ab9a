//! Who may send the next chunk: PULL credits (SPEC#push "Credits", PROTOCOL section 5).
//!
//! Groups are served in the plan's order; what the first cannot use, because its source's window
//! or its rate is spent or its gate is shut, goes to the next. A credit that is not answered is
//! repeated; so release order, gating and loss recovery are one mechanism. O(open groups) per
//! credit at worst, O(1) while the first group can use them.

use weft_control::ConductMode;
use weft_wire::header::{Flags, Header, Kind};
use weft_wire::{ChunkIndex, Nanos, Rank};

use super::group::{BEGIN_BYTES, Group, OpenIndex};
use super::job::Job;
use super::source::{Credit, SourceId};
use crate::role::channel::Peer;
use crate::send::datagram::plain_header;
use crate::send::pacer::TokenBucket;

impl Job {
    /// Writes the next frame that no incoming frame asked for.
    pub(super) fn transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        if self.is_dirty || now >= self.judge_at {
            self.advance(now);
        }
        while let Some((peer, header)) = self.outbox.pop_front() {
            // A peer without a channel asks when it has one.
            if let Some(len) = self.host.write(peer, &header, frame, 0) {
                return Some(len);
            }
        }
        let len = self.repeat_credit(now, frame).or_else(|| self.next_credit(now, frame));
        self.is_dirty = len.is_some();
        len
    }

    /// When [`Job::transmit`] will have something to do.
    pub(super) fn due_at(&self) -> Nanos {
        if self.is_dirty || !self.outbox.is_empty() {
            return Nanos(0);
        }
        let due = self.sources.iter().map(|source| source.due_at).min().unwrap_or(Nanos::MAX);
        due.min(self.judge_at).min(self.credit_at)
    }

    /// Repeats a PULL that was not answered in time; leaves an aggregator that is silent.
    fn repeat_credit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        for place in 0..self.sources.len() {
            while now >= self.sources[place].due_at {
                let id = self.source_at(place);
                if self.is_silent(now, id, place) {
                    self.leave_source(id);
                    self.sources[place].clear();
                    break;
                }
                let (groups, pool) = (&self.groups, &self.pool);
                let needed = |credit: &Credit| {
                    let Some(group) = &groups[credit.group.index()] else { return false };
                    let held = pool.holders(group.stage, credit.chunk);
                    match id {
                        SourceId::Box(_) => !group.is_direct && held != group.mask,
                        SourceId::Member(rank) => {
                            group.mask.contains(rank.bit()) && !held.contains(rank.bit())
                        }
                    }
                };
                let source = &mut self.sources[place];
                let Some((credit, overdue)) = source.expire(now, needed) else { break };
                // A member may still wait for its grant: only a transfer that flows tells of
                // losses.
                let is_flowing =
                    groups[credit.group.index()].as_ref().is_some_and(Group::is_flowing);
                if is_flowing && source.path.on_timeout(now, &overdue) {
                    self.stats.window_reductions += 1;
                }
                self.stats.credits_repeated += 1;
                let group = self.group(credit.group);
                let header = pull(self, group, credit.chunk, id, Flags::RETRANSMIT);
                if let Some(len) = self.host.write(peer_of(id), &header, frame, 0) {
                    return Some(len);
                }
            }
        }
        None
    }

    /// An aggregator that owes answers and has said nothing at all.
    fn is_silent(&self, now: Nanos, id: SourceId, place: usize) -> bool {
        let source = &self.sources[place];
        matches!(id, SourceId::Box(_))
            && source.credits() > 0
            && now.since(source.heard_at).0 >= self.config.source_timeout_ns
    }

    /// Asks the members of everything that was to come through a box.
    pub(super) fn leave_source(&mut self, id: SourceId) {
        let SourceId::Box(gone) = id else { return };
        for place in 0..self.groups.len() {
            let Some(group) = &self.groups[place] else { continue };
            if group.via.is_some_and(|via| via.0 == gone) && !group.is_direct && !group.is_staged {
                let index = OpenIndex(u16::try_from(place).expect("at most 1024 groups"));
                self.fall_back(index);
            }
        }
    }

    /// Asks the members of one group themselves.
    pub(super) fn fall_back(&mut self, index: OpenIndex) {
        let group = self.group_mut(index);
        if group.is_direct {
            return;
        }
        group.fall_back();
        let via = group.via;
        self.stats.fallbacks += 1;
        self.is_dirty = true;
        if let Some(via) = via {
            let place = self.source_index(SourceId::Box(via.0));
            self.sources[place].forget(index);
        }
    }

    /// Writes the next new PULL, if anybody may send.
    fn next_credit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        self.credit_at = Nanos::MAX;
        let in_flight: usize = self.sources.iter().map(super::source::Source::credits).sum();
        if in_flight >= self.config.credits_max as usize {
            return None;
        }
        let bytes = self.chunk_frame_len;
        let ready_at = self.bucket.as_ref().map_or(Nanos(0), |bucket| bucket.ready_at(bytes));
        if ready_at > now {
            self.credit_at = ready_at;
        }
        let count = self.plan.len();
        let first = match self.config.conduct {
            ConductMode::InOrder => 0,
            ConductMode::Fair => self.turn,
        };
        for position in 0..count {
            let at = (first + position) % count;
            let index = self.plan[at];
            let waits = ready_at > now && !self.group(index).is_in_train();
            if waits || !self.may_send(now, index) {
                continue;
            }
            let Some((id, chunk)) = self.want(index) else { continue };
            let header = pull(self, self.group(index), chunk, id, Flags::NONE);
            let Some(len) = self.host.write(peer_of(id), &header, frame, 0) else { continue };
            if let Some(bucket) = &mut self.bucket {
                bucket.charge(now, bytes);
            }
            let group = self.group_mut(index);
            group.called_at.get_or_insert(now);
            if let Some(bucket) = &mut group.bucket {
                bucket.charge(now, bytes);
            }
            match id {
                SourceId::Box(_) => group.cursor = chunk + 1,
                SourceId::Member(rank) => group.cursors[rank.index()] = chunk + 1,
            }
            let place = self.source_index(id);
            self.sources[place].send(now, index, chunk);
            self.stats.credits_sent += 1;
            self.turn = at + 1;
            return Some(len);
        }
        None
    }

    /// The group's gate is open and its rate not spent.
    fn may_send(&mut self, now: Nanos, index: OpenIndex) -> bool {
        let group = self.group(index);
        if group.is_staged || group.mask.is_empty() {
            return false;
        }
        // Opened a round trip before its end, so that the link does not wait for the next one's
        // first chunk. Credits keep their order and their rate: what the gate's group lacks goes
        // first.
        let is_shut = |other: OpenIndex| !self.group(other).is_ending(self.chunks);
        if group.after.and_then(|id| self.open(id)).is_some_and(is_shut) {
            return false;
        }
        if let (false, Some(via)) = (group.is_direct, group.via)
            && !self.host.is_open(Peer::Box(via))
        {
            // Nobody there: the same patience as with one that falls silent.
            let until = group.installed_at.saturating_add(Nanos(self.config.source_timeout_ns));
            if now < until {
                self.credit_at = self.credit_at.min(until);
                return false;
            }
            self.fall_back(index);
        }
        let bytes = self.chunk_frame_len;
        let group = self.group_mut(index);
        if let (false, Some(bucket)) = (group.is_begun, &mut group.bucket) {
            // What it could have sent behind its gate would be a burst before those who are ending.
            bucket.begin(now, BEGIN_BYTES);
        }
        group.is_begun = true;
        let ready_at = group.bucket.as_ref().map_or(Nanos(0), |bucket| bucket.ready_at(bytes));
        if ready_at > now && !group.is_in_train() {
            self.credit_at = self.credit_at.min(ready_at);
            return false;
        }
        true
    }

    /// The next chunk that the group lacks and nobody was asked for, and whom to ask.
    fn want(&mut self, index: OpenIndex) -> Option<(SourceId, u32)> {
        let chunks = self.chunks;
        let group = self.groups[index.index()].as_mut()?;
        let is_in_train = group.is_in_train();
        let (rate, frame_len) =
            (group.bucket.as_ref().map(TokenBucket::rate), self.chunk_frame_len);
        if let (false, Some(via)) = (group.is_direct, group.via) {
            let id = SourceId::Box(via.0);
            let place = self.config.workers.len() + usize::from(via.0);
            if !self.sources[place].has_room_for(is_in_train, rate, frame_len)
                || !self.host.is_open(Peer::Box(via))
            {
                return None;
            }
            while group.cursor < chunks
                && self.pool.holders(group.stage, group.cursor) == group.mask
            {
                group.cursor += 1;
            }
            return (group.cursor < chunks).then_some((id, group.cursor));
        }
        for rank in group.mask.iter() {
            if !self.sources[rank.index()].has_room_for(is_in_train, rate, frame_len)
                || !self.host.is_open(Peer::Worker(rank))
            {
                continue;
            }
            let cursor = &mut group.cursors[rank.index()];
            while *cursor < chunks && self.pool.holders(group.stage, *cursor).contains(rank.bit()) {
                *cursor += 1;
            }
            if *cursor < chunks {
                return Some((SourceId::Member(rank), *cursor));
            }
        }
        None
    }

    fn source_at(&self, place: usize) -> SourceId {
        match place.checked_sub(self.config.workers.len()) {
            None => {
                let rank = u8::try_from(place).ok().and_then(Rank::new);
                SourceId::Member(rank.expect("at most 64 workers"))
            }
            Some(index) => SourceId::Box(u8::try_from(index).expect("at most 64 boxes")),
        }
    }
}

fn pull(job: &Job, group: &Group, chunk: u32, id: SourceId, flags: Flags) -> Header {
    let direct = match id {
        SourceId::Box(_) => Flags::NONE,
        SourceId::Member(_) => Flags::DIRECT,
    };
    Header {
        flags: flags.union(direct),
        chunk: ChunkIndex(chunk),
        ..plain_header(Kind::Pull, job.id(), group.id, group.mask)
    }
}

fn peer_of(id: SourceId) -> Peer {
    match id {
        SourceId::Box(index) => Peer::Box(weft_control::BoxIndex(index)),
        SourceId::Member(rank) => Peer::Worker(rank),
    }
}
