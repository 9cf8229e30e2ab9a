//! A resize whose workers never come: whoever asked hears in time who is missing, and asks again.
//! Over UDP on loopback: needs `weft`, `weft-node` and `weft-controller` beside this test.

use std::net::IpAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weft_client::rounds::{Next, RoundConfig, RoundControl};
use weft_config::controller::{
    ControllerConfig, HostConfig, NodeConfig as BoxConfig, PlaceConfig, ReduceConfig,
};
use weft_config::node::{ControllerSection, Io, NodeConfig, PortSection};
use weft_testbed::operator::Operator;
use weft_tests::live::daemon::Program;
use weft_tests::live::node::own_address;
use weft_tests::live::run::weft;
use weft_tests::live::{PATIENCE, eventually};

/// Workers of a cohort that do nothing but begin rounds.
fn start(endpoint: &str, (cohort, workers): (u32, u8), from: u64) -> Vec<JoinHandle<u64>> {
    let worker = |rank: u8| {
        let config = RoundConfig::new(endpoint, 3).rank(rank);
        let config = RoundConfig { cohort, next_round: from, ..config };
        thread::spawn(move || {
            let mut control = RoundControl::connect(&config).expect("it is welcome");
            loop {
                match control.next_round(4).expect("it is not refused") {
                    Next::Round(_) => thread::sleep(Duration::from_millis(5)),
                    Next::Checkpoint(_) => {}
                    Next::End => return 0,
                }
            }
        })
    };
    (0..workers).map(worker).collect()
}

#[test]
fn a_resize_whose_workers_never_come_is_answered_in_time_and_may_be_asked_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let ip = own_address();
    let at = |port: u16| (ip, port).into();
    let endpoint = format!("http://{ip}:22342");
    let place = |rank: u16| PlaceConfig { host: format!("w{rank}"), address: at(24_000 + rank) };
    let job = ((0..4).map(place).collect(), 2);
    let reduce =
        ReduceConfig { begin_timeout_s: 1.5, ..ReduceConfig::new("digits", 3, "a0", job, -20) };
    let hosts = ["a0", "w0", "w1", "w2", "w3"].map(HostConfig::named);
    let _controller = Program::start(
        directory,
        "controller",
        "weft-controller",
        &ControllerConfig {
            state_file: Some(directory.join("state.json").to_string_lossy().into_owned()),
            hosts: hosts.to_vec(),
            nodes: vec![BoxConfig { name: "a0".into(), ..BoxConfig::default() }],
            reduces: vec![reduce],
            ..ControllerConfig::new(at(22_342))
        },
    );
    let mut config = NodeConfig::new(PortSection::new(Io::Udp, IpAddr::from(ip)));
    let name = Some("a0".to_owned());
    config.controller = Some(ControllerSection { endpoint: endpoint.clone(), name, tls: None });
    let _box = Program::start(directory, "a0", "weft-node", &config);
    let status = || {
        let operator = Operator::dial(&endpoint, None, Duration::from_secs(10)).ok()?;
        operator.status().ok()?.reduces.into_iter().next()
    };
    let wants = |cohort| {
        eventually(PATIENCE, || {
            status().is_some_and(|job| job.wants_workers && job.cohort == cohort)
        })
    };
    assert!(wants(0), "{:?}", status());
    let first = start(&endpoint, (0, 2), 0);
    let goes_on =
        |round| eventually(PATIENCE, || status().is_some_and(|job| job.next_round > round));
    assert!(goes_on(5), "{:?}", status());
    // Nobody starts the next cohort.
    let begun = Instant::now();
    let asked = weft(&["job", "resize", "digits", "3", "--controller", &endpoint], PATIENCE);
    let took = begun.elapsed();
    assert_eq!(asked.code, Some(1), "{}", asked.stderr);
    let missing = "the 3 workers of `digits` have not begun";
    assert!(asked.stderr.contains(missing), "{}", asked.stderr);
    assert!(asked.stderr.contains("rank 0, 1, 2 has no stream"), "{}", asked.stderr);
    assert!((1500..15_000).contains(&took.as_millis()), "{took:?}");
    first.into_iter().for_each(|worker| assert_eq!(worker.join().expect("it ends"), 0));
    let job = status().expect("the job is there");
    assert!(job.unbegun.contains(missing) && job.wants_workers, "{job:?}");
    let paused = weft(&["job", "pause", "digits", "--controller", &endpoint], PATIENCE);
    assert!(paused.code == Some(1) && paused.stderr.contains("resize it again"), "{paused:?}");
    // As wide again, and now somebody starts them.
    let again = thread::spawn({
        let endpoint = endpoint.clone();
        move || weft(&["job", "resize", "digits", "3", "--controller", &endpoint], PATIENCE)
    });
    assert!(wants(2), "{:?}", status());
    let from = status().expect("the job is there").from_round;
    assert_eq!(from, job.from_round, "no round of the other has ended");
    let second = start(&endpoint, (2, 3), from);
    let again = again.join().expect("it does not panic");
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(goes_on(from + 5), "{:?}", status());
    let job = status().expect("the job is there");
    assert!(job.unbegun.is_empty() && job.workers == 3, "{job:?}");
    // Ends the threads.
    let ended = weft(&["job", "resize", "digits", "1", "--controller", &endpoint], PATIENCE);
    assert!(ended.stderr.contains("rank 0 has no stream"), "{}", ended.stderr);
    second.into_iter().for_each(|worker| assert_eq!(worker.join().expect("it ends"), 0));
}
