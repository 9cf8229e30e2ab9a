//! The opening end of one channel (SPEC#channels).
//!
//! Asks until it is answered, and says so when it is not. It opens by itself, opens again when the
//! host answers STALE, and its owner closes it. The owner writes its frames with
//! [`ChannelClient::write`] and has each incoming one checked by [`ChannelClient::handle_frame`];
//! what is not the channel's own it handles itself. No memory, O(1) per call.

use core::net::SocketAddr;

use weft_wire::frame::{Datagram, Encap, UdpAddr};
use weft_wire::header::{HEADER_LEN, Header, Kind, Outcome};
use weft_wire::hello::BODY_LEN;
use weft_wire::{Cookie, Nanos};

use super::config::{ChannelClientConfig, ChannelError};
use super::{ChannelTerms, Peer};
use crate::drops::DropReason;
use crate::send::datagram::{is_intact, write};
use crate::session::client::{Client, ClientConfig, Standing};

/// What an incoming frame was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClientEvent {
    /// Part of the handshake; nothing for the owner to do.
    Handshake,
    /// The channel is open: for the first time, or with a host that has restarted, or that did
    /// not know this peer any more. What was under way must be asked for anew.
    Opened,
    /// The host does not know this channel; it is being opened again.
    Lost,
    /// The host confirmed the CLOSE.
    Closed,
    /// From the host, intact, and for the owner.
    Frame,
}

/// The opening end of one channel.
#[derive(Debug)]
pub struct ChannelClient {
    pub(super) config: ChannelClientConfig,
    pub(super) encap: Encap,
    pub(super) target: UdpAddr,
    pub(super) session: Client,
    pub(super) terms: Option<ChannelTerms>,
    pub(super) error: Option<ChannelError>,
}

impl ChannelClient {
    /// Begins the handshake. `life` is random per life of the process, and the same for all its
    /// channels.
    ///
    /// # Errors
    /// [`ChannelError::Family`].
    pub fn new(
        mut config: ChannelClientConfig,
        life: u64,
        now: Nanos,
    ) -> Result<Self, ChannelError> {
        // A probe cannot be shorter than what it pads, however short the job's chunks are.
        if config.probe_len != 0 {
            config.probe_len = config.probe_len.max(PROBE_LEN_MIN);
        }
        let encap = Encap::new(config.local, config.target).ok_or(ChannelError::Family)?;
        let rules = ClientConfig::every(config.hello_interval_ns, config.probe_len);
        let mut session = Client::new(rules, life.max(1));
        session.begin(0, now);
        let target = config.target.addr.into();
        Ok(Self { config, encap, target, session, terms: None, error: None })
    }

    /// Where the channel stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.session.standing()
    }

    /// What the last WELCOME said.
    #[must_use]
    pub fn terms(&self) -> Option<&ChannelTerms> {
        self.terms.as_ref()
    }

    /// Who opens.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.config.peer
    }

    /// Where frames come from.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.config.local.addr
    }

    /// Why the channel does not open, once that is known. The handshake goes on regardless.
    #[must_use]
    pub fn error(&self) -> Option<ChannelError> {
        self.error
    }

    /// True when a frame from `source` comes from this channel's host.
    #[must_use]
    pub fn is_from_host(&self, source: UdpAddr) -> bool {
        source == self.target
    }

    /// Asks the host whether it still knows this channel, for its owner's questions are not
    /// answered. [`ChannelError::Silent`] follows if this is not answered either.
    pub fn ask(&mut self, now: Nanos) {
        self.session.ask(now);
    }

    /// Begins to close. [`Standing::Closed`] follows, confirmed or not.
    pub fn close(&mut self, now: Nanos) {
        match self.standing() {
            Standing::Open => self.session.close(now),
            _ => self.session.end(),
        }
    }

    /// Writes the handshake datagram that is due, if one is, and returns the frame's length.
    pub fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        if now < self.session.timeout() {
            return None;
        }
        let asked_at = self.session.asked_at();
        let is_overdue = now.since(asked_at).0 >= self.config.silent_timeout_ns;
        if is_overdue && self.standing() == Standing::Closing {
            self.session.end();
        }
        let has_probe_failed = self.session.probe().has_failed();
        let body = self.session.poll(now)?;
        if has_probe_failed {
            self.error = Some(ChannelError::MtuTooSmall { probe_len: self.config.probe_len });
        } else if is_overdue {
            self.error.get_or_insert(ChannelError::Silent);
        }
        self.write_handshake(&body, frame)
    }

    /// When [`ChannelClient::poll_transmit`] will have something; [`Nanos::MAX`]: never.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.session.timeout()
    }

    /// Writes a datagram of the owner's: `header` with job and cookie filled in, before a payload
    /// of `payload_len` bytes that stands at [`ChannelClient::payload_start`] already. Returns the
    /// frame's length; `None` while the channel is not open or the frame is too short.
    pub fn write(&self, header: &Header, frame: &mut [u8], payload_len: usize) -> Option<usize> {
        let terms = self.terms.as_ref().filter(|_| self.standing() == Standing::Open)?;
        if frame.len() < self.payload_start() + payload_len {
            return None;
        }
        let header = Header { job: self.config.job, cookie: terms.cookie_up, ..*header };
        Some(write(&self.encap, terms.job.integrity, &header, frame, payload_len))
    }

    /// The way to the host and the cookie on it; `None` while the channel is not open.
    #[must_use]
    pub fn path(&self) -> Option<(&Encap, Cookie)> {
        let terms = self.terms.as_ref().filter(|_| self.standing() == Standing::Open)?;
        Some((&self.encap, terms.cookie_up))
    }

    /// Where the payload of the owner's frames starts.
    #[must_use]
    pub fn payload_start(&self) -> usize {
        self.encap.header_len() + HEADER_LEN
    }

    /// Takes a frame whose datagram was found and whose header was parsed. Anything but
    /// [`ClientEvent::Frame`] has been dealt with.
    ///
    /// # Errors
    /// The drop reason; nothing has changed.
    pub fn handle_frame(
        &mut self,
        now: Nanos,
        udp: &Datagram,
        header: &Header,
        buffer: &mut [u8],
    ) -> Result<ClientEvent, DropReason> {
        if header.job != self.config.job {
            return Err(DropReason::UnknownJob);
        }
        if header.kind == Kind::Hello {
            return self.handle_hello(now, udp, header, buffer);
        }
        let terms = self.terms.as_ref().ok_or(DropReason::StaleEpoch)?;
        let is_echo = header.kind == Kind::State
            && header.outcome == Outcome::Stale
            && header.cookie == terms.cookie_up;
        if header.cookie != terms.cookie_down && !is_echo {
            let is_stale = !header.cookie.is_of(terms.epoch);
            return Err(if is_stale { DropReason::StaleEpoch } else { DropReason::BadCookie });
        }
        if !self.is_from_host(udp.source(buffer)) {
            return Err(DropReason::WrongSource);
        }
        // A restarted host does not know yet what protects this job's payloads.
        if !is_intact(terms.job.integrity, buffer, udp.payload_range()) {
            return Err(DropReason::Integrity);
        }
        if is_echo {
            if self.standing() == Standing::Closing {
                // A host that does not know us has nothing to close.
                self.session.end();
                return Ok(ClientEvent::Closed);
            }
            if self.standing() != Standing::Open {
                return Err(DropReason::Unsolicited);
            }
            self.session.begin(0, now);
            return Ok(ClientEvent::Lost);
        }
        if self.standing() != Standing::Open {
            return Err(DropReason::Unsolicited);
        }
        self.error = None;
        Ok(ClientEvent::Frame)
    }
}

/// A HELLO without padding.
const PROBE_LEN_MIN: u16 = {
    assert!(HEADER_LEN + BODY_LEN == 104);
    104
};
