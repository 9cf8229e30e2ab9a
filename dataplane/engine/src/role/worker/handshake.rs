//! The handshake half of a lane: HELLO, JOIN and CLOSE going up, and what comes back
//! (SPEC "Handshake", "Resync").
//!
//! From its JOIN to the WELCOME the lane takes no sums: the box forms the lease by what the JOIN
//! says is held, and a sum taken behind its back would be waited for by the others for ever.

use weft_wire::header::{HEADER_LEN, Header, Kind, Outcome, Packet};
use weft_wire::hello::{Hello, Phase, Reason, STEP_BITS_MAX};
use weft_wire::{ChunkIndex, GroupId, MacAddr, Nanos};

use super::config::{LeaseInfo, PROBE_LEN_DEFAULT, WorkerConfig};
use super::event::{LeaseFault, Refusal, WorkerError};
use super::lane::{Inbound, Lane, Shared};
use super::stats::WorkerStats;
use super::steps::Steps;
use super::{LANES_MAX, WINDOW_MAX};
use crate::send::datagram::plain_header;
use crate::send::window::CongestionWindow;
use crate::session::client::Standing;
use crate::steps::{handshake_len, set_step_bit, step_bit};

/// What a handshake frame changed, as far as the worker as a whole is concerned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LaneEvent {
    None,
    /// The box has lost this lane's lease; the handshake has begun anew.
    Lost,
    /// The first lease of this lane opened.
    Opened(LeaseInfo),
    /// The lease was formed anew and the lane goes on.
    Resynced,
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
        if now >= self.session.timeout() {
            if self.is_deaf() && self.session.unanswered() > 0 {
                self.session.stop_asking();
            }
            if let Some(hello) = self.session.poll(now) {
                stats.hellos_sent += 1;
                return Some(self.write_hello(ctx, hello, frame));
            }
        }
        if !self.is_open() {
            return None;
        }
        let phase = self.hearing.poll(now)?;
        stats.hellos_sent += 1;
        let word = self.session.say(phase);
        Some(self.write_hello(ctx, word, frame))
    }

    fn write_hello(&self, ctx: &Shared, mut hello: Hello, frame: &mut [u8]) -> usize {
        let mut bitmap = [0u8; STEP_BITS_MAX / 8];
        // Nobody looks at the session of a HELLO, nor at that and the token of a CLOSE.
        hello.session = self.session.session();
        match hello.phase {
            Phase::Join => self.describe_held(&mut hello, &mut bitmap),
            Phase::Close => hello.token = self.session.token(),
            _ => {}
        }
        let group = GroupId::new(ctx.config.row, 0);
        let mut header = Header {
            chunk: ChunkIndex(u32::from(self.index)),
            ..plain_header(Kind::Hello, ctx.config.job, group, ctx.config.rank.bit())
        };
        if hello.phase == Phase::Join {
            let WorkerConfig { element_type, operation, .. } = ctx.config;
            (header.element_type, header.operation) = (element_type, operation);
            header.outcome = Outcome::LAST;
        }
        let start = self.encap.header_len();
        let body_len = hello.body_len();
        let datagram = &mut frame[start..start + HEADER_LEN + body_len];
        header.emit(&mut Packet::new_unchecked(&mut datagram[..]));
        hello.emit(&bitmap, &mut datagram[HEADER_LEN..]);
        let len = self.wrap(ctx, frame, body_len, true);
        if hello.phase == Phase::Hello {
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
        if hello.life != self.session.life() || header.chunk.0 != u32::from(self.index) {
            return Err(Refusal::Handshake);
        }
        if ctx.config.target.mac == MacAddr::BROADCAST {
            self.encap = self.encap.with_target_mac(udp.source_mac);
        }
        if hello.phase == Phase::Refused && ctx.closing {
            // The others began anew; we hold all we need.
            self.session.end();
            return Ok(LaneEvent::Closed);
        }
        if self.is_deaf() {
            return Err(Refusal::Handshake);
        }
        self.session.hear(&hello, udp.payload_len, now).map_err(|_| Refusal::Handshake)?;
        match hello.phase {
            Phase::Welcome => {
                let event = self.take_welcome(now, ctx, header, &hello, bitmap);
                stats.resyncs += u64::from(event == LaneEvent::Resynced);
                return Ok(event);
            }
            Phase::Refused if hello.reason == Reason::UnknownGroup => {
                let (job, row) = (ctx.config.job, ctx.config.row);
                return Ok(LaneEvent::Failed(WorkerError::UnknownGroup { job, row }));
            }
            Phase::Refused if hello.reason == Reason::OtherElements => {
                let WorkerConfig { row, element_type, operation, .. } = ctx.config;
                let (own, rows) =
                    ((element_type, operation), (header.element_type, header.operation));
                return Ok(LaneEvent::Failed(WorkerError::OtherElements { row, own, rows }));
            }
            Phase::Refused => {
                let (reason, members) = (hello.reason, header.members);
                return Ok(LaneEvent::Failed(WorkerError::Refused { reason, members }));
            }
            _ => self.take_word(now),
        }
        match hello.phase {
            Phase::Waiting => {
                let mask = ctx.lease.as_ref().map_or(hello.mask, |lease| lease.mask);
                self.missing = Some(mask.without(header.members));
                self.missing_at = None;
                let first = self.waiting_since.replace(self.waiting_since.unwrap_or(now));
                let lost = first.is_none() && self.session.terms().is_some();
                Ok(if lost { LaneEvent::Lost } else { LaneEvent::None })
            }
            Phase::Closed if ctx.lease.is_some_and(|it| header.members.contains(it.mask)) => {
                self.session.end();
                Ok(LaneEvent::Closed)
            }
            _ => Ok(LaneEvent::None),
        }
    }

    /// An open lane that has asked the box who it is acts on the answer, but not while the box
    /// answers data: a JOIN costs a round trip without sums.
    fn is_deaf(&self) -> bool {
        self.session.standing() == Standing::Open && !self.idle() && self.silence.is_over()
    }

    fn take_welcome(
        &mut self,
        now: Nanos,
        ctx: &Shared,
        header: &Header,
        hello: &Hello,
        bitmap: &[u8],
    ) -> LaneEvent {
        let lease = match self.check_lease(ctx, header, hello) {
            Ok(lease) => lease,
            Err(error) => return LaneEvent::Failed(error),
        };
        self.take_word(now);
        self.waiting_since = None;
        let is_known = self.session.open(hello, header.group);
        if ctx.closing {
            self.session.close(now);
        }
        if is_known {
            // The box never lost us: what is under way stays so.
            return LaneEvent::None;
        }
        self.hearing.begin(now);
        // Steps are collected anew.
        self.missing_at = None;
        if let Some(steps) = &mut self.steps {
            let wanted = (0..hello.step_bits)
                .filter(|&bit| step_bit(bitmap, bit))
                .filter_map(|bit| hello.low_step.checked_add(u32::from(bit)));
            steps.resume(wanted);
            return LaneEvent::Resynced;
        }
        let datagram_len = HEADER_LEN + lease.chunk_len();
        self.encap = self.encap.with_payload_len(datagram_len);
        let frame_len = self.encap.header_len() + datagram_len;
        let batch = u32::try_from(ctx.config.batch_bytes / frame_len).unwrap_or(BATCH_MAX);
        self.steps = Some(Steps::new(lease.window, lease.chunk_len(), batch.min(BATCH_MAX)));
        let window = CongestionWindow::new(ctx.config.cwnd_initial, u32::from(lease.window));
        self.path.set_window(window);
        LaneEvent::Opened(lease)
    }

    fn check_lease(
        &self,
        ctx: &Shared,
        header: &Header,
        hello: &Hello,
    ) -> Result<LeaseInfo, WorkerError> {
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
            compares_lengths: header.outcome == Outcome::LAST,
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
            || ![0, hello.session].contains(&self.session.session())
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
/// What UDP over IPv4 carries.
const DATAGRAM_LEN_MAX: usize = 65_507;

/// Most steps that are held back to go together: what a port takes at once.
pub const BATCH_MAX: u32 = 64;
