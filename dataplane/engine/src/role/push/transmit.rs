//! What goes next: handshakes, credits of the server, copies, questions, requests for a model, and
//! then chunks to aggregators; and when to look again.

use weft_wire::header::{Flags, Header, Kind, Operation, Outcome};
use weft_wire::{ChunkIndex, Members, Nanos};

use super::flight::Turn;
use super::pull::SERVER;
use super::update::{Phase, Update};
use super::{Event, Host, PushFault, Pusher, PusherConfig, State};
use crate::role::channel::ChannelTerms;
use crate::send::datagram::plain_header;
use crate::send::pacer::TokenBucket;

impl Pusher {
    /// Writes the next Ethernet frame to `frame` and returns its length; `None` when there is
    /// nothing to send now. `frame` holds at least [`Pusher::frame_len_max`] bytes.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        if self.state == State::Stopped {
            return None;
        }
        self.paced_until = Nanos::MAX;
        self.is_in_train = false;
        for host in &mut self.hosts {
            if let Some(len) = host.channel.poll_transmit(now, frame) {
                return Some(len);
            }
        }
        let terms = self.terms.filter(|_| self.state == State::Open)?;
        let count = self.updates.len();
        if self.hosts[SERVER].is_open() {
            for offset in 0..count {
                let index = (self.turn + offset) % count;
                if let Some(len) = self.poll_direct(now, &terms, index, frame) {
                    self.turn = (index + 1) % count;
                    return Some(len);
                }
            }
            if let Some(len) = self.poll_question(now, &terms, frame) {
                return Some(len);
            }
        }
        if let Some(len) = self.poll_pull(now, frame) {
            return Some(len);
        }
        for offset in 0..count {
            let index = (self.turn + offset) % count;
            if let Some(len) = self.poll_contribution(now, &terms, index, frame) {
                self.turn = (index + 1) % count;
                return Some(len);
            }
        }
        None
    }

    /// True when the frame that [`Pusher::poll_transmit`] wrote last belongs to a train, of which
    /// the network alone may space the frames (SPEC#transfer-trains).
    #[must_use]
    pub fn is_in_train(&self) -> bool {
        self.is_in_train
    }

    /// Answers a credit of the server, or makes the copy of an answer for the replica.
    fn poll_direct(
        &mut self,
        now: Nanos,
        terms: &ChannelTerms,
        index: usize,
        frame: &mut [u8],
    ) -> Option<usize> {
        let update = &mut self.updates[index];
        let (place, flags, chunk) = match (update.credits.front(), update.copies.front()) {
            (Some(chunk), _) => (SERVER, Flags::DIRECT, *chunk),
            (None, Some(chunk)) => {
                let is_replica = |host: &Host| host.is_replica && host.is_open();
                let Some(place) = self.hosts.iter().position(is_replica) else {
                    // It asks the server for what it lacks.
                    update.copies.clear();
                    return None;
                };
                (place, Flags::DIRECT.union(Flags::REPLICA), *chunk)
            }
            (None, None) => return None,
        };
        let host = &self.hosts[place];
        let chunk_len = chunk_len(terms, &self.config);
        let bytes = (host.channel.payload_start() + chunk_len) as u64;
        let is_copy = flags.contains(Flags::REPLICA);
        let is_repeat = !is_copy && update.has_sent(chunk);
        let is_train = !is_copy && !is_repeat && chunk < update.train_chunks;
        if let Err(at) = pace(now, &mut update.pacer, &mut self.pacer, is_train, bytes) {
            self.paced_until = self.paced_until.min(at);
            return None;
        }
        let start = host.channel.payload_start();
        let out = &mut frame[start..start + chunk_len];
        let kind = self.config.element_type;
        let clamped = update.write_chunk(self.kernels, kind, chunk, out, &mut self.stats);
        let flags = flags.union(clamped).union(repeat_flag(is_repeat));
        let header = contribution(&self.config, terms, update, chunk, flags);
        if is_copy {
            update.copies.pop_front();
            self.stats.replica_copies += 1;
        } else {
            update.use_credit();
            let is_first = update.sent_count() == 0;
            update.count_sent(chunk, true, &mut self.stats);
            let is_whole = !update.is_delivered && update.is_all_direct(terms.job.chunks);
            update.is_delivered |= is_whole;
            let number = update.number;
            self.report_progress(number, is_first, is_whole);
        }
        self.is_in_train = is_train;
        self.hosts[place].channel.write(&header, frame, chunk_len)
    }

    /// Asks the server what became of an update, or which version is the newest.
    fn poll_question(
        &mut self,
        now: Nanos,
        terms: &ChannelTerms,
        frame: &mut [u8],
    ) -> Option<usize> {
        let bit = self.config.rank.bit();
        let job = self.config.job;
        if let Some(group) = self.declined.pop() {
            let state = plain_header(Kind::State, job, group, bit);
            let header = Header { outcome: Outcome::Stale, flags: Flags::DIRECT, ..state };
            return self.hosts[SERVER].channel.write(&header, frame, 0);
        }
        let header = if let Some(update) = self.updates.iter_mut().find(|u| now >= u.status.at) {
            let config = &self.config;
            update.status.asked(now, config.status_interval_ns, config.rto_max_ns);
            // The server opens the group of a direct update by this: what its chunks will be, and
            // the version they were computed on.
            let header = contribution(config, terms, update, low_32(update.version.0), Flags::NONE);
            Header { kind: Kind::Status, ..header }
        } else if self.puller.is_asking() && now >= self.puller.asking.at {
            let interval_ns = self.config.version_interval_ns;
            self.puller.asking.asked(now, interval_ns, 8 * interval_ns);
            plain_header(Kind::Status, job, super::pull::model_question(), bit)
        } else {
            return None;
        };
        self.stats.status_probes += 1;
        self.asked_at.get_or_insert(now);
        self.hosts[SERVER].channel.write(&header, frame, 0)
    }

    /// Asks for a chunk of the model.
    fn poll_pull(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        let turn = self.puller.turn()?;
        let place = self.puller.host();
        if !self.hosts[place].is_open() {
            return None;
        }
        self.puller.sent(turn, now);
        self.stats.pull_requests += 1;
        self.stats.pull_repeats += u64::from(turn.is_repeat);
        if place == SERVER {
            self.asked_at.get_or_insert(now);
        }
        let bit = self.config.rank.bit();
        let header = Header {
            chunk: ChunkIndex(turn.chunk),
            flags: repeat_flag(turn.is_repeat),
            ..plain_header(Kind::Contrib, self.config.job, self.puller.group(), bit)
        };
        self.hosts[place].channel.write(&header, frame, 0)
    }

    /// Sends a chunk to the update's aggregator.
    fn poll_contribution(
        &mut self,
        now: Nanos,
        terms: &ChannelTerms,
        index: usize,
        frame: &mut [u8],
    ) -> Option<usize> {
        let via = self.updates[index].via.filter(|_| self.updates[index].may_send())?;
        let place = self.box_host(via)?;
        let out = self.updates.iter().filter(|u| u.via == Some(via)).map(|u| u.flight.out()).sum();
        let host = &self.hosts[place];
        if !host.is_open() {
            return None;
        }
        let update = &mut self.updates[index];
        let train = update.flight.train_turn(update.train_chunks);
        let room = host.path.window().saturating_sub(out);
        let turn: Turn = train.or_else(|| update.flight.turn(room))?;
        let chunk_len = chunk_len(terms, &self.config);
        let start = host.channel.payload_start();
        let bytes = (start + chunk_len) as u64;
        let is_train = train.is_some();
        if let Err(at) = pace(now, &mut update.pacer, &mut self.pacer, is_train, bytes) {
            self.paced_until = self.paced_until.min(at);
            return None;
        }
        update.flight.sent(turn, now, &host.path);
        let payload = &mut frame[start..start + chunk_len];
        let kind = self.config.element_type;
        let clamped = update.write_chunk(self.kernels, kind, turn.chunk, payload, &mut self.stats);
        let is_first = update.sent_count() == 0;
        let is_repeat = !update.count_sent(turn.chunk, false, &mut self.stats);
        let flags = clamped.union(repeat_flag(is_repeat));
        let header = contribution(&self.config, terms, update, turn.chunk, flags);
        let number = update.number;
        self.report_progress(number, is_first, false);
        self.is_in_train = is_train;
        self.hosts[place].channel.write(&header, frame, chunk_len)
    }

    pub(super) fn report_progress(&mut self, number: u64, is_first: bool, is_whole: bool) {
        if is_first {
            self.report(Event::Started { number });
        }
        if is_whole {
            self.report(Event::Delivered { number });
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.paced_until <= now {
            self.paced_until = Nanos::MAX;
        }
        match self.state {
            State::Stopped => return,
            State::Connecting => {
                if let Some(error) = self.hosts[SERVER].channel.error() {
                    self.stop(Event::Failed(PushFault::Channel(error)));
                    return;
                }
            }
            State::Closing if now >= self.close_at => {
                self.stop(Event::Closed);
                return;
            }
            State::Closing | State::Open => {}
        }
        self.stop_if_closed();
        for update in &mut self.updates {
            let via = self.hosts.iter_mut().find(|h| h.index == update.via && !h.is_replica);
            if let Some(host) = via.filter(|_| update.via.is_some()) {
                let overdue = update.flight.expire(now, &host.path);
                let halved = host.path.on_timeout(now, &overdue);
                self.stats.window_reductions += u64::from(halved);
            }
        }
        self.puller.handle_timeout(now, &mut self.stats);
        if self.state == State::Open && now >= self.silence_at() {
            self.stop(Event::Failed(PushFault::ServerSilent { server: self.config.server.addr }));
        }
    }

    fn silence_at(&self) -> Nanos {
        let patience = Nanos(self.config.member_timeout_ns);
        self.asked_at.map_or(Nanos::MAX, |at| at.saturating_add(patience))
    }

    /// When [`Pusher::handle_timeout`] and [`Pusher::poll_transmit`] must be called next, if
    /// nothing else happens. Valid once `poll_transmit` has given nothing.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        let mut at = match self.state {
            State::Stopped => return Nanos::MAX,
            State::Connecting => Nanos::MAX,
            State::Open => self.silence_at().min(self.paced_until),
            State::Closing => self.close_at,
        };
        for host in &self.hosts {
            at = at.min(host.channel.poll_timeout());
        }
        if self.state != State::Open {
            return at;
        }
        let is_asking = self.hosts[SERVER].is_open();
        for update in &self.updates {
            if let Some(place) = update.via.and_then(|via| self.box_host(via)) {
                at = at.min(update.flight.deadline(&self.hosts[place].path));
            }
            if is_asking {
                at = at.min(update.status.at);
            }
        }
        if is_asking || !self.puller.is_asking() {
            at = at.min(self.puller.deadline());
        }
        at
    }

    /// True when the update at `index` waits for a word of the server.
    pub(super) fn is_granted(update: &Update) -> bool {
        update.phase == Phase::Granted
    }
}

/// Takes `bytes` from the grant's bucket and the worker's own, or from none: then says when to try
/// again. A train leaves on the grant's account, and what follows pays for it; the worker's own
/// ceiling holds for everything.
fn pace(
    now: Nanos,
    grant: &mut Option<TokenBucket>,
    own: &mut Option<TokenBucket>,
    is_train: bool,
    bytes: u64,
) -> Result<(), Nanos> {
    for bucket in [grant.as_ref().filter(|_| !is_train), own.as_ref()].into_iter().flatten() {
        let at = bucket.ready_at(bytes);
        if at > now {
            return Err(at);
        }
    }
    for bucket in [grant, own].into_iter().flatten() {
        bucket.charge(now, bytes);
    }
    Ok(())
}

/// The header of a chunk of an update.
fn contribution(
    config: &PusherConfig,
    terms: &ChannelTerms,
    update: &Update,
    chunk: u32,
    flags: Flags,
) -> Header {
    let members: Members = config.rank.bit();
    Header {
        flags,
        chunk: ChunkIndex(chunk),
        element_type: config.element_type,
        operation: Operation::Sum,
        exponent: update.exponent,
        count: terms.job.elements,
        ..plain_header(Kind::Contrib, config.job, update.group, members)
    }
}

fn chunk_len(terms: &ChannelTerms, config: &PusherConfig) -> usize {
    usize::from(terms.job.elements) * config.element_type.len_bytes()
}

fn repeat_flag(is_repeat: bool) -> Flags {
    if is_repeat { Flags::RETRANSMIT } else { Flags::NONE }
}

#[expect(clippy::cast_possible_truncation, reason = "the field holds the low 32 bits")]
fn low_32(version: u64) -> u32 {
    version as u32
}
