//! One lane of a worker: where it stands with its shard of the box.
//!
//! Lanes share nothing but the pacer. This file holds the state, its timers and how a datagram is
//! wrapped; `handshake.rs` and `data.rs` hold the two halves of the conversation.

use core::net::SocketAddr;

use weft_wire::frame::{Encap, Udp};
use weft_wire::header::{HEADER_LEN, Header, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{ChunkIndex, Members, Nanos};

use super::config::{LeaseInfo, WorkerConfig};
use super::event::WorkerError;
use super::hearing::Hearing;
use super::known::Known;
use super::stats::WorkerStats;
use super::steps::Steps;
use crate::send::path::Path;
use crate::send::retransmit::RttEstimator;
use crate::send::window::CongestionWindow;
use crate::session::client::{Client, ClientConfig, Standing, UnheardClose};

/// Computes the CRC32C of a datagram, with the four octets of its CRC field taken as 0.
pub type Crc32c = fn(&[u8]) -> u32;

/// What the lanes of a worker share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) config: WorkerConfig,
    pub(super) crc32c: Crc32c,
    /// Random word of this worker's life.
    pub(super) life: u64,
    /// Agreed with lane 0; the other lanes must offer the same.
    pub(super) lease: Option<LeaseInfo>,
    /// First chunk of the round.
    pub(super) base: u32,
    pub(super) closing: bool,
}

impl Shared {
    /// Bytes of a chunk; 0 before there is a lease.
    pub(super) fn body_len(&self) -> usize {
        self.lease.as_ref().map_or(0, LeaseInfo::chunk_len)
    }
}

/// A frame that has been checked as far as the row, and when it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inbound<'a> {
    pub(super) now: Nanos,
    pub(super) ctx: &'a Shared,
    pub(super) header: &'a Header,
    pub(super) udp: &'a Udp,
}

/// One lane.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) index: u16,
    pub(super) encap: Encap,
    /// The handshake. Open and closing alike, data may flow.
    pub(super) session: Client,
    pub(super) steps: Option<Steps>,
    pub(super) path: Path,
    pub(super) waiting_since: Option<Nanos>,
    /// Members missing in the last WAITING or HAVE.
    pub(super) missing: Option<Members>,
    /// The step that they are missing from in this epoch; none after a WAITING.
    pub(super) missing_at: Option<u32>,
    /// When the box last said anything that could be believed.
    pub(super) word_at: Option<Nanos>,
    pub(super) silence: Silence,
    /// Whether sums come by multicast.
    pub(super) hearing: Hearing,
    /// None before there are terms.
    pub(super) known: Option<Known>,
    /// When the box last spoke or was last asked for its own sake.
    quiet_since: Nanos,
}

/// Counts timeouts of a silent box, one per timeout span at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    timeouts: u32,
    counted_at: Nanos,
}

impl Silence {
    /// True when the box has spoken since.
    pub(super) fn is_over(self) -> bool {
        self.timeouts == 0
    }

    /// Takes a timeout; true when the box has been silent for several.
    fn take_timeout(&mut self, now: Nanos, span: Nanos) -> bool {
        if self.timeouts == 0 || now.since(self.counted_at) >= span {
            self.timeouts += 1;
            self.counted_at = now;
        }
        self.is_long()
    }

    fn is_long(self) -> bool {
        self.timeouts >= SILENT_TIMEOUTS
    }
}

impl Lane {
    /// Begins the handshake of `life`.
    pub(super) fn new(
        index: u16,
        encap: Encap,
        config: &WorkerConfig,
        life: u64,
        now: Nanos,
    ) -> Self {
        // One lane finds out for all whether the path is wide enough.
        let probe_len = if index == 0 { config.probe_len } else { 0 };
        let rules = ClientConfig {
            unanswered_max: UNANSWERED_MAX,
            join_suspends: true,
            takes_late_welcome: true,
            unheard_close: UnheardClose::AskBetween,
            ..ClientConfig::every(config.hello_interval_ns, probe_len)
        };
        let mut session = Client::new(rules, life);
        session.begin(0, now);
        Self {
            index,
            encap,
            session,
            steps: None,
            path: Path::new(
                RttEstimator::new(
                    Nanos(config.rto_initial_ns),
                    Nanos(config.rto_min_ns),
                    Nanos(config.rto_max_ns),
                ),
                CongestionWindow::new(1, 1),
            )
            .heeding_delay(),
            waiting_since: None,
            missing: None,
            missing_at: None,
            word_at: None,
            silence: Silence::default(),
            hearing: Hearing::new(config),
            known: None,
            quiet_since: now,
        }
    }

    /// Takes note that the box has said something that can be believed.
    pub(super) fn take_word(&mut self, now: Nanos) {
        self.word_at = Some(now);
        self.quiet_since = now;
        self.silence = Silence::default();
    }

    /// Begins the handshake anew, because the box does not know us.
    pub(super) fn begin_handshake(&mut self, now: Nanos) {
        self.session.begin(self.session.session(), now);
        self.waiting_since = None;
    }

    /// Queues what is overdue, and asks a silent box who it is. So does a lane with nothing under
    /// way, from time to time: the others may wait for its sums after a restart.
    pub(super) fn handle_timeout(&mut self, now: Nanos, ctx: &Shared, stats: &mut WorkerStats) {
        if !self.is_open() {
            return;
        }
        if now >= self.keepalive_at(&ctx.config) {
            self.quiet_since = now;
            self.session.ask(now);
        }
        let Some(overdue) = self.steps.as_mut().and_then(|steps| steps.expire(now, &self.path))
        else {
            return;
        };
        let span = self.path.rtt().rto();
        stats.window_reductions += u64::from(self.path.on_timeout(now, &overdue));
        if self.silence.take_timeout(now, span) {
            self.session.ask(now);
        }
    }

    /// Asks for the lowest sum that is missing before its time, to hear whether the box speaks.
    pub(super) fn question(&mut self, now: Nanos, interval: Nanos) {
        // A lane that shakes hands asks by that.
        if self.steps.as_mut().is_some_and(Steps::question) || !self.is_open() {
            let _ = self.silence.take_timeout(now, interval);
        }
    }

    /// How long before the end of its patience a lane looks whether the box still speaks, so that
    /// no member is blamed for a box that has died: a share of that, and several round trips.
    pub(super) fn last_words(&self, config: &WorkerConfig) -> Nanos {
        let trips_ns = self.path.rtt().timeout(0).0.saturating_mul(LAST_WORDS_RTOS);
        let share_ns = config.member_timeout_ns / LAST_WORDS_SHARE;
        Nanos(share_ns.max(trips_ns).min(config.member_timeout_ns))
    }

    /// True when the box has said nothing for the whole of our patience, or at its end, where it
    /// was asked more than once.
    pub(super) fn is_silent(&self, now: Nanos, config: &WorkerConfig) -> bool {
        let was_asked = self.silence.is_long() || self.session.unanswered() >= SILENT_TIMEOUTS;
        self.word_at.is_none_or(|at| {
            let quiet_ns = now.since(at).0;
            quiet_ns >= config.member_timeout_ns
                || (quiet_ns >= self.last_words(config).0 && was_asked)
        })
    }

    /// True while data may flow.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.session.standing(), Standing::Open | Standing::Closing)
    }

    /// The next time at which this lane has something to do.
    pub(super) fn next_deadline(&self, config: &WorkerConfig) -> Nanos {
        let steps = match &self.steps {
            Some(steps) if self.is_open() => steps.next_deadline(&self.path),
            _ => Nanos::MAX,
        };
        let hearing = if self.is_open() { self.hearing.timeout() } else { Nanos::MAX };
        steps.min(self.session.timeout()).min(hearing).min(self.keepalive_at(config))
    }

    /// True for an open lane with nothing to send, which would not notice a restart of the box.
    pub(super) fn idle(&self) -> bool {
        self.is_open() && self.steps.as_ref().is_some_and(Steps::idle)
    }

    fn keepalive_at(&self, config: &WorkerConfig) -> Nanos {
        if !self.idle() {
            return Nanos::MAX;
        }
        let interval_ns = (config.member_timeout_ns / KEEPALIVES_PER_TIMEOUT).max(1);
        self.quiet_since.saturating_add(Nanos(interval_ns))
    }

    /// Why the first handshake has failed by now, if it has.
    pub(super) fn connect_error(&self, now: Nanos, config: &WorkerConfig) -> Option<WorkerError> {
        if self.session.probe().has_failed() {
            return Some(WorkerError::MtuTooSmall { probe_len: config.probe_len });
        }
        if now < self.connect_deadline(config) {
            return None;
        }
        if let (Some(missing), Some(_)) = (self.missing, self.waiting_since) {
            if self.is_silent(now, config) {
                return Some(WorkerError::BoxSilent);
            }
            return Some(WorkerError::MembersMissing { missing });
        }
        Some(WorkerError::NoAnswer { lane: self.index })
    }

    /// When the first handshake fails if nothing changes.
    pub(super) fn connect_deadline(&self, config: &WorkerConfig) -> Nanos {
        let (since, timeout_ns) = match self.waiting_since {
            Some(since) => (since, config.member_timeout_ns),
            None => (self.session.asked_at(), config.connect_timeout_ns),
        };
        since.saturating_add(Nanos(timeout_ns))
    }

    /// Where the box's lane sends from: the port it listens on and the lane.
    pub(super) fn box_addr(&self) -> SocketAddr {
        let mut addr = self.encap.target().addr;
        addr.set_port(addr.port().wrapping_add(self.index));
        addr
    }

    /// The chunk of a step of this lane.
    pub(super) fn chunk(&self, step: u32, shards: u16) -> ChunkIndex {
        chunk_of(step, shards, self.index)
    }

    /// Puts Ethernet, IP and UDP headers around the datagram that stands in `frame` behind their
    /// place, and protects it. Returns the frame's length.
    pub(super) fn wrap(
        &self,
        ctx: &Shared,
        frame: &mut [u8],
        body_len: usize,
        handshake: bool,
    ) -> usize {
        let start = self.encap.header_len();
        let datagram_len = HEADER_LEN + body_len;
        let integrity = self.seal(ctx, &mut frame[start..start + datagram_len], handshake);
        let len = self.encap.emit(frame, datagram_len);
        if integrity == Integrity::Checksum16 || self.encap.target().addr.is_ipv6() {
            self.encap.finish(&mut frame[..len]);
        }
        len
    }

    /// Protects a datagram by its CRC, where it has one; returns what protects the row.
    pub(super) fn seal(&self, ctx: &Shared, datagram: &mut [u8], handshake: bool) -> Integrity {
        let integrity = ctx.lease.as_ref().map_or(Integrity::Crc32c, |lease| lease.integrity);
        if handshake || integrity == Integrity::Crc32c {
            let computed = (ctx.crc32c)(datagram);
            Packet::new_unchecked(datagram).store_crc(computed);
        }
        integrity
    }
}

/// The chunk of a step of a lane.
pub(super) fn chunk_of(step: u32, shards: u16, lane: u16) -> ChunkIndex {
    ChunkIndex(step * u32::from(shards) + u32::from(lane))
}

/// Datagrams without an answer before the lane doubts that the box is still the same.
const UNANSWERED_MAX: u32 = 3;
/// An idle lane asks the box this often within `member_timeout`.
const KEEPALIVES_PER_TIMEOUT: u64 = 8;
/// Timeouts in a row without a word before a HELLO asks who the box is.
const SILENT_TIMEOUTS: u32 = 3;
/// The share of `member_timeout` at whose end a box may die and a member be blamed.
const LAST_WORDS_SHARE: u64 = 8;
/// Retransmission timeouts that a box has at least to answer in.
const LAST_WORDS_RTOS: u64 = 4;
