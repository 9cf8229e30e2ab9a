//! `weft-client` against the real `weft-node`, over UDP on loopback: numbers, lanes, leases that
//! run out, late and dying members, greedy jobs, and configurations that do not fit.
//!
//! Needs `weft-node` beside this test (`.ci/test` builds it); the MTU test needs namespaces.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::{Config, Error, Numbers, Session};
use weft_config::node::{Io, JobSection, NodeConfig, PortSection, RowSection};
use weft_config::to_toml;
use weft_control::SumOrder;
use weft_io::fault::{Fault, FaultConfig, FaultRates, member_seed};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_testbed::lab::topology::{Star, Topology};
use weft_testbed::lab::{self, LabName, netns, rootless};
use weft_tests::live::member::RawMember;
use weft_tests::live::node::{self, Node};
use weft_tests::live::sums::{integer_sums, integers};
use weft_tests::live::{PATIENCE, program, skip, together};
use weft_wire::header::{ElementType, Operation};

/// Numbers whose sums depend on the order of addition.
fn floats(rank: u8, len: usize) -> Vec<f32> {
    integers(rank, 9, len)
        .into_iter()
        .map(|word| f32::from_bits(word.cast_unsigned() & 0x83ff_ffff | 0x3800_0000))
        .collect()
}

/// A port with 2 % loss, 1 % duplicates and 1 % damage in each direction.
fn lossy(config: &Config) -> Fault<UdpPort> {
    let mut udp = UdpConfig::new(config.local);
    udp.socket_count = usize::from(config.lanes);
    let port = UdpPort::open(&udp).expect("the member's ports are free");
    let rates = FaultRates { loss: 0.02, duplicate: 0.01, corrupt: 0.01, ..FaultRates::NONE };
    let seed = member_seed(7, config.rank);
    Fault::new(port, &FaultConfig { seed, rx: rates, tx: rates, ..FaultConfig::default() })
}

/// A row whose place and members the node says.
fn any_row() -> RowSection {
    RowSection::new(0, 0, Vec::new())
}

#[test]
fn two_lanes_with_loss_give_the_right_sums() {
    const CHUNKS: usize = 330;
    let row = &RowSection { elements: 64.into(), window: 64, exponent: Some(0), ..any_row() };
    let node = Node::start(&node::Config::new(2).job(JobSection::new(0)).row(0, 0, 3, row));
    let fired = together(3, |rank| {
        let config = node.client(0, 0, rank).lanes(2);
        let mut session = Session::over(lossy(&config), &config).expect("joins");
        for round in 0..4 {
            let len = CHUNKS * 64 - 5 * usize::from(rank == 3);
            let mut values = integers(rank, round, len);
            session.allreduce_i32(&mut values).expect("a sum");
            assert!(values == integer_sums(3, round, len), "rank {rank}, round {round}");
        }
        let lost = session.port().tx_counts().lost + session.port().rx_counts().lost;
        assert!(session.close().expect("the port is open"), "all close");
        lost
    });
    assert!(fired.iter().all(|lost| *lost > 10), "{fired:?}");
    let statistics = node.end();
    assert_eq!(statistics["jobs"][0]["contributions_added"], 3 * 4 * CHUNKS);
    let lanes = statistics["lanes"].as_array().expect("lanes");
    assert_eq!(lanes.len(), 2);
}

#[test]
fn floats_are_summed_in_rank_order_bit_for_bit() {
    const LEN: usize = 5000;
    let row = &RowSection {
        elements: 128.into(),
        window: 32,
        element_type: ElementType::F32,
        sum_order: SumOrder::Rank,
        ..any_row()
    };
    let node = Node::start(&node::Config::new(1).job(JobSection::new(0)).row(0, 0, 4, row));
    let sums = together(4, |rank| {
        let mut session =
            Session::connect(&node.client(0, 0, rank).numbers(Numbers::F32)).expect("joins");
        let mut values = floats(rank, LEN);
        // Arrival in the opposite order of the ranks.
        thread::sleep(Duration::from_millis(20 * (3 - u64::from(rank))));
        session.allreduce(&mut values).expect("a sum");
        session.close().expect("the port is open");
        values
    });
    let in_order = |order: [u8; 4]| {
        let mut sum = floats(order[0], LEN);
        for rank in &order[1..] {
            for (sum, value) in sum.iter_mut().zip(floats(*rank, LEN)) {
                *sum += value;
            }
        }
        sum
    };
    let expected = in_order([0, 1, 2, 3]);
    assert_ne!(expected, in_order([3, 2, 1, 0]), "the numbers would not show the order");
    for sum in sums {
        assert!(sum.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}

#[test]
fn bf16_sums_are_rounded_once() {
    const LEN: usize = 3001;
    let row = &RowSection {
        elements: 256.into(),
        window: 32,
        element_type: ElementType::Bf16,
        ..any_row()
    };
    let node = Node::start(&node::Config::new(1).job(JobSection::new(0)).row(0, 0, 2, row));
    let sums = together(2, |rank| {
        let mut session =
            Session::connect(&node.client(0, 0, rank).numbers(Numbers::Bf16)).expect("joins");
        let mut values = floats(rank, LEN);
        session.allreduce(&mut values).expect("a sum");
        session.close().expect("the port is open");
        values
    });
    // Round to nearest, ties to even, on the upper half of the bits.
    let bf16 = |value: f32| {
        let bits = value.to_bits();
        f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
    };
    // Two numbers have one order of addition.
    let expected: Vec<f32> = floats(0, LEN)
        .into_iter()
        .zip(floats(1, LEN))
        .map(|(a, b)| bf16(bf16(a) + bf16(b)))
        .collect();
    for sum in sums {
        assert!(sum.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}

#[test]
fn a_lease_that_runs_out_is_renewed_within_a_round() {
    const ROUNDS: u32 = 12;
    // 20 chunks a round: 64 steps last for three rounds, and the exponents' row for 64.
    let data = &RowSection { elements: 64.into(), window: 16, chunks_max: 64, ..any_row() };
    let exponents = &RowSection {
        elements: 64.into(),
        window: 16,
        operation: Operation::Max,
        exponent: Some(0),
        ..any_row()
    };
    let node = Node::start(
        &node::Config::new(1).job(JobSection::new(0)).row(0, 0, 3, data).row(1, 0, 3, exponents),
    );
    together(3, |rank| {
        let numbers = Numbers::Block { exponent_row: 1 };
        let mut config = node.client(0, 0, rank).numbers(numbers);
        config.close_linger = Duration::from_millis(200);
        let mut session = Session::over(lossy(&config), &config).expect("joins");
        for round in 0..ROUNDS {
            if round == 3 && rank == 2 {
                // Longer than the linger: a renewal waits for members, as a round does.
                thread::sleep(Duration::from_millis(600));
            }
            let mut values: Vec<f32> =
                (0..1250_u16).map(|i| f32::from(i) * f32::from(rank + 1)).collect();
            session.allreduce(&mut values).expect("a sum");
            let expected = (0..1250_u16).map(|i| f32::from(i) * 6.0);
            assert!(values.iter().zip(expected).all(|(sum, exact)| *sum == exact), "{round}");
        }
        let statistics = session.statistics();
        assert_eq!(statistics.renewals, 3, "rank {rank}");
        assert_eq!(statistics.data.answers, u64::from(20 * ROUNDS), "rank {rank}");
        session.close().expect("the port is open");
    });
}

#[test]
fn a_round_longer_than_any_lease_is_refused() {
    let row = &RowSection {
        elements: 64.into(),
        window: 16,
        chunks_max: 64,
        exponent: Some(0),
        ..any_row()
    };
    let node = Node::start(&node::Config::new(1).job(JobSection::new(0)).row(0, 0, 1, row));
    let mut session = Session::connect(&node.client(0, 0, 0)).expect("joins");
    let error = session.allreduce_i32(&mut vec![0; 65 * 64]).expect_err("65 chunks of 64");
    assert!(matches!(error, Error::Round(_)), "{error}");
    session.close().expect("the port is open");
}

#[test]
fn a_late_worker_costs_the_others_a_window_at_most() {
    const WINDOW: u64 = 64;
    let row = &RowSection { elements: 256.into(), window: 64, exponent: Some(0), ..any_row() };
    let node = Node::start(&node::Config::new(1).job(JobSection::new(0)).row(0, 0, 3, row));
    let ready = Barrier::new(3);
    let repeats = together(3, |rank| {
        let mut config = node.client(0, 0, rank);
        // The bound is about the protocol; a scheduler that stalls somebody is not the subject.
        config.rto_min = Duration::from_millis(30);
        let mut session = Session::connect(&config).expect("joins");
        let len = 3 * usize::try_from(WINDOW).expect("small") * 256;
        let mut values = integers(rank, 0, len);
        session.allreduce_i32(&mut values).expect("a sum");
        ready.wait();
        let before = session.statistics().data;
        if rank == 2 {
            thread::sleep(Duration::from_millis(500));
        }
        let mut values = integers(rank, 1, len);
        session.allreduce_i32(&mut values).expect("a sum");
        assert!(values == integer_sums(3, 1, len), "rank {rank}");
        let after = session.statistics().data;
        session.close().expect("the port is open");
        let probes = after.status_probes - before.status_probes;
        (after.retransmissions - before.retransmissions, probes)
    });
    for (rank, (repeated, probes)) in repeats.iter().enumerate().take(2) {
        assert!(*repeated <= WINDOW, "rank {rank} repeated {repeated} of {WINDOW}");
        assert!(*repeated > 0, "rank {rank} did not even notice");
        // 500 ms of probes that back off: never more than a few for each slot.
        assert!(*probes <= 8 * WINDOW, "rank {rank} sent {probes} probes");
    }
}

#[test]
fn a_worker_that_comes_back_ends_the_others_session() {
    let row = &RowSection { elements: 64.into(), window: 16, exponent: Some(0), ..any_row() };
    let node = Node::start(&node::Config::new(1).job(JobSection::new(0)).row(0, 0, 3, row));
    let begun = Instant::now();
    let errors = together(3, |rank| {
        let mut session = Session::connect(&node.client(0, 0, rank)).expect("joins");
        let mut values = integers(rank, 0, 6400);
        session.allreduce_i32(&mut values).expect("a sum");
        if rank != 1 {
            return session.allreduce_i32(&mut values).expect_err("rank 1 has gone").to_string();
        }
        drop(session);
        thread::sleep(Duration::from_millis(100));
        let mut config = node.client(0, 0, 1);
        config.member_timeout = Duration::from_secs(2);
        // Alone it is not a group again.
        Session::connect(&config).expect_err("the others do not come").to_string()
    });
    assert!(begun.elapsed() < Duration::from_secs(20));
    for rank in [0, 2] {
        assert_eq!(errors[rank], "the session ended: the session ended: restarted was rank 1");
    }
    assert_eq!(errors[1], "the session ended: waited too long for rank 0, 2");
}

/// Three workers of `row` sum integers for some rounds; each one's sums.
fn quiet_job(node: &Node, row: u16) -> Vec<Vec<Vec<i32>>> {
    together(3, |rank| {
        let mut session = Session::connect(&node.client(row, row, rank)).expect("joins");
        let sums = (0..30)
            .map(|round| {
                let mut values = integers(rank, round, 40 * 64);
                session.allreduce_i32(&mut values).expect("a sum");
                values
            })
            .collect();
        session.close().expect("the port is open");
        sums
    })
}

fn named(id: u16, name: &str) -> JobSection {
    JobSection { name: Some(name.to_owned()), ..JobSection::new(id) }
}

#[test]
fn a_greedy_job_and_a_dying_one_change_nothing_for_a_third() {
    let row = &RowSection { elements: 64.into(), window: 16, exponent: Some(0), ..any_row() };
    let config = node::Config::new(1)
        .job(JobSection {
            slots_max: 16,
            rate_bytes_per_sec: Some(1_000_000),
            burst_bytes: 4096,
            ..named(0, "greedy")
        })
        .job(named(1, "dying"))
        .job(named(2, "quiet"))
        .row(0, 0, 1, row)
        .row(1, 1, 2, row)
        .row(2, 2, 3, row);
    let node = Node::start(&config);
    let solo = quiet_job(&node, 2);
    assert!(solo[0].iter().zip(0..).all(|(sum, round)| *sum == integer_sums(3, round, 40 * 64)));
    let over = AtomicBool::new(false);
    let flooded = AtomicU64::new(0);
    let together = thread::scope(|scope| {
        scope.spawn(|| {
            let mut greedy = RawMember::join(node.member(0, 0), node.addr(), 0, 0);
            let mut chunk = 0;
            while !over.load(Ordering::Relaxed) {
                // Without an ear for answers, and far outside its window.
                greedy.flood(chunk, 64, 64);
                chunk += 64;
                flooded.fetch_add(64, Ordering::Relaxed);
            }
        });
        for rank in 0..2 {
            let (node, over) = (&node, &over);
            scope.spawn(move || {
                let mut config = node.client(1, 1, rank);
                config.member_timeout = Duration::from_secs(2);
                let mut session = Session::connect(&config).expect("joins");
                for round in 0.. {
                    if rank == 1 && round == 5 {
                        // Gone without a word in the middle of the other's round.
                        return;
                    }
                    let mut values = integers(rank, round, 6400);
                    if session.allreduce_i32(&mut values).is_err() || over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let sums = quiet_job(&node, 2);
        over.store(true, Ordering::Relaxed);
        sums
    });
    assert!(together == solo, "the neighbours changed a sum");
    let statistics = node.end();
    let job = |name: &str| {
        let jobs = statistics["jobs"].as_array().expect("jobs").iter();
        jobs.clone().find(|job| job["name"] == name).expect("the job").clone()
    };
    let refused = job("greedy")["over_quota"].as_u64().expect("a count");
    let sent = flooded.into_inner();
    assert!(refused > sent / 10 && refused > 100, "{refused} of {sent} were over the quota");
    assert_eq!(job("quiet")["contributions_added"], 2 * 3 * 30 * 40);
}

#[test]
fn a_configuration_that_does_not_fit_is_one_line_in_seconds() {
    let row = &RowSection { elements: 256.into(), window: 16, exponent: Some(0), ..any_row() };
    let node = Node::start(&node::Config::new(2).job(JobSection::new(0)).row(0, 0, 1, row));
    let refusal = |config: &Config| {
        let begun = Instant::now();
        let error = Session::connect(config).expect_err("this cannot work");
        assert!(begun.elapsed() < Duration::from_secs(8), "{error} after {:?}", begun.elapsed());
        let text = error.to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    let good = node.client(0, 0, 0).lanes(2);
    let text = refusal(&good.clone().lanes(1));
    assert!(text.contains("the aggregator has 2 lanes, not 1: set `lanes` to 2"), "{text}");
    let text = refusal(&good.clone().mtu(1000));
    assert!(text.contains("takes 1056 bytes"), "{text}");
    let text = refusal(&good.clone().row(5));
    assert!(text.contains("aggregator"), "{text}");
    let mut nobody = good.clone();
    nobody.aggregator.set_port(9);
    nobody.connect_timeout = Duration::from_secs(1);
    let text = refusal(&nobody);
    assert!(text.contains("no answer from the aggregator"), "{text}");
    let mut taken = good.clone();
    taken.local = node.addr();
    let error = Session::connect(&taken).expect_err("the node has this port");
    let Error::Port(source) = error else { panic!("{error}") };
    assert!(source.to_string().contains("is in use"), "{source}");
    // The node is none the worse for it.
    let mut session = Session::connect(&good).expect("joins");
    session.allreduce_i32(&mut [1; 600]).expect("a sum");
    session.close().expect("the port is open");
}

/// A lab of this test, taken down when it ends.
struct Lab(LabName);

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = lab::down(&self.0);
    }
}

#[test]
fn a_link_with_a_smaller_mtu_is_found_in_seconds() {
    if !rootless::is_privileged() {
        skip("a_link_with_a_smaller_mtu_is_found_in_seconds", "run as root");
        return;
    }
    let star = Star { workers: 1, aggregators: 1, rate: None, mtu: 1500 };
    let topology = Topology::star(&star).expect("two hosts");
    let name: LabName = format!("mtu{}", std::process::id()).parse().expect("a lab name");
    let lab = Lab(name);
    lab::up(&lab.0, &topology).expect("a lab");
    let ip = |host: &str| topology.host(host).and_then(|host| host.ip).expect("an address").address;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("node.toml");
    let members = vec![SocketAddr::from((ip("w0"), 7000)).into()];
    let node = NodeConfig {
        job: vec![JobSection::new(0)],
        row: vec![RowSection { exponent: Some(0), ..RowSection::new(0, 0, members) }],
        ..NodeConfig::new(PortSection::new(Io::Udp, ip("a0")))
    };
    std::fs::write(&file, to_toml(&node)).expect("a file in a temporary directory");
    let node = program("weft-node");
    let mut command = netns::command(&lab.0.namespace("a0"), node.to_str().expect("UTF-8"));
    let mut child = command
        .arg("--config")
        .arg(&file)
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("weft-node starts");
    let config = Config::new((ip("w0"), 7000).into(), (ip("a0"), 22341).into());
    let connect =
        || netns::within(&lab.0.namespace("w0"), || Session::connect(&config)).expect("in");
    let begun = Instant::now();
    // The node needs a moment; the handshake repeats itself.
    let whole = connect().map(|session| session.close().expect("the port is open"));
    let interface =
        &topology.links[0].ends.iter().find(|end| end.node == "w0").expect("w0").interface;
    let outcomes: Vec<Result<(), Error>> = ["w0", "a0"]
        .map(|host| {
            // At the worker its own kernel refuses long datagrams; at the aggregator the link loses
            // them without a word.
            let end =
                topology.links.iter().flat_map(|link| &link.ends).find(|end| end.node == host);
            let end = end.expect("a link");
            let peer = topology
                .links
                .iter()
                .find(|link| link.ends.iter().any(|end| end.node == host))
                .and_then(|link| link.ends.iter().find(|end| end.node != host))
                .expect("a switch port");
            for end in [end, peer] {
                mtu(&lab.0, &end.node, &end.interface, "1400");
            }
            let outcome = connect().map(drop);
            for end in [end, peer] {
                mtu(&lab.0, &end.node, &end.interface, "1500");
            }
            outcome
        })
        .into();
    let _ = child.kill();
    let _ = child.wait();
    assert!(whole.is_ok(), "{whole:?} on {interface}");
    for outcome in outcomes {
        let text = outcome.expect_err("1400 bytes do not carry 1500").to_string();
        assert!(text.contains("raise the MTU on the path"), "{text}");
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

fn mtu(lab: &LabName, node: &str, interface: &str, bytes: &str) {
    let namespace = lab.namespace(node);
    let arguments = ["-netns", &namespace, "link", "set", interface, "mtu", bytes];
    let status = Command::new("ip").args(arguments).status().expect("ip runs");
    assert!(status.success(), "{arguments:?}");
}
