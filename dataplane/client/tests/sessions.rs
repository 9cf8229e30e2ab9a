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
    assert_eq!(format!("{error:?}"), error.to_string(), "what `?` in `main` prints");
}

#[test]
fn an_error_has_its_cause_in_either_form() {
    let holder = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut config = Config::new(holder.local_addr().unwrap(), "127.0.0.1:9".parse().unwrap());
    config.connect_timeout = Duration::from_millis(300);
    let error = Session::connect(&config).unwrap_err();
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(text.starts_with("could not open this worker's port: "), "{text}");
        assert!(text.contains("in use"), "{text}");
    }
}

/// Runs `work` for each of `workers`, in a thread of its own, beside a box with these rows.
fn each<R: Send + 'static>(
    workers: u8,
    rows: Vec<RowConfig>,
    work: impl Fn(u8, MemoryPort, SocketAddr) -> R + Clone + Send + 'static,
) -> Vec<R> {
    let names: Vec<String> = (0..=workers).map(|index| format!("p{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut ports = memory::hub(256, 1500, &names);
    let box_port = ports.remove(0);
    let addr = SocketAddr::from(([10, 0, 0, 100], 22341));
    let config = box_config(box_port.info().mac, addr, rows);
    with_box(box_port, config, || {
        let spawn = |(rank, port)| {
            let work = work.clone();
            thread::spawn(move || work(rank, port, addr))
        };
        let workers: Vec<_> = (0..workers).zip(ports).map(spawn).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

/// Cases E1, E2 and E5 of the second attack from outside are among these pairs.
#[test]
fn settings_that_contradict_each_other_are_refused_at_connect_or_give_the_right_sum() {
    use ElementType::{Bf16, F32, I32};
    let all_numbers =
        [Numbers::Fixed, Numbers::Block { exponent_row: 1 }, Numbers::F32, Numbers::Bf16];
    for element_type in [I32, F32, Bf16] {
        for exponent in [None, Some(-16)] {
            for operation in [Operation::Sum, Operation::Max] {
                for integrity in [Integrity::None, Integrity::Crc32c, Integrity::Checksum16] {
                    let members = vec![member(0), member(1)];
                    let data = RowConfig {
                        exponent,
                        operation,
                        integrity,
                        ..row(0, members.clone(), element_type)
                    };
                    let mut exponents = RowConfig { integrity, ..row(1, members, I32) };
                    (exponents.operation, exponents.exponent) = (Operation::Max, None);
                    let rows = vec![data, exponents];
                    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
                    let addr = SocketAddr::from(([10, 0, 0, 100], 22341));
                    if Table::new(box_config(mac, addr, rows.clone())).is_err() {
                        continue;
                    }
                    for numbers in all_numbers {
                        let fits = operation == Operation::Sum
                            && match numbers {
                                Numbers::Fixed => element_type == I32 && exponent.is_some(),
                                Numbers::Block { .. } => element_type == I32 && exponent.is_none(),
                                Numbers::F32 => element_type == F32,
                                Numbers::Bf16 => element_type == Bf16,
                            };
                        let what = format!(
                            "{numbers:?} on {element_type} {operation} {exponent:?} {integrity:?}"
                        );
                        for ended in each(2, rows.clone(), pair_of_sums(numbers)) {
                            match ended {
                                Ok(sums) => assert!(fits && sums == [3.0; 3], "{what}: {sums:?}"),
                                Err(error) => {
                                    let names = error.contains("`numbers`")
                                        && (error.contains("`exponent`")
                                            || error.contains("`element_type`"));
                                    assert!(!fits && names, "{what}: {error}");
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Sums 1 and 2 in each of the ways there are.
fn pair_of_sums(
    numbers: Numbers,
) -> impl Fn(u8, MemoryPort, SocketAddr) -> Result<[f32; 3], String> + Clone + Send {
    move |rank, port, addr| {
        let mut config = Config::new(member(rank), addr).rank(rank).numbers(numbers);
        config.close_linger = Duration::from_millis(200);
        let mut session = Session::over(port, &config).map_err(|error| error.to_string())?;
        let mut one = [f32::from(rank) + 1.0];
        session.allreduce(&mut one).unwrap();
        let mut of_many = [f32::from(rank) + 1.0];
        session.allreduce_many(&mut [&mut of_many]).unwrap();
        let mut integers = [i32::from(rank) + 1];
        let of_integers = match session.allreduce_i32(&mut integers) {
            Ok(_) => f32::from(i16::try_from(integers[0]).unwrap()),
            // There are none but in fixed point.
            Err(Error::Wrong(_)) if numbers != Numbers::Fixed => 3.0,
            Err(error) => panic!("{error}"),
        };
        session.close().unwrap();
        Ok([one[0], of_many[0], of_integers])
    }
}

/// Rows for each kind of numbers, and the exponents of blocks.
fn rows_of(numbers: Numbers, workers: u8) -> Vec<RowConfig> {
    let members: Vec<SocketAddr> = (0..workers).map(member).collect();
    let element_type = match numbers {
        Numbers::Fixed | Numbers::Block { .. } => ElementType::I32,
        Numbers::F32 => ElementType::F32,
        Numbers::Bf16 => ElementType::Bf16,
    };
    let mut data = row(0, members.clone(), element_type);
    if numbers != Numbers::Fixed {
        data.exponent = None;
    }
    let mut exponents = row(1, members, ElementType::I32);
    (exponents.operation, exponents.exponent) = (Operation::Max, None);
    vec![data, exponents]
}

/// Cases E3 and E4 of the second attack from outside, and their kin. A chunk has 64 elements; each
/// worker's vectors go one a call.
#[test]
fn vectors_of_unequal_length_end_every_call_with_the_same_error_that_names_them() {
    let fixed = Numbers::Fixed;
    let block = Numbers::Block { exponent_row: 1 };
    type Case = (Numbers, &'static [&'static [usize]], [&'static str; 2]);
    let cases: [Case; 12] = [
        (fixed, &[&[3], &[5]], ["rank 0 gave 3", "rank 1 gave 5"]),
        (fixed, &[&[10], &[11]], ["rank 0 gave 10", "rank 1 gave 11"]),
        (fixed, &[&[64, 64, 64], &[128, 64]], ["rank 0 gave 64", "rank 1 gave more than 64"]),
        (fixed, &[&[64], &[100]], ["rank 0 gave 64", "rank 1 gave more than 64"]),
        (fixed, &[&[1000], &[1030]], ["rank 0 gave 1000", "rank 1 gave 1024 or more"]),
        (fixed, &[&[0, 5], &[5, 0]], ["rank 0 gave 0", "rank 1 gave 5"]),
        (fixed, &[&[70, 3], &[70, 4]], ["rank 0 gave 3", "rank 1 gave 4"]),
        (Numbers::F32, &[&[3], &[5]], ["rank 0 gave 3", "rank 1 gave 5"]),
        (Numbers::Bf16, &[&[65], &[64]], ["rank 0 gave more than 64", "rank 1 gave 64"]),
        (block, &[&[3], &[5]], ["rank 0 gave 3", "rank 1 gave 5"]),
        (block, &[&[3], &[500]], ["rank 0 gave at most 64", "rank 1 gave more than 64"]),
        (fixed, &[&[3], &[3], &[4]], ["gave 3 ", "gave 4"]),
    ];
    for (numbers, vectors, expected) in cases {
        let workers = u8::try_from(vectors.len()).unwrap();
        let begun = Instant::now();
        let ended = each(workers, rows_of(numbers, workers), move |rank, port, addr| {
            // In a group of three the last one differs.
            let lateness = Duration::from_millis(20 * u64::from(rank));
            let config = Config::new(member(rank), addr).rank(rank).numbers(numbers);
            let mut session = Session::over(port, &config).unwrap();
            for len in vectors[usize::from(rank)] {
                thread::sleep(lateness);
                let mut values = vec![1.0; *len];
                match session.allreduce(&mut values) {
                    Ok(_) => assert_eq!(values, vec![f32::from(workers); *len]),
                    Err(error) => return error.to_string(),
                }
            }
            String::new()
        });
        for (rank, error) in ended.iter().enumerate() {
            let found = expected.iter().all(|part| error.contains(part));
            let found = found && error.contains("differ in length");
            assert!(found, "{numbers:?} {vectors:?}: rank {rank} ended with {error:?}");
        }
        // Of three the first may get its error before the second has contributed.
        assert!(workers > 2 || ended[0] == ended[1], "{ended:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}

#[test]
fn vectors_of_equal_length_are_summed_whatever_it_is() {
    for numbers in [Numbers::Fixed, Numbers::Block { exponent_row: 1 }, Numbers::F32] {
        each(2, rows_of(numbers, 2), move |rank, port, addr| {
            let config = Config::new(member(rank), addr).rank(rank).numbers(numbers);
            let mut session = Session::over(port, &config).unwrap();
            for len in [0, 1, 63, 64, 65, 0, 128, 1000] {
                let mut values = vec![1.0; len];
                session.allreduce(&mut values).unwrap();
                assert_eq!(values, vec![2.0; len]);
            }
            let mut many = [vec![1.0; 3], vec![], vec![1.0; 64], vec![1.0; 70], vec![]];
            let mut vectors: Vec<&mut [f32]> = many.iter_mut().map(|it| &mut it[..]).collect();
            session.allreduce_many(&mut vectors).unwrap();
            assert!(many.iter().flatten().all(|sum| *sum == 2.0));
            session.allreduce_many(&mut []).unwrap();
            assert!(session.close().unwrap());
        });
    }
}

/// Tickets that are formed into other rounds at each worker: one comes to 3 where another has 4.
#[test]
fn tickets_of_unequal_length_are_never_worth_a_sum() {
    each(2, rows_of(Numbers::Fixed, 2), |rank, port, addr| {
        let config = Config::new(member(rank), addr).rank(rank);
        let session = Session::over(port, &config).unwrap();
        let background = weft_client::Background::new(session).unwrap();
        let lens = if rank == 0 { [64, 64, 64] } else { [128, 0, 64] };
        let tickets = lens.map(|len| background.start(vec![1.0; len]));
        for ticket in tickets {
            let ended = ticket.and_then(weft_client::Ticket::wait);
            assert!(ended.is_err(), "rank {rank}: {ended:?}");
        }
    });
}

/// Case E6 of the second attack from outside.
#[test]
fn a_member_that_has_closed_is_named_at_once() {
    let ended = each(2, rows_of(Numbers::Fixed, 2), |rank, port, addr| {
        let config = Config::new(member(rank), addr).rank(rank);
        let mut session = Session::over(port, &config).unwrap();
        for _ in 0..3 - rank {
            let begun = Instant::now();
            if let Err(error) = session.allreduce(&mut [1.0]) {
                assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
                return error.to_string();
            }
        }
        session.close().unwrap();
        String::new()
    });
    let expected = "the session ended: the round waits for members that have closed their \
                    sessions: rank 1";
    assert_eq!(ended, [expected, ""]);
}
