//! The handshake half of a lane: HELLO, JOIN and CLOSE going up, and what comes back
//! (SPEC "Handshake", "Resync").
//!
//! Two rules keep delayed datagrams harmless. Every reply must echo this life, and a WELCOME the
//! token of the JOIN that it answers, which no earlier life of the box can have given. And from its
//! JOIN to the WELCOME the lane takes no sums: the box forms the lease by what the JOIN says is
//! held, and a sum taken behind its back would be waited for by the others for ever.

use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Phase, Reason, STEP_BITS_MAX};
use weft_wire::{ChunkIndex, Cookie, GroupId, MacAddr, Nanos};

use super::config::{LeaseInfo, PROBE_LEN_DEFAULT};
use super::event::{LeaseFault, Refusal, WorkerError};
use super::lane::{Inbound, Lane, LanePhase, Poll, Shared, Terms};
use super::stats::WorkerStats;
use super::steps::Steps;
use super::{LANES_MAX, WINDOW_MAX};
use crate::send::window::CongestionWindow;
use crate::steps::{handshake_len, set_step_bit, step_bit};

/// What a frame changed, as far as the worker as a whole is concerned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LaneEvent {
    None,
    /// The box has lost this lane's lease; the handshake has begun anew.
    Lost,
    /// The first lease of this lane opened.
    Opened(LeaseInfo),
    /// The lease was formed anew and the lane goes on.
    Resynced,
    /// A sum was given to the payload.
    NewSum,
    /// A sum that was handed over came down.
    HandedOver,
    /// Every member has closed.
    Closed,
    Failed(WorkerError),
}

impl Lane {
    /// Writes the handshake datagram that is due, if one is.
    pub(super) fn poll_handshake(
        &mut self,
        now: Nanos,
        ctx: &Shared,
        frame: &mut [u8],
        stats: &mut WorkerStats,
    ) -> Option<usize> {
        if now < self.poll.at {
            return None;
        }
        let phase = match self.phase {
            LanePhase::Hello => Phase::Hello,
            LanePhase::Join if self.poll.unanswered >= UNANSWERED_MAX => {
                // The box that gave the token may be gone.
                self.phase = LanePhase::Hello;
                Phase::Hello
            }
            LanePhase::Join => Phase::Join,
            LanePhase::Open if ctx.closing => {
                // Every other poll of a silent box: one that was restarted knows no CLOSE of ours.
                let ask = self.poll.unanswered >= UNANSWERED_MAX && self.poll.unanswered % 2 == 1;
                self.soliciting |= ask;
                if ask { Phase::Hello } else { Phase::Close }
            }
            LanePhase::Open
                if self.soliciting
                    && (self.poll.unanswered == 0 || self.idle() || !self.silence.is_over()) =>
            {
                Phase::Hello
            }
            LanePhase::Open | LanePhase::Closed => {
                self.soliciting = false;
                self.poll = Poll::NEVER;
                return None;
            }
        };
        self.poll.sent(now, ctx.config.hello_interval_ns);
        stats.hellos_sent += 1;
        Some(self.write_hello(ctx, phase, frame))
    }

    fn write_hello(&mut self, ctx: &Shared, phase: Phase, frame: &mut [u8]) -> usize {
        let mut bitmap = [0u8; STEP_BITS_MAX / 8];
        let mut hello = Hello { life: ctx.life, session: self.session, ..Hello::new(phase) };
        match phase {
            Phase::Hello => hello.probe_len = self.probe.next_hello(),
            Phase::Join => {
                self.join_sent = true;
                hello.token = self.token;
                self.describe_held(&mut hello, &mut bitmap);
            }
            _ => hello.token = self.token,
        }
        if let (Phase::Close, Some(terms)) = (phase, self.terms) {
            hello.epoch = terms.epoch;
            hello.cookie_up = terms.cookie_up;
        }
        let header = Header {
            kind: Kind::Hello,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: ctx.config.job,
            cookie: Cookie::default(),
            group: GroupId::new(ctx.config.row, 0),
            chunk: ChunkIndex(u32::from(self.index)),
            element_type: ElementType::None,
            operation: Operation::None,
            exponent: 0,
            count: 0,
            members: ctx.config.rank.bit(),
        };
        let start = self.encap.header_len();
        let body_len = hello.body_len();
        let datagram = &mut frame[start..start + HEADER_LEN + body_len];
        header.emit(&mut Packet::new_unchecked(&mut datagram[..]));
        hello.emit(&bitmap, &mut datagram[HEADER_LEN..]);
        let len = self.wrap(ctx, frame, body_len, true);
        if phase == Phase::Hello {
            // A restarted box may have another Ethernet address than the one learnt.
            frame[..6].copy_from_slice(&ctx.config.target.mac.0);
        }
        len
    }

    fn describe_held(&self, hello: &mut Hello, bitmap: &mut [u8]) {
        let Some(steps) = &self.steps else { return };
        let (low, bits) = steps.held_range();
        hello.low_step = low;
        hello.step_bits = u16::try_from(bits).expect("a member runs at most 4 windows ahead");
        for bit in 0..hello.step_bits {
            if steps.has(low + u32::from(bit)) {
                set_step_bit(bitmap, bit);
            }
        }
    }

    /// Takes a HELLO datagram whose header has been checked as far as the row.
    pub(super) fn handle_hello(
        &mut self,
        inbound: Inbound<'_>,
        body: &[u8],
        stats: &mut WorkerStats,
    ) -> Result<LaneEvent, Refusal> {
        let Inbound { now, ctx, header, udp } = inbound;
        let (hello, bitmap) = Hello::parse(body).map_err(|_| Refusal::Handshake)?;
        if hello.life != ctx.life || header.chunk.0 != u32::from(self.index) {
            return Err(Refusal::Handshake);
        }
        if ctx.config.target.mac == MacAddr::BROADCAST {
            self.encap = self.encap.with_target_mac(udp.source_mac);
        }
        let joining = self.join_sent && self.phase != LanePhase::Open;
        match hello.phase {
            Phase::Challenge => self.take_challenge(now, ctx, &hello, udp.payload_len),
            Phase::Waiting if joining => {
                self.take_word(now);
                self.poll.unanswered = 0;
                let mask = ctx.lease.as_ref().map_or(hello.mask, |lease| lease.mask);
                self.missing = Some(mask.without(header.members));
                self.missing_at = None;
                let first = self.waiting_since.replace(self.waiting_since.unwrap_or(now));
                let lost = first.is_none() && self.terms.is_some();
                Ok(if lost { LaneEvent::Lost } else { LaneEvent::None })
            }
            Phase::Welcome if joining && hello.token == self.token => {
                let event = self.take_welcome(now, ctx, header, &hello, bitmap);
                stats.resyncs += u64::from(event == LaneEvent::Resynced);
                Ok(event)
            }
            Phase::Refused if ctx.closing => {
                // The others began anew; we hold all we need.
                self.phase = LanePhase::Closed;
                Ok(LaneEvent::Closed)
            }
            // A box that was restarted may know the row no more: believed as a CHALLENGE would be.
            Phase::Refused
                if hello.reason == Reason::UnknownGroup
                    && (self.phase != LanePhase::Open || self.asks_in_earnest(ctx)) =>
            {
                let (job, row) = (ctx.config.job, ctx.config.row);
                Ok(LaneEvent::Failed(WorkerError::UnknownGroup { job, row }))
            }
            Phase::Refused if self.phase != LanePhase::Open => {
                Ok(LaneEvent::Failed(WorkerError::Refused {
                    reason: hello.reason,
                    members: header.members,
                }))
            }
            Phase::Closed if ctx.closing && self.phase == LanePhase::Open => {
                self.take_word(now);
                self.poll.unanswered = 0;
                if !ctx.lease.is_some_and(|lease| header.members.contains(lease.mask)) {
                    return Ok(LaneEvent::None);
                }
                self.phase = LanePhase::Closed;
                self.poll = Poll::NEVER;
                Ok(LaneEvent::Closed)
            }
            // Late copies, and phases that only go up.
            _ => Err(Refusal::Handshake),
        }
    }

    /// An open lane that has asked the box who it is acts on the answer, but not while the box
    /// answers data: a JOIN costs a round trip without sums.
    fn asks_in_earnest(&self, ctx: &Shared) -> bool {
        self.soliciting && (ctx.closing || self.idle() || !self.silence.is_over())
    }

    fn take_challenge(
        &mut self,
        now: Nanos,
        ctx: &Shared,
        hello: &Hello,
        datagram_len: usize,
    ) -> Result<LaneEvent, Refusal> {
        let asked = match self.phase {
            LanePhase::Hello => true,
            LanePhase::Join => hello.token != self.token,
            LanePhase::Open => self.asks_in_earnest(ctx),
            LanePhase::Closed => false,
        };
        if !asked {
            return Err(Refusal::Handshake);
        }
        self.take_word(now);
        let was_in_doubt = self.probe.is_in_doubt();
        if !self.probe.take_answer(hello.probe_len, datagram_len) {
            self.poll.hurry(now, ctx.config.hello_interval_ns);
            return Ok(LaneEvent::None);
        }
        if was_in_doubt {
            // The probe took its time; what follows has its own.
            self.started_at = now;
        }
        self.token = hello.token;
        self.phase = LanePhase::Join;
        self.soliciting = false;
        self.poll = Poll::start(now);
        Ok(LaneEvent::None)
    }

    fn take_welcome(
        &mut self,
        now: Nanos,
        ctx: &Shared,
        header: &Header,
        hello: &Hello,
        bitmap: &[u8],
    ) -> LaneEvent {
        let lease = match self.check_lease(ctx, hello) {
            Ok(lease) => lease,
            Err(error) => return LaneEvent::Failed(error),
        };
        let terms = Terms {
            epoch: hello.epoch,
            group: header.group,
            cookie_up: hello.cookie_up,
            cookie_down: hello.cookie_down,
        };
        self.take_word(now);
        self.phase = LanePhase::Open;
        self.poll = if ctx.closing { Poll::start(now) } else { Poll::NEVER };
        self.join_sent = false;
        self.waiting_since = None;
        self.session = hello.session;
        if self.terms == Some(terms) {
            // The box never lost us: what is under way stays so.
            return LaneEvent::None;
        }
        self.terms = Some(terms);
        // Steps are collected anew.
        self.missing_at = None;
        if let Some(steps) = &mut self.steps {
            let wanted = (0..hello.step_bits)
                .filter(|&bit| step_bit(bitmap, bit))
                .filter_map(|bit| hello.low_step.checked_add(u32::from(bit)));
            steps.resume(wanted);
            return LaneEvent::Resynced;
        }
        self.steps = Some(Steps::new(lease.window, lease.chunk_len()));
        let window = CongestionWindow::new(ctx.config.cwnd_initial, u32::from(lease.window));
        self.path.set_window(window);
        LaneEvent::Opened(lease)
    }

    fn check_lease(&self, ctx: &Shared, hello: &Hello) -> Result<LeaseInfo, WorkerError> {
        let config = &ctx.config;
        let lease = LeaseInfo {
            shards: hello.shards,
            window: hello.window,
            elements: hello.elements,
            element_type: config.element_type,
            operation: config.operation,
            fan_in: hello.fan_in,
            mask: hello.mask,
            overflow: hello.overflow,
            integrity: hello.integrity,
            exponent: hello.exponent_fixed.then_some(hello.exponent),
            step_count: hello.step_count,
        };
        let chunk_datagram_len = HEADER_LEN + lease.chunk_len();
        let ports = config.local.addr.port().checked_add(hello.shards.saturating_sub(1));
        let fault = if !hello.window.is_power_of_two() || hello.window > WINDOW_MAX {
            LeaseFault::Window
        } else if hello.shards == 0 || hello.shards > LANES_MAX || ports.is_none() {
            LeaseFault::Shards
        } else if lease.chunk_len() == 0 || chunk_datagram_len > DATAGRAM_LEN_MAX {
            LeaseFault::Elements
        } else if !hello.mask.contains(config.rank.bit()) {
            LeaseFault::Mask
        } else if ctx.lease.is_some_and(|agreed| agreed != lease)
            || (self.session != 0 && self.session != hello.session)
        {
            LeaseFault::Changed
        } else {
            // The JOIN and the WELCOME after a restart are as long as the window makes them.
            let datagram_len = chunk_datagram_len.max(handshake_len(u32::from(hello.window)));
            if config.probe_len > 0 && datagram_len > usize::from(config.probe_len) {
                return Err(WorkerError::ProbeTooShort { datagram_len });
            }
            return Ok(lease);
        };
        Err(WorkerError::BadLease(fault))
    }
}

/// Longest UDP payload of any handshake datagram that is not a probe.
pub(super) const HANDSHAKE_LEN_MAX: usize = handshake_len(WINDOW_MAX as u32);
const _: () = assert!(PROBE_LEN_DEFAULT as usize == HANDSHAKE_LEN_MAX);
/// Polls without an answer before the lane doubts that the box is still the same.
const UNANSWERED_MAX: u32 = 3;
/// What UDP over IPv4 carries.
const DATAGRAM_LEN_MAX: usize = 65_507;
