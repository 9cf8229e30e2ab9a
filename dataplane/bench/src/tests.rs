//! The replay bench on a device of memory: that it measures sums, and that it notices wrong ones.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_config::node::{
    BenchMode, BenchSection, Io, JobSection, LeaseName, NodeConfig, PortSection, RowSection,
};
use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::Table;
use weft_io::memory::{MemoryPort, link};
use weft_io::pool::{Pool, PoolFrame};
use weft_io::{Burst, Port, forward_port};
use weft_kernel::Kernels;
use weft_lane::{AggregatorLane, RelayPort, Ring, Settings};
use weft_wire::Nanos;
use weft_wire::frame::Udp;
use weft_wire::header::{HEADER_LEN, Packet};
use weft_wire::hello::Integrity;

use super::frames::{Frames, Shape};
use super::memory::{Endless, MemoryDevice};
use super::replay::{self, Limit, Outside};
use super::run;
use super::{generate, lanes};

fn settings(integrity: Integrity) -> Settings {
    settings_of(integrity, 3)
}

fn settings_of(integrity: Integrity, workers: u8) -> Settings {
    settings_with(integrity, workers, false, &[JobSection::new(0)], |_| ())
}

/// A row for each of `jobs`; `change` has the last word on all else.
fn settings_with(
    integrity: Integrity,
    workers: u8,
    is_v6: bool,
    jobs: &[JobSection],
    change: impl Fn(&mut NodeConfig),
) -> Settings {
    let addr = |job: u16, rank: u16| match is_v6 {
        true => IpAddr::from([0xfd77, 0, 0, 0, 0, 0, job, rank]),
        false => IpAddr::from([10, 77, job.to_be_bytes()[1], rank.to_be_bytes()[1]]),
    };
    let row = |job: &JobSection| {
        let members = (1..=u16::from(workers)).map(|rank| (addr(job.id + 1, rank), 7000));
        RowSection {
            exponent: Some(0),
            window: 64,
            elements: 16.into(),
            integrity,
            ..RowSection::new(
                job.id,
                job.id,
                members.map(|at| SocketAddr::from(at).into()).collect(),
            )
        }
    };
    let bench =
        BenchSection { packets: 3000, check_every: 3, ..BenchSection::new(BenchMode::Loop) };
    let mut config = NodeConfig {
        bench: Some(bench),
        job: jobs.to_vec(),
        row: jobs.iter().map(row).collect(),
        ..NodeConfig::new(PortSection::new(Io::Udp, addr(0, 100)))
    };
    change(&mut config);
    Settings::new(config).unwrap()
}

/// Lets the members take turns after so many steps.
fn ordered(order: u32) -> impl Fn(&mut NodeConfig) {
    move |config| config.bench.as_mut().unwrap().order = order
}

#[test]
fn every_replayed_contribution_enters_a_right_sum() {
    for integrity in [Integrity::None, Integrity::Crc32c, Integrity::Checksum16] {
        let measured = run(&settings(integrity), None, Arc::default()).unwrap();
        if integrity == Integrity::Checksum16 {
            // The restamping does not mend UDP checksums, and the bench says so.
            assert_eq!(measured.contributions_added, 0);
            assert!(measured.drops["integrity"] >= 3000);
            continue;
        }
        assert!(measured.packets >= 3000, "{integrity}");
        assert_eq!(measured.contributions_added, measured.packets, "{integrity}");
        assert!(measured.checked > 90 && measured.wrong == 0, "{integrity} {measured:?}");
    }
}

#[test]
fn every_replayed_contribution_enters_a_whole_lease() {
    for integrity in [Integrity::None, Integrity::Crc32c] {
        let mut settings = settings(integrity);
        let bench = settings.config.bench.as_mut().unwrap();
        // More than a group's, so that groups change and sums are released.
        (bench.lease, bench.packets) = (LeaseName::Whole, 5_000);
        let measured = run(&settings, None, Arc::default()).unwrap();
        assert!(measured.packets >= 5_000, "{integrity}");
        assert_eq!(measured.contributions_added, measured.packets, "{integrity}");
        assert!(measured.checked > 20 && measured.wrong == 0, "{integrity} {measured:?}");
        assert!(measured.answers > 1_000, "{measured:?}");
    }
}

fn shape(seed: u64) -> Shape {
    Shape { count: 256, order: 1, credits: false, vlan: false, seed }
}

/// A bench by itself, whose clock goes as the test has it go: by default it stands still.
#[derive(Default)]
struct Ticking(std::rc::Rc<Cell<u64>>);

impl Outside for Ticking {
    fn now(&self) -> Nanos {
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

#[test]
fn sums_of_other_numbers_are_wrong() {
    let table = Table::new(settings(Integrity::None).table).unwrap();
    let sent = Frames::new(table.config(), shape(1));
    let expected = Frames::new(table.config(), shape(2));
    let run = replay::Settings { limit: Limit::Packets(3000), seed: 7, check_every: 3 };
    let measured = replay::run(
        MemoryDevice::new(Endless::new(&sent)),
        &table,
        &expected,
        run,
        Kernels::detect(),
        &Ticking::default(),
    )
    .unwrap();
    assert_eq!(measured.contributions_added, measured.packets);
    assert!(measured.checked > 90);
    assert_eq!(measured.wrong, measured.checked);
}

#[test]
fn any_order_and_any_mix_of_jobs_is_summed_right() {
    let slow = JobSection::new;
    let fast = |id| JobSection {
        rate_bytes_per_sec: Some(1_000_000_000_000),
        burst_bytes: 1_000_000_000,
        ..slow(id)
    };
    for (is_v6, order, jobs) in [
        (false, 2, &[slow(0)][..]),
        (false, 8, &[slow(0)]),
        (false, 64, &[slow(0)]),
        (false, 1, &[slow(0), slow(1)]),
        (false, 4, &[slow(0), slow(1)]),
        (false, 1, &[fast(0)]),
        (false, 2, &[fast(0), slow(1)]),
        (true, 1, &[slow(0)]),
        (true, 2, &[slow(0), fast(1)]),
    ] {
        for integrity in [Integrity::None, Integrity::Crc32c] {
            let case = format!("{is_v6} {order} {jobs:?} {integrity}");
            let settings = settings_with(integrity, 4, is_v6, jobs, ordered(order));
            let measured = run(&settings, None, Arc::default())
                .unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(measured.contributions_added, measured.packets, "{case}: {measured:?}");
            assert!(measured.checked > 90 && measured.wrong == 0, "{case}: {measured:?}");
        }
    }
}

#[test]
fn tagged_frames_are_refused_as_such() {
    let settings = settings_with(Integrity::None, 4, false, &[JobSection::new(0)], |config| {
        config.bench.as_mut().unwrap().vlan = true;
    });
    let measured = run(&settings, None, Arc::default()).unwrap();
    assert_eq!((measured.contributions_added, measured.refused), (0, 0), "{measured:?}");
    assert!(measured.drops["vlan"] >= measured.packets, "{measured:?}");
}

/// A clock that several lanes may read.
struct Clock(Instant);

impl Outside for Clock {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap())
    }
    fn cpu(&self) -> Duration {
        Duration::ZERO
    }
    fn is_stopped(&self) -> bool {
        self.0.elapsed() > Duration::from_secs(60)
    }
    fn mark(&self, _: &str) {}
    fn wait_to_end(&self) {}
}

#[test]
fn lanes_that_hand_each_other_frames_sum_right() {
    let jobs = [JobSection::new(0), JobSection::new(1)];
    for (order, jobs) in [(1, &jobs[..1]), (8, &jobs[..])] {
        let settings = settings_with(Integrity::Crc32c, 4, false, jobs, |config| {
            ordered(order)(config);
            config.lcores.shards = 2;
        });
        let table = Table::new(settings.table.clone()).unwrap();
        let frames = Frames::new(table.config(), Shape { order, ..shape(1) });
        let (port, relay) = (MemoryDevice::new(Endless::new(&frames)), Arc::new(Ring::new(256)));
        let sender = RelayPort::new(Pool::new(512, 2048), Arc::clone(&relay), port.info());
        let (map, ring_frames) = (&settings.lanes, 256);
        let ground = lanes::Ground { port, senders: vec![sender], relay, map, ring_frames };
        let run = replay::Settings { limit: Limit::Packets(20_000), seed: 7, check_every: 3 };
        let clock = Clock(Instant::now());
        let kernels = Kernels::detect();
        let measured =
            lanes::run(ground, &table, &frames, run, kernels, &clock, |_| Ok(())).unwrap();
        assert!(measured.packets >= 20_000, "{measured:?}");
        // What was on its way at the ends.
        assert!(measured.packets.abs_diff(measured.contributions_added) < 600, "{measured:?}");
        assert!(measured.checked > 4_000, "{measured:?}");
        assert_eq!((measured.wrong, measured.lost, measured.refused), (0, 0, 0), "{measured:?}");
        assert!(measured.drops.is_empty(), "{measured:?}");
    }
}

/// Makes the aggregator behind it one that stops adding: from one step on the contributions to a
/// step sum up to what its bank holds.
struct Idle<'a> {
    inner: MemoryDevice<Endless<'a>>,
    payload_start: usize,
    members: usize,
    /// What each bank holds, by step modulo their number.
    banks: Vec<Vec<u32>>,
    /// Steps that are summed.
    summed: usize,
    received: usize,
}

impl Port for Idle<'_> {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        let count = self.inner.rx_burst(now, rx);
        let (members, banks) = (self.members, self.banks.len());
        for frame in rx.iter_mut() {
            let (step, rank) = (self.received / members, self.received % members);
            self.received += 1;
            let bank = &mut self.banks[step % banks];
            let payload = &mut frame.as_mut()[self.payload_start + HEADER_LEN..];
            for (held, bytes) in bank.iter_mut().zip(payload.chunks_exact_mut(4)) {
                if step < self.summed {
                    *held = held.wrapping_add(u32::from_be_bytes(bytes.try_into().unwrap()));
                } else {
                    bytes.copy_from_slice(&(if rank == 0 { *held } else { 0 }).to_be_bytes());
                }
            }
        }
        count
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        self.inner.tx_burst(now, tx)
    }

    forward_port!(inner: alloc, recycles, info, stats);
}

#[test]
fn an_aggregator_that_stops_adding_is_noticed_at_every_answer() {
    for (workers, window) in [(2, 8), (4, 8), (4, 256), (3, 4), (16, 8)] {
        let mut table = settings_of(Integrity::None, workers).table;
        table.rows[0].window = window;
        let table = Table::new(table).unwrap();
        let frames = Frames::new(table.config(), shape(1));
        // Each bank has held a sum: the bench would see one that was never written.
        let (banks, idle_steps) = (2 * u32::from(window), 1000);
        let port = Idle {
            payload_start: frames.payload_start(),
            inner: MemoryDevice::new(Endless::new(&frames)),
            members: usize::from(workers),
            banks: vec![vec![0; 16]; banks as usize],
            summed: banks as usize,
            received: 0,
        };
        let packets = u64::from(banks + idle_steps) * u64::from(workers) * 10 / 11;
        let run = replay::Settings { limit: Limit::Packets(packets), seed: 7, check_every: 1 };
        let measured =
            replay::run(port, &table, &frames, run, Kernels::detect(), &Ticking::default())
                .unwrap();
        // Numbers repeat after an odd number of steps, so a bank happens to hold the right sum once
        // in as many rounds.
        let idle = u64::from(idle_steps) * u64::from(workers);
        assert!(measured.wrong > idle * 8 / 10, "{workers} {window}: {measured:?}");
        assert!(measured.wrong < measured.checked, "{workers} {window}: {measured:?}");
    }
}

#[test]
fn every_so_many_th_answer_is_compared_whatever_bursts_they_leave_in() {
    for check_every in [1, 7, 32, 61] {
        let mut settings = settings_of(Integrity::None, 4);
        settings.config.bench.as_mut().unwrap().check_every = check_every;
        let measured = run(&settings, None, Arc::default()).unwrap();
        // Answers of the warm-up, a tenth of it, are compared too.
        let expected = measured.answers * 4 * 11 / 10 / u64::from(check_every);
        assert!(measured.checked.abs_diff(expected) <= expected / 20 + 32, "{measured:?}");
    }
}

/// Looks at every answer that leaves a device of memory.
struct Witness<'a> {
    inner: MemoryDevice<Endless<'a>>,
    frames: &'a Frames,
    seen: &'a RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Right answers by who they go to.
    answers: BTreeMap<SocketAddr, u64>,
    wrong: u64,
    /// Copies that took a new buffer.
    allocated: u64,
}

impl Port for Witness<'_> {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.inner.rx_burst(now, rx)
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let mut seen = self.seen.borrow_mut();
        for frame in tx.iter() {
            let udp = Udp::parse(frame.as_ref()).expect("answers are UDP");
            let packet = Packet::new_unchecked(&frame.as_ref()[udp.payload_range()]);
            if self.frames.is_answer(frame.as_ref(), packet.chunk().0) {
                *seen.answers.entry(udp.target).or_default() += 1;
            } else {
                seen.wrong += 1;
            }
        }
        self.inner.tx_burst(now, tx)
    }

    fn copy(&mut self, frame: &PoolFrame, header_len: usize) -> Option<PoolFrame> {
        self.seen.borrow_mut().allocated += 1;
        self.inner.copy(frame, header_len)
    }

    forward_port!(inner: alloc, recycles, info, stats);
}

/// Copies are made in the frames that were added, so none takes a new buffer.
#[test]
fn every_member_gets_each_answer_once_in_a_recycled_frame() {
    for workers in [1, 2, 3, 4, 5, 8, 16] {
        let table = Table::new(settings_of(Integrity::Crc32c, workers).table).unwrap();
        let frames = Frames::new(table.config(), shape(1));
        let seen = RefCell::new(Seen::default());
        let port = Witness {
            inner: MemoryDevice::new(Endless::new(&frames)),
            frames: &frames,
            seen: &seen,
        };
        let run = replay::Settings { limit: Limit::Packets(3200), seed: 7, check_every: 1 };
        replay::run(port, &table, &frames, run, Kernels::detect(), &Ticking::default()).unwrap();
        let seen = seen.into_inner();
        assert_eq!(seen.wrong, 0, "{workers} workers");
        assert_eq!(seen.answers.len(), usize::from(workers));
        let counts: Vec<u64> = seen.answers.into_values().collect();
        assert!(counts[0] >= 3200 / u64::from(workers), "{workers} workers: {counts:?}");
        assert!(counts.iter().all(|count| *count == counts[0]), "{workers} workers: {counts:?}");
        assert_eq!(seen.allocated, 0, "{workers} workers");
    }
}

/// An aggregator at the other end of a wire that loses some of the generator's frames and some of
/// the answers, named by their place in the order of frames with elements.
struct Wire {
    near: MemoryPort,
    far: AggregatorLane<MemoryPort>,
    clock: std::rc::Rc<Cell<u64>>,
    lost: [&'static [u64]; 2],
    passed: [u64; 2],
}

impl Wire {
    fn lose(&mut self, direction: usize, frames: &mut Burst<PoolFrame>) {
        frames.retain(|frame| {
            let has_elements = frame.as_ref().len() == 42 + 32 + 16 * 4;
            self.passed[direction] += u64::from(has_elements);
            !(has_elements && self.lost[direction].contains(&self.passed[direction]))
        });
    }
}

impl Port for Wire {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.far.breathe(now, &mut ());
        self.near.rx_burst(now, rx);
        self.lose(1, rx);
        // A tenth of a millisecond for every poll.
        self.clock.set(self.clock.get() + 100_000);
        rx.len()
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let count = tx.len();
        self.lose(0, tx);
        self.near.tx_burst(now, tx);
        assert!(tx.is_empty(), "the link holds a window");
        count
    }

    forward_port!(near: alloc, info, stats);
}

fn generate_over(lost: [&'static [u64]; 2]) -> Result<super::Measurement, super::BenchError> {
    let table = Table::new(settings(Integrity::Crc32c).table).unwrap();
    let frames = Frames::new(table.config(), shape(1));
    let (near, far) = link(1024, 1500, ["near", "far"]);
    let far = AggregatorLane::new(far, Aggregator::new(&table, 0, 5, Kernels::detect()));
    let clock = std::rc::Rc::new(Cell::new(1));
    let wire = Wire { near, far, clock: clock.clone(), lost, passed: [0; 2] };
    let run = replay::Settings { limit: Limit::Packets(0), seed: 7, check_every: 3 };
    let second = Duration::from_secs(1);
    generate::run(wire, &table, &frames, run, second, false, &Ticking(clock))
}

#[test]
fn a_generator_sends_lost_frames_again_and_says_so() {
    let whole = generate_over([&[], &[]]).unwrap();
    assert!(whole.packets > 10_000 && whole.wrong == 0 && whole.repeated == 0, "{whole:?}");
    // A contribution, and two answers to different members: nobody gets the step of the first.
    for lost in [[&[3000_u64][..], &[]], [&[], &[3001, 3503]], [&[3000, 3001, 4000], &[3300]]] {
        let measured = generate_over(lost).unwrap();
        assert!(measured.repeated > 0, "{lost:?}");
        assert!(measured.wrong == 0 && measured.checked > 3_000, "{lost:?} {measured:?}");
        // Each loss costs a pause, not the row.
        assert!(measured.packets > whole.packets * 9 / 10, "{lost:?} {measured:?} {whole:?}");
    }
}
