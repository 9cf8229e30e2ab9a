//! An enemy on the network: frames that have no right to a slot, made from those that pass by.
//!
//! He sees everything and can write any frame, but no proof that he has not seen: what he makes
//! up carries a wrong cookie, address, job, token or checksum, or asks for what nobody may have.
//! Mere copies of good frames are the wire's business (duplication, delay).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_engine::random::SplitMix64;
use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::header::{ElementType, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Phase};
use weft_wire::{Cookie, GroupId, JobId, MacAddr, Members, Nanos};

use crate::allreduce::scenario::{self, Scenario};
use crate::allreduce::topology;
use crate::frames::sealed;
use crate::hash;

/// The enemy.
#[derive(Debug)]
pub struct Enemy {
    random: SplitMix64,
    share: f64,
    shards: u16,
    exponent_fixed: bool,
    /// The last contribution of each greedy member's lane 0.
    contribution: Option<Vec<u8>>,
    greedy: bool,
    /// The frames are those of pushes.
    is_push: bool,
}

impl Enemy {
    /// The enemy of a scenario.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            random: SplitMix64::new(hash(&[scenario.seed, 666])),
            share: scenario.hostile,
            shards: scenario.shards,
            exponent_fixed: scenario.exponent_fixed,
            contribution: None,
            greedy: scenario.kind == scenario::Kind::Greedy,
            is_push: false,
        }
    }

    /// An enemy of pushes, who answers a share of the frames.
    #[must_use]
    pub fn of_push(seed: u64, share: f64) -> Self {
        Self {
            random: SplitMix64::new(seed),
            share,
            shards: 1,
            exponent_fixed: false,
            contribution: None,
            greedy: false,
            is_push: true,
        }
    }

    /// Sees a frame on its way; what he sends to the same node, and how much later.
    pub fn answer(&mut self, frame: &[u8], to_box: bool) -> Option<(Nanos, Vec<u8>)> {
        self.watch(frame, to_box);
        let draw = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        if draw >= self.share {
            return None;
        }
        let delay = Nanos(self.random.next_u64() % 300_000);
        let forged = self.forge(frame, to_box);
        // Damage may leave a frame as it was, which then is a good one.
        (forged != frame).then_some((delay, forged))
    }

    /// Remembers a contribution of the greedy job, whose first member is the flooder's pattern.
    fn watch(&mut self, frame: &[u8], to_box: bool) {
        if !self.greedy || !to_box {
            return;
        }
        let Some((udp, header, _)) = take_apart(frame) else { return };
        let from_leaf = udp.source.ip() == topology::box_endpoint(1).addr.ip();
        if header.kind == Kind::Contrib && header.job == topology::job_id(0) && !from_leaf {
            self.contribution = Some(frame.to_vec());
        }
    }

    /// A contribution that the member's window does not allow: a repeat, or any other chunk.
    pub fn flood(&mut self) -> Option<Vec<u8>> {
        let frame = self.contribution.clone()?;
        let (udp, mut header, payload) = take_apart(&frame)?;
        if self.random.next_u64().is_multiple_of(2) {
            let ahead = self.random.next_u32() % 64;
            header.chunk.0 = (header.chunk.0 + ahead * u32::from(self.shards)) & 0xfff;
        }
        Some(assemble(udp.source, udp.target, &header, payload))
    }

    fn forge(&mut self, frame: &[u8], to_box: bool) -> Vec<u8> {
        let word = self.random.next_u64();
        let Some((udp, header, payload)) = take_apart(frame) else { return frame.to_vec() };
        match word % 4 {
            0 => self.damage(frame, &udp),
            1 => self.misframe(frame),
            _ if header.kind == Kind::Hello => self.forge_hello(&udp, header, payload, to_box),
            _ if self.is_push => self.forge_push(&udp, header, payload, to_box),
            _ => self.forge_data(&udp, header, payload),
        }
    }

    /// A frame of a push that its sender has no right to, or that fits nothing. What only an
    /// attacker on the path could write, under a good cookie and about a good group, is not here.
    fn forge_push(
        &mut self,
        udp: &Udp,
        mut header: Header,
        payload: &[u8],
        to_box: bool,
    ) -> Vec<u8> {
        let word = self.random.next_u64();
        let (mut source, mut payload) = (udp.source, payload);
        if header.kind == Kind::State && header.outcome == Outcome::Stale {
            // It echoes what provoked it, maybe his own frame: changed again, it might be right.
            return self.mangle(udp, &header, payload);
        }
        let has_elements = header.count > 0 && !payload.is_empty();
        match word % 15 {
            0 => header.job = JobId(9),
            1 => header.job = JobId(60_000),
            // Another job of the same boxes, under this one's cookie.
            2 => header.job = JobId(header.job.0 ^ 0b110),
            3 => header.cookie = Cookie(header.cookie.0 ^ 1),
            4 => header.cookie = Cookie(header.cookie.0 ^ 0x0100_0000),
            5 => header.cookie = Cookie(self.random.next_u32()),
            6 => source.set_ip(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9))),
            7 => source.set_port(source.port() ^ 0x4000),
            // In the name of a neighbour.
            8 => {
                if let IpAddr::V4(ip) = source.ip() {
                    let [a, b, network, host] = ip.octets();
                    source.set_ip(IpAddr::V4(Ipv4Addr::new(a, b, network ^ 3, host)));
                }
            }
            9 if matches!(header.kind, Kind::Contrib | Kind::Answer) => header.chunk.0 = u32::MAX,
            10 if has_elements => {
                header.count -= 1;
                payload = &payload[..header.payload_len()];
            }
            11 => {
                header.kind = if to_box { Kind::Answer } else { Kind::Contrib };
                (header.element_type, header.count, payload) = (ElementType::None, 0, &[]);
            }
            12 if has_elements => self.retype(&mut header),
            // What answers and reals have no use for is not looked at.
            13 if has_elements && header.kind == Kind::Contrib => {
                header.operation = Operation::Max;
            }
            14 if has_elements
                && header.kind == Kind::Contrib
                && header.element_type == ElementType::I32 =>
            {
                header.exponent ^= 1;
            }
            _ => return self.mangle(udp, &header, payload),
        }
        assemble(source, udp.target, &header, payload)
    }

    /// Damage that the CRC covers, or noise.
    fn damage(&mut self, frame: &[u8], udp: &Udp) -> Vec<u8> {
        let word = self.random.next_u64();
        let mut frame = frame.to_vec();
        match word % 4 {
            0 => {
                frame.truncate((word >> 8) as usize % frame.len());
            }
            1 => frame.iter_mut().for_each(|byte| {
                [*byte, ..] = self.random.next_u64().to_be_bytes();
            }),
            _ => {
                weft_io::fault::corrupt(&mut frame[udp.payload_range()], word);
            }
        }
        frame
    }

    /// Frames that are refused before their datagram is read.
    fn misframe(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        match self.random.next_u64() % 7 {
            0 => {
                frame.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
            }
            1 => patch_ipv4(&mut frame, 20, &[0x20, 0x00]),
            2 => patch_ipv4(&mut frame, 14, &[0x46]),
            3 => frame[24] ^= 0x55,
            4 => patch_ipv4(&mut frame, 30, &[10, 9, 9, 9]),
            5 => frame[12..14].copy_from_slice(&[0x08, 0x06]),
            _ => frame[36..38].copy_from_slice(&[0x12, 0x34]),
        }
        frame
    }

    fn forge_hello(
        &mut self,
        udp: &Udp,
        mut header: Header,
        payload: &[u8],
        to_box: bool,
    ) -> Vec<u8> {
        let Ok((mut hello, bitmap)) = Hello::parse(payload) else { return Vec::new() };
        let mut source = udp.source;
        if !to_box {
            // A member believes whoever knows its life: that takes an attacker on the path.
            hello.life ^= 1;
        }
        match self.random.next_u64() % 7 {
            0 => hello.phase = Phase::Welcome,
            1 => {
                hello.phase = Phase::Join;
                hello.token ^= 1 << (self.random.next_u64() % 64);
            }
            2 => {
                hello.phase = Phase::Close;
                hello.life ^= 1;
            }
            3 => header.members = Members(1 << 40),
            4 => {
                hello.phase = Phase::Join;
                hello.life ^= 1;
                hello.session = 0;
            }
            5 => {
                // What a root might say, of another life.
                source = topology::box_endpoint(0).addr;
                source.set_port(source.port() + (udp.source.port() & (self.shards - 1)));
                hello.phase = Phase::Challenge;
                hello.life ^= 1;
            }
            _ => source.set_ip(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9))),
        }
        hello.probe_len = 0;
        let mut body = vec![0; hello.body_len()];
        hello.emit(bitmap, &mut body);
        assemble(source, udp.target, &header, &body)
    }

    fn forge_data(&mut self, udp: &Udp, mut header: Header, payload: &[u8]) -> Vec<u8> {
        let word = self.random.next_u64();
        let (mut source, mut payload) = (udp.source, payload);
        match word % 22 {
            0 => header.job = JobId(9),
            1 => header.job = JobId(60_000),
            2 => header.group = GroupId::new(900, header.group.generation()),
            3 => header.group = GroupId(u32::MAX),
            4 => header.members = Members(0),
            5 => header.members = Members(header.members.0 ^ 0x11 << 40),
            6 => header.members = Members(1 << 63),
            7 => header.cookie = Cookie(header.cookie.0 ^ 1),
            8 => header.cookie = Cookie(header.cookie.0 ^ 0x0100_0000),
            9 => header.group = GroupId(header.group.0 ^ 1),
            10 => header.chunk.0 |= 0x7fff_ff00,
            11 => header.chunk.0 = u32::MAX,
            12 if self.shards > 1 => header.chunk.0 ^= 1,
            13 if !payload.is_empty() => {
                header.count -= 1;
                payload = &payload[..header.payload_len()];
            }
            14 => self.retype(&mut header),
            15 => {
                let max = header.operation == Operation::Max;
                header.operation = if max { Operation::Sum } else { Operation::Max };
            }
            16 if self.exponent_fixed => header.exponent = 1,
            17 => source.set_ip(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9))),
            18 => source.set_port(source.port() ^ 0x4000),
            19 => {
                header.kind = Kind::Pull;
                payload = &[];
            }
            20 => {
                header.chunk.0 += 512 * u32::from(self.shards);
                header.kind = Kind::Answer;
                header.members = Members::first(2);
            }
            _ => return self.mangle(udp, &header, payload),
        }
        if !matches!(header.kind, Kind::Contrib | Kind::Answer) {
            payload = &[];
        }
        assemble(source, udp.target, &header, payload)
    }

    /// Another element type of the same size, if there is one.
    fn retype(&self, header: &mut Header) {
        header.element_type = match header.element_type {
            ElementType::I32 => ElementType::F32,
            ElementType::F32 => ElementType::I32,
            other => {
                header.operation = Operation::None;
                other
            }
        };
    }

    /// Versions, kinds and checksums that cannot be written as a header.
    fn mangle(&mut self, udp: &Udp, header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut frame = assemble(udp.source, udp.target, header, payload);
        match self.random.next_u64() % 4 {
            0 => frame[42] = 0x21,
            1 => frame[42] = 0x1f,
            2 => frame[42 + 20..42 + 24].fill(0),
            _ => frame[42 + 23] ^= 0x10,
        }
        frame
    }
}

pub(crate) fn take_apart(frame: &[u8]) -> Option<(Udp, Header, &[u8])> {
    let udp = Udp::parse(frame).ok()?;
    let datagram = &frame[udp.payload_range()];
    let header = Header::parse(&Packet::new_unchecked(datagram)).ok()?;
    Some((udp, header, &datagram[HEADER_LEN..]))
}

/// A whole frame between two addresses, with a right CRC.
#[must_use]
pub fn assemble(
    source: SocketAddr,
    target: SocketAddr,
    header: &Header,
    payload: &[u8],
) -> Vec<u8> {
    let mac = MacAddr([2, 6, 6, 6, 6, 6]);
    let encap = Encap::new(Endpoint { mac, addr: source }, Endpoint { mac, addr: target });
    let encap = encap.expect("both addresses are IPv4");
    sealed(&encap, header, payload)
}

/// Replaces bytes of the IPv4 header and makes its checksum right again.
fn patch_ipv4(frame: &mut [u8], at: usize, bytes: &[u8]) {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame[24..26].fill(0);
    let words = frame[14..34].chunks_exact(2);
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let [.., high, low] = (!((folded & 0xffff) + (folded >> 16))).to_be_bytes();
    frame[24..26].copy_from_slice(&[high, low]);
}
