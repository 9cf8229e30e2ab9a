//! Sessions against a real aggregator lane, over memory ports and over UDP on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::{Config, Error, Numbers, Session};
use weft_control::SumOrder;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::{BoxConfig, JobConfig, MemberConfig, RowConfig, Table};
use weft_io::memory::MemoryPort;
use weft_io::pool::PoolFrame;
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Port, forward_port, memory};
use weft_kernel::Kernels;
use weft_lane::AggregatorLane;
use weft_wire::frame::{Endpoint, Udp};
use weft_wire::header::{ElementType, Kind, Operation, Packet};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, MacAddr, Nanos};

const WORKERS: u8 = 3;

fn row(index: u16, members: Vec<SocketAddr>, element_type: ElementType) -> RowConfig {
    RowConfig {
        row: index,
        job: JobId(0),
        fan_in: u32::try_from(members.len()).unwrap(),
        members: members
            .into_iter()
            .map(|addr| MemberConfig { addr, weight: 1, is_box: false })
            .collect(),
        element_type,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Clamp,
        integrity: Integrity::Crc32c,
        elements: 64,
        window: 16,
        chunks_max: 1 << 20,
        exponent: Some(-16),
        parent: None,
    }
}

fn box_config(mac: MacAddr, addr: SocketAddr, rows: Vec<RowConfig>) -> BoxConfig {
    BoxConfig {
        local: Endpoint { mac, addr },
        shards: 1,
        mtu: 1500,
        jobs: vec![JobConfig {
            job: JobId(0),
            slots_max: 1024,
            rate_bytes_per_sec: None,
            burst_bytes: 0,
        }],
        rows,
        pushes: Vec::new(),
    }
}

/// Runs a box on `port` while `work` goes on in this thread.
fn with_box<P: Port + Send, R>(port: P, config: BoxConfig, work: impl FnOnce() -> R) -> R {
    let engine = Aggregator::new(&Table::new(config).unwrap(), 0, 42, Kernels::detect());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut lane = AggregatorLane::new(port, engine);
            let origin = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let now = Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap());
                if lane.breathe(now, &mut ()) == 0 {
                    lane.port_mut().wait(100_000);
                }
            }
        });
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn values(rank: u8, len: u16) -> Vec<f32> {
    (0..len).map(|i| f32::from(i % 97) * 0.25 - f32::from(rank) * 1.5).collect()
}

fn expected(len: u16) -> Vec<f32> {
    let mut sum = vec![0.0; usize::from(len)];
    for rank in 0..WORKERS {
        for (sum, value) in sum.iter_mut().zip(values(rank, len)) {
            *sum += value;
        }
    }
    sum
}

fn member(rank: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, rank + 1], 7000))
}

/// Three workers on memory ports, each in a thread, two rounds and a close.
fn over_memory(rows: Vec<RowConfig>, numbers: Numbers) -> Vec<Vec<f32>> {
    let names = ["box", "w0", "w1", "w2"];
    let mut ports = memory::hub(256, 1500, &names);
    let box_port = ports.remove(0);
    let addr = SocketAddr::from(([10, 0, 0, 100], 22341));
    let config = box_config(box_port.info().mac, addr, rows);
    with_box(box_port, config, || {
        let workers: Vec<_> = (0..WORKERS)
            .zip(ports)
            .map(|(rank, port)| {
                thread::spawn(move || {
                    let config = Config::new(member(rank), addr).rank(rank).numbers(numbers);
                    let mut session = Session::over(port, &config).unwrap();
                    let mut first = values(rank, 1000);
                    session.allreduce(&mut first).unwrap();
                    let mut second = values(rank, 70);
                    session.allreduce(&mut second).unwrap();
                    assert_eq!(second, expected(70));
                    assert!(session.close().unwrap(), "all close");
                    first
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn fixed_point_sums_are_exact() {
    let members = (0..WORKERS).map(member).collect();
    for sum in over_memory(vec![row(0, members, ElementType::I32)], Numbers::Fixed) {
        assert_eq!(sum, expected(1000));
    }
}

#[test]
fn block_exponents_are_agreed_by_max() {
    let members: Vec<SocketAddr> = (0..WORKERS).map(member).collect();
    let mut data = row(0, members.clone(), ElementType::I32);
    data.exponent = None;
    let mut exponents = row(1, members, ElementType::I32);
    exponents.operation = Operation::Max;
    exponents.exponent = Some(0);
    for sum in over_memory(vec![data, exponents], Numbers::Block { exponent_row: 1 }) {
        assert_eq!(sum, expected(1000));
    }
}

#[test]
fn floats_travel_as_they_are() {
    let members: Vec<SocketAddr> = (0..WORKERS).map(member).collect();
    let mut data = row(0, members, ElementType::F32);
    data.exponent = None;
    data.sum_order = SumOrder::Rank;
    for sum in over_memory(vec![data], Numbers::F32) {
        assert_eq!(sum, expected(1000));
    }
}

#[test]
fn bf16_halves_the_bytes() {
    let members: Vec<SocketAddr> = (0..WORKERS).map(member).collect();
    let mut data = row(0, members, ElementType::Bf16);
    data.exponent = None;
    for sum in over_memory_bf16(data) {
        for (sum, exact) in sum.iter().zip(expected(1000)) {
            assert!((sum - exact).abs() <= exact.abs() / 128.0 + 0.25, "{sum} for {exact}");
        }
    }
}

fn over_memory_bf16(row: RowConfig) -> Vec<Vec<f32>> {
    let mut ports = memory::hub(256, 1500, &["box", "w0", "w1", "w2"]);
    let box_port = ports.remove(0);
    let addr = SocketAddr::from(([10, 0, 0, 100], 22341));
    let config = box_config(box_port.info().mac, addr, vec![row]);
    with_box(box_port, config, || {
        let workers: Vec<_> = (0..WORKERS)
            .zip(ports)
            .map(|(rank, port)| {
                thread::spawn(move || {
                    let config = Config::new(member(rank), addr).rank(rank).numbers(Numbers::Bf16);
                    let mut session = Session::over(port, &config).unwrap();
                    let mut values = values(rank, 1000);
                    session.allreduce(&mut values).unwrap();
                    session.close().unwrap();
                    values
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn integers_over_udp() {
    let box_port = UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let addr = box_port.local_addr();
    let base = 24_000;
    let locals: Vec<SocketAddr> = (0..WORKERS)
        .map(|rank| SocketAddr::from(([127, 0, 0, 1], base + 8 * u16::from(rank))))
        .collect();
    let rows = vec![row(0, locals.clone(), ElementType::I32)];
    let config = box_config(box_port.info().mac, addr, rows);
    let sums: Vec<Vec<i32>> = with_box(box_port, config, || {
        let workers: Vec<_> = (0..WORKERS)
            .zip(locals)
            .map(|(rank, local)| {
                thread::spawn(move || {
                    let mut session =
                        Session::connect(&Config::new(local, addr).rank(rank)).unwrap();
                    let mut values: Vec<i32> =
                        (0..5000).map(|i| i * (i32::from(rank) + 1)).collect();
                    session.allreduce_i32(&mut values).unwrap();
                    session.close().unwrap();
                    values
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    for sum in sums {
        assert!(sum.iter().zip(0..).all(|(sum, i)| *sum == i * 6));
    }
}

/// Loses its core whenever it waits, for longer than the first timeout, while the box answers.
struct Preempted {
    port: MemoryPort,
    boxed: AggregatorLane<MemoryPort>,
    /// The box's clock.
    now: Nanos,
}

impl Port for Preempted {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.port.rx_burst(now, rx)
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        self.port.tx_burst(now, tx)
    }

    fn wait(&mut self, _: u64) {
        self.now = self.now.saturating_add(Nanos::from_millis(1));
        while self.boxed.breathe(self.now, &mut ()) > 0 {}
        thread::sleep(Duration::from_millis(25));
    }

    forward_port!(port: alloc, info, stats);
}

#[test]
fn nothing_is_overdue_before_what_came_was_looked_at() {
    let mut ports = memory::hub(256, 1500, &["box", "w0"]);
    let port = ports.remove(1);
    let box_port = ports.remove(0);
    let addr = SocketAddr::from(([10, 0, 0, 100], 22341));
    let config =
        box_config(box_port.info().mac, addr, vec![row(0, vec![member(0)], ElementType::I32)]);
    let engine = Aggregator::new(&Table::new(config).unwrap(), 0, 42, Kernels::detect());
    let boxed = AggregatorLane::new(box_port, engine);
    let config = Config::new(member(0), addr);
    let mut session = Session::over(Preempted { port, boxed, now: Nanos(0) }, &config).unwrap();
    let mut values: Vec<i32> = (0..40 * 64).collect();
    session.allreduce_i32(&mut values).unwrap();
    assert!(values.iter().zip(0..).all(|(sum, i)| *sum == i));
    let stats = session.statistics().data;
    assert_eq!((stats.chunks_sent, stats.retransmissions), (40, 0));
    assert!(session.close().unwrap());
}

/// Once it is told to, the box of this port knows row 1 no more, and hears nothing of row 0.
struct Shrinking {
    port: MemoryPort,
    boxed: AggregatorLane<MemoryPort>,
    next: Option<Aggregator>,
    shrinks: Arc<AtomicBool>,
    origin: Instant,
}

fn packet_of(frame: &[u8]) -> Packet<&[u8]> {
    Packet::new_unchecked(&frame[Udp::parse(frame).unwrap().payload_range()])
}

impl Port for Shrinking {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.port.rx_burst(now, rx)
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let before = tx.len();
        if self.shrinks.load(Ordering::Relaxed) {
            let is_sum = |frame: &PoolFrame| packet_of(frame.as_ref()).group().row() == 0;
            let is_contribution =
                |frame: &PoolFrame| packet_of(frame.as_ref()).kind() == Some(Kind::Contrib);
            if tx.iter().any(|frame| is_sum(frame) && is_contribution(frame))
                && let Some(next) = self.next.take()
            {
                *self.boxed.engine_mut() = next;
            }
            tx.retain(|frame| self.next.is_some() || !is_sum(frame));
        }
        before - tx.len() + self.port.tx_burst(now, tx)
    }

    fn wait(&mut self, wait_ns: u64) {
        thread::sleep(Duration::from_nanos(wait_ns.min(1_000_000)));
        let now = Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap());
        while self.boxed.breathe(now, &mut ()) > 0 {}
    }

    forward_port!(port: alloc, free, info, stats);
}

/// What the engine of the sums would send is the caller's again; the other has stopped.
#[test]
fn a_session_closes_after_a_round_that_one_of_its_two_engines_failed() {
    let mut ports = memory::hub(256, 1500, &["box", "w0"]);
    let port = ports.remove(1);
    let box_port = ports.remove(0);
    let addr = SocketAddr::from(([10, 0, 0, 100], 22341));
    let mac = box_port.info().mac;
    let mut data = row(0, vec![member(0)], ElementType::I32);
    data.exponent = None;
    let mut exponents = row(1, vec![member(0)], ElementType::I32);
    (exponents.operation, exponents.exponent) = (Operation::Max, Some(0));
    let aggregator = |rows, seed| {
        let table = Table::new(box_config(mac, addr, rows)).unwrap();
        Aggregator::new(&table, 0, seed, Kernels::detect())
    };
    let boxed = AggregatorLane::new(box_port, aggregator(vec![data.clone(), exponents], 42));
    let next = Some(aggregator(vec![data], 43));
    let shrinks = Arc::new(AtomicBool::new(false));
    let port =
        Shrinking { port, boxed, next, shrinks: Arc::clone(&shrinks), origin: Instant::now() };
    let numbers = Numbers::Block { exponent_row: 1 };
    let mut config = Config::new(member(0), addr).numbers(numbers);
    config.member_timeout = Duration::from_secs(4);
    let mut session = Session::over(port, &config).unwrap();
    session.allreduce(&mut values(0, 1000)).unwrap();

    shrinks.store(true, Ordering::Relaxed);
    let error = session.allreduce(&mut values(0, 1000)).unwrap_err();
    assert!(error.to_string().contains("serves no row 1"), "{error}");
    let begun = Instant::now();
    assert!(!session.close().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(3), "no member is waited for");
}

#[test]
fn a_missing_member_is_named() {
    let mut ports = memory::hub(256, 1500, &["box", "w0"]);
    let port = ports.remove(1);
    let box_port = ports.remove(0);
    let addr = SocketAddr::from(([10, 0, 0, 100], 22341));
    let rows = vec![row(0, (0..WORKERS).map(member).collect(), ElementType::I32)];
    let config = box_config(box_port.info().mac, addr, rows);
    let error = with_box(box_port, config, || {
        let mut config = Config::new(member(0), addr);
        config.member_timeout = Duration::from_millis(200);
        Session::over(port, &config).unwrap_err()
    });
    assert_eq!(error.to_string(), "the session ended: waited too long for rank 1, 2");
}

#[test]
fn a_wrong_row_or_job_is_an_error_at_once_that_names_it() {
    for (job, row) in [(0, 9), (7, 0)] {
        let mut ports = memory::hub(256, 1500, &["box", "w0"]);
        let port = ports.remove(1);
        let box_port = ports.remove(0);
        let addr = SocketAddr::from(([10, 0, 0, 100], 22341));
        let rows = vec![self::row(0, vec![member(0)], ElementType::I32)];
        let config = box_config(box_port.info().mac, addr, rows);
        let begun = Instant::now();
        let error = with_box(box_port, config, || {
            let config = Config { job, ..Config::new(member(0), addr).row(row) };
            Session::over(port, &config).unwrap_err()
        });
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        let expected = format!("the aggregator serves no row {row} of job {job}");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

#[test]
fn an_unreachable_aggregator_is_an_error_in_time() {
    let mut config = Config::new("127.0.0.1:0".parse().unwrap(), "127.0.0.1:9".parse().unwrap());
    config.connect_timeout = Duration::from_millis(300);
    let begun = Instant::now();
    let error = Session::connect(&config).unwrap_err();
    assert!(matches!(error, Error::Session(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3));
}
