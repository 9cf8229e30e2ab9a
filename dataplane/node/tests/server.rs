//! A server and a replica as real processes on UDP loopback, with real push sessions.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{ConfigFile, PATIENCE, Running, run_to_end, weft_node};
use nix::sys::signal::Signal;
use weft_client::push::{Outcome, PushConfig, PushSession};
use weft_config::node::{Io, NodeConfig, PortSection, ReplicaSection, ServerSection};
use weft_engine::figures::FigureKind;
use weft_engine::role::server::ServerJobStats;

const DIMENSION: usize = 3000;
const UPDATES: usize = 12;

fn loopback(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, host], port))
}

/// UDP ports at different loopback hosts, free a moment ago.
fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.local_addr().expect("bound").port()
}

/// Where things are in one test: all on one port, at different hosts.
struct Place {
    name: &'static str,
    port: u16,
    first_host: u8,
    workers: usize,
}

impl Place {
    fn server(&self) -> SocketAddr {
        loopback(self.first_host, self.port)
    }

    fn replica(&self) -> SocketAddr {
        loopback(self.first_host + 1, self.port)
    }

    fn worker(&self, rank: usize) -> SocketAddr {
        loopback(self.first_host + 2 + u8::try_from(rank).unwrap(), self.port)
    }

    fn workers(&self) -> Vec<SocketAddr> {
        (0..self.workers).map(|rank| self.worker(rank)).collect()
    }

    fn dump(&self, role: &str) -> PathBuf {
        let file = format!("weft-{}-{role}-{}.f32", self.name, std::process::id());
        std::env::temp_dir().join(file)
    }

    fn node(&self, role: &str, at: SocketAddr) -> NodeConfig {
        let port = PortSection { udp_port: at.port(), ..PortSection::new(Io::Udp, at.ip()) };
        let mut config = NodeConfig::new(port);
        config.node.name = role.to_owned();
        config
    }

    /// The server's file; `change` has the last word on its section.
    fn server_file(&self, change: impl FnOnce(&mut ServerSection)) -> ConfigFile {
        ConfigFile::new(&format!("{}-server", self.name), &self.server_config(change))
    }

    fn server_config(&self, change: impl FnOnce(&mut ServerSection)) -> NodeConfig {
        let mut section = ServerSection {
            name: Some("j".to_owned()),
            boxes: vec![self.replica()],
            momentum: 0.5,
            staging_bytes_max: 1_000_000,
            dump_model: Some(self.dump("server").display().to_string()),
            ..ServerSection::new(1, self.workers(), DIMENSION)
        };
        change(&mut section);
        NodeConfig { server: vec![section], ..self.node("server", self.server()) }
    }

    fn replica_file(&self) -> ConfigFile {
        let section = ReplicaSection {
            name: Some("j".to_owned()),
            boxes: vec![self.replica()],
            momentum: 0.5,
            staging_bytes_max: 1_000_000,
            dump_model: Some(self.dump("replica").display().to_string()),
            ..ReplicaSection::new(1, 0, self.server(), self.workers(), DIMENSION)
        };
        let config = NodeConfig { replica: vec![section], ..self.node("replica", self.replica()) };
        ConfigFile::new(&format!("{}-replica", self.name), &config)
    }

    fn train_all(&self) -> Training {
        let worker = |rank| {
            let (server, local) = (self.server(), self.worker(rank));
            thread::spawn(move || train(server, local, u8::try_from(rank).unwrap()))
        };
        Training((0..self.workers).map(worker).collect())
    }

    fn read(&self, role: &str) -> Vec<f32> {
        let path = self.dump(role);
        let bytes = std::fs::read(&path).expect("the node wrote its model");
        let _ = std::fs::remove_file(path);
        let (words, rest) = bytes.as_chunks::<4>();
        assert!(rest.is_empty());
        words.iter().map(|word| f32::from_le_bytes(*word)).collect()
    }
}

/// All workers of a place, at work.
struct Training(Vec<thread::JoinHandle<u64>>);

impl Training {
    /// Waits for all; how many updates were committed.
    fn committed(self) -> u64 {
        self.0.into_iter().map(|worker| worker.join().unwrap()).sum()
    }
}

/// Pushes `UPDATES` updates of powers of two, so that every sum is exact; returns how many were
/// committed.
fn train(server: SocketAddr, local: SocketAddr, rank: u8) -> u64 {
    let config = PushConfig::new(local, server).rank(rank).job(1);
    let mut session = PushSession::connect(&config).expect("the server answers");
    let mut model = vec![0f32; DIMENSION];
    let mut committed = 0;
    for _ in 0..UPDATES {
        let version = session.pull(&mut model).expect("a model");
        let update = vec![2f32.powi(-i32::from(rank) - 1); DIMENSION];
        let ticket = session.push(&update, version).expect("it is taken");
        committed += u64::from(matches!(ticket.wait(), Ok(Outcome::Committed { .. })));
    }
    session.close().expect("a close");
    committed
}

#[test]
fn a_server_commits_what_sessions_push_and_its_replica_follows() {
    let place = Place { name: "follow", port: free_port(), first_host: 31, workers: 3 };
    let server_config = place.server_file(|section| {
        section.replica = Some(0);
        section.tau_max = Some(100);
    });
    let replica_config = place.replica_file();
    let server = Running::start(&mut weft_node(&server_config, &["--format", "json"]));
    let replica = Running::start(&mut weft_node(&replica_config, &["--format", "json"]));
    assert!(replica.ready.contains("\"node\":\"replica\""), "{}", replica.ready);
    let training = place.train_all();
    let all = training.committed();
    assert_eq!(all, u64::try_from(place.workers * UPDATES).unwrap());
    // The replica is level a few round trips later.
    thread::sleep(Duration::from_secs(1));
    let ended = replica.end(Signal::SIGINT);
    let replica_report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let ended = server.end(Signal::SIGINT);
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    assert!(ended.took < PATIENCE);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let of_server = &report["servers"][0];
    assert_eq!(of_server["commits"], all, "{of_server}");
    assert_eq!(of_server["version"], all);
    assert_eq!(of_server["chunks_direct"], all * 12, "{of_server}");
    assert_eq!(of_server["dropped"], 0);
    let delays = of_server["delays"].as_array().unwrap();
    assert_eq!(delays.iter().map(|count| count.as_u64().unwrap()).sum::<u64>(), all);
    let of_replica = &replica_report["replicas"][0];
    assert_eq!(of_replica["version"], all, "{of_replica}");
    let (model, copy) = (place.read("server"), place.read("replica"));
    assert_eq!(model.len(), DIMENSION);
    let bits = |model: &[f32]| model.iter().map(|w| w.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&model), bits(&copy));
    // w is a sum of updates, each counted 1 + 1/2 + 1/4 ...: below twice their sum, above it.
    let plain: f32 = (0..3).map(|rank| 12.0 * 2f32.powi(-rank - 1)).sum();
    assert!(model.iter().all(|w| *w > plain && *w < 2.0 * plain), "{}", model[0]);
}

#[test]
fn an_initial_model_is_served_and_dumped() {
    let place = Place { name: "initial", port: free_port(), first_host: 41, workers: 1 };
    let initial: Vec<f32> = (0..9000u16).take(DIMENSION).map(f32::from).collect();
    let path = place.dump("initial");
    let bytes: Vec<u8> = initial.iter().flat_map(|w| w.to_le_bytes()).collect();
    std::fs::write(&path, bytes).unwrap();
    let config = place.server_file(|section| {
        section.initial_model = Some(path.display().to_string());
        section.initial_version = 70_000;
    });
    let server = Running::start(&mut weft_node(&config, &["--format", "json"]));
    let push = PushConfig::new(place.worker(0), place.server()).rank(0).job(1);
    let mut session = PushSession::connect(&push).expect("the server answers");
    let mut model = vec![0f32; DIMENSION];
    let version = session.pull(&mut model).expect("a model");
    assert_eq!(version.0, 70_000);
    assert_eq!(model, initial);
    session.close().expect("a close");
    let ended = server.end(Signal::SIGTERM);
    assert_eq!(ended.code, Some(0));
    assert_eq!(place.read("server"), initial);
    let _ = std::fs::remove_file(path);
}

#[test]
fn metrics_and_text_name_servers_and_replicas() {
    let place = Place { name: "metrics", port: free_port(), first_host: 51, workers: 1 };
    let metrics = free_port();
    let mut config = place.server_config(|section| section.replica = Some(0));
    config.node.metrics = Some(loopback(1, metrics));
    let config = ConfigFile::new("metrics-server", &config);
    let server = Running::start(&mut weft_node(&config, &[]));
    let deadline = Instant::now() + PATIENCE;
    let body = loop {
        assert!(Instant::now() < deadline, "no metrics");
        thread::sleep(Duration::from_millis(100));
        let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", metrics)) else { continue };
        use std::io::{Read, Write};
        write!(stream, "GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut body = String::new();
        let _ = stream.read_to_string(&mut body);
        if body.contains("weft_server_commits_total") {
            break body;
        }
    };
    assert!(body.contains("weft_server_commits_total{job=\"j\"} 0\n"), "{body}");
    assert!(body.contains("weft_server_divergence_bound{job=\"j\"} 0\n"), "{body}");
    for weft_engine::figures::Figure { name, kind, help, .. } in ServerJobStats::FIGURES {
        let suffix = if *kind == FigureKind::Counter { "_total" } else { "" };
        let line = format!("weft_server_{name}{suffix}{{job=\"j\"}} 0\n");
        assert!(body.contains(&line), "{line} is not in\n{body}");
        assert!(body.contains(help.trim().trim_end_matches('.')), "{name} has no help");
    }
    let ended = server.end(Signal::SIGINT);
    assert!(ended.stdout.contains("server of job 1 (j): version: 0"), "{}", ended.stdout);
    place.read("server");
}

#[test]
fn configurations_that_cannot_be_are_refused_by_name() {
    let place = Place { name: "bad", port: free_port(), first_host: 61, workers: 2 };
    let cases = [
        ("replica = 3", "server[0].replica"),
        ("div_max = 1.0", "server[0].replica"),
        ("rto_min_us = 0", "server[0].rto_min_us"),
        ("elements = 4000", "server[0].elements"),
        ("learning_rate = \"fast\"", "server[0].learning_rate"),
        ("nonsense = 1", "server[0].nonsense"),
        ("[lcores]\nshards = 2", "lcores.shards"),
        ("[[row]]\nrow = 0\njob = 1\nmembers = [\"127.0.0.1:1\"]\n[[job]]\nid = 1", "server"),
    ];
    for (more, field) in cases {
        let text = format!(
            "[port]\nio = \"udp\"\nip = \"{}\"\n[[server]]\njob = 1\nworkers = [\"{}\"]\n\
             dimension = 9\n{more}\n",
            place.server().ip(),
            place.worker(0)
        );
        let config = ConfigFile::with_text("bad-server", &text);
        let output = run_to_end(&mut weft_node(&config, &["--check-config"]));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{more}: {stderr}");
        assert!(stderr.contains(&format!("{field}: ")), "{more}: {stderr}");
    }
    let good = place.server_file(|section| {
        section.replica = Some(0);
        section.div_max = Some(1.0);
    });
    let output = run_to_end(&mut weft_node(&good, &["--print-config"]));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("learning_rate = \"plain\""), "{printed}");
    let again = ConfigFile::with_text("bad-again", &printed);
    let output = run_to_end(&mut weft_node(&again, &["--check-config"]));
    assert_eq!(output.status.code(), Some(0), "what is printed can be read");
}

/// PROTOCOL section 4: a server that is killed in the middle comes back with its model, its
/// momentum and what it told its workers, whatever moment it was.
#[test]
fn a_killed_server_goes_on_from_its_directory() {
    let place = Place { name: "durable", port: free_port(), first_host: 71, workers: 3 };
    let directory = tempfile::tempdir().unwrap();
    let config = place.server_file(|section| {
        section.tau_max = Some(1000);
        section.state_dir = Some(directory.path().display().to_string());
        section.journal_bytes_max = 1;
    });
    let mut server = Running::start(&mut weft_node(&config, &["--format", "json"]));
    let training = place.train_all();
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(60));
        server.end(Signal::SIGKILL);
        server = Running::start(&mut weft_node(&config, &["--format", "json"]));
    }
    let all = training.committed();
    assert_eq!(all, u64::try_from(place.workers * UPDATES).unwrap());
    let ended = server.end(Signal::SIGINT);
    assert_eq!(ended.code, Some(0), "{:?}", ended.stderr);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["servers"][0]["version"], all, "{report}");
    let model = place.read("server");
    // One that ended well goes on too, and so does its model.
    let server = Running::start(&mut weft_node(&config, &["--format", "json"]));
    let push = PushConfig::new(place.worker(0), place.server()).rank(0).job(1);
    let mut session = PushSession::connect(&push).expect("the server answers");
    let mut pulled = vec![0f32; DIMENSION];
    assert_eq!(session.pull(&mut pulled).expect("a model").0, all);
    assert_eq!(pulled, model);
    session.close().expect("a close");
    assert_eq!(server.end(Signal::SIGINT).code, Some(0));
    assert_eq!(place.read("server"), model);
}

/// What the node says about a state directory, and its exit status.
fn refused(config: &ConfigFile) -> String {
    let output = run_to_end(&mut weft_node(config, &[]));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    stderr
}

#[test]
fn a_state_that_does_not_fit_is_refused_by_file() {
    let place = Place { name: "state", port: free_port(), first_host: 81, workers: 1 };
    let directory = tempfile::tempdir().unwrap();
    let durable = |state_dir: &Path| {
        place.server_config(|section| section.state_dir = Some(state_dir.display().to_string()))
    };
    let mut other = durable(directory.path());
    let config = ConfigFile::new("state-server", &other);
    other.server[0].dimension = 30;
    let other = ConfigFile::new("state-other", &other);
    let server = Running::start(&mut weft_node(&config, &[]));
    let stderr = refused(&config);
    assert!(stderr.contains("another weft-node serves from it"), "{stderr}");
    assert_eq!(train(place.server(), place.worker(0), 0), 12);
    server.end(Signal::SIGKILL);
    let job = directory.path().join("job-1");
    let stderr = refused(&other);
    let words = ["job-1/checkpoint: is of job 1 with 3000 parameters", "has job 1 with 30"];
    assert!(words.iter().all(|words| stderr.contains(words)), "{stderr}");
    // A byte of the first record's sum.
    let journal = job.join("journal-1");
    let mut bytes = std::fs::read(&journal).unwrap();
    assert!(bytes.len() > 12 * 4 * DIMENSION);
    bytes[500] ^= 1;
    std::fs::write(&journal, &bytes).unwrap();
    let stderr = refused(&config);
    assert!(stderr.contains("journal-1: at byte 40: a record is damaged"), "{stderr}");
    assert!(stderr.contains("cut it to 40 bytes"), "{stderr}");
    bytes[500] ^= 1;
    // The last record, of which its worker was told.
    let near_the_end = bytes.len() - 100;
    bytes[near_the_end] ^= 1;
    std::fs::write(&journal, &bytes).unwrap();
    let stderr = refused(&config);
    assert!(stderr.contains("journal-1: at byte ") && stderr.contains("order 11"), "{stderr}");
    bytes[near_the_end] ^= 1;
    for harm in [None, Some(0), Some(31)] {
        match harm {
            None => std::fs::remove_file(&journal).unwrap(),
            Some(len) => std::fs::write(&journal, &bytes[..len]).unwrap(),
        }
        let stderr = refused(&config);
        assert!(stderr.contains("job-1/journal-1: "), "{harm:?}: {stderr}");
        assert!(stderr.contains("order 0 and all after it"), "{harm:?}: {stderr}");
    }
    // A torn end, without the mark that says that it was durable, is what a crash leaves.
    std::fs::write(&journal, &bytes[..bytes.len() - 40]).unwrap();
    let server = Running::start(&mut weft_node(&config, &["--format", "json"]));
    let ended = server.end(Signal::SIGINT);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["servers"][0]["version"], 11, "{report}");
    let file = directory.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let stderr = refused(&ConfigFile::new("state-file", &durable(&file)));
    assert!(stderr.contains("cannot be written") && stderr.contains("a-file/job-1"), "{stderr}");
}
