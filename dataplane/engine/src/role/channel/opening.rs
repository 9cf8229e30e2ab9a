//! The handshake half of the opening end: HELLO, JOIN and CLOSE going up, and what comes back.

use weft_wire::frame::Datagram;
use weft_wire::header::{HEADER_LEN, Header, Kind};
use weft_wire::hello::{Hello, Integrity, Phase, Reason};
use weft_wire::{GroupId, MacAddr, Nanos};

use super::client::{ChannelClient, ClientEvent};
use super::config::ChannelError;
use super::{ChannelTerms, JobTerms};
use crate::drops::DropReason;
use crate::send::datagram::{is_intact, plain_header, write_hello};
use crate::session::client::Standing;

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
        if hello.phase == Phase::Waiting {
            // A channel waits for nobody.
            return Err(DropReason::Unsolicited);
        }
        let is_opening = self.standing() == Standing::Opening;
        self.session.hear(&hello, udp.payload_len(), now)?;
        match hello.phase {
            Phase::Challenge => {
                if self.config.target.mac == MacAddr::BROADCAST {
                    self.encap = self.encap.with_target_mac(udp.source_mac(buffer));
                }
                if self.session.has_token() {
                    // It may have come later than the verdict that it would not.
                    self.error = None;
                }
            }
            Phase::Welcome => return self.take_welcome(&hello, header.group, is_opening),
            Phase::Refused if hello.reason == Reason::UnknownGroup => {
                self.error = Some(ChannelError::UnknownJob { job: self.config.job });
            }
            Phase::Closed => {
                self.session.end();
                return Ok(ClientEvent::Closed);
            }
            // It has no session to lose.
            _ => return Err(DropReason::Unsolicited),
        }
        Ok(ClientEvent::Handshake)
    }

    fn take_welcome(
        &mut self,
        hello: &Hello,
        group: GroupId,
        is_opening: bool,
    ) -> Result<ClientEvent, DropReason> {
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
        let is_new = self.terms != Some(terms) || is_opening;
        self.terms = Some(terms);
        self.error = None;
        self.session.open(hello, group);
        Ok(if is_new { ClientEvent::Opened } else { ClientEvent::Handshake })
    }

    pub(super) fn write_handshake(&self, body: &Hello, frame: &mut [u8]) -> Option<usize> {
        let group = GroupId::new(self.config.peer.row(), 0);
        let bit = self.config.peer.bit();
        let header = plain_header(Kind::Hello, self.config.job, group, bit);
        // A restarted host may have another Ethernet address than the one learnt.
        let encap = match body.phase {
            Phase::Hello => self.encap.with_target_mac(self.config.target.mac),
            _ => self.encap,
        };
        write_hello(&encap, &header, body, &[], frame)
    }
}

/// Models travel as f32, updates in elements of at most this size.
const ELEMENT_LEN: usize = 4;
/// What UDP over IPv4 carries.
const DATAGRAM_LEN_MAX: usize = 65_507;
