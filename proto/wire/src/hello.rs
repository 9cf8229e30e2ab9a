//! The body of a HELLO datagram: the handshake that makes epochs, cookies and RESYNC
//! (`proto/SPEC.md`, section "Handshake"; PROTOCOL sections 3 and 6).
//!
//! HELLO -> CHALLENGE -> JOIN -> WELCOME | WAITING | REFUSED, and CLOSE -> CLOSED at the end. The
//! challenge keeps a delayed HELLO of an earlier life from disturbing an open lease.

use core::fmt;

use crate::quant::is_exponent;
use crate::types::{Cookie, Epoch, Members};

mod code;
#[cfg(test)]
mod tests;

pub use code::{Integrity, Overflow, Phase, Reason};

mod field {
    use core::ops::Range;

    pub(super) const PHASE: usize = 0;
    pub(super) const REASON: usize = 1;
    pub(super) const PROBE_LEN: Range<usize> = 2..4;
    pub(super) const EPOCH: Range<usize> = 4..8;
    pub(super) const LIFE: Range<usize> = 8..16;
    pub(super) const TOKEN: Range<usize> = 16..24;
    pub(super) const SESSION: Range<usize> = 24..32;
    pub(super) const COOKIE_UP: Range<usize> = 32..36;
    pub(super) const COOKIE_DOWN: Range<usize> = 36..40;
    pub(super) const WINDOW: Range<usize> = 40..42;
    pub(super) const SHARDS: Range<usize> = 42..44;
    pub(super) const ELEMENTS: Range<usize> = 44..46;
    pub(super) const INTEGRITY: usize = 46;
    pub(super) const OVERFLOW: usize = 47;
    pub(super) const FAN_IN: Range<usize> = 48..52;
    pub(super) const STEP_COUNT: Range<usize> = 52..56;
    pub(super) const LOW_STEP: Range<usize> = 56..60;
    pub(super) const STEP_BITS: Range<usize> = 60..62;
    pub(super) const EXPONENT: usize = 62;
    pub(super) const EXPONENT_MODE: usize = 63;
    pub(super) const MASK: Range<usize> = 64..72;
}

/// Length of the fixed part; the step bitmap and the padding follow it.
pub const BODY_LEN: usize = field::MASK.end;

/// Most bits of a step bitmap. With the fixed part it fits the payload of a 1500-byte MTU.
pub const STEP_BITS_MAX: usize = 8192;

/// Every field of the fixed part as (name, first byte, bytes).
pub const LAYOUT: &[(&str, usize, usize)] = &[
    ("phase", field::PHASE, 1),
    ("reason", field::REASON, 1),
    ("probe_len", field::PROBE_LEN.start, 2),
    ("epoch", field::EPOCH.start, 4),
    ("life", field::LIFE.start, 8),
    ("token", field::TOKEN.start, 8),
    ("session", field::SESSION.start, 8),
    ("cookie_up", field::COOKIE_UP.start, 4),
    ("cookie_down", field::COOKIE_DOWN.start, 4),
    ("window", field::WINDOW.start, 2),
    ("shards", field::SHARDS.start, 2),
    ("elements", field::ELEMENTS.start, 2),
    ("integrity", field::INTEGRITY, 1),
    ("overflow", field::OVERFLOW, 1),
    ("fan_in", field::FAN_IN.start, 4),
    ("step_count", field::STEP_COUNT.start, 4),
    ("low_step", field::LOW_STEP.start, 4),
    ("step_bits", field::STEP_BITS.start, 2),
    ("exponent", field::EXPONENT, 1),
    ("exponent_mode", field::EXPONENT_MODE, 1),
    ("mask", field::MASK.start, 8),
];

/// Why octets are not a HELLO body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HelloError;

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HELLO body without meaning or shorter than it says")
    }
}

impl core::error::Error for HelloError {}

/// The fixed part of a HELLO body. Fields that a phase does not use are 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hello {
    /// Where in the handshake.
    pub phase: Phase,
    /// Why not, in REFUSED.
    pub reason: Reason,
    /// UDP payload bytes of this datagram, padding included: the MTU probe. The reply to a
    /// padded HELLO is padded to the same length.
    pub probe_len: u16,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// Random per life of the member; replies echo it.
    pub life: u64,
    /// Proof that the member answers to its address now.
    pub token: u64,
    /// Random per fresh formation; a member that resumes names it. 0: nothing to resume.
    pub session: u64,
    /// What the member's frames carry from now on.
    pub cookie_up: Cookie,
    /// What the box's frames carry from now on.
    pub cookie_down: Cookie,
    /// Slots of the lane's lease, a power of two.
    pub window: u16,
    /// Lanes of the box, a power of two: chunk mod shards chooses the lane.
    pub shards: u16,
    /// Elements of every chunk.
    pub elements: u16,
    /// What protects the payload.
    pub integrity: Integrity,
    /// What happens on overflow.
    pub overflow: Overflow,
    /// Contributions in a final sum, over all levels.
    pub fan_in: u32,
    /// Steps that the lane has before the group must be formed again.
    pub step_count: u32,
    /// JOIN: every step below is held. WELCOME: the bitmap's first step.
    pub low_step: u32,
    /// Bits of the bitmap that follows. JOIN: step held. WELCOME: step wanted by hand-over.
    pub step_bits: u16,
    /// Job-fixed scale exponent.
    pub exponent: i8,
    /// True when `exponent` is fixed for the job; else each chunk carries the one that the
    /// members agreed on by MAX.
    pub exponent_fixed: bool,
    /// All members of the group.
    pub mask: Members,
}

impl Hello {
    /// An empty body of this phase.
    #[must_use]
    pub fn new(phase: Phase) -> Self {
        Self {
            phase,
            reason: Reason::None,
            probe_len: 0,
            epoch: Epoch::default(),
            life: 0,
            token: 0,
            session: 0,
            cookie_up: Cookie::default(),
            cookie_down: Cookie::default(),
            window: 0,
            shards: 0,
            elements: 0,
            integrity: Integrity::default(),
            overflow: Overflow::default(),
            fan_in: 0,
            step_count: 0,
            low_step: 0,
            step_bits: 0,
            exponent: 0,
            exponent_fixed: false,
            mask: Members::EMPTY,
        }
    }

    /// Parses the fixed part and finds the bitmap.
    ///
    /// # Errors
    /// [`HelloError`] when the body is too short for itself or a byte has no meaning.
    pub fn parse(body: &[u8]) -> Result<(Self, &[u8]), HelloError> {
        let fixed: &[u8; BODY_LEN] = body.first_chunk().ok_or(HelloError)?;
        let step_bits = be16(fixed, field::STEP_BITS.start);
        if step_bits as usize > STEP_BITS_MAX {
            return Err(HelloError);
        }
        let bitmap_len = (step_bits as usize).div_ceil(8);
        let bitmap = body.get(BODY_LEN..BODY_LEN + bitmap_len).ok_or(HelloError)?;
        let exponent = i8::from_be_bytes([fixed[field::EXPONENT]]);
        if !is_exponent(exponent) {
            return Err(HelloError);
        }
        let hello = Self {
            phase: Phase::from_byte(fixed[field::PHASE]).ok_or(HelloError)?,
            reason: Reason::from_byte(fixed[field::REASON]).ok_or(HelloError)?,
            probe_len: be16(fixed, field::PROBE_LEN.start),
            epoch: Epoch(be32(fixed, field::EPOCH.start)),
            life: be64(fixed, field::LIFE.start),
            token: be64(fixed, field::TOKEN.start),
            session: be64(fixed, field::SESSION.start),
            cookie_up: Cookie(be32(fixed, field::COOKIE_UP.start)),
            cookie_down: Cookie(be32(fixed, field::COOKIE_DOWN.start)),
            window: be16(fixed, field::WINDOW.start),
            shards: be16(fixed, field::SHARDS.start),
            elements: be16(fixed, field::ELEMENTS.start),
            integrity: Integrity::from_byte(fixed[field::INTEGRITY]).ok_or(HelloError)?,
            overflow: Overflow::from_byte(fixed[field::OVERFLOW]).ok_or(HelloError)?,
            fan_in: be32(fixed, field::FAN_IN.start),
            step_count: be32(fixed, field::STEP_COUNT.start),
            low_step: be32(fixed, field::LOW_STEP.start),
            step_bits,
            exponent,
            exponent_fixed: match fixed[field::EXPONENT_MODE] {
                0 => false,
                1 => true,
                _ => return Err(HelloError),
            },
            mask: Members(be64(fixed, field::MASK.start)),
        };
        Ok((hello, bitmap))
    }

    /// Bytes that [`Hello::emit`] writes: fixed part and bitmap, or `probe_len` less the header
    /// when that is more.
    #[must_use]
    pub fn body_len(&self) -> usize {
        let least = BODY_LEN + (self.step_bits as usize).div_ceil(8);
        least.max((self.probe_len as usize).saturating_sub(crate::header::HEADER_LEN))
    }

    /// Writes the fixed part, the bitmap and zero padding over `body`.
    ///
    /// # Panics
    /// If `body` is shorter than [`Hello::body_len`], or `bitmap` than `step_bits`.
    pub fn emit(&self, bitmap: &[u8], body: &mut [u8]) {
        let bitmap = &bitmap[..(self.step_bits as usize).div_ceil(8)];
        body.fill(0);
        body[field::PHASE] = self.phase as u8;
        body[field::REASON] = self.reason as u8;
        body[field::PROBE_LEN].copy_from_slice(&self.probe_len.to_be_bytes());
        body[field::EPOCH].copy_from_slice(&self.epoch.0.to_be_bytes());
        body[field::LIFE].copy_from_slice(&self.life.to_be_bytes());
        body[field::TOKEN].copy_from_slice(&self.token.to_be_bytes());
        body[field::SESSION].copy_from_slice(&self.session.to_be_bytes());
        body[field::COOKIE_UP].copy_from_slice(&self.cookie_up.0.to_be_bytes());
        body[field::COOKIE_DOWN].copy_from_slice(&self.cookie_down.0.to_be_bytes());
        body[field::WINDOW].copy_from_slice(&self.window.to_be_bytes());
        body[field::SHARDS].copy_from_slice(&self.shards.to_be_bytes());
        body[field::ELEMENTS].copy_from_slice(&self.elements.to_be_bytes());
        body[field::INTEGRITY] = self.integrity as u8;
        body[field::OVERFLOW] = self.overflow as u8;
        body[field::FAN_IN].copy_from_slice(&self.fan_in.to_be_bytes());
        body[field::STEP_COUNT].copy_from_slice(&self.step_count.to_be_bytes());
        body[field::LOW_STEP].copy_from_slice(&self.low_step.to_be_bytes());
        body[field::STEP_BITS].copy_from_slice(&self.step_bits.to_be_bytes());
        body[field::EXPONENT] = self.exponent.to_be_bytes()[0];
        body[field::EXPONENT_MODE] = u8::from(self.exponent_fixed);
        body[field::MASK].copy_from_slice(&self.mask.0.to_be_bytes());
        body[BODY_LEN..BODY_LEN + bitmap.len()].copy_from_slice(bitmap);
    }
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "phase={}", self.phase)?;
        if self.reason != Reason::None {
            write!(f, " reason={}", self.reason)?;
        }
        write!(
            f,
            " life={:016x} session={:016x} epoch={} window={} low_step={} step_bits={}",
            self.life, self.session, self.epoch.0, self.window, self.low_step, self.step_bits
        )
    }
}

fn be16(bytes: &[u8; BODY_LEN], start: usize) -> u16 {
    u16::from_be_bytes([bytes[start], bytes[start + 1]])
}

fn be32(bytes: &[u8; BODY_LEN], start: usize) -> u32 {
    u32::from(be16(bytes, start)) << 16 | u32::from(be16(bytes, start + 2))
}

fn be64(bytes: &[u8; BODY_LEN], start: usize) -> u64 {
    u64::from(be32(bytes, start)) << 32 | u64::from(be32(bytes, start + 4))
}
