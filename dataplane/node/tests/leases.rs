//! A real process whose jobs and leases come and go over its southbound, with a controller that is
//! played here and members of `weft-client`.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{ConfigFile, PATIENCE, Running, run_to_end, weft_node};
use crate::played::Controller;
use nix::sys::signal::Signal;
use weft_client::push::{PushConfig, PushSession};
use weft_client::{Config, Error, Session};
use weft_config::node::{
    ControllerSection, Io, JobSection, MemberSection, NodeConfig, ParentSection, PortSection,
    RowSection, ServerSection,
};
use weft_control::{
    BoxIndex, Command, Event, Holding, HoldingCommand, HoldingError, JobConfig, MemberConfig,
    RowConfig, SumOrder,
};
use weft_rpc::convert;
use weft_rpc::v1;
use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, MacAddr};

const JOB: u16 = 3;
const ROW: u16 = 5;
const LANES: u16 = 2;

impl Controller {
    /// Tells the box that it holds all that there is for it.
    fn settle(&self) {
        let settled = v1::command::Command::Settled(v1::Settled {});
        self.send(v1::Command { command: Some(settled) });
    }

    /// Tells the box, and returns its one answer.
    fn tell(&self, command: HoldingCommand) -> Event {
        let event = self.ask(convert::command_to_proto(&Command::Holding(command)));
        let (job, event) = convert::event(&event).expect("a box says what is in the .proto");
        assert_eq!(job, JobId(JOB));
        event
    }
}

/// UDP ports that were free a moment ago: so many in a row.
fn free_ports(count: u16) -> u16 {
    for _ in 0..100 {
        let first = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = first.local_addr().expect("bound").port() & !7;
        let Some(last) = port.checked_add(count) else { continue };
        drop(first);
        let all: Result<Vec<_>, _> =
            (port..last).map(|port| UdpSocket::bind(("127.0.0.1", port))).collect();
        if all.is_ok() {
            return port;
        }
    }
    panic!("no {count} free UDP ports in a row");
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn lease(members: [SocketAddr; 2]) -> RowConfig {
    RowConfig {
        row: ROW,
        job: JobId(JOB),
        members: members.map(|addr| MemberConfig { addr, weight: 1, is_box: false }).into(),
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        elements: 64,
        window: 16,
        chunks_max: 1 << 31,
        exponent: Some(0),
        fan_in: 2,
        parent: None,
    }
}

fn session(node: SocketAddr, members: [SocketAddr; 2], rank: usize) -> Result<Session, Error> {
    let number = u8::try_from(rank).expect("two ranks");
    let config = Config::new(members[rank], node).job(JOB).row(ROW).rank(number).lanes(LANES);
    Session::connect(&config)
}

/// Both members at once.
fn both<T: Send>(work: impl Fn(usize) -> T + Sync) -> [T; 2] {
    std::thread::scope(|scope| {
        let [one, other] = [0, 1].map(|rank| {
            scope.spawn({
                let work = &work;
                move || work(rank)
            })
        });
        [one.join().expect("rank 0"), other.join().expect("rank 1")]
    })
}

fn round(session: &mut Session, rank: usize, number: i32) -> Result<(), Error> {
    let rank = i32::try_from(rank).expect("two ranks");
    let mut values: Vec<i32> = (0..5000).map(|index| (rank + 1) * index + number).collect();
    session.allreduce_i32(&mut values)?;
    let sums = (0..5000).map(|index| 3 * index + 2 * number);
    assert!(values.into_iter().eq(sums), "rank {rank}, round {number}");
    Ok(())
}

#[test]
fn jobs_and_leases_come_and_go_over_the_southbound() {
    let controller = Controller::start();
    let first = free_ports(24);
    let (node, members) = (loopback(first), [loopback(first + 8), loopback(first + 16)]);
    let mut config = NodeConfig::new(PortSection {
        udp_port: first,
        ..PortSection::new(Io::Udp, IpAddr::from([127, 0, 0, 1]))
    });
    config.lcores.shards = LANES;
    config.arena.leases = Some(1);
    let endpoint = format!("http://127.0.0.1:{}", controller.port);
    config.controller = Some(ControllerSection { endpoint, name: None, tls: None });
    let file = ConfigFile::new("leases", &config);
    let checked = run_to_end(&mut weft_node(&file, &["--check-config"])).stdout;
    let checked = String::from_utf8(checked).expect("UTF-8");
    assert!(checked.contains("room for 8 jobs and 1 leases of 1048576 bytes more"), "{checked}");
    let running = Running::start(&mut weft_node(&file, &["--format", "json"]));

    let (row, job) = (Holding::Row(ROW), JobId(JOB));
    let install = || controller.tell(HoldingCommand::InstallLease(lease(members)));
    let remove = || controller.tell(HoldingCommand::RemoveLease { job, row: ROW });
    let refused = |holding, error| Event::HoldingRefused { holding, error };
    assert_eq!(install(), refused(row, HoldingError::UnknownJob));
    let share = JobConfig { job, slots_max: 64, rate_bytes_per_sec: None, burst_bytes: 0 };
    let of_job = Event::HoldingInstalled { holding: Holding::Job };
    assert_eq!(controller.tell(HoldingCommand::InstallJob(share)), of_job);
    assert_eq!(remove(), refused(row, HoldingError::Missing));
    assert_eq!(install(), Event::HoldingInstalled { holding: row });
    assert_eq!(install(), refused(row, HoldingError::Taken));
    let second = RowConfig { row: ROW + 1, ..lease(members) };
    let full = controller.tell(HoldingCommand::InstallLease(second));
    assert_eq!(full, refused(Holding::Row(ROW + 1), HoldingError::Full));

    controller.settle();

    // Removed while its members send: each ends with the reason, within a bounded time.
    let mut sessions = both(|rank| session(node, members, rank).expect("it joins"));
    let (told, is_removed) = (Mutex::new(Vec::new()), &remove);
    std::thread::scope(|scope| {
        for (rank, session) in sessions.iter_mut().enumerate() {
            let told = &told;
            scope.spawn(move || {
                let mut number = 0;
                let error = loop {
                    match round(session, rank, number) {
                        Ok(()) => number += 1,
                        Err(error) => break error.to_string(),
                    }
                };
                assert!(number > 0, "there were sums before");
                told.lock().expect("not poisoned").push(error);
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(is_removed(), Event::HoldingRemoved { holding: row });
    });
    drop(sessions);
    let told = told.into_inner().expect("not poisoned");
    assert_eq!(told.len(), 2);
    for error in &told {
        assert!(error.contains("row 5") && error.contains("job 3"), "{error}");
    }
    let gone = session(node, members, 0).map(drop).unwrap_err().to_string();
    assert!(gone.contains("row 5"), "{gone}");

    // And once more in the same place.
    assert_eq!(install(), Event::HoldingInstalled { holding: row });
    both(|rank| {
        let mut session = session(node, members, rank).expect("it joins");
        (0..3).for_each(|number| round(&mut session, rank, number).expect("a sum"));
        session.close().expect("the port is open");
    });
    let removal = HoldingCommand::RemoveJob { job };
    assert_eq!(controller.tell(removal.clone()), refused(Holding::Job, HoldingError::InUse));
    let carried = controller.carried();
    let ended = running.end(Signal::SIGINT);
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    let port = ["rx_bytes", "tx_bytes"].map(|name| report["port"][name].as_u64().expect(name));
    assert_eq!([carried.0, carried.1], port, "the telemetry is of all lanes");
    assert_eq!(report["jobs"][0]["id"], JOB);
    assert_eq!(report["rows"][0]["row"], ROW);
    assert_eq!(report["rows"][0]["phases"].as_array().map(Vec::len), Some(2));
    assert!(report["drops"]["unknown_group"].as_u64().is_some_and(|drops| drops > 0));
}

/// Its members hear of a leaf whose root has no such lease any more, in bounded time.
#[test]
fn members_of_a_leaf_whose_roots_lease_is_removed_end_with_the_reason() {
    let controller = Controller::start();
    let first = free_ports(40);
    let [root, leaf, one, other] = [0, 8, 16, 24].map(|above| loopback(first + above));
    let of_port = |port| {
        let section = PortSection::new(Io::Udp, IpAddr::from([127, 0, 0, 1]));
        NodeConfig::new(PortSection { udp_port: port, ..section })
    };
    let row = |members| RowSection {
        elements: 64.into(),
        window: 16,
        exponent: Some(0),
        fan_in: Some(2),
        ..RowSection::new(ROW, JOB, members)
    };
    let mut config = of_port(first);
    config.job.push(JobSection::new(JOB));
    let member = MemberSection { weight: 2, is_box: true, ..leaf.into() };
    config.row.push(row(vec![member]));
    let endpoint = format!("http://127.0.0.1:{}", controller.port);
    config.controller = Some(ControllerSection { endpoint, name: None, tls: None });
    let file = ConfigFile::new("leases-root", &config);
    let upper = Running::start(&mut weft_node(&file, &["--format", "json"]));
    let mut config = of_port(first + 8);
    config.job.push(JobSection::new(JOB));
    let parent = ParentSection { addr: root, row: ROW, rank: 0, source_port: None, mac: None };
    config.row.push(RowSection { parent: Some(parent), ..row(vec![one.into(), other.into()]) });
    let file = ConfigFile::new("leases-leaf", &config);
    let lower = Running::start(&mut weft_node(&file, &["--format", "json"]));

    let patience = Duration::from_secs(2);
    let connect = |rank: usize| {
        let number = u8::try_from(rank).expect("two ranks");
        let config = Config::new([one, other][rank], leaf).job(JOB).row(ROW).rank(number);
        Session::connect(&Config { member_timeout: patience, ..config })
    };
    let mut sessions = both(|rank| connect(rank).expect("it joins"));
    let begun = Mutex::new(None);
    let told = std::thread::scope(|scope| {
        let ends = sessions.iter_mut().enumerate().map(|(rank, session)| {
            scope.spawn(move || {
                let mut number = 0;
                loop {
                    match round(session, rank, number) {
                        Ok(()) => number += 1,
                        Err(error) => break error.to_string(),
                    }
                }
            })
        });
        let ends: Vec<_> = ends.collect();
        std::thread::sleep(Duration::from_millis(300));
        let removed = controller.tell(HoldingCommand::RemoveLease { job: JobId(JOB), row: ROW });
        assert_eq!(removed, Event::HoldingRemoved { holding: Holding::Row(ROW) });
        *begun.lock().expect("not poisoned") = Some(Instant::now());
        ends.into_iter().map(|end| end.join().expect("a member")).collect::<Vec<_>>()
    });
    let begun = begun.into_inner().expect("not poisoned").expect("it was removed");
    assert!(begun.elapsed() < patience + Duration::from_secs(3), "{:?}", begun.elapsed());
    for error in &told {
        assert!(error.contains("waits for the level above"), "{error}");
    }
    // Those that come now wait as long, and hear the same.
    drop(sessions);
    for late in both(|rank| connect(rank).map(drop).unwrap_err().to_string()) {
        assert!(late.contains("waits for the level above"), "{late}");
    }
    assert_eq!(lower.end(Signal::SIGINT).code, Some(0));
    assert_eq!(upper.end(Signal::SIGINT).code, Some(0));
}

const DIMENSION: usize = 3000;

fn push_job(worker: SocketAddr, server: SocketAddr) -> weft_control::PushConfig {
    weft_control::PushConfig {
        job: JobId(JOB),
        box_index: BoxIndex(0),
        workers: vec![worker],
        server: Endpoint { mac: MacAddr::BROADCAST, addr: server },
        replica: None,
        quota_bytes: 1 << 20,
        pull_cache_bytes: 1 << 18,
        chunks: 12,
        elements: 256,
        element_type: ElementType::I32,
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        exponent: None,
        rate_bytes_per_sec: None,
        burst_bytes: 0,
    }
}

/// Pulls the model, and returns how long that took.
fn pull(session: &mut PushSession) -> Duration {
    let begun = Instant::now();
    let mut model = vec![0f32; DIMENSION];
    session.pull(&mut model).expect("a model, from wherever");
    begun.elapsed()
}

#[test]
fn push_jobs_come_and_go_over_the_southbound() {
    let controller = Controller::start();
    let first = free_ports(24);
    let (node, server, worker) = (loopback(first), loopback(first + 8), loopback(first + 16));
    let of_port = |port| {
        let section = PortSection::new(Io::Udp, IpAddr::from([127, 0, 0, 1]));
        NodeConfig::new(PortSection { udp_port: port, ..section })
    };
    let mut config = of_port(first);
    config.lcores.shards = LANES;
    let endpoint = format!("http://127.0.0.1:{}", controller.port);
    config.controller = Some(ControllerSection { endpoint, name: None, tls: None });
    let file = ConfigFile::new("pushes", &config);
    let checked = run_to_end(&mut weft_node(&file, &["--check-config"])).stdout;
    let checked = String::from_utf8(checked).expect("UTF-8");
    assert!(checked.contains("room for 2 of 8388608 and 1048576 bytes more"), "{checked}");
    let running = Running::start(&mut weft_node(&file, &["--format", "json"]));
    let mut config = of_port(first + 8);
    let section = ServerSection::new(JOB, vec![worker], DIMENSION);
    config.server = vec![ServerSection { boxes: vec![node], ..section }];
    let file = ConfigFile::new("pushes-server", &config);
    let serving = Running::start(&mut weft_node(&file, &["--format", "json"]));

    let (holding, job) = (Holding::Push, JobId(JOB));
    let push = push_job(worker, server);
    let install = || controller.tell(HoldingCommand::InstallPush(push.clone()));
    let remove = || controller.tell(HoldingCommand::RemovePush { job });
    let refused = |error| Event::HoldingRefused { holding, error };
    assert_eq!(remove(), refused(HoldingError::Missing));
    let large = weft_control::PushConfig { quota_bytes: 1 << 30, ..push.clone() };
    let large = controller.tell(HoldingCommand::InstallPush(large));
    assert_eq!(large, refused(HoldingError::Full));
    assert_eq!(install(), Event::HoldingInstalled { holding });
    assert_eq!(install(), refused(HoldingError::Taken));
    let share = JobConfig { job, slots_max: 64, rate_bytes_per_sec: None, burst_bytes: 0 };
    let both = controller.tell(HoldingCommand::InstallJob(share));
    let error = HoldingError::Both;
    assert_eq!(both, Event::HoldingRefused { holding: Holding::Job, error });

    let mut client = PushConfig::new(worker, server).job(JOB);
    (client.aggregators, client.pull_via) = (vec![(0, node)], Some(0));
    let mut session = PushSession::connect(&client).expect("the server answers");
    for _ in 0..3 {
        pull(&mut session);
    }
    // Removed while its worker pulls: the worker goes on without it, within a bounded time.
    let is_removed = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let pulling = scope.spawn(|| {
            let (mut longest, mut after) = (Duration::ZERO, 0);
            while after < 5 {
                after += u32::from(is_removed.load(Ordering::Relaxed));
                longest = longest.max(pull(&mut session));
            }
            longest
        });
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(remove(), Event::HoldingRemoved { holding });
        is_removed.store(true, Ordering::Relaxed);
        pulling.join().expect("every pull ended")
    });
    assert!(longest < PATIENCE, "{longest:?}");
    session.close().expect("the server is there");

    // And once more in the same place, for a new life of the worker.
    assert_eq!(install(), Event::HoldingInstalled { holding });
    let mut session = PushSession::connect(&client).expect("the server answers");
    for _ in 0..3 {
        pull(&mut session);
    }
    session.close().expect("the server is there");
    let ended = running.end(Signal::SIGINT);
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    assert_eq!(report["pushes"][0]["job"], JOB);
    let answered = report["pushes"][0]["pulls_answered"].as_u64();
    assert!(answered.is_some_and(|answered| answered >= 12), "{report}");
    assert!(report["drops"]["unknown_job"].as_u64().is_some_and(|drops| drops > 0), "{report}");
    assert_eq!(serving.end(Signal::SIGINT).code, Some(0));
}
