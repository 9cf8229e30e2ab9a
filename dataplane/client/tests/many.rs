//! Many vectors in one round, and sums in the background: the bits of separate calls.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::{Background, Config, Error, Numbers, Session};
use weft_control::{Messages, SumOrder};
use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::{BoxConfig, JobConfig, MemberConfig, RowConfig, Table};
use weft_io::memory::{self, MemoryPort};
use weft_io::{Burst, Port};
use weft_kernel::Kernels;
use weft_lane::AggregatorLane;
use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, Nanos};

const WORKERS: u8 = 3;
const ELEMENTS: u16 = 64;
/// Empty ones, some below a chunk, some of several.
const LENS: [usize; 9] = [3, 0, 1, 64, 200, 63, 0, 65, 17];
const BLOCK: Numbers = Numbers::Block { exponent_row: 1 };

fn box_addr() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 100], 22341))
}

fn member(rank: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, rank + 1], 7000))
}

fn row(index: u16, numbers: Numbers, chunks_max: u32) -> RowConfig {
    let is_f32 = numbers == Numbers::F32;
    let is_exponents = index == 1;
    let member = |rank| MemberConfig { addr: member(rank), weight: 1, is_box: false };
    RowConfig {
        row: index,
        job: JobId(0),
        fan_in: WORKERS.into(),
        members: (0..WORKERS).map(member).collect(),
        element_type: match numbers {
            Numbers::F32 => ElementType::F32,
            Numbers::Bf16 => ElementType::Bf16,
            _ => ElementType::I32,
        },
        operation: if is_exponents { Operation::Max } else { Operation::Sum },
        // The bits of a sum in f32 must not depend on who came first; those of bf16 here do not.
        sum_order: if is_f32 { SumOrder::Rank } else { SumOrder::Arrival },
        overflow: Overflow::Clamp,
        integrity: Integrity::Crc32c,
        elements: ELEMENTS,
        window: 16,
        chunks_max,
        exponent: match numbers {
            Numbers::Fixed => Some(-16),
            _ if is_exponents => Some(0),
            _ => None,
        },
        parent: None,
    }
}

/// Three workers and their box, each in a thread; `work` is each worker's part.
fn group<R: Send>(
    numbers: Numbers,
    chunks_max: u32,
    work: impl Fn(u8, Session<MemoryPort>) -> R + Sync,
) -> Vec<R> {
    let mut ports = memory::hub(256, 1500, &["box", "w0", "w1", "w2"]);
    let port = ports.remove(0);
    let rows = if numbers == BLOCK { 2 } else { 1 };
    let job =
        JobConfig { job: JobId(0), slots_max: 1024, rate_bytes_per_sec: None, burst_bytes: 0 };
    let config = BoxConfig {
        local: Endpoint { mac: port.info().mac, addr: box_addr() },
        shards: 1,
        mtu: 1500,
        jobs: vec![job],
        rows: (0..rows).map(|index| row(index, numbers, chunks_max)).collect(),
        pushes: Vec::new(),
    };
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
        let workers: Vec<_> = (0..WORKERS)
            .zip(ports)
            .map(|(rank, port)| {
                let work = &work;
                scope.spawn(move || {
                    let mut config =
                        Config::new(member(rank), box_addr()).rank(rank).numbers(numbers);
                    config.member_timeout = Duration::from_secs(10);
                    work(rank, Session::over(port, &config).unwrap())
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Ordering::Relaxed);
        results.into_iter().map(Result::unwrap).collect()
    })
}

/// Numbers that are rounded on their way, of different magnitude from vector to vector.
fn vector(rank: u8, vector: usize, len: usize) -> Vec<f32> {
    let scale = [1.0, 300.0, 0.004][vector % 3];
    (0..len)
        .map(|at| ((at * 37 + vector * 11 + usize::from(rank) * 5) % 101) as f32 * 0.0137 * scale)
        .collect()
}

fn vectors(rank: u8) -> Vec<Vec<f32>> {
    LENS.iter().enumerate().map(|(index, len)| vector(rank, index, *len)).collect()
}

fn bits(vectors: &[Vec<f32>]) -> Vec<Vec<u32>> {
    vectors.iter().map(|vector| vector.iter().map(|value| value.to_bits()).collect()).collect()
}

/// By a call for each vector.
fn one_by_one(rank: u8, mut session: Session<MemoryPort>) -> Vec<Vec<u32>> {
    let mut vectors = vectors(rank);
    for vector in &mut vectors {
        session.allreduce(vector).unwrap();
    }
    session.close().unwrap();
    bits(&vectors)
}

#[test]
fn many_at_once_have_the_bits_of_separate_calls() {
    for numbers in [Numbers::Fixed, Numbers::F32, Numbers::Bf16, BLOCK] {
        let apart = group(numbers, 1 << 20, one_by_one);
        assert!(apart.iter().all(|worker| *worker == apart[0]), "{numbers:?}");
        let together = group(numbers, 1 << 20, |rank, mut session| {
            let mut vectors = vectors(rank);
            let mut places: Vec<&mut [f32]> = vectors.iter_mut().map(|it| &mut **it).collect();
            let report = session.allreduce_many(&mut places).unwrap();
            assert!(session.close().unwrap());
            (report.chunks, bits(&vectors))
        });
        for (chunks, bits) in together {
            assert_eq!(bits, apart[0], "{numbers:?}");
            // 413 elements: packed, or each vector with chunks of its own.
            assert_eq!(chunks, if numbers == BLOCK { 13 } else { 7 }, "{numbers:?}");
        }
    }
}

#[test]
fn tickets_have_the_bits_of_separate_calls_whoever_is_late() {
    for numbers in [Numbers::Fixed, Numbers::F32, Numbers::Bf16, BLOCK] {
        // A lease of 6 steps: the group is formed anew within the series, which has 13 chunks.
        for chunks_max in [1 << 20, 6] {
            let apart = group(numbers, chunks_max, one_by_one);
            let tickets = group(numbers, chunks_max, |rank, session| {
                let session = Background::new(session).unwrap();
                let mut tickets = Vec::new();
                for vector in vectors(rank) {
                    // Rank 0 hands over all at once; the others meet other rounds.
                    thread::sleep(Duration::from_millis(u64::from(rank) * 3));
                    tickets.push(session.start(vector).unwrap());
                }
                let sums: Vec<_> =
                    tickets.into_iter().map(|ticket| ticket.wait().unwrap().values).collect();
                let ended = session.close().unwrap();
                assert!(ended.by_all);
                (ended.statistics.renewals, bits(&sums))
            });
            for (renewals, bits) in &tickets {
                assert_eq!(*bits, apart[0], "{numbers:?}");
                assert_eq!(*renewals > 0, chunks_max == 6, "{numbers:?}");
            }
        }
    }
}

/// What is told to a job's controller is what the program gave, however it gave it: one message for
/// each vector that has elements, and none for what workers agree on between themselves.
#[test]
fn a_session_counts_a_message_for_each_vector_however_it_is_summed() {
    for numbers in [Numbers::Fixed, Numbers::F32, Numbers::Bf16, BLOCK] {
        let width = if numbers == Numbers::Bf16 { 2 } else { 4 };
        let expected = Messages { count: 7, bytes: 413 * width, largest_bytes: 200 * width };
        let counted = group(numbers, 1 << 20, |rank, mut session| {
            let messages = session.messages();
            let mut all = Vec::new();
            let mut values = vectors(rank);
            for vector in &mut values {
                session.allreduce(vector).unwrap();
            }
            all.push(messages.take());
            let mut places: Vec<&mut [f32]> = values.iter_mut().map(|it| &mut **it).collect();
            session.allreduce_many(&mut places).unwrap();
            all.push(messages.take());
            assert_eq!(messages.take(), Messages::default(), "each is told once");
            let session = Background::new(session).unwrap();
            let tickets: Vec<_> =
                vectors(rank).into_iter().map(|vector| session.start(vector).unwrap()).collect();
            tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
            all.push(messages.take());
            session.close().unwrap();
            all
        });
        assert_eq!(counted, vec![vec![expected; 3]; usize::from(WORKERS)], "{numbers:?}");
    }
}

#[test]
fn a_ticket_says_when_it_is_finished_and_computing_goes_on_meanwhile() {
    let results = group(Numbers::Fixed, 1 << 20, |rank, session| {
        let session = Background::new(session).unwrap();
        if rank == 2 {
            thread::sleep(Duration::from_millis(50));
        }
        let mut ticket = session.start(vec![1.0; 1000]).unwrap();
        let mut computed = 0_u64;
        while !ticket.is_finished() {
            computed += 1;
            thread::yield_now();
        }
        assert!(ticket.is_finished(), "it stays so");
        let sum = ticket.wait().unwrap();
        assert_eq!(sum.values, vec![3.0; 1000]);
        assert_eq!(sum.report.chunks, 16);
        session.close().unwrap();
        computed
    });
    assert!(results[0] > 0 && results[1] > 0, "they waited for the third: {results:?}");
}

#[test]
fn after_an_error_every_ticket_ends() {
    let mut ports = memory::hub(256, 1500, &["box", "w0", "w1", "w2"]);
    let port = ports.remove(0);
    let job =
        JobConfig { job: JobId(0), slots_max: 1024, rate_bytes_per_sec: None, burst_bytes: 0 };
    let mut only = row(0, Numbers::Fixed, 1 << 20);
    only.members.truncate(1);
    only.fan_in = 1;
    let config = BoxConfig {
        local: Endpoint { mac: port.info().mac, addr: box_addr() },
        shards: 1,
        mtu: 1500,
        jobs: vec![job],
        rows: vec![only],
        pushes: Vec::new(),
    };
    let engine = Aggregator::new(&Table::new(config).unwrap(), 0, 42, Kernels::detect());
    let mut lane = AggregatorLane::new(port, engine);
    let worker = ports.remove(0);
    let opening = thread::spawn(move || {
        let mut config = Config::new(member(0), box_addr());
        config.member_timeout = Duration::from_millis(100);
        Session::over(worker, &config).unwrap()
    });
    let origin = Instant::now();
    while !opening.is_finished() {
        lane.breathe(Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap()), &mut ());
    }
    let session = Background::new(opening.join().unwrap()).unwrap();
    // The box says nothing any more.
    let tickets: Vec<_> = (0..5).map(|_| session.start(vec![1.0; 100])).collect();
    let mut errors = tickets.into_iter().flatten().map(|ticket| ticket.wait().unwrap_err());
    assert!(matches!(errors.next(), Some(Error::Session(_))), "the first says why");
    assert!(errors.all(|error| matches!(error, Error::Over)));
    assert!(matches!(session.start(vec![1.0]), Err(Error::Over)));
    assert!(matches!(session.close(), Err(Error::Over)));
    let mut left = Burst::new();
    lane.port_mut().rx_burst(Nanos(0), &mut left);
}
