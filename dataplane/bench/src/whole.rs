//! The aggregator's lane on whole leases: one group gathers while the one before is released.
//!
//! The device delivers contributions and credits over and over, one credit after the contributions
//! of each step; they are stamped so that contribution number `c` of every member is chunk `c` of
//! the group that gathers, and credit number `c` releases chunk `c` of the group before. So a slot
//! is read again when a whole lease has passed through the cache in between: what a lease in DRAM
//! costs is in the figure, as are credits, acknowledgements and sums. A packet is a contribution.

use weft_control::{BoxIndex, Command, GroupDescriptor, GroupMember, OrderNumber, Version};
use weft_engine::random::SplitMix64;
use weft_engine::role::Verdict;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::channel::{
    ChannelClient, ChannelClientConfig, ChannelHost, ChannelHostConfig, JobTerms, Peer, Standing,
};
use weft_engine::role::gather::PushConfig;
use weft_engine::table::{BoxConfig, RowConfig, Table};
use weft_io::Port;
use weft_io::reseal::Reseal;
use weft_io::restamp::Stamp;
use weft_kernel::Kernels;
use weft_wire::frame::Datagram;
use weft_wire::header::{HEADER_LEN, Header, Kind, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{Cookie, GroupId, Members, Nanos, Rank};

use super::checked::{Checked, Counters, Lane, Reference, lost, measurement};
use super::frames::{Frames, member_endpoint, server_endpoint};
use super::replay::{Outside, Settings};
use super::{BenchError, Measurement};

/// Measures an aggregator on `port`, which must deliver `frames` with credits over and over.
pub(super) fn run<P: Port>(
    port: P,
    table: &Table,
    frames: &Frames,
    settings: Settings,
    kernels: &'static Kernels,
    outside: &impl Outside,
) -> Result<Measurement, BenchError> {
    let row = &table.config().rows[0];
    let push = push_config(row);
    let mut engine = engine(table, &push, settings.seed, kernels);
    let cookies = open_channels(table.config(), row, &push, &mut engine)?;
    for generation in 0..2 {
        install(&mut engine, &push, group(generation));
    }
    let seals = row.integrity == Integrity::Crc32c;
    let stamp = WholeStamp::new(cookies, push.chunks, frames, seals);
    let mut lane = Lane::new(Checked::new(port, stamp, frames, settings.check_every), engine);
    // A group must have been gathered before the measured time, or there is nothing to release.
    breathe(&mut lane, &push, outside, |stamp, _| stamp.generation >= 1);
    let (begun, first) = (outside.now(), lane.port().stamp().contributions);
    let warm_up = settings.limit.tenth();
    breathe(&mut lane, &push, outside, |stamp, now| {
        warm_up.is_over(stamp.contributions - first, now.since(begun))
    });
    let before = read(&lane, outside);
    breathe(&mut lane, &push, outside, |stamp, now| {
        settings.limit.is_over(stamp.contributions - before.packets, now.since(before.at))
    });
    let after = read(&lane, outside);
    Ok(measurement(lane.port(), lane.engine(), lost(&lane), [&before, &after], kernels))
}

/// A lease of [`LEASE_BYTES`] for the members of the row, twice.
fn push_config(row: &RowConfig) -> PushConfig {
    let chunk_len = u64::from(row.elements) * 4;
    let chunks = (LEASE_BYTES / chunk_len).clamp(1, 1 << 20);
    PushConfig {
        job: row.job,
        box_index: BoxIndex(0),
        workers: row.members.iter().map(|member| member.addr).collect(),
        server: server_endpoint(row),
        replica: None,
        quota_bytes: 2 * chunks * (chunk_len.next_multiple_of(64) + 16),
        pull_cache_bytes: chunk_len,
        chunks: u32::try_from(chunks).expect("at most 2^20"),
        elements: row.elements,
        element_type: row.element_type,
        overflow: row.overflow,
        integrity: row.integrity,
        exponent: Some(row.exponent.unwrap_or(0)),
        rate_bytes_per_sec: None,
        burst_bytes: 1 << 20,
    }
}

fn engine(table: &Table, push: &PushConfig, seed: u64, kernels: &'static Kernels) -> Aggregator {
    let pushes = vec![push.clone()];
    let config = BoxConfig { pushes, jobs: Vec::new(), rows: Vec::new(), ..table.config().clone() };
    let table = Table::new(config).expect("a row that is good makes a good push job");
    Aggregator::new(&table, 0, seed, kernels)
}

/// Cookies of the workers by rank, and of the server.
struct Cookies {
    workers: Vec<Cookie>,
    server: Cookie,
}

/// Plays the handshakes of the workers and of the server with the ends that they use.
fn open_channels(
    table: &BoxConfig,
    row: &RowConfig,
    push: &PushConfig,
    engine: &mut Aggregator,
) -> Result<Cookies, BenchError> {
    let failed = |what: &str| BenchError::Join(what.to_owned());
    let mut workers = Vec::new();
    for rank in 0..row.members.len() {
        let number = u8::try_from(rank).ok().and_then(Rank::new).expect("a rank of the row");
        let (peer, local) = (Peer::Worker(number), member_endpoint(row, rank));
        let config = ChannelClientConfig {
            probe_len: 0,
            ..ChannelClientConfig::new(row.job, peer, local, table.local)
        };
        let mut client = ChannelClient::new(config, 1 + rank as u64, Nanos(0))
            .map_err(|error| BenchError::Join(error.to_string()))?;
        let mut buffer = vec![0; 2048];
        for tick in 0..4 {
            let now = Nanos(tick * 1_000_000_000);
            let Some(len) = client.poll_transmit(now, &mut buffer) else { break };
            if let Verdict::Send { len } = engine.handle_frame(now, &mut buffer, len)
                && let Some((udp, header)) = parse(&buffer[..len])
            {
                let _ = client.handle_frame(now, &udp, &header, &mut buffer);
            }
        }
        workers
            .push(client.terms().ok_or_else(|| failed("it welcomed not every worker"))?.cookie_up);
    }
    let terms = JobTerms {
        job: push.job,
        elements: push.elements,
        integrity: push.integrity,
        exponent: push.exponent,
        chunks: push.chunks,
    };
    let boxes = vec![Some(table.local.addr)];
    let config = ChannelHostConfig { local: push.server, terms, workers: Vec::new(), boxes };
    let mut server = ChannelHost::new(&config, SplitMix64::new(3));
    let mut buffer = vec![0; 2048];
    for tick in 4..8 {
        let now = Nanos(tick * 1_000_000_000);
        let Some(len) = engine.poll_transmit(now, &mut buffer) else { break };
        let Some((udp, header)) = parse(&buffer[..len]) else { break };
        if let Ok(reply) = server.handle_hello(&udp, &header, &mut buffer) {
            engine.handle_frame(now, &mut buffer, reply.len);
        }
    }
    let is_open = engine.gather().reports().all(|push| push.server() == Standing::Open);
    let cookie = server.path(Peer::Box(BoxIndex(0))).map(|(_, cookie)| cookie);
    let server = cookie.filter(|_| is_open).ok_or_else(|| failed("it opened no channel"))?;
    Ok(Cookies { workers, server })
}

fn parse(frame: &[u8]) -> Option<(Datagram, Header)> {
    let udp = Datagram::find(frame).ok()?;
    let header = Header::parse(&Packet::new_unchecked(&frame[udp.payload_range()])).ok()?;
    Some((udp, header))
}

/// The group with this number: two rows take turns.
fn group(generation: u32) -> GroupId {
    let turn = u16::try_from(generation & 1).expect("a bit");
    GroupId::new(turn, u16::try_from(generation >> 1 & 0xffff).expect("it was cut to fit"))
}

fn install(engine: &mut Aggregator, push: &PushConfig, group: GroupId) {
    let member = |rank| GroupMember { rank, version: Version(0) };
    let descriptor = GroupDescriptor {
        job: push.job,
        group,
        order: OrderNumber(0),
        members: Members::first(push.workers.len()).iter().map(member).collect(),
        chunks: push.chunks,
        element_type: push.element_type,
        elements: push.elements,
        exponent: push.exponent.unwrap_or(0),
        via: Some(push.box_index),
        replicate: false,
        rate_bytes_per_sec: None,
        after: None,
        train_chunks: 0,
        lateness_ns: 0,
    };
    engine.gather_mut().handle_command(&Command::Install(descriptor));
}

/// Breathes until `is_over`; lets the next group take the place of the one that was released.
fn breathe<P: Port>(
    lane: &mut Lane<'_, P, WholeStamp>,
    push: &PushConfig,
    outside: &impl Outside,
    is_over: impl Fn(&WholeStamp, Nanos) -> bool,
) {
    loop {
        let now = outside.now();
        if is_over(lane.port().stamp(), now) || outside.is_stopped() {
            return;
        }
        lane.breathe(now, &mut ());
        if !lane.port().stamp().is_done() {
            continue;
        }
        let generation = lane.port().stamp().generation;
        let gather = lane.engine_mut().gather_mut();
        if let Some(released) = generation.checked_sub(1) {
            let group = group(released);
            gather.handle_command(&Command::Remove { job: push.job, group });
            install(lane.engine_mut(), push, self::group(generation + 1));
        }
        while lane.engine_mut().gather_mut().poll_event().is_some() {}
        lane.port_mut().stamp_mut().next_group();
    }
}

fn read<P: Port>(lane: &Lane<'_, P, WholeStamp>, outside: &impl Outside) -> Counters {
    let (mut added, mut answers) = (0, 0);
    for push in lane.engine().gather().reports() {
        added += push.stats().contributions_added;
        answers += push.stats().sums_sent;
    }
    let packets = lane.port().stamp().contributions;
    Counters { packets, added, answers, at: outside.now(), cpu: outside.cpu() }
}

/// Gives every contribution of a member the next chunk of the group that gathers, and every credit
/// the next chunk of the group before. Frames at the end of a group are refused until
/// [`WholeStamp::next_group`], so that groups change between two bursts.
struct WholeStamp {
    cookies: Cookies,
    chunks: u32,
    payload_start: usize,
    /// For credits and for contributions, where they carry CRCs.
    reseal: Option<[Reseal; 2]>,
    generation: u32,
    /// Chunks that were credited, and contributed by each member.
    credited: u32,
    next: Vec<u32>,
    /// Step of the frames whose numbers chunk 0 had: of this group, and of the two before, which
    /// its slots held.
    first_steps: [Option<u32>; 3],
    contributions: u64,
}

impl WholeStamp {
    fn new(cookies: Cookies, chunks: u32, frames: &Frames, seals: bool) -> Self {
        let payload_start = frames.payload_start();
        let of_len = |len| Reseal::new(weft_kernel::crc32c, len, &FIELDS);
        let reseal = seals.then(|| [HEADER_LEN, frames.frame_len() - payload_start].map(of_len));
        let next = vec![0; cookies.workers.len()];
        Self {
            cookies,
            chunks,
            payload_start,
            reseal,
            generation: 0,
            credited: 0,
            next,
            first_steps: [None; 3],
            contributions: 0,
        }
    }

    /// True when the group is gathered and the one before released.
    fn is_done(&self) -> bool {
        let is_released = self.generation == 0 || self.credited == self.chunks;
        is_released && self.next.iter().all(|next| *next == self.chunks)
    }

    fn next_group(&mut self) {
        self.generation += 1;
        self.credited = 0;
        self.next.fill(0);
        self.first_steps = [None, self.first_steps[0], self.first_steps[1]];
    }

    /// Where a frame goes: its group, its chunk, and the cookie on it.
    fn place(&mut self, rank: Option<usize>, step: u32) -> Option<(GroupId, u32, Cookie)> {
        let Some(rank) = rank else {
            let released = self.generation.checked_sub(1)?;
            let chunk = self.credited;
            // Credits and contributions keep step, so that both groups end together.
            if chunk >= self.next[0] {
                return None;
            }
            self.credited += 1;
            return Some((group(released), chunk, self.cookies.server));
        };
        let chunk = *self.next.get(rank)?;
        let is_first = chunk == 0 && rank == 0;
        let is_led = rank == 0 || chunk < self.next[rank - 1];
        if chunk == self.chunks || !is_led {
            return None;
        }
        if is_first && self.first_steps[1..].contains(&Some(step)) {
            // A slot that is not written any more must show a sum that is wrong.
            return None;
        }
        if is_first {
            self.first_steps[0] = Some(step);
        }
        self.next[rank] += 1;
        self.contributions += 1;
        Some((group(self.generation), chunk, self.cookies.workers[rank]))
    }
}

impl Stamp for WholeStamp {
    fn stamp(&mut self, frame: &mut [u8]) -> bool {
        let Some(datagram) = frame.get_mut(self.payload_start..) else { return false };
        let Ok(packet) = Packet::new_checked(&*datagram) else { return false };
        let is_credit = packet.kind() == Some(Kind::Pull);
        let rank = packet.members().single().map(Rank::index);
        if rank.is_none() && !is_credit {
            return false;
        }
        let rank = rank.filter(|_| !is_credit);
        let Some((group, chunk, cookie)) = self.place(rank, packet.chunk().0) else { return false };
        let Some(header) = datagram.first_chunk_mut() else { return false };
        let words = [cookie.0, group.0, chunk];
        match &self.reseal {
            // Credits are sealed like contributions, but shorter.
            Some([credit, contribution]) => {
                (if is_credit { credit } else { contribution }).write(header, &words);
            }
            None => {
                for (at, word) in FIELDS.into_iter().zip(words) {
                    header[at..at + 4].copy_from_slice(&word.to_be_bytes());
                }
            }
        }
        true
    }
}

impl Reference for WholeStamp {
    fn is_right(&self, frames: &Frames, frame: &[u8]) -> Option<bool> {
        let (_, header) = parse(frame)?;
        let first = self.first_steps[1].filter(|_| header.kind == Kind::Contrib)?;
        Some(frames.is_sum(frame, first.wrapping_add(header.chunk.0)))
    }
}

/// Bytes of one group's sums: far more than any cache.
const LEASE_BYTES: u64 = 64 << 20;
/// Cookie, group and chunk in a datagram.
const FIELDS: [usize; 3] = [4, 8, 12];
