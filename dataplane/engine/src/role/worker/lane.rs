//! One lane of a worker: where it stands with its shard of the box.
//!
//! Lanes share nothing but the pacer. This file holds the state, its timers and how a datagram is
//! wrapped; `handshake.rs` and `data.rs` hold the two halves of the conversation.

use core::net::SocketAddr;

use weft_wire::frame::{Encap, Udp};
use weft_wire::header::{HEADER_LEN, Header, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{ChunkIndex, Cookie, Epoch, GroupId, Members, Nanos};

use super::config::{LeaseInfo, WorkerConfig};
use super::event::WorkerError;
use super::stats::WorkerStats;
use super::steps::Steps;
use crate::send::path::Path;
use crate::send::retransmit::RttEstimator;
use crate::send::window::CongestionWindow;
use crate::session::probe::Probe;

/// Computes the CRC32C of octets.
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
    pub(super) phase: LanePhase,
    /// 0 until the first WELCOME.
    pub(super) session: u64,
    pub(super) token: u64,
    /// What the last WELCOME agreed.
    pub(super) terms: Option<Terms>,
    pub(super) steps: Option<Steps>,
    pub(super) path: Path,
    pub(super) poll: Poll,
    pub(super) probe: Probe,
    /// A HELLO is out although the lane is open: the box was silent.
    pub(super) soliciting: bool,
    /// A JOIN has told the box what we hold; no sum may be taken before its WELCOME.
    pub(super) join_sent: bool,
    /// When the handshake began.
    pub(super) started_at: Nanos,
    pub(super) waiting_since: Option<Nanos>,
    /// Members missing in the last WAITING or HAVE.
    pub(super) missing: Option<Members>,
    /// The step that they are missing from in this epoch; none after a WAITING.
    pub(super) missing_at: Option<u32>,
    /// When the box last said anything that could be believed.
    pub(super) word_at: Option<Nanos>,
    pub(super) silence: Silence,
    /// When the box last spoke or was last asked for its own sake.
    quiet_since: Nanos,
}

/// Where a lane stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LanePhase {
    /// Asking for a CHALLENGE.
    Hello,
    /// Asking for a WELCOME.
    Join,
    /// Data may flow.
    Open,
    /// Every member has closed.
    Closed,
}

/// Identity of one formation of the lease. Equal terms, same formation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Terms {
    pub(super) epoch: Epoch,
    pub(super) group: GroupId,
    pub(super) cookie_up: Cookie,
    pub(super) cookie_down: Cookie,
}

/// When the next handshake datagram goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    pub(super) at: Nanos,
    /// Polls since the last change: the back-off.
    count: u32,
    /// Polls since the box last answered one.
    pub(super) unanswered: u32,
}

impl Poll {
    pub(super) const NEVER: Self = Self { at: Nanos::MAX, count: 0, unanswered: 0 };

    /// Starts polling at once.
    pub(super) fn start(now: Nanos) -> Self {
        Self { at: now, ..Self::NEVER }
    }

    /// Takes note of a poll and plans the next.
    pub(super) fn sent(&mut self, now: Nanos, interval_ns: u64) {
        let wait_ns = interval_ns.max(1) << self.count.min(BACKOFF_SHIFT_MAX);
        self.at = now.saturating_add(Nanos(wait_ns));
        self.count += 1;
        self.unanswered += 1;
    }

    /// Goes back to the short interval.
    pub(super) fn hurry(&mut self, now: Nanos, interval_ns: u64) {
        self.count = 0;
        self.at = self.at.min(now.saturating_add(Nanos(interval_ns.max(1))));
    }
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
        self.timeouts >= SILENT_TIMEOUTS
    }
}

impl Lane {
    pub(super) fn new(index: u16, encap: Encap, config: &WorkerConfig, now: Nanos) -> Self {
        Self {
            index,
            encap,
            phase: LanePhase::Hello,
            session: 0,
            token: 0,
            terms: None,
            steps: None,
            path: Path::new(
                RttEstimator::new(
                    Nanos(config.rto_initial_ns),
                    Nanos(config.rto_min_ns),
                    Nanos(config.rto_max_ns),
                ),
                CongestionWindow::new(1, 1),
            ),
            poll: Poll::start(now),
            probe: Probe::new(if index == 0 { config.probe_len } else { 0 }),
            soliciting: false,
            join_sent: false,
            started_at: now,
            waiting_since: None,
            missing: None,
            missing_at: None,
            word_at: None,
            silence: Silence::default(),
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
        self.phase = LanePhase::Hello;
        self.poll = Poll::start(now);
        self.soliciting = false;
        self.join_sent = false;
        self.started_at = now;
        self.waiting_since = None;
    }

    /// Queues what is overdue, and asks a silent box who it is. So does a lane with nothing under
    /// way, from time to time: the others may wait for its sums after a restart.
    pub(super) fn handle_timeout(&mut self, now: Nanos, ctx: &Shared, stats: &mut WorkerStats) {
        if self.phase != LanePhase::Open {
            return;
        }
        if now >= self.keepalive_at(&ctx.config) {
            self.quiet_since = now;
            self.solicit(now, ctx);
        }
        let Some(overdue) = self.steps.as_mut().and_then(|steps| steps.expire(now)) else { return };
        let span = self.path.rtt().rto();
        stats.window_reductions += u64::from(self.path.on_timeout(now, &overdue));
        if self.silence.take_timeout(now, span) {
            self.solicit(now, ctx);
        }
    }

    /// Asks with a HELLO whether the box is still the one we know, while data goes on.
    pub(super) fn solicit(&mut self, now: Nanos, ctx: &Shared) {
        if !self.soliciting && !ctx.closing && self.phase == LanePhase::Open {
            self.soliciting = true;
            self.poll = Poll::start(now);
        }
    }

    /// The next time at which this lane has something to do.
    pub(super) fn next_deadline(&self, config: &WorkerConfig) -> Nanos {
        let steps = match (&self.steps, self.phase) {
            (Some(steps), LanePhase::Open) => steps.next_deadline(),
            _ => Nanos::MAX,
        };
        steps.min(self.poll.at).min(self.keepalive_at(config))
    }

    /// True for an open lane with nothing to send, which would not notice a restart of the box.
    pub(super) fn idle(&self) -> bool {
        self.phase == LanePhase::Open && self.steps.as_ref().is_some_and(Steps::idle)
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
        if self.probe.has_failed() {
            return Some(WorkerError::MtuTooSmall { probe_len: config.probe_len });
        }
        if now < self.connect_deadline(config) {
            return None;
        }
        if let (Some(missing), Some(_)) = (self.missing, self.waiting_since) {
            return Some(WorkerError::MembersMissing { missing });
        }
        Some(WorkerError::NoAnswer { lane: self.index })
    }

    /// When the first handshake fails if nothing changes.
    pub(super) fn connect_deadline(&self, config: &WorkerConfig) -> Nanos {
        match self.waiting_since {
            Some(since) => since.saturating_add(Nanos(config.member_timeout_ns)),
            None => {
                // While short probes are answered the box is there, and the probe comes to an end.
                let word_at = self.word_at.filter(|_| self.probe.is_in_doubt());
                let since = self.started_at.max(word_at.unwrap_or_default());
                since.saturating_add(Nanos(config.connect_timeout_ns))
            }
        }
    }

    /// Where the box's lane sends from: the port it listens on and the lane.
    pub(super) fn box_addr(&self) -> SocketAddr {
        let mut addr = self.encap.target().addr;
        addr.set_port(addr.port().wrapping_add(self.index));
        addr
    }

    /// The chunk of a step of this lane.
    pub(super) fn chunk(&self, step: u32, shards: u16) -> ChunkIndex {
        ChunkIndex(step * u32::from(shards) + u32::from(self.index))
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
        let integrity = ctx.lease.as_ref().map_or(Integrity::Crc32c, |lease| lease.integrity);
        let start = self.encap.header_len();
        let datagram_len = HEADER_LEN + body_len;
        if handshake || integrity == Integrity::Crc32c {
            Packet::new_unchecked(&mut frame[start..start + datagram_len]).seal(ctx.crc32c);
        }
        let len = self.encap.emit(frame, datagram_len);
        if integrity == Integrity::Checksum16 || self.encap.target().addr.is_ipv6() {
            self.encap.finish(&mut frame[..len]);
        }
        len
    }
}

/// Handshake polls back off to `interval << 2`.
const BACKOFF_SHIFT_MAX: u32 = 2;
/// An idle lane asks the box this often within `member_timeout`.
const KEEPALIVES_PER_TIMEOUT: u64 = 8;
/// Timeouts in a row without a word before a HELLO asks who the box is.
const SILENT_TIMEOUTS: u32 = 3;
