//! A scripted server and a scripted aggregator: real channels, and as much of SPEC#push and
//! SPEC#pull as a worker can see. They hold sums as i64, so that a contribution counted twice or
//! torn shows.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_kernel::Kernels;
use weft_wire::frame::{Datagram, Endpoint};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::Integrity;
use weft_wire::rows::{ROW_DIRECT, ROW_MODEL};
use weft_wire::{ChunkIndex, GroupId, JobId, MacAddr, Members, Nanos};

use crate::drops::DropReason;
use crate::random::SplitMix64;
use crate::role::channel::{ChannelHost, ChannelHostConfig, JobTerms, Peer};
use crate::send::datagram::{is_intact, plain_header};

pub(super) const JOB: JobId = JobId(5);
pub(super) const ELEMENTS: u16 = 8;
pub(super) const EXPONENT: i8 = -4;
const FRAME_LEN: usize = 1514;

pub(super) fn host_addr(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 22341))
}

/// A frame and the host that gets it.
pub(super) type Out = Vec<Vec<u8>>;

fn channel_host(host: u8, workers: u8, chunks: u32, seed: u64) -> ChannelHost {
    channel_host_of(ELEMENTS, host, workers, chunks, seed)
}

fn channel_host_of(elements: u16, host: u8, workers: u8, chunks: u32, seed: u64) -> ChannelHost {
    let local = Endpoint { mac: MacAddr([2, 0, 0, 0, 0, host]), addr: host_addr(host) };
    let terms = JobTerms {
        job: JOB,
        elements,
        integrity: Integrity::Crc32c,
        exponent: Some(EXPONENT),
        chunks,
    };
    let workers = (1..=workers).map(host_addr).collect();
    let config = ChannelHostConfig { local, terms, workers, boxes: Vec::new() };
    ChannelHost::new(&config, SplitMix64::new(seed))
}

/// Opens a frame: the sender's rank and header, or the reply that it asks for.
fn open(
    channels: &mut ChannelHost,
    buffer: &mut Vec<u8>,
    out: &mut Out,
) -> Result<Option<(Peer, Datagram, Header)>, DropReason> {
    buffer.resize(FRAME_LEN, 0);
    let udp = Datagram::find(buffer).map_err(|_| DropReason::Length)?;
    let header = Header::parse(&Packet::new_unchecked(&buffer[udp.payload_range()]))
        .map_err(|_| DropReason::Length)?;
    if header.kind == Kind::Hello {
        let reply = channels.handle_hello(&udp, &header, buffer)?;
        out.push(buffer[..reply.len].to_vec());
        return Ok(None);
    }
    let peer = Peer::worker(header.members)?;
    if let Err(reason) = channels.identify(peer, header.cookie, udp.source(buffer)) {
        if reason != DropReason::WrongSource
            && let Some(len) = channels.refuse_stale(peer, &udp, &header, buffer)
        {
            out.push(buffer[..len].to_vec());
        }
        return Err(reason);
    }
    if !is_intact(Integrity::Crc32c, buffer, udp.payload_range()) {
        return Err(DropReason::Integrity);
    }
    Ok(Some((peer, udp, header)))
}

fn send(channels: &ChannelHost, peer: Peer, header: &Header, payload: &[u8], out: &mut Out) {
    let mut buffer = vec![0; FRAME_LEN];
    let start = channels.payload_start(peer);
    buffer[start..start + payload.len()].copy_from_slice(payload);
    if let Some(len) = channels.write(peer, header, &mut buffer, payload.len()) {
        buffer.truncate(len);
        out.push(buffer);
    }
}

fn integers(payload: &[u8]) -> Vec<i64> {
    let (words, _) = payload.as_chunks::<4>();
    words.iter().map(|word| i64::from(i32::from_be_bytes(*word))).collect()
}

/// Chunks of one group: who is in, and the sum.
#[derive(Clone, Debug)]
struct Sums {
    chunks: Vec<(Members, Vec<i64>)>,
}

impl Sums {
    fn new(chunks: u32) -> Self {
        Self { chunks: vec![(Members::EMPTY, vec![0; usize::from(ELEMENTS)]); chunks as usize] }
    }

    /// Adds disjoint contributors only.
    fn add(&mut self, chunk: u32, members: Members, values: &[i64]) -> bool {
        let (held, sum) = &mut self.chunks[chunk as usize];
        if held.0 & members.0 != 0 {
            return false;
        }
        *held = held.union(members);
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        true
    }
}

#[derive(Clone, Debug)]
struct Group {
    id: GroupId,
    mask: Members,
    via_box: bool,
    sums: Sums,
    decided: Option<(Outcome, u64, Members)>,
    /// When each chunk's credit is repeated.
    credits: BTreeMap<u32, Nanos>,
    /// The sum is asked of the box until then, of the members afterwards.
    fallback_at: Nanos,
}

/// The scripted server.
#[derive(Debug)]
pub(super) struct FakeServer {
    pub(super) channels: ChannelHost,
    workers: u8,
    chunks: u32,
    groups: Vec<Group>,
    pub(super) version: u64,
    /// w, in quanta of 2^EXPONENT.
    pub(super) model: Vec<i64>,
    /// The versions that are kept, newest last.
    history: Vec<(u64, Vec<i64>)>,
    /// Decisions to come that are not COMMITTED.
    pub(super) next_outcomes: Vec<Outcome>,
    pub(super) is_silent: bool,
    pub(super) credit_window: usize,
    /// Versions that direct groups were opened with.
    pub(super) versions_named: Vec<(GroupId, u32)>,
    /// Contributions that came without a credit.
    pub(super) uncalled: usize,
    pub(super) contributions: usize,
    /// Groups that a member will not send for.
    pub(super) declined: Vec<GroupId>,
}

impl FakeServer {
    pub(super) const HOST: u8 = 100;

    pub(super) fn new(workers: u8, chunks: u32, seed: u64) -> Self {
        let model = vec![0; chunks as usize * usize::from(ELEMENTS)];
        Self {
            channels: channel_host(Self::HOST, workers, chunks, seed),
            workers,
            chunks,
            groups: Vec::new(),
            version: 0,
            history: vec![(0, model.clone())],
            model,
            next_outcomes: Vec::new(),
            is_silent: false,
            credit_window: 8,
            versions_named: Vec::new(),
            uncalled: 0,
            contributions: 0,
            declined: Vec::new(),
        }
    }

    /// A new process with the model and the decisions of the old one, and open groups forgotten.
    pub(super) fn restart(&mut self, seed: u64) {
        self.channels = channel_host(Self::HOST, self.workers, self.chunks, seed);
        self.groups.retain(|group| group.decided.is_some());
    }

    /// Says that chunks have this many elements.
    pub(super) fn claim_elements(&mut self, elements: u16) {
        self.channels = channel_host_of(elements, Self::HOST, self.workers, self.chunks, 1);
    }

    pub(super) fn install(&mut self, id: GroupId, mask: Members, via_box: bool, fallback: Nanos) {
        let (sums, credits) = (Sums::new(self.chunks), BTreeMap::new());
        let decided = None;
        let fallback_at = if via_box { fallback } else { Nanos(0) };
        self.groups.push(Group { id, mask, via_box, sums, decided, credits, fallback_at });
    }

    pub(super) fn handle(&mut self, now: Nanos, mut frame: Vec<u8>, out: &mut Out) {
        if self.is_silent {
            return;
        }
        let Ok(Some((peer, udp, header))) = open(&mut self.channels, &mut frame, out) else {
            return;
        };
        let reply = match (header.kind, header.group.row()) {
            (Kind::Status, ROW_MODEL) => self.version_reply(),
            (Kind::Contrib, ROW_MODEL) => {
                self.answer(peer, &header, out);
                return;
            }
            (Kind::Status, row) => {
                if row >= ROW_DIRECT && self.find(header.group).is_none() {
                    assert_eq!(header.exponent, EXPONENT, "a turn is asked with the exponent");
                    assert_eq!(header.count, ELEMENTS);
                    self.versions_named.push((header.group, header.chunk.0));
                    self.install(header.group, header.members, false, Nanos(0));
                }
                self.status(header.group)
            }
            (Kind::State, _) => {
                assert_eq!(header.outcome, Outcome::Stale);
                self.declined.push(header.group);
                self.groups.retain(|group| group.id != header.group);
                return;
            }
            (Kind::Contrib, _) => {
                let payload = &frame[udp.payload_range()][HEADER_LEN..];
                self.contribute(now, &header, payload, out);
                return;
            }
            _ => return,
        };
        send(&self.channels, peer, &reply, &[], out);
    }

    fn find(&mut self, id: GroupId) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.id == id)
    }

    fn version_reply(&self) -> Header {
        let low = u32::try_from(self.version).unwrap();
        let group = GroupId::new(ROW_MODEL, u16::try_from(self.version & 0xffff).unwrap());
        Header { chunk: ChunkIndex(low), ..plain_header(Kind::Ack, JOB, group, Members::EMPTY) }
    }

    fn status(&mut self, id: GroupId) -> Header {
        match self.find(id).map(|group| group.decided) {
            None => Header {
                outcome: Outcome::Stale,
                ..plain_header(Kind::State, JOB, id, Members::EMPTY)
            },
            Some(None) => Header {
                outcome: Outcome::Wait,
                ..plain_header(Kind::State, JOB, id, Members::EMPTY)
            },
            Some(Some(decided)) => ack(id, decided),
        }
    }

    fn answer(&mut self, peer: Peer, header: &Header, out: &mut Out) {
        let generation = u64::from(header.group.generation());
        let kept = self.history.iter().rev().find(|(version, _)| version & 0xffff == generation);
        let Some((_, model)) = kept else {
            let stale = Header {
                outcome: Outcome::Stale,
                chunk: header.chunk,
                ..plain_header(Kind::State, JOB, header.group, Members::EMPTY)
            };
            return send(&self.channels, peer, &stale, &[], out);
        };
        let start = header.chunk.0 as usize * usize::from(ELEMENTS);
        let values: Vec<f32> =
            model[start..start + usize::from(ELEMENTS)].iter().map(|w| *w as f32).collect();
        let mut payload = vec![0; values.len() * 4];
        Kernels::detect().emit_f32(&values, &mut payload);
        let answer = Header {
            chunk: header.chunk,
            element_type: ElementType::F32,
            count: ELEMENTS,
            ..plain_header(Kind::Answer, JOB, header.group, peer.bit())
        };
        send(&self.channels, peer, &answer, &payload, out);
    }

    fn contribute(&mut self, now: Nanos, header: &Header, payload: &[u8], out: &mut Out) {
        assert!(header.flags.contains(Flags::DIRECT), "to a server a contribution is direct");
        assert_eq!((header.element_type, header.operation), (ElementType::I32, Operation::Sum));
        self.contributions += 1;
        let was_called = self.find(header.group).is_some_and(|group| {
            group.decided.is_some() || group.credits.contains_key(&header.chunk.0)
        });
        self.uncalled += usize::from(!was_called);
        let Some(group) = self.find(header.group).filter(|group| group.decided.is_none()) else {
            return;
        };
        group.sums.add(header.chunk.0, header.members, &integers(payload));
        self.decide(now, out);
    }

    /// Stages and decides a group of one without its worker.
    pub(super) fn commit_at_once(&mut self, id: GroupId, values: &[i32]) {
        let mut values: Vec<i64> = values.iter().map(|value| i64::from(*value)).collect();
        values.resize(self.model.len(), 0);
        let group = self.find(id).unwrap();
        for (chunk, values) in values.chunks(usize::from(ELEMENTS)).enumerate() {
            let mask = group.mask;
            group.sums.add(u32::try_from(chunk).unwrap(), mask, values);
        }
        self.decide(Nanos(0), &mut Vec::new());
    }

    /// Credits of the head of the order, and sums from the box.
    pub(super) fn tick(&mut self, now: Nanos, fake_box: &mut FakeBox, out: &mut Out) {
        if self.is_silent {
            return;
        }
        let window = self.credit_window;
        let Some(group) = self.groups.iter_mut().find(|group| group.decided.is_none()) else {
            return;
        };
        if group.via_box && now < group.fallback_at {
            for chunk in 0..self.chunks {
                if let Some((members, sum)) = fake_box.take_sum(group.id, chunk, group.mask) {
                    group.sums.add(chunk, members, &sum);
                }
            }
            return self.decide(now, out);
        }
        let mask = group.mask;
        let missing = group.sums.chunks.iter().zip(0..).filter(|((held, _), _)| *held != mask);
        let asked: Vec<(u32, Members)> =
            missing.take(window).map(|((held, _), chunk)| (chunk, mask.without(*held))).collect();
        for (chunk, ranks) in asked {
            let due = group.credits.get(&chunk).is_none_or(|at| *at <= now);
            if !due {
                continue;
            }
            group.credits.insert(chunk, now.saturating_add(Nanos(3_000_000)));
            for rank in ranks.iter() {
                let pull = Header {
                    flags: Flags::DIRECT,
                    chunk: ChunkIndex(chunk),
                    ..plain_header(Kind::Pull, JOB, group.id, mask)
                };
                send(&self.channels, Peer::Worker(rank), &pull, &[], out);
            }
        }
        self.decide(now, out);
    }

    fn decide(&mut self, _: Nanos, out: &mut Out) {
        while let Some(group) = self.groups.iter_mut().find(|group| group.decided.is_none()) {
            let mask = group.mask;
            if group.sums.chunks.iter().any(|(held, _)| *held != mask) {
                return;
            }
            let outcome = if self.next_outcomes.is_empty() {
                Outcome::Committed
            } else {
                self.next_outcomes.remove(0)
            };
            let mut members = Members::EMPTY;
            if outcome == Outcome::Committed {
                members = mask;
                let sums = group.sums.chunks.iter().flat_map(|(_, sum)| sum);
                self.model.iter_mut().zip(sums).for_each(|(w, sum)| *w += sum);
                self.version += mask.len() as u64;
                self.history.push((self.version, self.model.clone()));
                if self.history.len() > 3 {
                    self.history.remove(0);
                }
            }
            let decided = (outcome, self.version, members);
            group.decided = Some(decided);
            for rank in mask.iter() {
                send(&self.channels, Peer::Worker(rank), &ack(group.id, decided), &[], out);
            }
        }
    }
}

fn ack(id: GroupId, (outcome, version, members): (Outcome, u64, Members)) -> Header {
    Header {
        outcome,
        chunk: ChunkIndex(u32::try_from(version).unwrap()),
        ..plain_header(Kind::Ack, JOB, id, members)
    }
}

/// The scripted aggregator. Its sums are handed to the server without a network.
#[derive(Debug)]
pub(super) struct FakeBox {
    pub(super) channels: ChannelHost,
    workers: u8,
    chunks: u32,
    groups: Vec<(GroupId, Sums)>,
    pub(super) is_silent: bool,
    /// When each contribution came, for rates: time and bytes.
    pub(super) arrivals: Vec<(Nanos, usize)>,
    pub(super) is_marking: bool,
    /// A replica takes copies and says nothing.
    is_replica: bool,
    host: u8,
}

impl FakeBox {
    pub(super) const HOST: u8 = 101;
    pub(super) const REPLICA: u8 = 102;

    pub(super) fn new(host: u8, workers: u8, chunks: u32, seed: u64) -> Self {
        Self {
            channels: channel_host(host, workers, chunks, seed),
            host,
            is_replica: host == Self::REPLICA,
            workers,
            chunks,
            groups: Vec::new(),
            is_silent: false,
            arrivals: Vec::new(),
            is_marking: false,
        }
    }

    pub(super) fn restart(&mut self, seed: u64) {
        *self = Self::new(self.host, self.workers, self.chunks, seed);
    }

    pub(super) fn install(&mut self, id: GroupId) {
        self.groups.push((id, Sums::new(self.chunks)));
    }

    pub(super) fn handle(&mut self, now: Nanos, mut frame: Vec<u8>, out: &mut Out) {
        if self.is_silent {
            return;
        }
        let len = frame.len();
        let Ok(Some((peer, udp, header))) = open(&mut self.channels, &mut frame, out) else {
            return;
        };
        assert_eq!(header.kind, Kind::Contrib, "members send an aggregator contributions only");
        let flags = Flags::DIRECT.union(Flags::REPLICA);
        assert_eq!(header.flags.contains(flags), self.is_replica);
        self.arrivals.push((now, len));
        let sums = self.groups.iter_mut().find(|(id, _)| *id == header.group);
        let payload = &frame[udp.payload_range()][HEADER_LEN..];
        let (outcome, members) = match sums {
            Some((_, sums)) => {
                sums.add(header.chunk.0, header.members, &integers(payload));
                (Outcome::Have, sums.chunks[header.chunk.0 as usize].0)
            }
            None => (Outcome::Stale, Members::EMPTY),
        };
        if self.is_replica {
            return;
        }
        let flags = if self.is_marking { Flags::CONGESTION } else { Flags::NONE };
        let state = plain_header(Kind::State, JOB, header.group, members);
        let state = Header { outcome, flags, chunk: header.chunk, ..state };
        send(&self.channels, peer, &state, &[], out);
    }

    pub(super) fn forget(&mut self, id: GroupId) {
        self.groups.retain(|(group, _)| *group != id);
    }

    /// The elements that came of a group, in order.
    pub(super) fn values(&self, id: GroupId) -> Vec<i64> {
        let (_, sums) = self.groups.iter().find(|(group, _)| *group == id).unwrap();
        sums.chunks.iter().flat_map(|(_, sum)| sum.iter().copied()).collect()
    }

    fn take_sum(&mut self, id: GroupId, chunk: u32, mask: Members) -> Option<(Members, Vec<i64>)> {
        let (_, sums) = self.groups.iter().find(|(group, _)| *group == id)?;
        let (members, sum) = &sums.chunks[chunk as usize];
        (*members == mask).then(|| (*members, sum.clone()))
    }

    /// Bytes that came in a span, the greatest over all spans of this length.
    pub(super) fn busiest(&self, span_ns: u64) -> usize {
        let within = |from: Nanos| {
            let arrivals = self.arrivals.iter();
            arrivals.filter(move |(at, _)| *at >= from && at.since(from).0 < span_ns)
        };
        let sums = self.arrivals.iter().map(|(at, _)| within(*at).map(|(_, len)| len).sum());
        sums.max().unwrap_or(0)
    }
}
