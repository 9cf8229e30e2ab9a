//! One member of one group at one box (SPEC "Member", "Handshake", "Resync"; PROTOCOL sections
//! 1 to 3, 6 and 10).
//!
//! A [`Worker`] connects, sums the chunks of one round after another with the other members, and
//! closes. It decides and does no I/O: the caller brings frames, the time, and the data.
//!
//! - `handle_*` says what happened: [`Worker::handle_frame`], [`Worker::handle_timeout`].
//! - `poll_*` says what to do: after any `handle_*` or command, call [`Worker::poll_transmit`]
//!   until it gives nothing, then [`Worker::poll_event`] until it gives nothing, and call
//!   `handle_timeout` no later than [`Worker::poll_timeout`].
//! - [`Worker::begin_round`] and [`Worker::close`] are the commands.
//!
//! Chunks run on over the rounds: chunk `c` of the group is step `c / shards` of lane `c % shards`.
//! All memory is taken when a lane opens (window x chunk bytes per lane); a frame allocates nothing.
//!
//! While no round is under way the worker sends nothing but hand-overs, so it learns of a box's
//! restart when the next round begins or the close exchange does; a member that still lacks the
//! last round's sums waits for it until then, as it would for a late contribution.

mod config;
mod data;
mod event;
mod handshake;
mod lane;
mod stats;
mod steps;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_wire::Nanos;
use weft_wire::frame::{ETHERNET_LEN, Encap, Endpoint, IPV6_LEN, UDP_LEN, Udp};
use weft_wire::header::{HEADER_LEN, Header, HeaderError, Kind, Packet};
use weft_wire::hello::Integrity;

pub use config::{ChunkMeta, LeaseInfo, Payload, WorkerConfig};
pub use event::{Event, LeaseFault, Refusal, RoundError, WorkerError};
pub use handshake::{set_step_bit, step_bit};
pub use lane::Crc32c;
pub use stats::WorkerStats;

use crate::random::SplitMix64;
use crate::send::pacer::TokenBucket;
use data::Sent;
use handshake::LaneEvent;
use lane::{Context, Inbound, Lane, LanePhase, Poll};

/// One member of one group at one box.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    crc32c: Crc32c,
    life: u64,
    state: WorkerState,
    lanes: Vec<Lane>,
    /// The lane that may send first.
    turn: usize,
    lease: Option<LeaseInfo>,
    pacer: Option<TokenBucket>,
    paced_until: Nanos,
    /// First chunk of the round, and the first after it.
    base: u32,
    end: u32,
    /// Sums of the round that are missing.
    missing_chunks: u32,
    progress_at: Nanos,
    close_at: Nanos,
    events: VecDeque<Event>,
    stats: WorkerStats,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WorkerState {
    Connecting,
    Ready,
    InRound,
    Closing,
    Stopped,
}

impl Worker {
    /// Starts to connect. `seed` must differ between lives of the same rank; the same inputs and
    /// seed give the same frames. `crc32c` computes the CRC32C of octets.
    ///
    /// # Errors
    /// [`WorkerError::AddressFamily`] when the two addresses cannot reach each other.
    pub fn new(
        config: WorkerConfig,
        crc32c: Crc32c,
        seed: u64,
        now: Nanos,
    ) -> Result<Self, WorkerError> {
        let encap = Encap::new(config.local, config.target).ok_or(WorkerError::AddressFamily)?;
        let lanes = vec![Lane::new(0, encap, &config, now)];
        Ok(Self {
            config,
            crc32c,
            life: SplitMix64::new(seed).next_non_zero(),
            state: WorkerState::Connecting,
            lanes,
            turn: 0,
            lease: None,
            pacer: config.rate_bytes_per_sec.map(|rate| TokenBucket::new(rate, config.burst_bytes)),
            paced_until: Nanos::MAX,
            base: 0,
            end: 0,
            missing_chunks: 0,
            progress_at: now,
            close_at: Nanos::MAX,
            events: VecDeque::with_capacity(EVENTS_MAX),
            stats: WorkerStats::default(),
        })
    }

    /// What the box said of the lease, once lane 0 is open.
    #[must_use]
    pub fn lease(&self) -> Option<&LeaseInfo> {
        self.lease.as_ref()
    }

    /// The group's row at the box.
    #[must_use]
    pub fn row(&self) -> u16 {
        self.config.row
    }

    /// What has been counted.
    #[must_use]
    pub fn stats(&self) -> &WorkerStats {
        &self.stats
    }

    /// True while a round is under way.
    #[must_use]
    pub fn in_round(&self) -> bool {
        self.state == WorkerState::InRound
    }

    /// Bytes that the buffer of [`Worker::poll_transmit`] must have, whatever the lease.
    #[must_use]
    pub fn frame_len_max(&self) -> usize {
        let chunk_len = self.lease.map_or(0, |lease| HEADER_LEN + lease.chunk_len());
        ETHERNET_LEN
            + IPV6_LEN
            + UDP_LEN
            + chunk_len.max(handshake::HANDSHAKE_LEN_MAX).max(usize::from(self.config.probe_len))
    }

    /// Begins a round of `chunk_count` chunks. Its chunks are numbered from 0 for the payload; on
    /// the wire they follow those of the last round.
    ///
    /// # Errors
    /// [`RoundError`]; [`RoundError::StepsExhausted`] asks for a close and a new worker.
    pub fn begin_round(&mut self, now: Nanos, chunk_count: u32) -> Result<(), RoundError> {
        match self.state {
            WorkerState::Ready => {}
            WorkerState::InRound => return Err(RoundError::InProgress),
            _ => return Err(RoundError::NotOpen),
        }
        let lease = self.lease.ok_or(RoundError::NotOpen)?;
        let shards = u32::from(lease.shards);
        let end = self.end.checked_add(chunk_count).ok_or(RoundError::StepsExhausted)?;
        // Room for the run-ahead window in u32 arithmetic, whatever the box allows.
        let step_max = (u32::MAX / shards).saturating_sub(8 * u32::from(WINDOW_MAX));
        if end.div_ceil(shards) > lease.step_count.min(step_max) {
            return Err(RoundError::StepsExhausted);
        }
        self.base = self.end;
        self.end = end;
        self.missing_chunks = chunk_count;
        self.progress_at = now;
        self.state = WorkerState::InRound;
        for lane in &mut self.lanes {
            let lane_end = (end + shards - 1 - u32::from(lane.index)) / shards;
            if let Some(steps) = &mut lane.steps {
                steps.extend(lane_end);
            }
        }
        self.finish_round();
        Ok(())
    }

    /// Tells the box that every sum needed is held, and stops when all members have said so or
    /// `close_linger` is over. Meanwhile sums that others lack are handed over. A round under way
    /// is given up: the other members then end with an error.
    pub fn close(&mut self, now: Nanos) {
        match self.state {
            WorkerState::Closing | WorkerState::Stopped => {}
            WorkerState::Connecting => self.stop(Event::Closed { by_all: false }),
            WorkerState::Ready | WorkerState::InRound => {
                self.state = WorkerState::Closing;
                self.close_at = now.saturating_add(Nanos(self.config.close_linger_ns));
                for lane in &mut self.lanes {
                    if lane.phase == LanePhase::Open {
                        lane.poll = Poll::start(now);
                    }
                }
            }
        }
    }

    /// Takes a frame. Its octets are put back as they were.
    ///
    /// # Errors
    /// [`Refusal`] saying why the frame changed nothing; it has been counted.
    pub fn handle_frame(
        &mut self,
        now: Nanos,
        frame: &mut [u8],
        payload: &mut dyn Payload,
    ) -> Result<(), Refusal> {
        match self.receive(now, frame, payload) {
            Ok((lane, event)) => {
                self.take_event(now, lane, event);
                Ok(())
            }
            Err(refusal) => {
                self.stats.refused[refusal as usize] += 1;
                Err(refusal)
            }
        }
    }

    fn receive(
        &mut self,
        now: Nanos,
        frame: &mut [u8],
        payload: &mut dyn Payload,
    ) -> Result<(usize, LaneEvent), Refusal> {
        let udp = Udp::parse(frame).map_err(|_| Refusal::Frame)?;
        let index = self.lane_of(udp.target).ok_or(Refusal::Addressee)?;
        let packet = Packet::new_unchecked(&frame[udp.payload_range()]);
        let header = Header::parse(&packet).map_err(|error| match error {
            HeaderError::Length => Refusal::Length,
            HeaderError::Version => Refusal::Version,
            HeaderError::Kind => Refusal::Kind,
        })?;
        if !matches!(header.kind, Kind::Answer | Kind::State | Kind::Hello) {
            return Err(Refusal::Kind);
        }
        if header.job != self.config.job {
            return Err(Refusal::Job);
        }
        if header.group.row() != self.config.row {
            return Err(Refusal::Group);
        }
        let ctx = context(
            &self.config,
            self.crc32c,
            self.life,
            self.lease.as_ref(),
            self.base,
            self.state,
        );
        let inbound = Inbound { now, ctx, header: &header, udp: &udp };
        let lane = &mut self.lanes[index];
        if header.kind != Kind::Hello {
            return Ok((index, lane.handle_data(inbound, frame, payload, &mut self.stats)?));
        }
        if udp.source != lane.box_addr() {
            return Err(Refusal::Source);
        }
        data::check_integrity(frame, &udp, Integrity::Crc32c, ctx)?;
        let body = &frame[udp.payload_range()][HEADER_LEN..];
        Ok((index, lane.handle_hello(inbound, body, &mut self.stats)?))
    }

    fn lane_of(&self, target: SocketAddr) -> Option<usize> {
        let local = self.config.local.addr;
        let index = usize::from(target.port().checked_sub(local.port())?);
        (target.ip() == local.ip() && index < self.lanes.len()).then_some(index)
    }

    fn take_event(&mut self, now: Nanos, lane: usize, event: LaneEvent) {
        match event {
            LaneEvent::None => return,
            LaneEvent::Opened(lease) => self.take_opened(now, lease),
            LaneEvent::Resynced => {
                if self.events.len() < EVENTS_MAX - EVENTS_KEPT {
                    let lane = self.lanes[lane].index;
                    self.events.push_back(Event::Resynced { lane });
                }
                // No step has moved.
                return;
            }
            LaneEvent::NewSum => {
                self.missing_chunks -= 1;
                self.finish_round();
            }
            LaneEvent::HandedOver => {}
            LaneEvent::Closed => {
                if self.lanes.iter().all(|lane| lane.phase == LanePhase::Closed) {
                    self.stop(Event::Closed { by_all: true });
                }
            }
            LaneEvent::Failed(error) => self.stop(Event::Failed(error)),
        }
        self.progress_at = now;
    }

    /// A lane has its first lease: with lane 0 the others begin, with the last one rounds can.
    fn take_opened(&mut self, now: Nanos, lease: LeaseInfo) {
        if self.lease.is_none() {
            self.lease = Some(lease);
            self.lanes.reserve_exact(usize::from(lease.shards) - 1);
            for index in 1..lease.shards {
                let mut local = self.config.local;
                local.addr.set_port(local.addr.port() + index);
                let target = Endpoint { mac: self.target_mac(), ..self.config.target };
                let encap = Encap::new(local, target).expect("lane 0 has the same addresses");
                self.lanes.push(Lane::new(index, encap, &self.config, now));
            }
        }
        if self.lanes.iter().all(|lane| lane.steps.is_some()) {
            self.state = WorkerState::Ready;
            self.events.push_back(Event::Opened);
        }
    }

    fn target_mac(&self) -> weft_wire::MacAddr {
        self.lanes[0].encap.target().mac
    }

    fn finish_round(&mut self) {
        if self.state == WorkerState::InRound && self.missing_chunks == 0 {
            self.state = WorkerState::Ready;
            self.events.push_back(Event::RoundComplete);
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.state == WorkerState::Stopped {
            return;
        }
        if self.paced_until <= now {
            self.paced_until = Nanos::MAX;
        }
        let ctx = context(
            &self.config,
            self.crc32c,
            self.life,
            self.lease.as_ref(),
            self.base,
            self.state,
        );
        for lane in &mut self.lanes {
            lane.handle_timeout(now, ctx, &mut self.stats);
        }
        if let Some(event) = self.overdue(now) {
            self.stop(event);
        }
    }

    /// How the worker ends now, if its patience is over.
    fn overdue(&self, now: Nanos) -> Option<Event> {
        match self.state {
            WorkerState::Connecting => {
                let mut lanes = self.lanes.iter().filter(|lane| lane.phase != LanePhase::Open);
                lanes.find_map(|lane| lane.connect_error(now, &self.config)).map(Event::Failed)
            }
            WorkerState::InRound if now >= self.member_deadline() => {
                Some(Event::Failed(self.round_error(now)))
            }
            WorkerState::Closing if now >= self.close_at => Some(Event::Closed { by_all: false }),
            _ => None,
        }
    }

    fn member_deadline(&self) -> Nanos {
        self.progress_at.saturating_add(Nanos(self.config.member_timeout_ns))
    }

    /// Names whom the round waits for: the members missing where the box last said so.
    fn round_error(&self, now: Nanos) -> WorkerError {
        let mut stuck = self
            .lanes
            .iter()
            .filter(|lane| lane.steps.as_ref().is_some_and(steps::Steps::unfinished));
        let recent = |at: Nanos| now.since(at).0 < self.config.member_timeout_ns;
        match stuck.clone().find(|lane| !lane.word_at.is_some_and(recent)) {
            Some(_) => WorkerError::BoxSilent,
            None => stuck
                .find_map(|lane| lane.missing)
                .map_or(WorkerError::Stuck, |missing| WorkerError::MembersMissing { missing }),
        }
    }

    /// Writes the next Ethernet frame to `frame` and returns its length; `None` when there is
    /// nothing to send now. `frame` holds at least [`Worker::frame_len_max`] bytes.
    ///
    /// # Panics
    /// If `frame` is shorter than the frame to be written.
    #[must_use]
    pub fn poll_transmit(
        &mut self,
        now: Nanos,
        payload: &dyn Payload,
        frame: &mut [u8],
    ) -> Option<usize> {
        if self.state == WorkerState::Stopped {
            return None;
        }
        self.paced_until = Nanos::MAX;
        let ctx = context(
            &self.config,
            self.crc32c,
            self.life,
            self.lease.as_ref(),
            self.base,
            self.state,
        );
        let lane_count = self.lanes.len();
        for offset in 0..lane_count {
            let index = (self.turn + offset) % lane_count;
            let lane = &mut self.lanes[index];
            if let Some(len) = lane.poll_handshake(now, ctx, frame, &mut self.stats) {
                return Some(len);
            }
            let stats = &mut self.stats;
            match lane.poll_data(now, ctx, payload, &mut self.pacer, frame, stats) {
                Sent::Frame(len) => {
                    self.turn = (index + 1) % lane_count;
                    return Some(len);
                }
                Sent::PacedUntil(at) => self.paced_until = self.paced_until.min(at),
                Sent::Nothing => {}
            }
        }
        None
    }

    /// When [`Worker::handle_timeout`] and [`Worker::poll_transmit`] must be called next, if
    /// nothing else happens. Valid once `poll_transmit` has given nothing.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        let patience = match self.state {
            WorkerState::Stopped => return Nanos::MAX,
            WorkerState::Connecting => self
                .lanes
                .iter()
                .filter(|lane| lane.phase != LanePhase::Open)
                .map(|lane| lane.connect_deadline(&self.config))
                .min()
                .unwrap_or(Nanos::MAX),
            WorkerState::InRound => self.member_deadline(),
            WorkerState::Closing => self.close_at,
            WorkerState::Ready => Nanos::MAX,
        };
        let lanes = self.lanes.iter().map(Lane::next_deadline).min().unwrap_or(Nanos::MAX);
        patience.min(lanes).min(self.paced_until)
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn stop(&mut self, event: Event) {
        if self.state != WorkerState::Stopped {
            self.state = WorkerState::Stopped;
            self.events.push_back(event);
        }
    }
}

/// Borrows of single fields, so that a lane can be borrowed beside them.
fn context<'a>(
    config: &'a WorkerConfig,
    crc32c: Crc32c,
    life: u64,
    lease: Option<&'a LeaseInfo>,
    base: u32,
    state: WorkerState,
) -> Context<'a> {
    Context { config, crc32c, life, lease, base, closing: state == WorkerState::Closing }
}

/// Most lanes of a box.
pub const LANES_MAX: u16 = 64;
/// Most slots of a lane (SPEC "Limits").
pub const WINDOW_MAX: u16 = 2048;
/// Events kept until they are polled; RESYNCED ones beyond that are dropped, the others are few:
/// opened, round complete, and one that stops.
const EVENTS_MAX: usize = 16;
const EVENTS_KEPT: usize = 4;

#[cfg(test)]
mod tests;
