//! Handshake datagrams of members: judged, paid for, and answered (SPEC#handshake).
//!
//! What a good one comes to, `formation.rs` decides.

use weft_wire::header::{ElementType, HEADER_LEN, Header, Kind, Outcome};
use weft_wire::hello::{Hello, Integrity, Phase as Step, Reason};
use weft_wire::{ChunkIndex, MacAddr, Members, Rank};

use super::formation::Answer;
use super::lease::{Lease, Phase};
use super::{Aggregator, Incoming};
use crate::admit::quota::Payer;
use crate::drops::DropReason;
use crate::role::{LeaseIndex, Verdict};
use crate::send::datagram::{is_intact, plain_header, write_hello};
use crate::session::host::Host;

impl Lease {
    /// True when a JOIN's header names other elements than the row's; it need not name any.
    fn contradicts(&self, join: &Header) -> bool {
        join.element_type != ElementType::None
            && (join.element_type, join.operation) != (self.row.element_type, self.row.operation)
    }
}

impl Aggregator {
    /// Of a port that shares memory with members, or not; without it, not. Such a port gives frames
    /// the source address [`MacAddr::MEMORY`] if they came through memory, and no others: what
    /// comes by a wire may say anything (SPEC#handshake).
    #[must_use]
    pub fn with_memory(mut self, has_memory: bool) -> Self {
        self.has_memory = has_memory;
        self
    }

    pub(super) fn handle_hello(
        &mut self,
        index: LeaseIndex,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        let lease = &self.leases[index.index()];
        let rank = lease.named_by(&incoming.header)?;
        self.check_lane(lease, rank, incoming)?;
        let datagram_len = incoming.udp.payload_len();
        let mac = incoming.udp.source_mac(incoming.buffer);
        let is_in_memory = self.has_memory && mac == MacAddr::MEMORY;
        let range = incoming.udp.payload_range();
        if !is_intact(Integrity::Crc32c, incoming.buffer, range.clone()) {
            return Err(DropReason::Integrity);
        }
        let body = range.start + HEADER_LEN..range.end;
        let (hello, _) =
            Hello::parse(&incoming.buffer[body.clone()]).map_err(|_| DropReason::Handshake)?;
        let peer = &lease.members[rank.index()].peer;
        self.host(lease).hear(rank.index(), peer, &hello, datagram_len)?;
        // A HELLO shows nothing; a token or the life shows that a member speaks, whose job pays.
        let frame_len = incoming.len_bytes();
        let answer = match hello.phase {
            Step::Hello => {
                self.pay(frame_len, incoming)?;
                Answer::new(Step::Challenge, Members::EMPTY)
            }
            Step::Join => {
                incoming.payer = Payer::Job;
                self.pay(frame_len.max(lease.welcome_len_bytes()), incoming)?;
                let (_, bitmap) =
                    Hello::parse(&incoming.buffer[body]).map_err(|_| DropReason::Handshake)?;
                let lease = &mut self.leases[index.index()];
                let asked = incoming.header;
                if lease.contradicts(&asked) {
                    Answer::refused(Reason::OtherElements, rank.bit())
                } else {
                    lease.load_held(rank, &hello, bitmap)?;
                    lease.note_mac(rank, mac, is_in_memory);
                    let member = &mut lease.members[rank.index()];
                    member.names_lengths = asked.outcome == Outcome::LAST;
                    self.join(index, rank, &hello, incoming.now)
                }
            }
            Step::Close => {
                if lease.phase != Phase::Open {
                    return Err(DropReason::StaleEpoch);
                }
                incoming.payer = Payer::Job;
                self.pay(frame_len, incoming)?;
                self.leases[index.index()].close(rank)
            }
            Step::Listen | Step::Deaf => {
                if lease.phase != Phase::Open || hello.epoch != lease.epoch {
                    return Err(DropReason::StaleEpoch);
                }
                incoming.payer = Payer::Job;
                self.pay(frame_len, incoming)?;
                let cast = &mut self.leases[index.index()].cast;
                cast.note_hearing(rank, hello.phase == Step::Listen);
                return Ok(Verdict::Hold);
            }
            _ => return Err(DropReason::Handshake),
        };
        self.answer_hello(index, rank, mac, &hello, &answer, incoming.buffer)
    }

    fn host(&self, lease: &Lease) -> Host {
        let (job, row) = (lease.row.job, lease.row.row);
        Host { job, row, lane: self.lane, secret: self.secret }
    }

    fn answer_hello(
        &self,
        index: LeaseIndex,
        rank: Rank,
        mac: MacAddr,
        hello: &Hello,
        answer: &Answer,
        buffer: &mut [u8],
    ) -> Result<Verdict, DropReason> {
        let lease = &self.leases[index.index()];
        let member = &lease.members[rank.index()];
        let mut body = self.host(lease).reply(rank.index(), &member.peer, hello, answer.phase);
        let mut bitmap: &[u8] = &[];
        if answer.phase == Step::Welcome {
            member.peer.tell(lease.epoch, lease.cookie_down, &mut body);
            body.session = lease.session;
            body.window = lease.window;
            body.elements = lease.row.elements;
            body.integrity = member.integrity;
            body.overflow = lease.row.overflow;
            body.fan_in = lease.row.fan_in;
            body.step_count = lease.step_count;
            body.exponent = lease.row.exponent.unwrap_or(0);
            body.exponent_fixed = lease.row.exponent.is_some();
            body.low_step = lease.wanted.low();
            if !lease.wanted.is_empty() {
                bitmap = lease.wanted.bitmap();
                body.step_bits = u16::try_from(lease.wanted.capacity()).expect("at most 8192 bits");
            }
        }
        (body.reason, body.shards, body.mask) = (answer.reason, self.shards, lease.mask);
        let encap = member.encap.with_target_mac(mac);
        let mut header = Header {
            chunk: ChunkIndex(u32::from(self.lane)),
            ..plain_header(Kind::Hello, lease.row.job, lease.group, answer.members)
        };
        if answer.phase == Step::Welcome && lease.compares_lengths() && !self.is_behind_switch {
            header.outcome = Outcome::LAST;
        }
        if answer.reason == Reason::OtherElements {
            (header.element_type, header.operation) = (lease.row.element_type, lease.row.operation);
        }
        // The table sees to it that every handshake fits the MTU, and a buffer holds that.
        let len = write_hello(&encap, &header, &body, bitmap, buffer).ok_or(DropReason::Length)?;
        Ok(Verdict::Send { len })
    }
}
