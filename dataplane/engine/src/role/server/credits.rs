//! Credits: who may send the next chunk (SPEC#push "Credits", PROTOCOL section 5).
//!
//! Groups are served in the plan's order; what the first cannot use, because its source's window
//! or its rate is spent or its gate is shut, goes to the next. A credit that is not answered is
//! repeated; so release order, gating and loss recovery are one mechanism. Invariant: an open group
//! has a call, and no credit outlives its group. O(open groups) per credit at worst, O(1) while the
//! first group can use them.

use alloc::vec::Vec;

use weft_control::{BoxIndex, ConductMode};
use weft_wire::frame::Endpoint;
use weft_wire::header::{Flags, HEADER_LEN, Header, Kind};
use weft_wire::hello::Integrity;
use weft_wire::{ChunkIndex, JobId, MEMBERS_MAX, Nanos, Rank};

use super::budget::{BEGIN_BYTES, Budget, bucket};
use super::config::ServerJobConfig;
use super::group::{Group, OpenIndex, Opening};
use super::places::Places;
use super::source::{Answered, Credit, Source, SourceLimits};
use super::staging::Staging;
use super::stats::ServerJobStats;
use crate::role::channel::{ChannelHost, Peer};
use crate::role::model::ModelConfig;
use crate::send::datagram::plain_header;
use crate::send::pacer::TokenBucket;

/// The credits of a job.
#[derive(Debug)]
pub(super) struct Credits {
    job: JobId,
    places: Places,
    chunks: u32,
    /// Bytes of the Ethernet frame of a chunk.
    frame_len: u64,
    /// Zero bytes behind a credit of a box.
    padding_len: usize,
    credits_max: usize,
    source_timeout_ns: u64,
    conduct: ConductMode,
    limits: SourceLimits,
    sources: Vec<Source>,
    /// Of every open group, by its index.
    calls: Vec<Option<Call>>,
    /// What the server's link may receive.
    budget: Budget,
    /// The place in the plan behind the one that was served last.
    turn: usize,
    /// When a new credit may become possible by itself.
    ready_at: Nanos,
}

/// How far an open group was called.
#[derive(Debug)]
struct Call {
    /// The members are asked themselves.
    is_direct: bool,
    bucket: Option<TokenBucket>,
    /// Its gate has been open.
    is_begun: bool,
    /// Credits below this are a train's: given at once, on the account of the buckets.
    train_chunks: u16,
    /// Next chunk to give a credit for: one cursor for the aggregator, one per member.
    cursor: u32,
    cursors: [u32; MEMBERS_MAX],
    /// When its first PULL left.
    called_at: Option<Nanos>,
}

/// What decides besides the credits themselves.
struct View<'a> {
    now: Nanos,
    staging: &'a Staging,
    host: &'a ChannelHost,
}

impl Call {
    /// True while the next credit belongs to the train that the transfer begins with.
    fn is_in_train(&self, group: &Group) -> bool {
        let next = match group.mask.single() {
            Some(rank) if self.is_direct => self.cursors[rank.index()],
            _ => self.cursor,
        };
        next < u32::from(self.train_chunks)
    }

    /// Staged, or flowing with its last chunk called: it ends within a round trip. One that was
    /// called before anything of it has come may be waiting for its grant, or for its members.
    fn is_ending(&self, group: &Group, chunks: u32) -> bool {
        let is_called = match (self.is_direct, group.via) {
            (false, Some(_)) => self.cursor >= chunks,
            _ => group.mask.iter().all(|rank| self.cursors[rank.index()] >= chunks),
        };
        group.is_staged || (is_called && group.is_flowing())
    }

    /// The aggregator that is asked.
    fn via(&self, group: &Group) -> Option<BoxIndex> {
        group.via.filter(|_| !self.is_direct)
    }
}

impl Credits {
    /// Takes the memory of a job whose configuration was checked.
    pub(super) fn new(config: &ServerJobConfig, places: Places, local: Endpoint) -> Self {
        let headers_len = if local.addr.is_ipv4() { 42 } else { 62 };
        let chunk_len = HEADER_LEN + usize::from(config.model.elements) * 4;
        let limits = SourceLimits::of(config);
        let is_worker = |peer| matches!(peer, Peer::Worker(_));
        let open_max = usize::from(config.groups_open_max);
        Self {
            job: config.model.job,
            places,
            chunks: config.model.chunks(),
            frame_len: (headers_len + chunk_len) as u64,
            padding_len: padding_len(&config.model),
            credits_max: config.credits_max as usize,
            source_timeout_ns: config.source_timeout_ns,
            conduct: config.conduct,
            limits,
            sources: places.all().map(|peer| Source::new(limits, is_worker(peer))).collect(),
            calls: core::iter::repeat_with(|| None).take(open_max).collect(),
            budget: Budget::new(config.rate_bytes_per_sec),
            turn: 0,
            ready_at: Nanos::MAX,
        }
    }

    /// A group is open now.
    pub(super) fn open(&mut self, index: OpenIndex, opening: &Opening<'_>) {
        self.calls[index.index()] = Some(Call {
            is_direct: opening.via.is_none(),
            bucket: opening.rate_bytes_per_sec.map(bucket),
            is_begun: false,
            train_chunks: opening.train_chunks,
            cursor: 0,
            cursors: [0; MEMBERS_MAX],
            called_at: None,
        });
    }

    /// A group is decided.
    pub(super) fn shut(&mut self, index: OpenIndex) {
        self.calls[index.index()] = None;
        self.forget(index);
    }

    fn forget(&mut self, index: OpenIndex) {
        self.sources.iter_mut().for_each(|source| source.forget(index));
    }

    fn call(&self, index: OpenIndex) -> &Call {
        self.calls[index.index()].as_ref().expect("an open group has a call")
    }

    fn call_mut(&mut self, index: OpenIndex) -> &mut Call {
        self.calls[index.index()].as_mut().expect("an open group has a call")
    }

    /// True when a group's members are asked themselves.
    pub(super) fn is_direct(&self, index: OpenIndex) -> bool {
        self.call(index).is_direct
    }

    /// Chunks below this belong to a group's train.
    pub(super) fn train_chunks(&self, index: OpenIndex) -> u16 {
        self.call(index).train_chunks
    }

    /// When a group's first PULL left.
    pub(super) fn called_at(&self, index: OpenIndex) -> Option<Nanos> {
        self.call(index).called_at
    }

    /// What the server's link may receive from now on.
    pub(super) fn set_rate(&mut self, rate_bytes_per_sec: u64) {
        self.budget.set_rate(rate_bytes_per_sec);
    }

    /// A member left a group: asks again for everything that is missing.
    pub(super) fn rewind(&mut self, index: OpenIndex) {
        let call = self.call_mut(index);
        call.train_chunks = 0;
        call.cursor = 0;
        call.cursors = [0; MEMBERS_MAX];
        self.forget(index);
    }

    /// A worker began a new life: nothing is known of the way to it, and it was asked nothing.
    pub(super) fn begin_life(&mut self, rank: Rank) {
        self.sources[rank.index()] = Source::new(self.limits, true);
    }

    /// A peer has said something that answers no credit.
    pub(super) fn hear(&mut self, peer: Peer, now: Nanos) {
        self.sources[self.places.of(peer)].hear(now);
    }

    /// Zero bytes behind a credit of this peer.
    pub(super) fn padding_len(&self, peer: Peer) -> usize {
        match peer {
            Peer::Box(_) => self.padding_len,
            Peer::Worker(_) => 0,
        }
    }

    /// Takes an answer; says what it was to, if that was asked for and not answered yet.
    pub(super) fn answer(
        &mut self,
        now: Nanos,
        peer: Peer,
        index: OpenIndex,
        chunk: u32,
        is_marked: bool,
    ) -> Option<Answered> {
        self.sources[self.places.of(peer)].answer(now, index, chunk, is_marked)
    }

    /// When [`Credits::poll`] will have something to do by itself.
    pub(super) fn due_at(&self) -> Nanos {
        let due = self.sources.iter().map(Source::due_at).min().unwrap_or(Nanos::MAX);
        due.min(self.ready_at)
    }

    /// The next PULL, one that is repeated or a new one, and to whom.
    pub(super) fn poll(
        &mut self,
        now: Nanos,
        staging: &Staging,
        host: &ChannelHost,
        stats: &mut ServerJobStats,
    ) -> Option<(Peer, Header)> {
        let view = &View { now, staging, host };
        self.repeat(view, stats).or_else(|| self.next(view, stats))
    }

    /// A PULL again that was not answered in time. Leaves an aggregator that is silent.
    fn repeat(&mut self, view: &View<'_>, stats: &mut ServerJobStats) -> Option<(Peer, Header)> {
        let View { now, staging, host } = *view;
        for (place, peer) in self.places.all().enumerate() {
            while now >= self.sources[place].due_at() {
                if let Peer::Box(index) = peer
                    && self.sources[place].is_silent(now, self.source_timeout_ns)
                {
                    self.leave_box(index, staging, stats);
                    self.sources[place].clear();
                    break;
                }
                let calls = &self.calls;
                let needed = |credit: &Credit| {
                    let Some(call) = &calls[credit.group.index()] else { return false };
                    let group = staging.get(credit.group);
                    let held = staging.holders(group, credit.chunk);
                    match peer {
                        Peer::Box(_) => !call.is_direct && held != group.mask,
                        Peer::Worker(rank) => {
                            group.mask.contains(rank.bit()) && !held.contains(rank.bit())
                        }
                    }
                };
                let Some(expired) = self.sources[place].expire(now, needed) else { break };
                let group = staging.get(expired.group);
                // A member may still wait for its grant: only a transfer that flows tells of
                // losses.
                let is_reduced = group.is_flowing() && self.sources[place].lose(now, &expired);
                stats.window_reductions += u64::from(is_reduced);
                stats.credits_repeated += 1;
                if host.is_open(peer) {
                    return Some((peer, self.pull(group, expired.chunk, peer, Flags::RETRANSMIT)));
                }
            }
        }
        None
    }

    /// Asks the members of everything that was to come through a box.
    pub(super) fn leave_box(
        &mut self,
        gone: BoxIndex,
        staging: &Staging,
        stats: &mut ServerJobStats,
    ) {
        for index in staging.plan() {
            let group = staging.get(*index);
            if group.via == Some(gone) && !group.is_staged {
                self.fall_back(*index, staging, stats);
            }
        }
    }

    /// Asks the members of one group themselves, for all that is missing.
    pub(super) fn fall_back(
        &mut self,
        index: OpenIndex,
        staging: &Staging,
        stats: &mut ServerJobStats,
    ) {
        let call = self.call_mut(index);
        if core::mem::replace(&mut call.is_direct, true) {
            return;
        }
        call.train_chunks = 0;
        call.cursors = [0; MEMBERS_MAX];
        stats.fallbacks += 1;
        if let Some(via) = staging.get(index).via {
            self.sources[self.places.of(Peer::Box(via))].forget(index);
        }
    }

    /// The next new PULL, if a source may send.
    fn next(&mut self, view: &View<'_>, stats: &mut ServerJobStats) -> Option<(Peer, Header)> {
        let View { now, staging, .. } = *view;
        self.ready_at = Nanos::MAX;
        let in_flight: usize = self.sources.iter().map(Source::credits).sum();
        if in_flight >= self.credits_max {
            return None;
        }
        let bytes = self.frame_len;
        let link_at = self.budget.ready_at(now, bytes);
        if link_at > now {
            self.ready_at = link_at;
        }
        let plan = staging.plan();
        let first = match self.conduct {
            ConductMode::InOrder => 0,
            ConductMode::Fair => self.turn,
        };
        for position in 0..plan.len() {
            let at = (first + position) % plan.len();
            let (index, group) = (plan[at], staging.get(plan[at]));
            let waits = link_at > now && !self.call(index).is_in_train(group);
            if waits || !self.may_send(index, view, stats) {
                continue;
            }
            let Some((peer, chunk)) = self.want(index, view) else { continue };
            self.budget.charge(now, bytes);
            let call = self.call_mut(index);
            call.called_at.get_or_insert(now);
            if let Some(bucket) = &mut call.bucket {
                bucket.charge(now, bytes);
            }
            match peer {
                Peer::Box(_) => call.cursor = chunk + 1,
                Peer::Worker(rank) => call.cursors[rank.index()] = chunk + 1,
            }
            self.sources[self.places.of(peer)].send(now, index, chunk);
            stats.credits_sent += 1;
            self.turn = at + 1;
            return Some((peer, self.pull(group, chunk, peer, Flags::NONE)));
        }
        self.budget.rest(self.ready_at < Nanos::MAX);
        None
    }

    /// The group's gate is open and its rate not spent.
    fn may_send(&mut self, index: OpenIndex, view: &View<'_>, stats: &mut ServerJobStats) -> bool {
        let View { now, staging, host } = *view;
        let group = staging.get(index);
        if group.is_staged || group.mask.is_empty() {
            return false;
        }
        // Opened a round trip before its end, so that the link does not wait for the next one's
        // first chunk. Credits keep their order and their rate: what the gate's group lacks goes
        // first.
        let is_shut = |other| !self.call(other).is_ending(staging.get(other), self.chunks);
        if group.after.and_then(|id| staging.find(id)).is_some_and(is_shut) {
            return false;
        }
        if let Some(via) = self.call(index).via(group)
            && !host.is_open(Peer::Box(via))
        {
            // Nobody there: the same patience as with one that falls silent.
            let until = group.installed_at.saturating_add(Nanos(self.source_timeout_ns));
            if now < until {
                self.ready_at = self.ready_at.min(until);
                return false;
            }
            self.fall_back(index, staging, stats);
        }
        let bytes = self.frame_len;
        let call = self.call_mut(index);
        if let (false, Some(bucket)) = (call.is_begun, &mut call.bucket) {
            // What it could have sent behind its gate would be a burst before those who are ending.
            bucket.begin(now, BEGIN_BYTES);
        }
        call.is_begun = true;
        let rate_at = call.bucket.as_ref().map_or(Nanos(0), |bucket| bucket.ready_at(bytes));
        if rate_at > now && !call.is_in_train(group) {
            self.ready_at = self.ready_at.min(rate_at);
            return false;
        }
        true
    }

    /// The next chunk that the group lacks and no source was asked for, and whom to ask.
    fn want(&mut self, index: OpenIndex, view: &View<'_>) -> Option<(Peer, u32)> {
        let View { staging, host, .. } = *view;
        let group = staging.get(index);
        let (places, sources, frame_len) = (self.places, &self.sources, self.frame_len);
        let call = self.calls[index.index()].as_mut()?;
        let is_in_train = call.is_in_train(group);
        let rate = call.bucket.as_ref().map(TokenBucket::rate);
        let may_ask = |peer| {
            let source = &sources[places.of(peer)];
            source.has_room_for(is_in_train, rate, frame_len) && host.is_open(peer)
        };
        if let Some(via) = call.via(group) {
            let cursor = &mut call.cursor;
            if !may_ask(Peer::Box(via)) {
                return None;
            }
            while *cursor < self.chunks && staging.holders(group, *cursor) == group.mask {
                *cursor += 1;
            }
            return (*cursor < self.chunks).then_some((Peer::Box(via), *cursor));
        }
        for rank in group.mask.iter().filter(|rank| may_ask(Peer::Worker(*rank))) {
            let cursor = &mut call.cursors[rank.index()];
            let has = |chunk| staging.holders(group, chunk).contains(rank.bit());
            while *cursor < self.chunks && has(*cursor) {
                *cursor += 1;
            }
            if *cursor < self.chunks {
                return Some((Peer::Worker(rank), *cursor));
            }
        }
        None
    }

    fn pull(&self, group: &Group, chunk: u32, peer: Peer, flags: Flags) -> Header {
        let direct = match peer {
            Peer::Box(_) => Flags::NONE,
            Peer::Worker(_) => Flags::DIRECT,
        };
        Header {
            flags: flags.union(direct),
            chunk: ChunkIndex(chunk),
            ..plain_header(Kind::Pull, self.job, group.id, group.mask)
        }
    }
}

/// Whose credits become sums in a switch cannot be told, but for the integrity that a switch alone
/// needs: what such a credit is answered with must not outgrow it (SPEC#push "Credits").
fn padding_len(model: &ModelConfig) -> usize {
    let sum_len = usize::from(model.elements) * 4;
    let may_be_switch = model.integrity == Integrity::Checksum16;
    if may_be_switch && sum_len > GROWTH_MAX { sum_len } else { 0 }
}

/// Bytes that a switch can add to a frame.
const GROWTH_MAX: usize = 512;
