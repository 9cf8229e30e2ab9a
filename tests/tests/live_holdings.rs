//! What an operator had a box hold is there again after kill -9 of the box, of the controller, and
//! of both: an allreduce's lease while its workers sum, and a push job's relay while a worker
//! pulls. Over UDP on loopback: needs `weft-node` and `weft-controller` beside this test.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use weft_client::push::{PushConfig as PushClient, PushSession};
use weft_client::{Config, Session};
use weft_config::controller::{ControllerConfig, HostConfig, NodeConfig as BoxConfig};
use weft_config::node::{ControllerSection, Io, NodeConfig, PortSection, ServerSection};
use weft_rpc::v1::HoldingKind;
use weft_testbed::operator::Operator;
use weft_tests::live::daemon::Program;
use weft_tests::live::node::own_address;
use weft_tests::live::run::weft;
use weft_tests::live::{PATIENCE, eventually};

const REDUCED: u16 = 9;
const PUSHED: u16 = 5;
const ROW: u16 = 3;
const DIMENSION: usize = 3000;

struct Place(Ipv4Addr);

impl Place {
    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.0, port))
    }

    fn worker(&self, rank: u8) -> SocketAddr {
        self.at(24_000 + 64 * u16::from(rank))
    }

    /// The share and the lease of two workers, and the relay of a push job.
    fn holdings(&self) -> String {
        let members = [0, 1].map(|rank| self.worker(rank).to_string());
        let (worker, server) = (self.at(26_000), self.at(22_500));
        format!(
            "[[job]]\nid = {REDUCED}\nslots_max = 64\n{}[[push]]\njob = {PUSHED}\n\
             workers = [\"{worker}\"]\nserver = \"{server}\"\nchunks = 12\n\
             quota_bytes = 1048576\npull_cache_bytes = 262144\n",
            row(&members)
        )
    }

    /// Sums for as long as it is told to; every sum must be right. Returns how many.
    fn sum(&self, rank: u8, sums: &AtomicU64, is_over: &AtomicBool) {
        let mut config =
            Config::new(self.worker(rank), self.at(22_341)).job(REDUCED).row(ROW).rank(rank);
        config.member_timeout = Duration::from_secs(40);
        config.connect_timeout = Duration::from_secs(40);
        let mut session = Session::connect(&config).expect("the lease is there");
        for round in 1_u64.. {
            // Both stop at the same round: the last element says whether one of them wants to.
            let mut values = vec![round as f32 * (1.0 + f32::from(rank)); 2000];
            values[1999] = if is_over.load(Ordering::Relaxed) { 1.0 } else { 0.0 };
            session.allreduce(&mut values).expect("the lease comes back");
            assert!(values[..1999].iter().all(|value| *value == round as f32 * 3.0), "{round}");
            if rank == 0 {
                sums.store(round, Ordering::Relaxed);
            }
            if values[1999] > 0.0 {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        session.close().expect("the box is there");
    }
}

/// The lease of two workers.
fn row(members: &[String; 2]) -> String {
    format!(
        "[[row]]\nrow = {ROW}\njob = {REDUCED}\nmembers = {members:?}\nwindow = 64\n\
         overflow = \"clamp\"\nchunks_max = 1073741824\nexponent = -16\n"
    )
}

/// `weft job hold` with a file: its exit status and standard error.
fn hold(endpoint: &str, file: &Path, more: &[&str]) -> (Option<i32>, String) {
    let file = file.to_str().expect("UTF-8");
    let words = [&["job", "hold", "a0", file, "--controller", endpoint], more].concat();
    let ended = weft(&words, PATIENCE);
    (ended.code, ended.stderr)
}

/// What the box holds and lacks, as the controller says.
fn held(endpoint: &str) -> Option<(Vec<i32>, usize, bool)> {
    let operator = Operator::dial(endpoint, None, Duration::from_secs(10)).ok()?;
    let node = operator.status().ok()?.nodes.into_iter().find(|node| node.name == "a0")?;
    let kinds = node.holdings.iter().filter_map(|held| Some(held.holding.as_ref()?.kind));
    Some((kinds.collect(), node.missing.len(), node.is_attached))
}

#[test]
fn what_a_box_was_told_to_hold_is_there_again_after_kills() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path();
    let place = Place(own_address());
    let listen = place.at(22_342);
    let endpoint = format!("http://{listen}");
    let state = directory.join("state.json").to_string_lossy().into_owned();
    let mut controller = Program::start(
        directory,
        "controller",
        "weft-controller",
        &ControllerConfig {
            state_file: Some(state),
            hosts: vec![HostConfig::named("a0")],
            nodes: vec![BoxConfig { name: "a0".into(), ..BoxConfig::default() }],
            ..ControllerConfig::new(listen)
        },
    );
    let of_port = |port| {
        let section = PortSection::new(Io::Udp, IpAddr::from(place.0));
        NodeConfig::new(PortSection { udp_port: port, ..section })
    };
    let mut config = of_port(22_500);
    let section = ServerSection::new(PUSHED, vec![place.at(26_000)], DIMENSION);
    config.server = vec![ServerSection { boxes: vec![place.at(22_341)], ..section }];
    let _server = Program::start(directory, "server", "weft-node", &config);
    let mut config = of_port(22_341);
    let name = Some("a0".to_owned());
    config.controller = Some(ControllerSection { endpoint: endpoint.clone(), name, tls: None });
    let mut aggregator = Program::start(directory, "a0", "weft-node", &config);
    let attached = || held(&endpoint).is_some_and(|(.., is_attached)| is_attached);
    assert!(eventually(PATIENCE, attached), "the box does not call");
    let file = directory.join("holdings.toml");
    fs::write(&file, place.holdings()).expect("a file in a temporary directory");
    assert_eq!(hold(&endpoint, &file, &[]).0, Some(0));
    let (code, problem) = hold(&endpoint, &file, &[]);
    let reason = "the job's share of job 9: ";
    assert!(code == Some(1) && problem.contains(reason), "it is there already: {problem}");
    let all = [HoldingKind::Push, HoldingKind::Job, HoldingKind::Row].map(i32::from);
    let has_all = || {
        let (mut kinds, missing, _) = held(&endpoint).unwrap_or_default();
        kinds.sort_unstable();
        let mut wanted = all;
        wanted.sort_unstable();
        kinds == wanted && missing == 0
    };
    assert!(has_all(), "{:?}", held(&endpoint));

    let (sums, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (place, sums, is_over) = (&place, &sums, &is_over);
        for rank in 0..2 {
            scope.spawn(move || place.sum(rank, sums, is_over));
        }
        let goes_on = |what: &str| {
            let before = sums.load(Ordering::Relaxed);
            let moved = || sums.load(Ordering::Relaxed) > before + 20;
            let is_well = eventually(PATIENCE, moved);
            if !is_well {
                is_over.store(true, Ordering::Relaxed);
            }
            assert!(is_well, "{what}: sums stand at {before}; {:?}", held(&endpoint));
            assert!(eventually(PATIENCE, has_all), "{what}: {:?}", held(&endpoint));
        };
        goes_on("at the beginning");
        for life in 0..3 {
            aggregator.kill();
            aggregator.restart();
            goes_on(&format!("the box's life {life}"));
        }
        controller.kill();
        controller.restart();
        goes_on("another controller");
        controller.kill();
        aggregator.kill();
        aggregator.restart();
        thread::sleep(Duration::from_millis(300));
        controller.restart();
        goes_on("both anew");
        is_over.store(true, Ordering::Relaxed);
    });
    // The push job's relay too: its worker pulls through the box.
    let mut client = PushClient::new(place.at(26_000), place.at(22_500)).job(PUSHED);
    (client.aggregators, client.pull_via) = (vec![(0, place.at(22_341))], Some(0));
    let mut session = PushSession::connect(&client).expect("the server answers");
    let mut model = vec![0_f32; DIMENSION];
    session.pull(&mut model).expect("a model");
    session.close().expect("the server is there");

    // What is taken back stays away.
    let text = place.holdings();
    let (reduced, _) = text.split_once("[[push]]").expect("the push job is last");
    fs::write(&file, reduced).expect("a file in a temporary directory");
    assert_eq!(hold(&endpoint, &file, &["--remove"]).0, Some(0), "nobody uses it");
    aggregator.kill();
    aggregator.restart();
    let only_push = || held(&endpoint) == Some((vec![HoldingKind::Push.into()], 0, true));
    assert!(eventually(PATIENCE, only_push), "{:?}", held(&endpoint));
}
