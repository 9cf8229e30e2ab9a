//! Sessions that find their aggregator on their own host.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::{Config, Error, Io, Session};
use weft_control::SumOrder;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::{BoxConfig, JobConfig, MemberConfig, RowConfig, Table};
use weft_io::Port;
use weft_io::fault::{Fault, FaultConfig, FaultRates};
use weft_io::shm::{Refusal, ShmConfig, ShmCounts, ShmError, ShmHost, ShmPort};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_kernel::Kernels;
use weft_lane::AggregatorLane;
use weft_wire::frame::Endpoint;
use weft_wire::frame::multicast::memory_base;
use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, Nanos};

const WORKERS: u8 = 3;

fn member(base: u16, rank: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], base + u16::from(rank)))
}

/// Runs a box with shared memory beside its sockets while `work` goes on.
fn with_box<R>(base: u16, work: impl FnOnce(SocketAddr, ShmCounts) -> R) -> R {
    let port = UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let addr = port.local_addr();
    let port = ShmHost::open(port, addr).unwrap();
    let counts = port.counts();
    let row = RowConfig {
        row: 0,
        job: JobId(0),
        fan_in: WORKERS.into(),
        members: (0..WORKERS)
            .map(|rank| MemberConfig { addr: member(base, rank), weight: 1, is_box: false })
            .collect(),
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Clamp,
        integrity: Integrity::Crc32c,
        elements: 256,
        window: 64,
        chunks_max: 1 << 20,
        exponent: Some(0),
        parent: None,
    };
    let config = BoxConfig {
        local: Endpoint { mac: port.info().mac, addr },
        shards: 1,
        mtu: 1500,
        jobs: vec![JobConfig {
            job: JobId(0),
            slots_max: 1024,
            rate_bytes_per_sec: None,
            burst_bytes: 0,
        }],
        rows: vec![row],
        pushes: Vec::new(),
    };
    let engine = Aggregator::new(&Table::new(config).unwrap(), 0, 42, Kernels::detect())
        .with_multicast(Some(memory_base(addr.ip())))
        .with_memory(true);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut lane = AggregatorLane::new(port, engine);
            let origin = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let now = Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap());
                if lane.breathe(now, &mut ()) == 0 {
                    lane.port_mut().wait(1_000_000);
                }
            }
        });
        let result = work(addr, counts);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Sums over `sessions`, one for each rank.
fn sum_in_all<P: Port<Frame: Send> + Send + 'static>(
    sessions: Vec<impl FnOnce() -> Session<P> + Send + 'static>,
) -> Vec<(Session<P>, u64)> {
    let work = |(rank, connect): (i32, Box<dyn FnOnce() -> Session<P> + Send>)| {
        thread::spawn(move || {
            let mut session = connect();
            for round in 0..20 {
                let mut values: Vec<i32> = (0..20_000).map(|at| at * (rank + 1) + round).collect();
                session.allreduce_i32(&mut values).unwrap();
                let right = |(sum, at): (&i32, i32)| *sum == at * 6 + 3 * round;
                assert!(values.iter().zip(0..).all(right), "round {round}");
            }
            let again = session.statistics().data.retransmissions;
            (session, again)
        })
    };
    let boxed = sessions.into_iter().map(|it| Box::new(it) as Box<dyn FnOnce() -> _ + Send>);
    let threads: Vec<_> = (0..).zip(boxed).map(work).collect();
    threads.into_iter().map(|it| it.join().unwrap()).collect()
}

fn close_all<P: Port<Frame: Send> + Send>(sessions: Vec<(Session<P>, u64)>) {
    thread::scope(|scope| {
        for (session, _) in sessions {
            scope.spawn(|| assert!(session.close().unwrap()));
        }
    });
}

#[test]
fn members_of_one_host_share_memory_and_others_use_sockets() {
    const BASE: u16 = 24_300;
    with_box(BASE, |addr, counts| {
        let connect = |rank: u8| {
            // The last of them insists on sockets.
            let io = if rank == 2 { Io::Udp } else { Io::Auto };
            let config = Config::new(member(BASE, rank), addr).rank(rank).io(io);
            move || Session::connect(&config).unwrap()
        };
        let sessions = sum_in_all((0..WORKERS).map(connect).collect());
        let names: Vec<_> = sessions.iter().map(|(it, _)| it.port().to_string()).collect();
        assert_eq!(names, ["shm", "shm", "udp"]);
        let drivers: Vec<_> = sessions.iter().map(|(it, _)| it.port().info().driver).collect();
        assert_eq!(drivers, ["shm", "shm", "udp"]);
        assert_eq!((counts.links(), counts.broken(), counts.ring_full()), (2, 0, 0));
        let by_multicast = sessions.iter().map(|(it, _)| it.statistics().data.answers_by_multicast);
        assert_eq!(by_multicast.sum::<u64>(), 0, "one of them hears nothing");
        close_all(sessions);
    });
}

#[test]
fn sums_are_written_once_for_members_that_all_share_memory() {
    const BASE: u16 = 24_330;
    with_box(BASE, |addr, counts| {
        let connect = |rank: u8| {
            let config = Config::new(member(BASE, rank), addr).rank(rank).io(Io::Shm);
            move || Session::connect(&config).unwrap()
        };
        let sessions = sum_in_all((0..WORKERS).map(connect).collect());
        for (session, _) in &sessions {
            let data = session.statistics().data;
            // The first sums may leave before the box has heard that all listen.
            assert!(data.answers_by_multicast > data.answers / 2, "{data:?}");
            assert_eq!(data.times_deaf, 0);
        }
        assert_eq!((counts.links(), counts.ring_full()), (3, 0));
        close_all(sessions);
    });
}

#[test]
fn sums_are_exact_over_memory_that_loses_doubles_and_mixes_up() {
    const BASE: u16 = 24_310;
    with_box(BASE, |addr, _| {
        let connect = |rank: u8| {
            move || {
                let own = member(BASE, rank);
                let shm =
                    ShmConfig { frame_count: 1024, rows: vec![0], ..ShmConfig::new(own, addr) };
                let rates = FaultRates {
                    loss: 0.02,
                    duplicate: 0.02,
                    reorder: 0.05,
                    corrupt: 0.01,
                    ..FaultRates::default()
                };
                let faults = FaultConfig {
                    seed: u64::from(rank),
                    rx: rates,
                    tx: rates,
                    ..FaultConfig::default()
                };
                let port = Fault::new(ShmPort::open(&shm).unwrap(), &faults);
                Session::over(port, &Config::new(own, addr).rank(rank)).unwrap()
            }
        };
        let sessions = sum_in_all((0..WORKERS).map(connect).collect());
        assert!(sessions.iter().all(|(_, again)| *again > 0), "faults fired");
        let data = |session: &Session<_>| session.statistics().data;
        assert!(sessions.iter().all(|(it, _)| data(it).answers_by_multicast > 0), "and casts came");
        close_all(sessions);
    });
}

#[test]
fn who_insists_on_memory_is_told_why_not_and_who_does_not_goes_on() {
    let nobody: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let config = Config {
        connect_timeout: Duration::from_millis(200),
        ..Config::new("127.0.0.1:24320".parse().unwrap(), nobody).io(Io::Shm)
    };
    let error = Session::connect(&config).unwrap_err();
    assert!(matches!(error, Error::Shm(ShmError::NoBox { .. })), "{error:?}");

    const BASE: u16 = 24_330;
    with_box(BASE, |addr, counts| {
        // Its address is taken in the box's memory, and free for a socket.
        let config = Config::new(member(BASE, 0), addr);
        let taken = ShmPort::open(&ShmConfig::new(config.local, addr)).unwrap();
        let port = weft_client::WorkerPort::open(&config).unwrap();
        let why = port.fallback().expect("the memory was offered");
        assert!(matches!(why, ShmError::Refused { refusal: Refusal::InUse, .. }), "{why:?}");
        assert!(port.to_string().starts_with("udp (the box at "), "{port}");
        assert_eq!(counts.refused(Refusal::InUse), 1);
        drop(taken);
    });
}
