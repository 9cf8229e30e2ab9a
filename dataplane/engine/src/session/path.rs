//! Whether the path of a session still carries long datagrams (SPEC#handshake, `probe_len`).
//!
//! A link that loses long frames says nothing, and what is short still passes. So who goes on no
//! more asks beside its session: a handshake of a life of its own, padded and short HELLOs in turn,
//! which ends before its JOIN. Invariant: the host keeps nothing of it, and the session that it
//! stands beside is as it was. No memory, O(1) per call.

use core::net::SocketAddr;

use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{HEADER_LEN, Kind};
use weft_wire::hello::{BODY_LEN, Hello, Integrity};
use weft_wire::{GroupId, JobId, Members, Nanos};

use super::client::{Client, ClientConfig};
use crate::classify::{Class, classify};
use crate::send::datagram::{is_intact, plain_header, write_hello};

/// Whose path is asked about.
#[derive(Clone, Copy, Debug)]
pub struct PathProbeConfig {
    /// The session's job.
    pub job: JobId,
    /// The row of its handshake.
    pub row: u16,
    /// Its bit in `members`.
    pub members: Members,
    /// Where its frames come from.
    pub local: Endpoint,
    /// The host.
    pub target: Endpoint,
    /// UDP payload bytes that are to pass.
    pub probe_len: u16,
}

/// What a probe has found out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PathVerdict {
    /// Datagrams of this length pass, both ways.
    Wide,
    /// Short ones do, and these do not.
    Narrow,
    /// Neither, within [`PathProbe::TIME_MAX`], or nothing at all for a quarter of that: the host
    /// may be gone.
    Unknown,
}

/// A question about one path.
#[derive(Debug)]
pub struct PathProbe {
    config: PathProbeConfig,
    encap: Encap,
    session: Client,
    begun: Nanos,
}

impl PathProbe {
    /// Longest that it takes.
    pub const TIME_MAX: Nanos = Nanos::from_millis(2_000);

    /// Begins to ask. `life` is no other life of this peer's; `None` when the addresses are of two
    /// families.
    #[must_use]
    pub fn new(config: PathProbeConfig, life: u64, now: Nanos) -> Option<Self> {
        let encap = Encap::new(config.local, config.target)?;
        // A probe cannot be shorter than what it pads.
        let probe_len = config.probe_len.max(LEN_MIN);
        let rules = ClientConfig::every(HELLO_INTERVAL.0, probe_len);
        let mut session = Client::new(rules, life.max(1));
        session.begin(0, now);
        Some(Self { config, encap, session, begun: now })
    }

    /// When it is given up, as things stand.
    fn until(&self) -> Nanos {
        let is_heard = self.session.probe().is_in_doubt();
        let time = if is_heard { Self::TIME_MAX } else { Nanos(Self::TIME_MAX.0 / 4) };
        self.begun.saturating_add(time)
    }

    /// What it has found out by `now`; nothing more is sent then.
    #[must_use]
    pub fn verdict(&self, now: Nanos) -> Option<PathVerdict> {
        if self.session.has_token() {
            return Some(PathVerdict::Wide);
        }
        if self.session.probe().has_failed() {
            return Some(PathVerdict::Narrow);
        }
        (now >= self.until()).then_some(PathVerdict::Unknown)
    }

    /// The host, and the UDP payload bytes that are to pass.
    #[must_use]
    pub fn path(&self) -> (SocketAddr, u16) {
        (self.config.target.addr, self.config.probe_len)
    }

    /// Takes a frame that came; true when it was an answer to this probe. Any other is the
    /// session's.
    pub fn handle_frame(&mut self, now: Nanos, frame: &[u8]) -> bool {
        let local = self.config.local.addr;
        let Class::Weft(udp, header) = classify(frame, |port| port == local.port()) else {
            return false;
        };
        let is_ours = header.kind == Kind::Hello
            && header.job == self.config.job
            && header.group.row() == self.config.row
            && udp.source(frame) == self.config.target.addr.into()
            && udp.target(frame) == local.into()
            && is_intact(Integrity::Crc32c, frame, udp.payload_range());
        let body = &frame[udp.payload_range()][HEADER_LEN..];
        is_ours
            && Hello::parse(body)
                .is_ok_and(|(hello, _)| self.session.hear(&hello, udp.payload_len(), now).is_ok())
    }

    /// Writes the HELLO that is due, if one is, and returns the frame's length.
    pub fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        if self.verdict(now).is_some() {
            return None;
        }
        let body = self.session.poll(now)?;
        let group = GroupId::new(self.config.row, 0);
        let header = plain_header(Kind::Hello, self.config.job, group, self.config.members);
        write_hello(&self.encap, &header, &body, &[], frame)
    }

    /// When there is something to send, or a verdict at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.session.timeout().min(self.until())
    }
}

/// A HELLO without padding.
#[expect(clippy::cast_possible_truncation, reason = "a hundred bytes")]
const LEN_MIN: u16 = (HEADER_LEN + BODY_LEN) as u16;
/// Between two HELLOs at first; four times that at most.
const HELLO_INTERVAL: Nanos = Nanos::from_millis(10);

#[cfg(test)]
mod tests;
