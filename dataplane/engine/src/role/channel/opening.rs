//! The handshake half of the opening end: HELLO, JOIN and CLOSE going up, and what comes back.

use weft_wire::frame::Datagram;
use weft_wire::header::{HEADER_LEN, Header, Kind};
use weft_wire::hello::{Hello, Integrity, Phase, Reason};
use weft_wire::{GroupId, MacAddr, Nanos};

use super::client::{ChannelClient, ClientEvent, Step};
use super::config::ChannelError;
use super::frame::write_hello;
use super::{ChannelTerms, JobTerms};
use crate::drops::DropReason;
use crate::send::datagram::{is_intact, plain_header};

impl ChannelClient {
    pub(super) fn handle_hello(
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
            (Phase::Refused, Step::Hello | Step::Ask) if hello.reason == Reason::UnknownGroup => {
                self.error = Some(ChannelError::UnknownJob { job: self.config.job });
                Ok(ClientEvent::Handshake)
            }
            (Phase::Closed, Step::Close) => {
                self.enter(Step::Closed, now);
                Ok(ClientEvent::Closed)
            }
            _ => Err(DropReason::Unsolicited),
        }
    }

    fn take_challenge(&mut self, now: Nanos, hello: &Hello, datagram_len: usize) {
        if !self.probe.take_answer(hello.probe_len, datagram_len) {
            self.unanswered = 0;
            self.polls = 0;
            let next_at = now.saturating_add(Nanos(self.config.hello_interval_ns));
            self.next_at = self.next_at.min(next_at);
            self.asked_at = now;
            return;
        }
        // It may have come later than the verdict that it would not.
        self.error = None;
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

    pub(super) fn write_handshake(&mut self, frame: &mut [u8]) -> Option<usize> {
        let phase = match self.step {
            Step::Hello | Step::Ask => Phase::Hello,
            Step::Join | Step::Rejoin => Phase::Join,
            Step::Close => Phase::Close,
            Step::Open | Step::Closed => return None,
        };
        let mut body = Hello::new(phase);
        body.life = self.life;
        match phase {
            Phase::Hello => body.probe_len = self.probe.next_hello(),
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

/// Models travel as f32, updates in elements of at most this size.
const ELEMENT_LEN: usize = 4;
/// What UDP over IPv4 carries.
const DATAGRAM_LEN_MAX: usize = 65_507;
