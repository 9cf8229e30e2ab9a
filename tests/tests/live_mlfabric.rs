//! A parameter server's job as a user runs it: controller, server, replica, aggregators and workers
//! in namespaces, on links of unequal rates shaped by HTB.
//!
//! Needs `weft`, `weft-node` and `weft-controller` beside this test (`.ci/test` builds them), and
//! namespaces. Models are small, so that a run takes seconds on slow links.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use weft_testbed::lab::netns;
use weft_tests::live::rogue::Rogue;
use weft_tests::live::run::{Ended, Run, changed};
use weft_tests::live::{PATIENCE, eventually, has_dpdk, has_lab};

/// Four workers, 4,810 parameters in 19 chunks: 20 KB an update, 16 ms of the server's link.
const SCENARIO: &str = r#"
name = "small"
[job]
workers = 4
rounds = 10
batch = 16
hidden = [64]
learning_rate = 0.02
momentum = 0.5
element_type = "i32"
scale_exponent = -24
[push]
mode = "async"
aggregators = 1
compute_ms = [5, 40]
[lab]
rate_mbit = 10
[lab.links]
w2 = 5
w3 = { up = 2, down = 10 }
"#;

/// The scenario with other lines in it, in a file.
fn scenario(directory: &Path, changes: &[(&str, &str)]) -> PathBuf {
    changed(SCENARIO, directory, changes)
}

/// Runs the changed scenario to its end.
fn run(changes: &[(&str, &str)], arguments: &[&str]) -> (Ended, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = scenario(directory.path(), changes);
    Run::start(&path, arguments).end(PATIENCE)
}

/// The result of a run that must have verdict ok and exit 0: which means that the server's model is
/// the reference's bit for bit, and that order and delays are right.
fn good(ended: &Ended) -> &Value {
    let json = ended.json.as_ref().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!(json["verdict"], "ok", "{} {}", json["reasons"], ended.stderr);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(json["model_identical"], true);
    let number = |key: &str| json[key].as_u64().unwrap_or_else(|| panic!("{key}: {json}"));
    let parts = ["chunks_direct", "chunks_aggregated", "chunks_dropped", "chunks_voided"];
    let sum: u64 = parts.into_iter().map(number).sum();
    assert_eq!(sum + number("chunks_undecided"), number("chunks_sent"));
    assert_eq!(json["chunks_accounted"], true);
    json
}

/// Events of a run directory.
fn events(directory: &tempfile::TempDir) -> Vec<Value> {
    let text = fs::read_to_string(directory.path().join("run/events.jsonl")).expect("events");
    text.lines().map(|line| serde_json::from_str(line).expect("an event is JSON")).collect()
}

fn restarted(directory: &tempfile::TempDir, name: &str) -> bool {
    events(directory).iter().any(|event| event["event"] == "restart" && event["box"] == name)
}

const REPLICATED: (&str, &str) =
    ("aggregators = 1", "aggregators = 1\nreplication = \"network\"\ndiv_max = 50.0");

#[test]
fn an_asynchronous_job_with_a_replica_is_what_the_reference_says() {
    if !has_lab("an_asynchronous_job_with_a_replica_is_what_the_reference_says") {
        return;
    }
    let (ended, directory) = run(&[REPLICATED], &[]);
    let json = good(&ended);
    assert_eq!(json["policy"], "mlfabric");
    assert!(json["updates_committed"].as_u64() >= Some(40), "{json}");
    assert!(json["delay_max"].as_u64() <= Some(8), "{json}");
    assert_eq!(json["replica_identical"], true);
    assert_eq!(json["divergence_bound"], 50.0);
    assert!(json["divergence_max"].as_f64() < Some(50.0), "{json}");
    for key in ["mean_commit_ns", "server_bytes", "replica_bytes", "planning_mean_ns"] {
        assert!(json[key].as_f64() > Some(0.0), "{key} of {json}");
    }
    for file in ["updates.csv", "commits.csv", "replica.csv", "transfers.csv", "gantt.svg"] {
        assert!(directory.path().join("run").join(file).is_file(), "no {file}");
    }
    for file in ["delays.svg", "loss.svg", "divergence.svg"] {
        let picture = fs::read_to_string(directory.path().join("run").join(file)).expect(file);
        assert!(picture.starts_with("<svg"), "{file}");
    }
}

#[test]
fn a_run_whose_server_was_killed_names_what_is_missing_and_has_no_figures_of_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let changes = [("[job]", "[job]\nmember_timeout_s = 8"), ("rounds = 10", "rounds = 100000")];
    let path = scenario(directory.path(), &changes);
    let run = Run::start(&path, &["--io", "udp", "--no-lab"]);
    let log = run.out().join("server.events.jsonl");
    let has_committed = || fs::read_to_string(&log).is_ok_and(|log| log.contains("committed"));
    assert!(eventually(PATIENCE, has_committed), "nothing is committed");
    kill(run.running("/server.toml")[0], Signal::SIGKILL).expect("the server runs");
    let (ended, _directory) = run.end(PATIENCE);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let json = ended.json.expect("a verdict");
    let reasons = json["reasons"].to_string();
    for words in ["server left no statistics: it ended with signal: 9", "server left no model"] {
        assert!(reasons.contains(words), "{words}: {reasons}");
    }
    assert!(!reasons.contains("differ") && !reasons.contains("was told"), "{reasons}");
    for key in ["wrong_sums", "model_identical", "server_bytes", "bottleneck"] {
        assert_eq!(json.get(key), Some(&Value::Null), "{key}");
    }
}

/// Boxes whose ports own the host's address, so that the controller is heard in another way.
fn is_planned_on(io: &str) {
    let (ended, _directory) = run(&[REPLICATED], &["--strict", "--io", io]);
    let json = good(&ended);
    assert_eq!(json["io"], io);
    assert_eq!(json["controller_fallbacks"], 0, "{json}");
    assert!(json["planning_mean_ns"].as_f64() > Some(0.0), "{json}");
    assert_eq!(json["replica_identical"], true);
}

#[test]
fn boxes_on_raw_sockets_hear_the_controller() {
    if has_lab("boxes_on_raw_sockets_hear_the_controller") {
        is_planned_on("af_packet");
    }
}

#[test]
fn boxes_on_dpdk_hear_the_controller() {
    let test = "boxes_on_dpdk_hear_the_controller";
    if has_lab(test) && has_dpdk(test) {
        is_planned_on("dpdk");
    }
}

#[test]
fn synchronous_rounds_take_in_every_worker() {
    if !has_lab("synchronous_rounds_take_in_every_worker") {
        return;
    }
    let (ended, _) = run(&[("mode = \"async\"", "mode = \"sync\"")], &[]);
    let json = good(&ended);
    assert_eq!(json["updates_committed"], 40);
    assert_eq!(json["dropped"], 0);
    assert!(json["delay_max"].as_u64() <= Some(3), "{json}");
}

#[test]
fn partial_rounds_take_in_the_best_and_drop_the_rest() {
    if !has_lab("partial_rounds_take_in_the_best_and_drop_the_rest") {
        return;
    }
    let (ended, _) = run(&[("mode = \"async\"", "mode = \"partial\"\nbest = 3")], &[]);
    let json = good(&ended);
    assert_eq!(json["updates_committed"], 30);
    assert!(json["dropped"].as_u64() > Some(0), "{json}");
    assert!(json["delay_max"].as_u64() <= Some(2), "{json}");
}

#[test]
fn a_job_survives_loss() {
    if !has_lab("a_job_survives_loss") {
        return;
    }
    let (ended, _) = run(&[REPLICATED], &["--loss=0.02"]);
    let json = good(&ended);
    assert_eq!(json["replica_identical"], true);
    assert!(json["retransmissions"].as_u64() > Some(0), "{json}");
}

/// A worker whose updates enter the model in its own order alone.
const ALONE: [(&str, &str); 3] = [
    ("workers = 4", "workers = 1"),
    ("mode = \"async\"", "mode = \"sync\""),
    ("w2 = 5\nw3 = { up = 2, down = 10 }", "w0 = { up = 5, down = 10 }"),
];
const FAULTS: [&str; 4] = ["--loss=0.02", "--duplicate=0.02", "--reorder=0.05", "--corrupt=0.01"];

#[test]
fn a_worker_that_pushes_from_packet_sockets_gives_the_same_model_through_faults() {
    let test = "a_worker_that_pushes_from_packet_sockets_gives_the_same_model_through_faults";
    if !has_lab(test) {
        return;
    }
    let mut models = Vec::new();
    for (io, worker_io, faults) in [
        ("udp", "udp", &[][..]),
        ("udp", "af_packet", &[]),
        ("udp", "af_packet", &FAULTS),
        ("af_packet", "af_packet", &FAULTS),
    ] {
        let arguments = [&["--seed=7", "--io", io, "--worker-io", worker_io], faults].concat();
        let (ended, _) = run(&ALONE, &arguments);
        let json = good(&ended);
        assert_eq!((&json["io"], &json["worker_io"]), (&io.into(), &worker_io.into()));
        assert_eq!((&json["updates_committed"], &json["chunks_sent"]), (&10.into(), &190.into()));
        if !faults.is_empty() {
            assert!(json["retransmissions"].as_u64() > Some(0), "{json}");
        }
        models.push(json["model_sha256"].clone());
    }
    assert!(models.iter().all(|model| *model == models[0]), "{models:?}");
}

/// Through an aggregator and to the server, with a replica: the model is the reference's.
#[test]
fn workers_that_push_from_packet_sockets_survive_loss() {
    if !has_lab("workers_that_push_from_packet_sockets_survive_loss") {
        return;
    }
    let (ended, _) = run(&[REPLICATED], &["--worker-io=af_packet", "--loss=0.02"]);
    let json = good(&ended);
    assert_eq!(
        (&json["worker_io"], &json["replica_identical"]),
        (&"af_packet".into(), &true.into())
    );
    assert!(json["retransmissions"].as_u64() > Some(0), "{json}");
    assert!(json["chunks_aggregated"].as_u64() > Some(0), "{json}");
}

#[test]
fn a_job_survives_the_restart_of_an_aggregator() {
    if !has_lab("a_job_survives_the_restart_of_an_aggregator") {
        return;
    }
    let (ended, directory) = run(&[], &["--restart=a0@4"]);
    good(&ended);
    assert!(restarted(&directory, "a0"));
}

#[test]
fn a_job_survives_the_restart_of_the_controller() {
    if !has_lab("a_job_survives_the_restart_of_the_controller") {
        return;
    }
    let (ended, directory) = run(&[], &["--restart=controller@4"]);
    good(&ended);
    assert!(restarted(&directory, "controller"));
}

#[test]
fn a_job_survives_the_death_of_a_worker_that_comes_back() {
    if !has_lab("a_job_survives_the_death_of_a_worker_that_comes_back") {
        return;
    }
    let (ended, directory) = run(&[], &["--restart=w1@4"]);
    good(&ended);
    assert!(restarted(&directory, "w1"));
    let updates = fs::read_to_string(directory.path().join("run/updates.csv")).expect("updates");
    assert!(updates.lines().any(|line| line.starts_with("1,1,")), "no second life of rank 1");
}

const DURABLE: (&str, &str) = ("aggregators = 1", "aggregators = 1\ndurable = true");
const DURABLE_REPLICATED: (&str, &str) = (
    "aggregators = 1",
    "aggregators = 1\ndurable = true\nreplication = \"network\"\ndiv_max = 50.0",
);

/// The server is killed in the middle of the run and comes back from its directory: the run's proof
/// holds over both lives. Without a controller, with one, and with a replica.
fn survives_the_servers_restart(changes: &[(&str, &str)], arguments: &[&str]) -> Value {
    let mut all = vec!["--restart=server@3", "--restart=server@6"];
    all.extend(arguments);
    let (ended, directory) = run(changes, &all);
    let json = good(&ended);
    assert!(restarted(&directory, "server"));
    // Every worker goes on until the job is done, whatever became of its updates.
    assert!(json["updates_committed"].as_u64() >= Some(40), "{json}");
    let updates = fs::read_to_string(directory.path().join("run/updates.csv")).expect("updates");
    assert!(updates.lines().skip(1).all(|line| line.split(',').nth(1) == Some("0")), "one life");
    json.clone()
}

#[test]
fn a_job_survives_the_restart_of_the_server() {
    if !has_lab("a_job_survives_the_restart_of_the_server") {
        return;
    }
    survives_the_servers_restart(&[DURABLE], &[]);
}

#[test]
fn a_job_with_a_replica_survives_the_restart_of_the_server() {
    if !has_lab("a_job_with_a_replica_survives_the_restart_of_the_server") {
        return;
    }
    let json = survives_the_servers_restart(&[DURABLE_REPLICATED], &[]);
    assert_eq!(json["replica_identical"], true, "{json}");
}

#[test]
fn without_a_controller_a_job_survives_the_restart_of_the_server_and_loss() {
    if !has_lab("without_a_controller_a_job_survives_the_restart_of_the_server_and_loss") {
        return;
    }
    survives_the_servers_restart(&[DURABLE], &["--direct", "--loss=0.01"]);
}

/// The server is killed and stays dead; the replica goes on with all that workers were told of.
/// That every update is in the model once, in one sequence, bit for bit, is the proof's to find.
#[test]
fn a_job_survives_the_death_of_its_server() {
    if !has_lab("a_job_survives_the_death_of_its_server") {
        return;
    }
    let acknowledged = ("replication", "ack = \"replica\"\nreplication");
    let changes = [("aggregators = 1", "aggregators = 1\nreplication = \"network\""), acknowledged];
    let (ended, directory) = run(&changes, &["--crash=server@4"]);
    let json = good(&ended);
    assert!(json["updates_committed"].as_u64() >= Some(40), "{json}");
    assert_eq!((&json["promotions"], &json["replication_held"]), (&1.into(), &false.into()));
    assert_eq!(json["replica_identical"], true, "while it followed: {json}");
    let events = events(&directory);
    let at = |name: &str| {
        let event = events.iter().find(|event| event["event"] == name);
        event.unwrap_or_else(|| panic!("no {name} in {events:?}"))["t_ns"].as_u64().unwrap()
    };
    assert!(at("crash") < at("promoted"), "{events:?}");
    assert!(at("promoted") <= at("replication_not_held"));
    // A lease of 3 s, and what a loaded machine adds.
    assert!(at("promoted") - at("crash") < 30_000_000_000, "{events:?}");
    let log = |name: &str| {
        fs::read_to_string(directory.path().join(format!("run/{name}.log"))).expect(name)
    };
    assert!(log("controller").contains("is the server now"), "{}", log("controller"));
    assert!(log("replica").contains("replication is not held"), "{}", log("replica"));
}

#[test]
fn without_a_controller_updates_are_taken_as_they_come() {
    if !has_lab("without_a_controller_updates_are_taken_as_they_come") {
        return;
    }
    let (ended, _) = run(&[], &["--direct"]);
    let json = good(&ended);
    assert_eq!(json["policy"], "direct");
    assert_eq!(json["chunks_aggregated"], 0);
}

/// Sends as much as TCP lets it from one namespace to another until told to stop; counts what came.
fn tcp_flow(from: &str, to: &str, address: IpAddr, stop: &AtomicBool, received: &AtomicU64) {
    thread::scope(|scope| {
        let (told, is_told) = std::sync::mpsc::channel();
        scope.spawn(move || {
            netns::within(to, || {
                let listener = TcpListener::bind((address, 0)).expect("a port");
                told.send(listener.local_addr().expect("its address")).expect("the sender waits");
                let (mut stream, _) = listener.accept().expect("the sender");
                stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
                let mut buffer = vec![0; 1 << 16];
                while !stop.load(Ordering::Relaxed) {
                    match stream.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(len) => drop(received.fetch_add(len as u64, Ordering::Relaxed)),
                        Err(_) => {}
                    }
                }
            })
            .expect("the receiver's namespace");
        });
        let target: SocketAddr = is_told.recv().expect("the receiver's address");
        netns::within(from, || {
            let mut stream = TcpStream::connect(target).expect("the receiver");
            stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
            let buffer = vec![0; 1 << 14];
            while !stop.load(Ordering::Relaxed) {
                // A full socket is what a slow link means.
                let _ = stream.write(&buffer);
            }
        })
        .expect("the sender's namespace");
    });
}

#[test]
fn a_tcp_flow_keeps_its_share_of_a_link() {
    let test = "a_tcp_flow_keeps_its_share_of_a_link";
    if !has_lab(test) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Rank 3 has 2 Mbit/s up, and much to send; the flow leaves from the same host.
    let changes = [("rounds = 10", "rounds = 60"), ("compute_ms = [5, 40]", "compute_ms = [0, 1]")];
    let path = scenario(directory.path(), &changes);
    let run = Run::start(&path, &[] as &[&str]);
    let lab = format!("wf-run{}-", run.id());
    let namespace = |node: &str| format!("{lab}{node}");
    let updates = run.out().join("w3.0.updates");
    let training = || fs::metadata(&updates).is_ok_and(|file| file.len() > 40_000);
    if !eventually(PATIENCE, training) || !netns::path(&namespace("w3")).exists() {
        // In a user namespace of its own the lab cannot be entered from here.
        weft_tests::live::skip(test, "the lab is in a user namespace");
        return;
    }
    let (stop, received) = (AtomicBool::new(false), AtomicU64::new(0));
    // Workers, then the server, have the lab's addresses in this order.
    let server = IpAddr::V4(Ipv4Addr::new(10, 87, 0, 5));
    let goodput = thread::scope(|scope| {
        scope.spawn(|| {
            tcp_flow(&namespace("w3"), &namespace("server"), server, &stop, &received);
        });
        thread::sleep(Duration::from_secs(2));
        let (begun, before) = (Instant::now(), received.load(Ordering::Relaxed));
        thread::sleep(Duration::from_secs(5));
        let bytes = received.load(Ordering::Relaxed) - before;
        let goodput = bytes as f64 * 8.0 / begun.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        goodput
    });
    let share = goodput / 2e6;
    assert!(share >= 0.4, "the flow had {:.0} % of the link that it shared", share * 100.0);
    let (ended, _) = run.end(2 * PATIENCE);
    good(&ended);
}

/// What a box counted at its end.
fn counted(directory: &tempfile::TempDir, name: &str) -> Value {
    let path = directory.path().join(format!("run/{name}.stats.json"));
    let text = fs::read_to_string(&path).expect("a box's statistics");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// 76 chunks an update: enough for a train of 25 to be a third of it.
const LARGER: (&str, &str) = ("hidden = [64]", "hidden = [256]");

#[test]
fn a_link_that_falls_while_the_job_runs_is_noticed_and_planned_with() {
    let test = "a_link_that_falls_while_the_job_runs_is_noticed_and_planned_with";
    if !has_lab(test) {
        return;
    }
    let step = "[lab]\nrate_mbit = 10\n";
    let stepped = "[[rate_step]]\nbox = \"server\"\nafter_round = 4\nup = 10\ndown = 5\n";
    let changes = [
        LARGER,
        // So many that some always wait for a plan.
        ("workers = 4", "workers = 8"),
        ("compute_ms = [5, 40]", "compute_ms = [0, 5]"),
        ("aggregators = 1", "aggregators = 0"),
        (step, &format!("{stepped}{step}")),
    ];
    let mut seen = Vec::new();
    // A loaded machine may hold up a shaper's timer for longer than a train lasts.
    for _ in 0..3 {
        let (ended, directory) = run(&changes, &["--io=udp"]);
        good(&ended);
        let at = events(&directory).into_iter().find(|event| event["event"] == "rate_step");
        let at = at.unwrap_or_else(|| panic!("no rate step: {}", ended.stderr));
        assert_eq!((&at["box"], &at["down_mbit"]), (&"server".into(), &5.0.into()));
        let controller = counted(&directory, "controller");
        assert!(controller["trains"].as_u64() > Some(20), "{controller}");
        assert!(controller["jobs"][0]["replans_bandwidth"].as_u64() > Some(0), "{controller}");
        let hosts = controller["hosts"].as_array().expect("hosts").iter();
        let server = { hosts }.find(|host| host["name"] == "server").expect("the server's host");
        let down_mbit = server["down_bytes_per_sec"].as_f64().expect("a rate") / 125e3;
        seen.push(down_mbit);
        if (down_mbit / 5.0 - 1.0).abs() <= 0.1 {
            eprintln!("{test}: {seen:.2?} Mbit/s of 5, {controller}");
            return;
        }
    }
    panic!("never within 10 % of 5 Mbit/s: {seen:.2?}");
}

#[test]
fn a_sender_that_ignores_its_grant_breaks_nobodys_order() {
    let test = "a_sender_that_ignores_its_grant_breaks_nobodys_order";
    if !has_lab(test) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let changes = [
        ("rounds = 10", "rounds = 120"),
        ("compute_ms = [5, 40]", "compute_ms = [0, 1]"),
        ("aggregators = 1", "aggregators = 0"),
        // The others can fill the server's link without it.
        ("w2 = 5", "w2 = 10"),
    ];
    let path = scenario(directory.path(), &changes);
    let run = Run::start(&path, &["--io=udp", "--keep-recordings"]);
    let namespace = format!("wf-run{}-w3", run.id());
    let updates = |rank: u8| run.out().join(format!("w{rank}.0.updates"));
    let len = |rank| fs::metadata(updates(rank)).map_or(0, |file| file.len());
    if !eventually(PATIENCE, || len(3) > 40_000) || !netns::path(&namespace).exists() {
        weft_tests::live::skip(test, "the lab is in a user namespace");
        return;
    }
    // What the obedient workers get through, before and beside the rogue.
    let pushed_bytes = |span: Duration| {
        let all = || (0..3).map(len).sum::<u64>();
        let (before, begun) = (all(), Instant::now());
        thread::sleep(span);
        (all() - before) as f64 / begun.elapsed().as_secs_f64()
    };
    let alone = pushed_bytes(Duration::from_secs(4));
    let stop = AtomicBool::new(false);
    let (beside, sent) = thread::scope(|scope| {
        let rogue = scope.spawn(|| {
            netns::within(&namespace, || Rogue::new(&updates(3)).run(&stop))
                .expect("w3's namespace")
        });
        thread::sleep(Duration::from_secs(1));
        let beside = pushed_bytes(Duration::from_secs(4));
        stop.store(true, Ordering::Relaxed);
        (beside, rogue.join().expect("the rogue"))
    });
    let (ended, out) = run.end(2 * PATIENCE);
    // Order, delays and the model are proved by the run itself.
    let json = good(&ended);
    assert!(json["updates_committed"].as_u64() >= Some(480), "{json}");
    let server = counted(&out, "server");
    let drops = &server["drops"];
    let dropped = |reason: &str| drops[reason].as_u64().unwrap_or(0);
    eprintln!("{test}: others {alone:.0} then {beside:.0} B/s, {sent:?}, server {drops}");
    assert!(sent.own > 100 && sent.foreign > 100 && sent.announced > 10, "{sent:?}");
    // What it offered past the controller got no place in the order.
    let unheard = server["servers"][0]["announcements_refused"].as_u64();
    assert!(unheard >= Some(10), "{unheard:?} of {sent:?}: {server}");
    // Its chunks that nobody asked for again, and what it sent under others' groups.
    assert!(dropped("duplicate") > 0, "{drops}");
    let refused = ["bad_members", "unknown_group", "stale_group"].map(dropped);
    assert!(refused.iter().sum::<u64>() > 0, "{drops}");
    // A fifth of the server's link is what its own can carry; the rest is for a loaded machine.
    let rogue = 2e6 / 8.0;
    assert!(beside >= (alone - rogue) * 0.8, "the others fell from {alone:.0} to {beside:.0} B/s");
}

#[test]
fn mistakes_are_one_line_each() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = scenario(directory.path(), &[]);
    for (arguments, words) in [
        (&["--io=memory"][..], "add --direct"),
        (&["--io=udp", "--restart=a7@3"], "names no box: a7"),
        (&["--io=udp", "--policy="], "push.policy"),
        (&["--io=udp", "--restart=server@3"], "set durable = true"),
    ] {
        let (ended, _) = Run::start(&path, arguments).end(PATIENCE);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "{words} in {}", ended.stderr);
        assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{}", ended.stderr);
    }
}
