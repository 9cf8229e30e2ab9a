//! Workers on their ports, against the real `weft-node` in a lab: one box that serves UDP, shared
//! memory and packet sockets at once, and what a worker on an interface says when it cannot work.
//!
//! Needs root, and `weft-node` beside this test (`.ci/test` builds it).

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::keys::{KeyConfig, KeySession};
use weft_client::push::{Outcome, PushConfig, PushSession, Ticket};
use weft_client::{Config, Error, Io, Session, WorkerPort};
use weft_config::node::{self, KeysSection, NodeConfig, PortSection, ServerSection};
use weft_io::Port as _;
use weft_testbed::lab::topology::LinkEnd;
use weft_testbed::lab::{netns, rootless};
use weft_tests::live::run::weft;
use weft_tests::live::sums::{integer_sums, integers};
use weft_tests::live::{PATIENCE, skip, together};

use crate::star::Lab;

/// Joins and sums a few vectors, every one of which is compared; the port in words.
fn sum_all(config: &Config, workers: u8) -> String {
    let mut session = Session::connect(config).unwrap_or_else(|error| panic!("{}", chain(&error)));
    for (round, len) in (0..).zip([1, 256, 100_000, 77_777, 3]) {
        let mut values = integers(config.rank, round, len);
        session.allreduce_i32(&mut values).unwrap_or_else(|error| panic!("{}", chain(&error)));
        assert!(
            values == integer_sums(workers, round, len),
            "round {round} of rank {}",
            config.rank
        );
    }
    let port = session.port().to_string();
    session.close().expect("the port is open");
    port
}

fn chain(error: &dyn std::error::Error) -> String {
    let source = error.source().map(chain).map(|source| format!(": {source}"));
    error.to_string() + &source.unwrap_or_default()
}

#[test]
fn one_box_serves_workers_of_all_ports_at_once() {
    let test = "one_box_serves_workers_of_all_ports_at_once";
    // A box of sockets beside its kernel, and one that is a host of its own on its interface.
    let boxes = [node::Io::Udp, node::Io::AfPacket].into_iter().flat_map(|io| [(io, 1), (io, 2)]);
    for (box_io, lanes) in boxes {
        let Some(mut lab) = Lab::up(test, "ends", 3, false) else { return };
        let hosts = ["a0", "w0", "w1", "w2"];
        let mut members: Vec<SocketAddr> = hosts.map(|host| (lab.ip(host), 7000).into()).to_vec();
        let mut port = PortSection { shm: true, ..PortSection::new(box_io, lab.ip("a0")) };
        if box_io == node::Io::AfPacket {
            port.device = Some(lab.interface("a0").to_owned());
            lab.tool("a0", "ip", &["address", "flush", "dev", lab.interface("a0")]);
            // The worker beside the box has an address that its kernel may have.
            members[0] = "10.99.0.1:7000".parse().unwrap();
            lab.tool("a0", "ip", &["address", "add", "10.99.0.1/32", "dev", "lo"]);
        }
        // The worker on w2 is a host of its own: its kernel has no address.
        lab.tool("w2", "ip", &["address", "flush", "dev", lab.interface("w2")]);
        lab.start(port, &members, lanes);
        let config = |rank: u8| {
            let config = Config::new(members[usize::from(rank)], lab.box_addr()).rank(rank);
            let config = config.offload(rank % 2 == 1).lanes(lanes);
            match rank {
                0 => config.io(Io::Shm),
                1 => config.io(Io::Udp),
                2 => config.io(Io::AfPacket),
                _ => config.io(Io::AfPacket).interface(lab.interface("w2")),
            }
        };
        // The node needs a moment to make its door for shared memory.
        thread::sleep(Duration::from_millis(500));
        let ports =
            together(4, |rank| lab.within(hosts[usize::from(rank)], || sum_all(&config(rank), 4)));
        // The worker's kernel has taken its datagrams for its own and answered nothing.
        assert_eq!(
            unreachables(&lab, "w1"),
            0,
            "{box_io:?}, {lanes}: a kernel says that it has no such port"
        );
        let on = |host: &str| format!("af_packet on {}", lab.interface(host));
        assert_eq!(
            ports,
            ["shm".to_owned(), "udp".to_owned(), on("w1"), on("w2")],
            "{box_io:?}, {lanes}"
        );
    }
}

/// ICMP messages that the kernel of a host has sent because nobody has a port.
fn unreachables(lab: &Lab, host: &str) -> u64 {
    let mut command = netns::command(&lab.namespace(host), "cat");
    let output = command.arg("/proc/net/snmp").output().expect("cat runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let (names, counts) = (lines.next().expect("names"), lines.next().expect("counts"));
    let mut counters = names.split(' ').zip(counts.split(' '));
    let found = counters.find(|(name, _)| *name == "OutDestUnreachs");
    found.expect("a counter").1.parse().expect("a number")
}

/// Waits until `count` have come here.
fn meet(here: &AtomicUsize, count: usize) {
    here.fetch_add(1, Ordering::Relaxed);
    let begun = Instant::now();
    while here.load(Ordering::Relaxed) < count {
        assert!(begun.elapsed() < PATIENCE, "somebody does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Rows go from process to process, so each has several next hops.
#[test]
fn rows_move_between_processes_on_interfaces() {
    const KEYS: u32 = 20;
    const ROUNDS: u16 = 30;
    let test = "rows_move_between_processes_on_interfaces";
    let Some(mut lab) = Lab::up(test, "rows", 3, false) else { return };
    let hosts = ["w0", "w1", "w2"];
    let processes = hosts.map(|host| SocketAddr::from((lab.ip(host), 7000))).to_vec();
    let keys = KeysSection::new(0, 8, KEYS, processes.clone());
    let port = PortSection::new(node::Io::Udp, lab.ip("a0"));
    lab.start_as(&NodeConfig { keys: vec![keys], ..NodeConfig::new(port) });
    let (done, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    together(3, |me| {
        let config = KeyConfig {
            // Two on their interfaces, and one behind its kernel.
            io: if me == 2 { Io::Udp } else { Io::AfPacket },
            connect_timeout: PATIENCE,
            ..KeyConfig::new(lab.box_addr(), processes.clone(), me, 8, KEYS)
        };
        lab.within(hosts[usize::from(me)], || {
            let session = KeySession::connect(&config).unwrap_or_else(|error| panic!("{error}"));
            for round in 0..ROUNDS {
                let mine = [u64::from(round + u16::from(me)) % u64::from(KEYS)];
                session.localize(&mine).expect("it moves here");
                for key in 0..u64::from(KEYS) {
                    session.push(&[key], &[1.0; 8]).expect("the row is somewhere");
                }
            }
            meet(&done, 3);
            let all: Vec<u64> = (0..u64::from(KEYS)).collect();
            let mut rows = vec![0.0; all.len() * 8];
            session.pull(&all, &mut rows).expect("all are here");
            assert!(rows.iter().all(|value| *value == f32::from(3 * ROUNDS)), "{rows:?}");
            assert!(session.statistics().process.rows_taken > 0, "rows have moved");
            // Rows that are here would be lost to the others.
            meet(&seen, 3);
        });
    });
}

#[test]
fn updates_are_pushed_from_an_interface() {
    const PARAMETERS: usize = 5_000;
    const UPDATES: u8 = 10;
    let test = "updates_are_pushed_from_an_interface";
    let Some(mut lab) = Lab::up(test, "push", 2, false) else { return };
    let hosts = ["w0", "w1"];
    let workers = hosts.map(|host| SocketAddr::from((lab.ip(host), 7000)));
    let server = ServerSection::new(0, workers.to_vec(), PARAMETERS);
    let port = PortSection::new(node::Io::Udp, lab.ip("a0"));
    lab.start_as(&NodeConfig { server: vec![server], ..NodeConfig::new(port) });
    together(2, |rank| {
        let config = PushConfig {
            connect_timeout: PATIENCE,
            io: if rank == 0 { Io::AfPacket } else { Io::Udp },
            ..PushConfig::new(workers[usize::from(rank)], lab.box_addr()).rank(rank)
        };
        lab.within(hosts[usize::from(rank)], || {
            let mut session = PushSession::connect(&config).unwrap_or_else(|e| panic!("{e}"));
            let mut model = vec![0.0; PARAMETERS];
            for _ in 0..UPDATES {
                let version = session.pull(&mut model).expect("a model");
                let update: Vec<f32> =
                    (0_u16..).take(PARAMETERS).map(|at| f32::from(at % 100)).collect();
                let outcome = session.push(&update, version).expect("it goes").wait();
                assert!(matches!(outcome, Ok(Outcome::Committed { .. })), "{outcome:?}");
            }
            // A pull may be of a version that somebody else was pulling (SPEC#pull).
            let begun = Instant::now();
            let last = u64::from(2 * UPDATES);
            while session.pull(&mut model).expect("a model").0 < last {
                assert!(begun.elapsed() < PATIENCE, "the other's updates do not come");
            }
            for (value, at) in model.iter().zip(0_u16..) {
                assert_eq!(*value, f32::from(2 * u16::from(UPDATES) * (at % 100)), "at {at}");
            }
            session.close().expect("all is done");
        });
    });
}

#[test]
fn a_worker_on_an_interface_says_what_is_wrong() {
    let test = "a_worker_on_an_interface_says_what_is_wrong";
    let Some(lab) = Lab::up(test, "wrong", 1, false) else { return };
    let local = SocketAddr::from((lab.ip("w0"), 7000));
    let nobody = |ip: IpAddr| -> IpAddr {
        match ip {
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                [a, b, c, 77].into()
            }
            IpAddr::V6(_) => panic!("the star has IPv4 addresses"),
        }
    };
    let absent = nobody(lab.ip("a0"));
    let config = |local: SocketAddr, aggregator: SocketAddr| {
        let config = Config::new(local, aggregator).io(Io::AfPacket);
        Config { connect_timeout: Duration::from_secs(1), ..config }
    };
    let refused = |config: &Config| {
        let error = lab.within("w0", || Session::connect(config)).map(drop).expect_err("refused");
        assert_eq!(chain(&error).lines().count(), 1);
        error
    };
    let own = config(local, lab.box_addr());
    let elsewhere = config((absent, 7000).into(), lab.box_addr());

    let error = refused(&own.clone().interface("nowhere"));
    assert!(matches!(error, Error::Config { field: "interface", .. }), "{error}");
    let error = refused(&elsewhere.clone().interface("nowhere"));
    assert!(chain(&error).contains("no interface nowhere"), "{}", chain(&error));
    let error = refused(&elsewhere);
    assert!(matches!(error, Error::NoInterface { .. }), "{error}");
    let error = refused(&own.clone().mtu(9000));
    assert!(error.to_string().contains("has an MTU of 1500"), "{error}");
    let apart = config((lab.ip("w0"), 7100).into(), lab.box_addr());
    let narrow = lab.within("w0", || WorkerPort::open(&apart.mtu(1280)));
    let info = narrow.expect("an MTU below the interface's").info();
    assert_eq!(info.mtu, 1280, "no frame is longer than the session's");
    let error = refused(&config("127.0.0.1:7000".parse().unwrap(), lab.box_addr()));
    assert!(matches!(error, Error::Config { field: "local", .. }), "{error}");
    let taken = lab.within("w0", || UdpSocket::bind(local).expect("the port is free"));
    let error = refused(&own);
    assert!(chain(&error).contains("in use"), "{}", chain(&error));
    drop(taken);

    // Nobody has the aggregator's address; then somebody has, but there is no box.
    let begun = Instant::now();
    let text = refused(&config(local, (absent, 22341).into())).to_string();
    assert!(text.contains(&format!("nobody on {}", lab.interface("w0"))), "{text}");
    assert!(text.contains(&format!("answers for {absent}")), "{text}");
    let error = refused(&own);
    assert!(matches!(error, Error::Session(_)), "its kernel answers: {error}");
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn runs_of_frames_that_nothing_cuts_are_named() {
    let test = "runs_of_frames_that_nothing_cuts_are_named";
    let Some(mut lab) = Lab::up(test, "runs", 2, true) else { return };
    let members = ["w0", "w1"].map(|host| SocketAddr::from((lab.ip(host), 7000)));
    lab.start(PortSection::new(node::Io::Udp, lab.ip("a0")), &members, 1);
    let complaints = together(2, |rank| {
        let io = if rank == 0 { Io::AfPacket } else { Io::Udp };
        let config = Config::new(members[usize::from(rank)], lab.box_addr()).rank(rank).io(io);
        let config = config.offload(rank == 1);
        let config = Config { member_timeout: Duration::from_secs(5), ..config };
        lab.within(["w0", "w1"][usize::from(rank)], || {
            let mut session = Session::connect(&config).expect("single frames pass");
            let mut values = integers(rank, 0, 200_000);
            match session.allreduce_i32(&mut values) {
                // What was lost is asked for again, frame by frame.
                Ok(_) => {
                    assert!(values == integer_sums(2, 0, 200_000), "rank {rank}");
                    session.port().complaint()
                }
                Err(error) => Some(error.to_string()),
            }
        })
    });
    let said = complaints[0].as_deref().expect("the box sends runs of frames");
    assert!(said.contains("longer than its MTU of 1500") && said.contains("ethtool -K"), "{said}");
}

#[test]
fn runs_that_nothing_cuts_are_read_by_whoever_makes_them() {
    let test = "runs_that_nothing_cuts_are_read_by_whoever_makes_them";
    for box_io in [node::Io::Udp, node::Io::AfPacket] {
        let Some(mut lab) = Lab::up(test, "whole", 2, true) else { return };
        let members = ["w0", "w1"].map(|host| SocketAddr::from((lab.ip(host), 7000)));
        let mut port = PortSection::new(box_io, lab.ip("a0"));
        if box_io == node::Io::AfPacket {
            port.device = Some(lab.interface("a0").to_owned());
            lab.tool("a0", "ip", &["address", "flush", "dev", lab.interface("a0")]);
        }
        lab.start(port, &members, 1);
        let before = ["w0", "w1"].map(|host| packets(&lab, host));
        let said = together(2, |rank| {
            let io = if rank == 0 { Io::AfPacket } else { Io::Udp };
            let config = Config::new(members[usize::from(rank)], lab.box_addr()).rank(rank).io(io);
            lab.within(["w0", "w1"][usize::from(rank)], || {
                let mut session = Session::connect(&config).expect("all pass");
                for round in 0..3 {
                    let mut values = integers(rank, round, 200_000);
                    session.allreduce_i32(&mut values).expect("all pass");
                    assert!(values == integer_sums(2, round, 200_000), "rank {rank}");
                }
                let complaint = session.port().complaint();
                session.close().expect("the port is open");
                complaint
            })
        });
        assert_eq!(said, [None, None], "{box_io:?}");
        // Three times 782 answers came, and others.
        for (host, before) in ["w0", "w1"].into_iter().zip(before) {
            let came = packets(&lab, host) - before;
            assert!(came < 3 * 782 / 2, "{came} packets came to {host} from a box on {box_io:?}");
        }
    }
}

/// Packets that the interface of a host has received.
fn packets(lab: &Lab, host: &str) -> u64 {
    let mut command = netns::command(&lab.namespace(host), "cat");
    let output = command.arg("/proc/net/dev").output().expect("cat runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let prefix = format!("{}:", lab.interface(host));
    let counts = text.lines().find_map(|line| line.trim().strip_prefix(prefix.as_str()));
    let count = counts.and_then(|counts| counts.split_whitespace().nth(1));
    count.expect("a count").parse().expect("a number")
}

/// As a snooping switch without a querier does after some minutes, to one member of three.
#[test]
fn a_bridge_that_stops_carrying_multicast_costs_repeats_and_no_sum() {
    let test = "a_bridge_that_stops_carrying_multicast_costs_repeats_and_no_sum";
    let Some(mut lab) = Lab::up(test, "cast", 3, true) else { return };
    let hosts = ["w0", "w1", "w2"];
    let members = hosts.map(|host| SocketAddr::from((lab.ip(host), 7000)));
    let base: IpAddr = "239.87.69.0".parse().expect("an address");
    let port = PortSection::new(node::Io::Udp, lab.ip("a0"));
    lab.start(PortSection { multicast: Some(base), ..port }, &members, 1);
    let links = &lab.topology.links;
    let link = links.iter().find(|link| link.ends.iter().any(|end| end.node == "w1"));
    let end = link.expect("w1's link").ends.iter().find(|end| end.node != "w1").expect("two ends");
    let flood = |is_on: &str| {
        let arguments = ["link", "set", "dev", &end.interface, "mcast_flood", is_on];
        lab.tool(&end.node, "bridge", &arguments);
    };
    let counts = together(3, |rank| {
        let config = Config::new(members[usize::from(rank)], lab.box_addr()).rank(rank);
        let config = config.io(Io::Udp).multicast(base);
        lab.within(hosts[usize::from(rank)], || {
            let mut session = Session::connect(&config).expect("a box");
            let mut counts = Vec::new();
            for round in 0..160 {
                let mut values = integers(rank, round, 5_000);
                session.allreduce_i32(&mut values).unwrap_or_else(|e| panic!("{}", chain(&e)));
                assert!(values == integer_sums(3, round, 5_000), "round {round} of rank {rank}");
                if round % 40 == 39 {
                    let data = session.statistics().data;
                    counts.push((data.answers_by_multicast, data.times_deaf));
                }
                match (rank, round) {
                    (0, 39) => flood("off"),
                    (0, 119) => flood("on"),
                    _ => {}
                }
                if round == 119 {
                    // Longer than the rests of whoever found out that it was deaf.
                    thread::sleep(Duration::from_secs(5));
                }
            }
            session.close().expect("the port is open");
            counts
        })
    });
    let [(before, none), (found_out, deaf), (without, _), (again, _)] = counts[1][..] else {
        panic!("{counts:?}")
    };
    assert!(before > 0 && none == 0, "it heard: {counts:?}");
    assert!(deaf > 0, "it found out: {counts:?}");
    assert_eq!(without, found_out, "nothing comes to who is cut off: {counts:?}");
    assert!(again > without, "it hears again: {counts:?}");
}

/// Where a path gets narrower during a run: at the worker's own interface, or beyond it, where
/// nobody says a word.
#[test]
fn a_path_that_gets_narrower_in_a_run_is_named() {
    let test = "a_path_that_gets_narrower_in_a_run_is_named";
    for (io, node) in [(Io::Udp, "w0"), (Io::Udp, "s1"), (Io::AfPacket, "w0"), (Io::AfPacket, "s1")]
    {
        let Some(mut lab) = Lab::up(test, "narrow", 2, false) else { return };
        let members = ["w0", "w1"].map(|host| SocketAddr::from((lab.ip(host), 7000)));
        lab.start(PortSection::new(node::Io::Udp, lab.ip("a0")), &members, 1);
        let end = narrowing(&lab, node);
        let begun = Instant::now();
        let errors = together(2, |rank| {
            let io = if rank == 0 { io } else { Io::Udp };
            let config = Config::new(members[usize::from(rank)], lab.box_addr()).rank(rank).io(io);
            let config = Config { member_timeout: Duration::from_secs(4), ..config };
            lab.within(["w0", "w1"][usize::from(rank)], || {
                let mut session = Session::connect(&config).expect("the path is wide enough");
                let mut rounds = 0;
                loop {
                    let mut values = integers(rank, rounds, 5_000);
                    if let Err(error) = session.allreduce_i32(&mut values) {
                        return error.to_string();
                    }
                    assert!(
                        values == integer_sums(2, rounds, 5_000),
                        "round {rounds} of rank {rank}"
                    );
                    rounds += 1;
                    if rank == 0 && rounds == 50 {
                        lab.tool(&end.node, "ip", &["link", "set", &end.interface, "mtu", "600"]);
                    }
                    assert!(begun.elapsed() < PATIENCE, "it goes on through a narrow path");
                }
            })
        });
        assert!(errors[0].contains("MTU"), "{io:?}, narrow at {node}: {}", errors[0]);
    }
}

/// The end of w0's link that is to become narrow: at the worker, or beyond it, where nobody says a
/// word.
fn narrowing(lab: &Lab, at: &str) -> LinkEnd {
    let links = &lab.topology.links;
    let link = links.iter().find(|link| link.ends.iter().any(|end| end.node == "w0"));
    let mut ends = link.expect("w0's link").ends.iter();
    ends.find(|end| (end.node == "w0") == (at == "w0")).expect("two ends").clone()
}

/// Makes it narrow, and sees that `work` ends with an error that names it, in time.
fn ends_narrow(lab: &Lab, end: &LinkEnd, patience: Duration, work: impl FnOnce() -> String) {
    lab.tool(&end.node, "ip", &["link", "set", &end.interface, "mtu", "600"]);
    let begun = Instant::now();
    let error = work();
    let took = begun.elapsed();
    assert!(took < patience + Duration::from_secs(3), "{took:?}: {error}");
    let to = lab.box_addr().to_string();
    let is_named = error.contains("raise the MTU") && error.contains(&to);
    assert!(is_named, "narrow at {}: {error}", end.node);
}

/// A server asks for chunks, again and again, that it never gets.
#[test]
fn a_push_session_names_a_path_that_gets_narrower() {
    const PARAMETERS: usize = 5_000;
    let test = "a_push_session_names_a_path_that_gets_narrower";
    let patience = Duration::from_secs(8);
    for (io, at) in [(Io::Udp, "w0"), (Io::AfPacket, "s1")] {
        let Some(mut lab) = Lab::up(test, "slimp", 1, false) else { return };
        let local = SocketAddr::from((lab.ip("w0"), 7000));
        let server = ServerSection::new(0, vec![local], PARAMETERS);
        let port = PortSection::new(node::Io::Udp, lab.ip("a0"));
        lab.start_as(&NodeConfig { server: vec![server], ..NodeConfig::new(port) });
        let config =
            PushConfig { io, member_timeout: patience, ..PushConfig::new(local, lab.box_addr()) };
        lab.within("w0", || {
            let mut session = PushSession::connect(&config).unwrap_or_else(|e| panic!("{e}"));
            let mut model = vec![1.0; PARAMETERS];
            let mut version = session.pull(&mut model).expect("a model");
            ends_narrow(&lab, &narrowing(&lab, at), patience, || {
                loop {
                    let went = session.push(&model, version).and_then(Ticket::wait);
                    match went {
                        Ok(Outcome::Committed { version: newer }) => version = newer,
                        Ok(_) => {}
                        Err(error) => return error.to_string(),
                    }
                }
            });
        });
    }
}

/// A home hears that a process is there, and yet no row passes.
#[test]
fn a_key_session_names_a_path_that_gets_narrower() {
    const KEYS: u32 = 200;
    let test = "a_key_session_names_a_path_that_gets_narrower";
    let patience = Duration::from_secs(8);
    for (io, at) in [(Io::Udp, "s1"), (Io::AfPacket, "w0")] {
        let Some(mut lab) = Lab::up(test, "slimk", 2, false) else { return };
        let processes = ["w0", "w1"].map(|host| SocketAddr::from((lab.ip(host), 7000))).to_vec();
        let keys = KeysSection::new(0, 8, KEYS, processes.clone());
        let port = PortSection::new(node::Io::Udp, lab.ip("a0"));
        lab.start_as(&NodeConfig { keys: vec![keys], ..NodeConfig::new(port) });
        let (here, over) = (AtomicUsize::new(0), AtomicUsize::new(0));
        together(2, |me| {
            let config = KeyConfig {
                io: if me == 0 { io } else { Io::Udp },
                call_timeout: patience,
                connect_timeout: PATIENCE,
                ..KeyConfig::new(lab.box_addr(), processes.clone(), me, 8, KEYS)
            };
            lab.within(["w0", "w1"][usize::from(me)], || {
                let session = KeySession::connect(&config).unwrap_or_else(|e| panic!("{e}"));
                let all: Vec<u64> = (0..u64::from(KEYS)).collect();
                let mut values = vec![0.0; all.len() * 8];
                session.pull(&all, &mut values).expect("all are here");
                meet(&here, 2);
                if me == 0 {
                    ends_narrow(&lab, &narrowing(&lab, at), patience, || {
                        session.pull(&all, &mut values).expect_err("none passes").to_string()
                    });
                }
                // The rows that are here would be gone.
                meet(&over, 2);
            });
        });
    }
}

#[test]
fn sums_are_measured_over_each_port_of_the_workers() {
    let test = "sums_are_measured_over_each_port_of_the_workers";
    if !rootless::is_privileged() {
        skip(test, "run as root");
        return;
    }
    let sizes = ["-b", "4K", "-e", "64K", "-f", "16", "-n", "2", "-w", "2,3", "--format", "json"];
    for (ports, io, worker_io) in [
        (&["--io", "shm"][..], "shm", "shm"),
        (&["--io", "udp", "--worker-io", "af_packet"], "udp", "af_packet"),
        (&["--io", "af_packet", "--worker-io", "af_packet"], "af_packet", "af_packet"),
    ] {
        let mut arguments = vec!["bench", "allreduce"];
        arguments.extend(ports.iter().chain(&sizes));
        let ended = weft(&arguments, PATIENCE);
        assert_eq!(ended.code, Some(0), "{ports:?}: {}", ended.stderr);
        let json = ended.json.expect("JSON");
        let rows = json.as_array().expect("rows");
        assert_eq!(rows.len(), 4, "{ports:?}: two sizes for two and for three workers");
        for row in rows {
            assert_eq!((&row["io"], &row["worker_io"]), (&io.into(), &worker_io.into()), "{row}");
            assert_eq!(row["wrong"], 0, "{row}");
            let by_multicast = row["chunks_by_multicast"].as_u64().expect("a number") > 0;
            assert_eq!(by_multicast, io == "shm", "{row}");
        }
    }
    let ended = weft(&["bench", "allreduce", "--io=shm", "--worker-io=af_packet"], PATIENCE);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}
