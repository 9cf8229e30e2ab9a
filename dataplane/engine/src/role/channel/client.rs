//! The opening end of one channel (SPEC#channels).
//!
//! Asks until it is answered, and says so when it is not. It opens by itself, opens again when the
//! host answers STALE, and its owner closes it. The owner writes its frames with
//! [`ChannelClient::write`] and has each incoming one checked by [`ChannelClient::handle_frame`];
//! what is not the channel's own it handles itself. No memory, O(1) per call.

use core::fmt;
use core::net::SocketAddr;

use weft_wire::frame::{Datagram, Encap, Endpoint, UdpAddr};
use weft_wire::header::{HEADER_LEN, Header, Kind, Outcome};
use weft_wire::hello::{BODY_LEN, Hello, Integrity, Phase};
use weft_wire::{Cookie, GroupId, JobId, MacAddr, Nanos};

use super::host::{write, write_hello};
use super::{ChannelTerms, JobTerms, Peer};
use crate::drops::DropReason;
use crate::send::datagram::{is_intact, plain_header};

/// One end of one channel.
#[derive(Clone, Copy, Debug)]
pub struct ChannelClientConfig {
    /// The job, by its index at the host.
    pub job: JobId,
    /// Who opens.
    pub peer: Peer,
    /// Where frames come from.
    pub local: Endpoint,
    /// The host. An Ethernet address of [`MacAddr::BROADCAST`] is learnt from its replies.
    pub target: Endpoint,
    /// Interval of handshake datagrams; it backs off to four times this. Default 20 ms.
    pub hello_interval_ns: u64,
    /// How long the host may leave a handshake unanswered before it counts as silent. Default 5 s.
    pub silent_timeout_ns: u64,
    /// UDP payload bytes of the probe that shows the path carries full datagrams; 0 for no probe.
    /// Default: a header and 1024 bytes.
    pub probe_len: u16,
}

impl ChannelClientConfig {
    /// A configuration with the defaults of the fields' documentation.
    #[must_use]
    pub fn new(job: JobId, peer: Peer, local: Endpoint, target: Endpoint) -> Self {
        Self {
            job,
            peer,
            local,
            target,
            hello_interval_ns: Nanos::from_millis(20).0,
            silent_timeout_ns: Nanos::from_millis(5_000).0,
            probe_len: 32 + 1024,
        }
    }
}

/// Why a channel is not open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ChannelError {
    /// The host did not answer within the timeout.
    Silent,
    /// Short datagrams come back, long ones do not.
    MtuTooSmall {
        /// UDP payload bytes of the probe.
        probe_len: u16,
    },
    /// The two ends have addresses of different families.
    Family,
    /// WELCOME offers a job that cannot be: no elements, or chunks above the MTU.
    BadTerms,
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str(
                "opening a channel: no answer; check the host's address and that this peer is in \
                 its table",
            ),
            Self::MtuTooSmall { probe_len } => write!(
                f,
                "opening a channel: datagrams of {probe_len} bytes are lost, short ones are not; \
                 raise the path's MTU or shorten the chunks"
            ),
            Self::Family => {
                f.write_str("opening a channel: both ends need addresses of one family")
            }
            Self::BadTerms => f.write_str(
                "opening a channel: the host offers chunks that do not fit a datagram; check its \
                 configuration",
            ),
        }
    }
}

impl core::error::Error for ChannelError {}

/// Where a channel stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// The handshake is under way.
    Opening,
    /// Frames may be sent.
    Open,
    /// CLOSE is under way.
    Closing,
    /// The host confirmed the CLOSE, or never will.
    Closed,
}

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
    config: ChannelClientConfig,
    encap: Encap,
    target: UdpAddr,
    life: u64,
    step: Step,
    token: u64,
    terms: Option<ChannelTerms>,
    next_at: Nanos,
    polls: u32,
    unanswered: u32,
    /// Since when the host has owed an answer.
    asked_at: Nanos,
    probe: Probe,
    error: Option<ChannelError>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Hello,
    Join,
    Open,
    /// Open, and a HELLO asks whether the host still knows us.
    Ask,
    /// Open, and a JOIN asks for the WELCOME again.
    Rejoin,
    Close,
    Closed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Probe {
    is_done: bool,
    padded_next: bool,
    padded_sent: u32,
    short_answers: u32,
}

impl ChannelClient {
    /// Begins the handshake. `life` is random per life of the process, and the same for all its
    /// channels.
    ///
    /// # Errors
    /// [`ChannelError::Family`].
    pub fn new(config: ChannelClientConfig, life: u64, now: Nanos) -> Result<Self, ChannelError> {
        let encap = Encap::new(config.local, config.target).ok_or(ChannelError::Family)?;
        // A probe cannot be shorter than the handshake itself.
        let shortest = u16::try_from(HEADER_LEN + BODY_LEN).unwrap_or(u16::MAX);
        let probe_len = if config.probe_len == 0 { 0 } else { config.probe_len.max(shortest) };
        let config = ChannelClientConfig { probe_len, ..config };
        let probe = Probe { is_done: config.probe_len == 0, padded_next: true, ..Probe::default() };
        Ok(Self {
            config,
            encap,
            target: config.target.addr.into(),
            life: life.max(1),
            step: Step::Hello,
            token: 0,
            terms: None,
            next_at: now,
            polls: 0,
            unanswered: 0,
            asked_at: now,
            probe,
            error: None,
        })
    }

    /// Where the channel stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self.step {
            Step::Hello | Step::Join => Standing::Opening,
            Step::Open | Step::Ask | Step::Rejoin => Standing::Open,
            Step::Close => Standing::Closing,
            Step::Closed => Standing::Closed,
        }
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
        if self.step == Step::Open {
            self.enter(Step::Ask, now);
            self.asked_at = now;
        }
    }

    /// Begins to close. [`Standing::Closed`] follows, confirmed or not.
    pub fn close(&mut self, now: Nanos) {
        let open = matches!(self.standing(), Standing::Open);
        if self.step != Step::Closed {
            self.enter(if open { Step::Close } else { Step::Closed }, now);
            self.asked_at = now;
        }
    }

    /// Writes the handshake datagram that is due, if one is, and returns the frame's length.
    pub fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        if now < self.next_at || matches!(self.step, Step::Open | Step::Closed) {
            return None;
        }
        let overdue = now.since(self.asked_at).0 >= self.config.silent_timeout_ns;
        if overdue && self.step == Step::Close {
            self.enter(Step::Closed, now);
            return None;
        }
        if overdue && self.error.is_none() {
            let short_only = self.probe.short_answers > 0 && !self.probe.is_done;
            let probe_len = self.config.probe_len;
            self.error = Some(if short_only {
                ChannelError::MtuTooSmall { probe_len }
            } else {
                ChannelError::Silent
            });
        }
        if self.unanswered >= UNANSWERED_MAX {
            // The host that gave the token may be gone.
            match self.step {
                Step::Join => self.step = Step::Hello,
                Step::Rejoin => self.step = Step::Ask,
                _ => {}
            }
            self.unanswered = 0;
        }
        let wait_ns = self.config.hello_interval_ns.max(1) << self.polls.min(BACKOFF_SHIFT_MAX);
        self.next_at = now.saturating_add(Nanos(wait_ns));
        self.polls += 1;
        self.unanswered += 1;
        self.write_handshake(frame)
    }

    /// When [`ChannelClient::poll_transmit`] will have something; [`Nanos::MAX`]: never.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        match self.step {
            Step::Open | Step::Closed => Nanos::MAX,
            _ => self.next_at,
        }
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
                self.enter(Step::Closed, now);
                return Ok(ClientEvent::Closed);
            }
            if self.standing() != Standing::Open {
                return Err(DropReason::Unsolicited);
            }
            self.enter(Step::Hello, now);
            self.asked_at = now;
            return Ok(ClientEvent::Lost);
        }
        if self.standing() != Standing::Open {
            return Err(DropReason::Unsolicited);
        }
        self.error = None;
        Ok(ClientEvent::Frame)
    }

    fn handle_hello(
        &mut self,
        now: Nanos,
        udp: &Datagram,
        header: &Header,
        buffer: &mut [u8],
    ) -> Result<ClientEvent, DropReason> {
        if header.group != GroupId::new(self.config.peer.row(), 0) {
            return Err(DropReason::UnknownGroup);
        }
        if header.members != self.config.peer.bit() {
            return Err(DropReason::BadMembers);
        }
        if !self.is_from_host(udp.source(buffer)) {
            return Err(DropReason::WrongSource);
        }
        if !is_intact(Integrity::Crc32c, buffer, udp.payload_range()) {
            return Err(DropReason::Integrity);
        }
        let body = &buffer[udp.payload_range()][HEADER_LEN..];
        let (hello, _) = Hello::parse(body).map_err(|_| DropReason::Handshake)?;
        if hello.life != self.life {
            return Err(DropReason::Handshake);
        }
        match (hello.phase, self.step) {
            (Phase::Challenge, Step::Hello | Step::Ask) => {
                if self.config.target.mac == MacAddr::BROADCAST {
                    self.encap = self.encap.with_target_mac(udp.source_mac(buffer));
                }
                self.take_challenge(now, &hello, udp.payload_len());
                Ok(ClientEvent::Handshake)
            }
            (Phase::Welcome, Step::Join | Step::Rejoin) if hello.token == self.token => {
                self.take_welcome(now, &hello)
            }
            (Phase::Closed, Step::Close) => {
                self.enter(Step::Closed, now);
                Ok(ClientEvent::Closed)
            }
            _ => Err(DropReason::Unsolicited),
        }
    }

    fn take_challenge(&mut self, now: Nanos, hello: &Hello, datagram_len: usize) {
        let probe_len = self.config.probe_len;
        if !self.probe.is_done {
            if hello.probe_len < probe_len || datagram_len < usize::from(probe_len) {
                self.probe.short_answers += 1;
                self.unanswered = 0;
                self.polls = 0;
                let tried = self.probe.padded_sent >= PADDED_TRIES;
                if tried && self.probe.short_answers >= SHORT_ANSWERS_MIN {
                    self.error = Some(ChannelError::MtuTooSmall { probe_len });
                }
                return;
            }
            self.probe.is_done = true;
        }
        self.token = hello.token;
        self.enter(if self.step == Step::Ask { Step::Rejoin } else { Step::Join }, now);
    }

    fn take_welcome(&mut self, now: Nanos, hello: &Hello) -> Result<ClientEvent, DropReason> {
        let job = JobTerms {
            job: self.config.job,
            elements: hello.elements,
            integrity: hello.integrity,
            exponent: hello.exponent_fixed.then_some(hello.exponent),
            chunks: hello.step_count,
        };
        let terms = ChannelTerms {
            job,
            epoch: hello.epoch,
            cookie_up: hello.cookie_up,
            cookie_down: hello.cookie_down,
            mask: hello.mask,
        };
        let payload_len = usize::from(hello.elements) * ELEMENT_LEN;
        if payload_len == 0 || HEADER_LEN + payload_len > DATAGRAM_LEN_MAX || hello.step_count == 0
        {
            self.error = Some(ChannelError::BadTerms);
            return Err(DropReason::Handshake);
        }
        let is_new = self.terms != Some(terms) || self.step == Step::Join;
        self.terms = Some(terms);
        self.error = None;
        self.enter(Step::Open, now);
        Ok(if is_new { ClientEvent::Opened } else { ClientEvent::Handshake })
    }

    fn enter(&mut self, step: Step, now: Nanos) {
        self.step = step;
        self.next_at = now;
        self.polls = 0;
        self.unanswered = 0;
    }

    fn write_handshake(&mut self, frame: &mut [u8]) -> Option<usize> {
        let phase = match self.step {
            Step::Hello | Step::Ask => Phase::Hello,
            Step::Join | Step::Rejoin => Phase::Join,
            Step::Close => Phase::Close,
            Step::Open | Step::Closed => return None,
        };
        let mut body = Hello::new(phase);
        body.life = self.life;
        match phase {
            Phase::Hello if !self.probe.is_done => {
                if self.probe.padded_next {
                    body.probe_len = self.config.probe_len;
                    self.probe.padded_sent += 1;
                }
                self.probe.padded_next = !self.probe.padded_next;
            }
            Phase::Join => body.token = self.token,
            Phase::Close => {
                let terms = self.terms.as_ref()?;
                (body.epoch, body.cookie_up) = (terms.epoch, terms.cookie_up);
            }
            _ => {}
        }
        let group = GroupId::new(self.config.peer.row(), 0);
        let bit = self.config.peer.bit();
        let header = plain_header(Kind::Hello, self.config.job, group, bit);
        // A restarted host may have another Ethernet address than the one learnt.
        let encap = match phase {
            Phase::Hello => self.encap.with_target_mac(self.config.target.mac),
            _ => self.encap,
        };
        write_hello(&encap, &header, &body, frame)
    }
}

/// Handshake datagrams back off to `interval << 2`.
const BACKOFF_SHIFT_MAX: u32 = 2;
/// Datagrams without an answer before the token is doubted.
const UNANSWERED_MAX: u32 = 4;
/// Padded HELLOs that must be lost, and short ones answered, before the MTU is blamed.
const PADDED_TRIES: u32 = 12;
const SHORT_ANSWERS_MIN: u32 = 4;
/// Models travel as f32, updates in elements of at most this size.
const ELEMENT_LEN: usize = 4;
/// What UDP over IPv4 carries.
const DATAGRAM_LEN_MAX: usize = 65_507;
