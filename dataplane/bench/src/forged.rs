//! What a forger costs a job at its quota: the job's contributions come at the pace that its token
//! bucket allows, and all the time that they leave the lane is filled with frames from its members'
//! addresses that do not know its cookies.
//!
//! The device makes both kinds and never gives two bursts of the job in a row, so the forger has at
//! least as many frames as the job. A contribution that the box refuses for want of quota, or comes
//! to too late, is missing from `contributions_added`.

use weft_engine::random::SplitMix64;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::{RowConfig, Table};
use weft_io::pool::PoolFrame;
use weft_io::{BURST_MAX, Frame};
use weft_kernel::{Kernels, crc32c};
use weft_lane::AggregatorLane;
use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Phase};
use weft_wire::{ChunkIndex, Cookie, GroupId, Members as MemberMask, Nanos};

use super::frames::member_endpoint;
use super::join::{Members, Session};
use super::memory::{MemoryDevice, Source};
use super::replay::{Limit, Outside, Settings};
use super::{BenchError, Measurement};

/// Measures the lane under contributions at the job's quota, and under forged frames if `floods`.
pub(super) fn run(
    table: &Table,
    settings: Settings,
    floods: bool,
    kernels: &'static Kernels,
    outside: &impl Outside,
) -> Result<Measurement, BenchError> {
    let (config, row) = (table.config(), &table.config().rows[0]);
    let job = config.jobs.iter().find(|job| job.job == row.job);
    let rate = job.and_then(|job| job.rate_bytes_per_sec).ok_or(BenchError::Unsupported)?;
    let mut engine = Aggregator::new(table, 0, settings.seed, kernels);
    let members = Members::new(config, row, settings.seed, Nanos(0))?;
    let session = members.join_engines(std::slice::from_mut(&mut engine))?.remove(0);
    let forged = if floods { forged(config.local, row, &session) } else { Vec::new() };
    let source = Traffic {
        contributions: contributions(config.local, row, &session),
        forged,
        rate_bytes_per_sec: rate / 100 * PACE_PERCENT,
        step_count: session.step_count,
        begun: None,
        next: 0,
        next_forged: 0,
        is_forgers_turn: false,
        forges: false,
    };
    let mut lane = AggregatorLane::new(MemoryDevice::new(source), engine);
    let (begun, cpu) = (outside.now(), outside.cpu());
    let Limit::Time(_) = settings.limit else { return Err(BenchError::Unsupported) };
    let mut now = begun;
    while !settings.limit.is_over(0, now.since(begun)) && !outside.is_stopped() {
        // The members joined on a clock of their own.
        lane.breathe(now.saturating_add(JOINED_AT), &mut ());
        now = outside.now();
    }
    let (source, stats) = (&lane.port().source, lane.engine().stats());
    let due = source.due(now.saturating_add(JOINED_AT));
    let added = lane.engine().jobs().map(|(_, job)| job.contributions_added).sum();
    let drops = weft_engine::drops::DropReason::ALL.iter();
    let drops = drops.map(|(reason, name)| (*name, stats.drops.of(*reason)));
    Ok(Measurement {
        mode: if floods { "forged" } else { "quota" },
        packets: due,
        contributions_added: added,
        answers: lane.engine().jobs().map(|(_, job)| job.answers_sent).sum(),
        cpu_seconds: outside.cpu().saturating_sub(cpu).as_secs_f64(),
        wall_seconds: std::time::Duration::from_nanos(now.since(begun).0).as_secs_f64(),
        forged: source.next_forged as u64,
        drops: drops.filter(|(_, count)| *count > 0).collect(),
        lost: lane.stats().tx_dropped + lane.stats().tx_nombuf,
        isa: kernels.isa().to_string(),
        ..Measurement::default()
    })
}

/// What the device delivers.
struct Traffic {
    /// One of each member; the step is written when it is sent.
    contributions: Vec<Vec<u8>>,
    forged: Vec<Vec<u8>>,
    /// Of the contributions.
    rate_bytes_per_sec: u64,
    step_count: u32,
    /// When the first frame was due.
    begun: Option<Nanos>,
    /// Contributions sent.
    next: u64,
    /// Forged frames sent.
    next_forged: usize,
    is_forgers_turn: bool,
    /// This burst is the forger's.
    forges: bool,
}

impl Traffic {
    /// Contributions that were due by `now`.
    fn due(&self, now: Nanos) -> u64 {
        let span_ns = now.since(self.begun.unwrap_or(now)).0;
        let bytes = u128::from(span_ns) * u128::from(self.rate_bytes_per_sec) / 1_000_000_000;
        let frames = bytes / self.contributions[0].len() as u128;
        let most = u64::from(self.step_count) * self.contributions.len() as u64;
        u64::try_from(frames).unwrap_or(u64::MAX).min(most)
    }

    fn contribute(&mut self, frame: &mut PoolFrame) {
        let members = self.contributions.len() as u64;
        let rank = usize::try_from(self.next % members).expect("at most 64 members");
        let step = u32::try_from(self.next / members).expect("below the step count");
        let bytes = &self.contributions[rank];
        frame.set_len(bytes.len());
        frame.as_mut().copy_from_slice(bytes);
        let mut packet = Packet::new_unchecked(&mut frame.as_mut()[PAYLOAD_START..]);
        packet.set_chunk(ChunkIndex(step));
        self.next += 1;
    }

    fn forge(&mut self, frame: &mut PoolFrame) {
        let bytes = &self.forged[self.next_forged % self.forged.len()];
        frame.set_len(bytes.len());
        frame.as_mut().copy_from_slice(bytes);
        self.next_forged += 1;
    }
}

impl Source for Traffic {
    fn has_arrived(&mut self, now: Nanos) -> bool {
        self.begun.get_or_insert(now);
        let is_due = self.due(now) >= self.next + BURST_MAX as u64;
        self.forges = !self.forged.is_empty() && (self.is_forgers_turn || !is_due);
        self.is_forgers_turn = !self.forges;
        self.forges || is_due
    }

    fn deliver(&mut self, frame: &mut PoolFrame) {
        if self.forges { self.forge(frame) } else { self.contribute(frame) }
    }
}

fn header(row: &RowConfig, rank: usize, kind: Kind, group: GroupId, cookie: Cookie) -> Header {
    let has_data = matches!(kind, Kind::Contrib | Kind::Answer);
    Header {
        kind,
        flags: Flags::NONE,
        outcome: Outcome::None,
        job: row.job,
        cookie,
        group,
        chunk: ChunkIndex(0),
        element_type: if has_data { row.element_type } else { ElementType::None },
        operation: if has_data { row.operation } else { Operation::None },
        exponent: row.exponent.unwrap_or(0),
        count: if has_data { row.elements } else { 0 },
        members: MemberMask(1 << rank),
    }
}

fn frame(local: Endpoint, row: &RowConfig, rank: usize, header: &Header, body: &[u8]) -> Vec<u8> {
    let encap = Encap::new(member_endpoint(row, rank), local).expect("one address family");
    let start = encap.header_len();
    let mut frame = vec![0; start + HEADER_LEN + body.len()];
    let mut packet = Packet::new_unchecked(&mut frame[start..]);
    header.emit(&mut packet);
    packet.payload_mut().copy_from_slice(body);
    if header.kind == Kind::Hello {
        packet.seal(crc32c);
    }
    encap.emit(&mut frame, HEADER_LEN + body.len());
    frame
}

/// What the members send, without CRC: nothing has to be mended when the step is written.
fn contributions(local: Endpoint, row: &RowConfig, session: &Session) -> Vec<Vec<u8>> {
    let of = |rank: usize| {
        let header = header(row, rank, Kind::Contrib, session.group, session.cookies[rank]);
        let mut random = SplitMix64::new(rank as u64);
        let numbers = (0..row.elements).flat_map(|_| random.next_u32().to_be_bytes());
        frame(local, row, rank, &header, &numbers.collect::<Vec<u8>>())
    };
    (0..row.members.len()).map(of).collect()
}

/// What can be sent from each member's address without its cookie: one of each kind.
fn forged(local: Endpoint, row: &RowConfig, session: &Session) -> Vec<Vec<u8>> {
    let data = vec![0; usize::from(row.elements) * 4];
    let body = |phase: Phase| {
        let hello = Hello { life: FORGED_LIFE, token: FORGED_LIFE, ..Hello::new(phase) };
        let mut body = vec![0; hello.body_len()];
        hello.emit(&[], &mut body);
        body
    };
    let mut frames = Vec::new();
    for rank in 0..row.members.len() {
        let cookie = Cookie(session.cookies[rank].0 ^ 1);
        let all = Header {
            members: MemberMask::first(row.members.len()),
            ..header(row, rank, Kind::Answer, session.group, cookie)
        };
        let hello = header(row, rank, Kind::Hello, GroupId::new(row.row, 0), Cookie::default());
        let elsewhere = Header { group: GroupId::new(UNKNOWN_ROW, 0), ..hello };
        let of = |kind| header(row, rank, kind, session.group, cookie);
        let stale = Cookie(cookie.0 ^ 0x0100_0000);
        let mut push = |header: &Header, body: &[u8]| {
            frames.push(frame(local, row, rank, header, body));
        };
        push(&of(Kind::Contrib), &data);
        push(&Header { cookie: stale, ..of(Kind::Contrib) }, &data);
        push(&of(Kind::Status), &[]);
        push(&all, &data);
        push(&hello, &body(Phase::Hello));
        push(&hello, &body(Phase::Join));
        push(&hello, &body(Phase::Close));
        push(&elsewhere, &body(Phase::Hello));
    }
    frames
}

/// Of the job's rate: a pacer that is not behind is never refused.
const PACE_PERCENT: u64 = 98;
/// After the last tick of the handshakes' clock.
const JOINED_AT: Nanos = Nanos(60_000_000_000);
const PAYLOAD_START: usize = 42;
const FORGED_LIFE: u64 = 0x0666;
const UNKNOWN_ROW: u16 = 1000;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::{IpAddr, SocketAddr};
    use std::time::Duration;

    use weft_config::node::{Io, JobSection, NodeConfig, PortSection, RowSection};
    use weft_wire::hello::Integrity;

    use super::*;

    /// A clock that goes on by a microsecond whenever it is looked at.
    struct Ticking(Cell<u64>);

    impl Outside for Ticking {
        fn now(&self) -> Nanos {
            self.0.set(self.0.get() + 1_000);
            Nanos(self.0.get())
        }
        fn cpu(&self) -> Duration {
            Duration::ZERO
        }
        fn is_stopped(&self) -> bool {
            false
        }
        fn mark(&self, _: &str) {}
        fn wait_to_end(&self) {}
    }

    fn measure(floods: bool) -> Measurement {
        let job = JobSection {
            rate_bytes_per_sec: Some(100_000_000),
            burst_bytes: 65_536,
            ..JobSection::new(0)
        };
        let members = (1..=3).map(|rank| SocketAddr::from(([10, 77, 1, rank], 7000)).into());
        let row = RowSection {
            exponent: Some(0),
            window: 64,
            elements: 16.into(),
            integrity: Integrity::None,
            ..RowSection::new(0, 0, members.collect())
        };
        let port = PortSection::new(Io::Udp, IpAddr::from([10, 77, 0, 100]));
        let config = NodeConfig { job: vec![job], row: vec![row], ..NodeConfig::new(port) };
        let table = weft_lane::Settings::new(config).unwrap().table;
        let table = Table::new(table).unwrap();
        let limit = Limit::Time(Duration::from_millis(50));
        let settings = Settings { limit, seed: 7, check_every: 1 };
        run(&table, settings, floods, Kernels::detect(), &Ticking(Cell::new(0))).unwrap()
    }

    #[test]
    fn a_job_at_its_quota_keeps_it_among_forged_frames() {
        for floods in [false, true] {
            let measured = measure(floods);
            assert!(measured.packets > 30_000, "{measured:?}");
            let missing = measured.packets - measured.contributions_added;
            assert!(missing <= 2 * BURST_MAX as u64, "{measured:?}");
            assert!(!measured.drops.contains_key("over_quota"), "{measured:?}");
            assert_eq!(floods, measured.forged >= measured.packets, "{measured:?}");
            for reason in ["bad_cookie", "stale_epoch", "token", "strangers_quota"] {
                assert_eq!(floods, measured.drops.contains_key(reason), "{reason} {measured:?}");
            }
        }
    }
}
