//! A root aggregator in the plainest form that SPEC allows, for tests of the worker alone: one
//! `BTreeMap` of banks per lane, no limits, no drop counters.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Integrity, Phase, Reason};
use weft_wire::{ChunkIndex, Cookie, Epoch, GroupId, Members, Rank};

use crate::steps::{set_step_bit, step_bit};

use super::crc32c;

pub(super) const ROW: u16 = 3;

/// A restartable box.
pub(super) struct FakeBox {
    pub(super) endpoint: Endpoint,
    pub(super) members: Vec<Endpoint>,
    pub(super) window: u16,
    pub(super) shards: u16,
    pub(super) elements: u16,
    pub(super) integrity: Integrity,
    pub(super) step_count: u32,
    /// UDP payload that the path to the box carries.
    pub(super) path_mtu: usize,
    /// False when the table has no such row.
    pub(super) knows_row: bool,
    /// The job's exponent, or the contributions' own.
    pub(super) exponent: Option<i8>,
    /// The last element of a sum tells the formation that summed it, as a floating-point sum
    /// might: summed twice, it has other bits.
    pub(super) stamps: bool,
    /// Where sums go that all members hear.
    pub(super) multicast: Option<IpAddr>,
    /// Sums carry this flag too.
    pub(super) mark: Flags,
    secret: u64,
    formations: u32,
    pub(super) lanes: Vec<BoxLane>,
    /// Sums installed by hand-over.
    pub(super) handovers: u32,
    /// Steps that were summed from contributions, per lane.
    pub(super) summed: BTreeMap<(u16, u32), u32>,
}

#[derive(Clone, Default)]
pub(super) struct BoxLane {
    joined: BTreeMap<usize, Joined>,
    pub(super) open: Option<Lease>,
}

#[derive(Clone)]
struct Joined {
    life: u64,
    token: u64,
    session: u64,
    low: u32,
    held: BTreeSet<u32>,
}

#[derive(Clone)]
pub(super) struct Lease {
    pub(super) epoch: Epoch,
    pub(super) group: GroupId,
    session: u64,
    lives: Vec<(u64, u64)>,
    /// Up and down, per rank.
    pub(super) cookies: Vec<(Cookie, Cookie)>,
    pub(super) wanted: BTreeSet<u32>,
    holders: BTreeMap<u32, u64>,
    pub(super) banks: BTreeMap<(u32, u32), Bank>,
    /// Members that hear the multicast address.
    pub(super) hearing: u64,
    closed: u64,
}

#[derive(Clone)]
pub(super) struct Bank {
    pub(super) tag: u32,
    pub(super) members: u64,
    pub(super) sum: Vec<i32>,
    pub(super) answered: bool,
    exponent: i8,
    flags: Flags,
}

/// A frame for a rank.
pub(super) type Reply = (usize, Vec<u8>);

impl FakeBox {
    pub(super) fn new(
        endpoint: Endpoint,
        members: Vec<Endpoint>,
        window: u16,
        shards: u16,
    ) -> Self {
        Self {
            endpoint,
            members,
            window,
            shards,
            elements: 4,
            integrity: Integrity::Crc32c,
            step_count: 1 << 20,
            path_mtu: 65_507,
            exponent: Some(0),
            stamps: false,
            multicast: None,
            mark: Flags::NONE,
            secret: 0x5eed,
            formations: 7,
            lanes: vec![BoxLane::default(); usize::from(shards)],
            handovers: 0,
            summed: BTreeMap::new(),
            knows_row: true,
        }
    }

    /// Loses everything but the table.
    pub(super) fn restart(&mut self) {
        self.secret = self.secret.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.formations = self.formations.wrapping_add(101);
        self.lanes = vec![BoxLane::default(); usize::from(self.shards)];
    }

    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for lane in &self.lanes {
            let Some(lease) = &lane.open else {
                text += "box lane not open\n";
                continue;
            };
            text += &format!("box lane {:?} wanted {:?}\n", lease.epoch, lease.wanted);
            for (key, bank) in &lease.banks {
                let Bank { tag, members, answered, .. } = bank;
                text += &format!("  {key:?} step {tag} members {members:b} {answered}\n");
            }
        }
        text
    }

    pub(super) fn mask(&self) -> Members {
        Members::first(self.members.len())
    }

    pub(super) fn handle(&mut self, frame: &mut [u8]) -> Vec<Reply> {
        let udp = Udp::parse(frame).expect("workers send whole datagrams");
        if udp.payload_len > self.path_mtu {
            return Vec::new();
        }
        let datagram = &mut frame[udp.payload_range()];
        let header = Header::parse(&Packet::new_unchecked(&datagram[..])).expect("a valid header");
        let crc_ok = Packet::new_unchecked(&mut datagram[..]).verify_crc(crc32c);
        assert!(crc_ok || self.integrity != Integrity::Crc32c, "a worker's CRC is right");
        assert_eq!(header.group.row(), ROW);
        let body = &datagram[HEADER_LEN..];
        if !self.knows_row && header.kind != Kind::Hello {
            return Vec::new();
        }
        if header.kind == Kind::Hello {
            let rank = header.members.single().expect("one bit").index();
            let lane = u16::try_from(header.chunk.0).unwrap();
            assert_eq!(udp.source.port(), self.members[rank].addr.port() + lane);
            return self.handle_hello(rank, lane, body);
        }
        let lane = u16::try_from(header.chunk.0 % u32::from(self.shards)).unwrap();
        let rank = (0..self.members.len())
            .find(|&rank| self.members[rank].addr.port() + lane == udp.source.port())
            .expect("a member's port");
        self.handle_data(rank, lane, &header, body)
    }

    fn token(&self, rank: usize, lane: u16, life: u64) -> u64 {
        (life ^ self.secret).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ ((rank as u64) << 32)
            ^ u64::from(lane)
    }

    fn handle_hello(&mut self, rank: usize, lane: u16, body: &[u8]) -> Vec<Reply> {
        let (hello, bitmap) = Hello::parse(body).expect("a valid body");
        let token = self.token(rank, lane, hello.life);
        match hello.phase {
            Phase::Hello if !self.knows_row => {
                let mut reply = Hello::new(Phase::Refused);
                reply.reason = Reason::UnknownGroup;
                vec![self.hello(rank, lane, hello.life, reply, &[], Members::EMPTY)]
            }
            _ if !self.knows_row => Vec::new(),
            Phase::Hello => {
                let mut reply = Hello::new(Phase::Challenge);
                reply.token = token;
                reply.probe_len = hello.probe_len;
                vec![self.hello(rank, lane, hello.life, reply, &[], Members::EMPTY)]
            }
            Phase::Join if hello.token == token => self.join(rank, lane, &hello, bitmap),
            Phase::Close => self.close(rank, lane, &hello),
            Phase::Listen | Phase::Deaf => {
                let lease = self.lanes[usize::from(lane)].open.as_mut();
                if let Some(lease) = lease.filter(|it| it.cookies[rank].0 == hello.cookie_up) {
                    assert_eq!(lease.epoch, hello.epoch, "of this epoch");
                    lease.hearing &= !(1 << rank);
                    lease.hearing |= u64::from(hello.phase == Phase::Listen) << rank;
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn join(&mut self, rank: usize, lane: u16, hello: &Hello, bitmap: &[u8]) -> Vec<Reply> {
        let state = &mut self.lanes[usize::from(lane)];
        let life = (hello.life, hello.token);
        if let Some(lease) = &mut state.open {
            if lease.lives[rank].0 == hello.life {
                lease.lives[rank] = life;
                return vec![self.welcome(rank, lane)];
            }
            // A new life ends the session; the survivors learn it when they ask.
            state.open = None;
        }
        let held = (0..hello.step_bits).filter(|&bit| step_bit(bitmap, bit));
        let joined = Joined {
            life: hello.life,
            token: hello.token,
            session: hello.session,
            low: hello.low_step,
            held: held.map(|bit| hello.low_step + u32::from(bit)).collect(),
        };
        state.joined.insert(rank, joined);
        let fresh = state.joined.values().any(|other| other.session == 0);
        if fresh && hello.session != 0 {
            let lost = state.joined.iter().filter(|(_, other)| other.session == 0);
            let lost = lost.fold(0, |bits, (&other, _)| bits | 1 << other);
            state.joined.remove(&rank);
            let mut reply = Hello::new(Phase::Refused);
            reply.reason = Reason::MemberLost;
            return vec![self.hello(rank, lane, hello.life, reply, &[], Members(lost))];
        }
        if state.joined.len() == self.members.len() {
            self.form(lane);
            return vec![self.welcome(rank, lane)];
        }
        let present = state.joined.keys().fold(0, |bits, &other| bits | 1 << other);
        let mut reply = Hello::new(Phase::Waiting);
        reply.mask = self.mask();
        vec![self.hello(rank, lane, hello.life, reply, &[], Members(present))]
    }

    fn form(&mut self, lane: u16) {
        self.formations += 1;
        let epoch = Epoch(self.formations);
        let count = self.members.len();
        let joined = core::mem::take(&mut self.lanes[usize::from(lane)].joined);
        let ends = |j: &Joined| j.held.last().map_or(j.low, |&step| step + 1);
        let end = joined.values().map(ends).max().unwrap();
        let holders = |step: u32| {
            joined
                .iter()
                .filter(|(_, j)| step < j.low || j.held.contains(&step))
                .fold(0u64, |bits, (&rank, _)| bits | 1 << rank)
        };
        let low = joined.values().map(|j| j.low).min().unwrap();
        let mut wanted = BTreeMap::new();
        for step in low..end {
            let bits = holders(step);
            if bits != 0 && bits != self.mask().0 {
                wanted.insert(step, bits);
            }
        }
        let window = u32::from(self.window);
        let mut banks = BTreeMap::new();
        for slot in 0..window {
            let mut frontier = slot;
            while holders(frontier) == self.mask().0 {
                frontier += window;
            }
            if let Some(tag) = frontier.checked_sub(window) {
                let bank = Bank {
                    tag,
                    members: self.mask().0,
                    sum: Vec::new(),
                    answered: true,
                    exponent: 0,
                    flags: Flags::NONE,
                };
                banks.insert((slot, (tag / window) & 1), bank);
            }
        }
        let random = u32::try_from(self.secret & 0xff_ffff).unwrap();
        let cookie = |salt: u32| Cookie::new(epoch, random.wrapping_mul(31).wrapping_add(salt));
        let salts = (0..u32::try_from(count).unwrap()).map(|rank| 2 * rank);
        let session = joined[&0].session;
        let lease = Lease {
            epoch,
            group: GroupId::new(ROW, u16::try_from(self.formations & 0xffff).unwrap()),
            session: if session == 0 { self.secret ^ u64::from(lane) << 48 | 1 } else { session },
            lives: joined.values().map(|j| (j.life, j.token)).collect(),
            cookies: salts.map(|salt| (cookie(salt), cookie(salt + 1))).collect(),
            wanted: wanted.keys().copied().collect(),
            holders: wanted,
            banks,
            hearing: 0,
            closed: 0,
        };
        self.lanes[usize::from(lane)].open = Some(lease);
    }

    fn welcome(&self, rank: usize, lane: u16) -> Reply {
        let lease = self.lanes[usize::from(lane)].open.as_ref().expect("open");
        let mut bitmap = [0; 1024];
        let mut hello = Hello::new(Phase::Welcome);
        hello.low_step = lease.wanted.first().copied().unwrap_or(0);
        for &step in &lease.wanted {
            let bit = u16::try_from(step - hello.low_step).unwrap();
            set_step_bit(&mut bitmap, bit);
            hello.step_bits = bit + 1;
        }
        hello.epoch = lease.epoch;
        hello.token = lease.lives[rank].1;
        hello.session = lease.session;
        (hello.cookie_up, hello.cookie_down) = lease.cookies[rank];
        hello.window = self.window;
        hello.shards = self.shards;
        hello.elements = self.elements;
        hello.integrity = self.integrity;
        hello.fan_in = u32::try_from(self.members.len()).unwrap();
        hello.step_count = self.step_count;
        hello.exponent_fixed = self.exponent.is_some();
        hello.exponent = self.exponent.unwrap_or(0);
        hello.mask = self.mask();
        self.hello(rank, lane, lease.lives[rank].0, hello, &bitmap, self.mask())
    }

    fn close(&mut self, rank: usize, lane: u16, hello: &Hello) -> Vec<Reply> {
        let Some(lease) = &mut self.lanes[usize::from(lane)].open else { return Vec::new() };
        if lease.cookies[rank].0 != hello.cookie_up {
            return Vec::new();
        }
        lease.closed |= 1 << rank;
        let closed = Members(lease.closed);
        vec![self.hello(rank, lane, hello.life, Hello::new(Phase::Closed), &[], closed)]
    }

    fn handle_data(&mut self, rank: usize, lane: u16, header: &Header, body: &[u8]) -> Vec<Reply> {
        let shards = u32::from(self.shards);
        assert!(self.exponent.is_none_or(|fixed| fixed == header.exponent), "the row's exponent");
        assert_eq!(header.count, self.elements);
        let known = self.lanes[usize::from(lane)]
            .open
            .as_ref()
            .is_some_and(|lease| lease.cookies[rank].0 == header.cookie);
        if !known {
            return vec![self.state(rank, lane, header, header.cookie, Outcome::Stale, 0)];
        }
        let (window, mask) = (u32::from(self.window), self.mask().0);
        let bit = 1u64 << rank;
        let step = header.chunk.0 / shards;
        assert!(step < self.step_count, "a step beyond the lease");
        let lease = self.lanes[usize::from(lane)].open.as_mut().expect("known");
        let down = lease.cookies[rank].1;
        assert_eq!(header.group, lease.group);
        let key = (step & (window - 1), (step / window) & 1);
        let other = (key.0, 1 - key.1);
        if header.kind == Kind::Answer {
            assert_eq!(header.members.0, mask, "a sum handed over is everybody's");
            let holds = lease.holders.get(&step).is_some_and(|bits| bits & bit != 0);
            if lease.banks.get(&key).is_some_and(|bank| bank.tag == step && bank.answered) {
                return vec![self.answer(rank, lane, step)];
            }
            // Once: a late copy must not overwrite the slot's later steps.
            if holds && lease.wanted.remove(&step) {
                let bank = Bank {
                    tag: step,
                    members: mask,
                    sum: elements(body),
                    answered: true,
                    exponent: header.exponent,
                    flags: header.flags.only(Flags::CLAMPED),
                };
                lease.banks.insert(key, bank);
                self.handovers += 1;
                return self.answer_all(lane, step);
            }
            return vec![self.state(rank, lane, header, down, Outcome::Stale, 0)];
        }
        let current = lease.banks.get_mut(&key).filter(|bank| bank.tag == step);
        if let Some(bank) = current {
            if bank.answered {
                assert!(!bank.sum.is_empty(), "nobody asks for the seeded sum");
                return vec![self.answer(rank, lane, step)];
            }
            if header.kind == Kind::Status || bank.members & bit != 0 {
                let members = bank.members;
                return vec![self.state(rank, lane, header, down, Outcome::Have, members)];
            }
            assert_eq!(bank.exponent, header.exponent, "the exponent of the claim");
            for (sum, element) in bank.sum.iter_mut().zip(elements(body)) {
                *sum = sum.wrapping_add(element);
            }
            bank.members |= bit;
            bank.flags = bank.flags.union(header.flags.only(Flags::CLAMPED));
            return self.completed(lane, step);
        }
        let claimable = match step.checked_sub(window) {
            Some(last) => lease.banks.get(&other).is_some_and(|b| b.tag == last && b.answered),
            None => !lease.banks.contains_key(&key) && !lease.banks.contains_key(&other),
        };
        if !claimable || header.kind == Kind::Status {
            let outcome = if claimable { Outcome::Have } else { Outcome::Stale };
            return vec![self.state(rank, lane, header, down, outcome, 0)];
        }
        let bank = Bank {
            tag: step,
            members: bit,
            sum: elements(body),
            answered: false,
            exponent: header.exponent,
            flags: header.flags.only(Flags::CLAMPED),
        };
        lease.banks.insert(key, bank);
        self.completed(lane, step)
    }

    fn completed(&mut self, lane: u16, step: u32) -> Vec<Reply> {
        let mask = self.mask().0;
        let window = u32::from(self.window);
        let lease = self.lanes[usize::from(lane)].open.as_mut().expect("open");
        let key = (step & (window - 1), (step / window) & 1);
        let bank = lease.banks.get_mut(&key).expect("claimed");
        if bank.members != mask {
            return Vec::new();
        }
        bank.answered = true;
        if let (true, Some(last)) = (self.stamps, bank.sum.last_mut()) {
            *last = self.formations.cast_signed();
        }
        *self.summed.entry((lane, step)).or_default() += 1;
        self.answer_all(lane, step)
    }

    fn answer_all(&self, lane: u16, step: u32) -> Vec<Reply> {
        let lease = self.lanes[usize::from(lane)].open.as_ref().expect("open");
        let group = self.multicast.filter(|_| lease.hearing == self.mask().0);
        (0..self.members.len()).map(|rank| self.answer_to(rank, group, lane, step)).collect()
    }

    fn answer(&self, rank: usize, lane: u16, step: u32) -> Reply {
        self.answer_to(rank, None, lane, step)
    }

    fn answer_to(&self, rank: usize, group: Option<IpAddr>, lane: u16, step: u32) -> Reply {
        let lease = self.lanes[usize::from(lane)].open.as_ref().expect("open");
        let window = u32::from(self.window);
        let bank = &lease.banks[&(step & (window - 1), (step / window) & 1)];
        let header = Header {
            kind: Kind::Answer,
            flags: self.mark.union(bank.flags),
            outcome: Outcome::None,
            job: super::JOB,
            cookie: lease.cookies[rank].1,
            group: lease.group,
            chunk: ChunkIndex(step * u32::from(self.shards) + u32::from(lane)),
            element_type: ElementType::I32,
            operation: Operation::Sum,
            exponent: bank.exponent,
            count: self.elements,
            members: self.mask(),
        };
        let body: Vec<u8> = bank.sum.iter().flat_map(|element| element.to_be_bytes()).collect();
        let Some(group) = group else { return (rank, self.wrap(rank, lane, &header, &body)) };
        let addr = SocketAddr::new(group, self.endpoint.addr.port() + lane);
        (rank, self.wrap_to(addr, lane, &header, &body))
    }

    fn state(
        &self,
        rank: usize,
        lane: u16,
        to: &Header,
        cookie: Cookie,
        outcome: Outcome,
        members: u64,
    ) -> Reply {
        let header = Header {
            kind: Kind::State,
            flags: Flags::NONE,
            outcome,
            cookie,
            members: Members(members),
            ..*to
        };
        (rank, self.wrap(rank, lane, &header, &[]))
    }

    fn hello(
        &self,
        rank: usize,
        lane: u16,
        life: u64,
        mut hello: Hello,
        bitmap: &[u8],
        members: Members,
    ) -> Reply {
        hello.life = life;
        let open = self.lanes[usize::from(lane)].open.as_ref();
        let group = open.map_or(GroupId::new(ROW, 0), |lease| lease.group);
        let header = Header {
            kind: Kind::Hello,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: super::JOB,
            cookie: Cookie::default(),
            group,
            chunk: ChunkIndex(u32::from(lane)),
            element_type: ElementType::None,
            operation: Operation::None,
            exponent: 0,
            count: 0,
            members,
        };
        let mut body = vec![0; hello.body_len()];
        hello.emit(bitmap, &mut body);
        (rank, self.wrap(rank, lane, &header, &body))
    }

    pub(super) fn wrap(&self, rank: usize, lane: u16, header: &Header, body: &[u8]) -> Vec<u8> {
        let mut target = self.members[rank].addr;
        target.set_port(target.port() + lane);
        self.wrap_to(target, lane, header, body)
    }

    fn wrap_to(&self, addr: SocketAddr, lane: u16, header: &Header, body: &[u8]) -> Vec<u8> {
        let target = Endpoint { mac: self.members[0].mac, addr };
        let mut source = self.endpoint;
        source.addr.set_port(source.addr.port() + lane);
        let encap = Encap::new(source, target).unwrap();
        let start = encap.header_len();
        let mut frame = vec![0; start + HEADER_LEN + body.len()];
        frame[start + HEADER_LEN..].copy_from_slice(body);
        let mut packet = Packet::new_unchecked(&mut frame[start..]);
        header.emit(&mut packet);
        if header.kind == Kind::Hello || self.integrity == Integrity::Crc32c {
            packet.seal(crc32c);
        }
        encap.emit(&mut frame, HEADER_LEN + body.len());
        if self.integrity == Integrity::Checksum16 || target.addr.is_ipv6() {
            encap.finish(&mut frame);
        }
        frame
    }

    pub(super) fn rank(index: usize) -> Rank {
        Rank::new(u8::try_from(index).unwrap()).unwrap()
    }
}

fn elements(body: &[u8]) -> Vec<i32> {
    body.chunks_exact(4).map(|b| i32::from_be_bytes([b[0], b[1], b[2], b[3]])).collect()
}
