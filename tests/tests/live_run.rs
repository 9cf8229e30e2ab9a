//! `weft run` as a user and his scripts see it: every port, faults, restarts, deaths,
//! interruptions.
//!
//! Needs `weft` and `weft-node` beside this test (`.ci/test` builds them), and namespaces.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use weft_config::node::{Io, NodeConfig, PortSection};
use weft_config::to_toml;
use weft_tests::live::run::{Ended, Run, changed, digits, ended, weft};
use weft_tests::live::{PATIENCE, eventually, has_dpdk, has_lab, program};

/// Faults of the command line.
const FAULTS: [&str; 4] = ["--loss=0.02", "--duplicate=0.02", "--reorder=0.05", "--corrupt=0.01"];

/// Runs the scenario to its end.
fn digits_run(arguments: &[&str]) -> (Ended, tempfile::TempDir) {
    Run::start(&digits(), arguments).end(PATIENCE)
}

/// The result of a run that must have verdict ok and exit 0.
fn good(ended: &Ended) -> &Value {
    let json = ended.json.as_ref().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!(json["verdict"], "ok", "{} {}", json["reasons"], ended.stderr);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(json["model_identical"], true);
    assert_eq!(json["wrong_sums"], 0);
    json
}

/// The model that `rounds` rounds with `seed` give, computed in one process without faults.
fn lossless_model(rounds: &str, seed: &str) -> String {
    let (ended, _) = digits_run(&["--io=memory", "--rounds", rounds, "--seed", seed]);
    let model = good(&ended)["model_sha256"].as_str().expect("a string").to_owned();
    assert_eq!(model.len(), 64);
    model
}

fn check_keys(json: &Value, io: &str) {
    for key in ["verdict", "io_requested", "io", "model_sha256", "bottleneck"] {
        assert!(json[key].is_string(), "{key} is {}", json[key]);
    }
    for key in [
        "rounds",
        "wrong_sums",
        "chunks_by_multicast",
        "chunks_aggregated",
        "chunks_direct",
        "retransmissions",
        "duplicates_dropped",
        "seed",
    ] {
        assert!(json[key].is_u64(), "{key} is {}", json[key]);
    }
    assert!(json["model_identical"].is_boolean());
    let accuracy = json["accuracy"].as_f64().expect("a number");
    // Chance is 0.1; twenty rounds are not yet the whole training.
    assert!((0.8..=1.0).contains(&accuracy), "accuracy {accuracy}");
    assert_eq!(json["rounds"], 20);
    assert_eq!(json["io_requested"], io);
    assert_eq!(json["io"], io);
    // 102,090 parameters in chunks of 256, 4 workers, 20 rounds.
    assert_eq!(json["chunks_aggregated"], 399 * 4 * 20);
    assert_eq!(json["chunks_direct"], 0);
}

#[test]
fn every_port_gives_the_same_model() {
    let test = "every_port_gives_the_same_model";
    let mut ios = vec!["memory"];
    if has_lab(test) {
        ios.extend(["udp", "af_packet"]);
        if has_dpdk(test) {
            ios.push("dpdk");
        }
    }
    let mut models = Vec::new();
    for io in ios {
        let (ended, directory) = digits_run(&["--io", io, "--rounds=20", "--strict"]);
        let json = good(&ended);
        check_keys(json, io);
        assert_eq!(json["seed"], 1);
        models.push((io, json["model_sha256"].clone()));
        for file in ["run.json", "rounds.csv", "transfers.csv", "events.jsonl"] {
            assert!(directory.path().join("run").join(file).is_file(), "{io}: no {file}");
        }
    }
    assert!(models.iter().all(|(_, model)| *model == models[0].1), "{models:?}");
    let other = lossless_model("20", "2");
    assert_ne!(models[0].1, other.as_str(), "another seed is another model");
}

#[test]
fn workers_on_packet_sockets_give_the_same_model_through_faults() {
    let test = "workers_on_packet_sockets_give_the_same_model_through_faults";
    if !has_lab(test) {
        return;
    }
    let model = lossless_model("20", "7");
    for (io, faults) in [("udp", &[][..]), ("af_packet", &FAULTS[..])] {
        let mut arguments = vec!["--io", io, "--worker-io=af_packet", "--rounds=20", "--seed=7"];
        arguments.extend(faults);
        let (ended, _) = digits_run(&arguments);
        let json = good(&ended);
        assert_eq!(json["model_sha256"], model.as_str(), "{io}");
        assert_eq!((&json["io"], &json["worker_io"]), (&json!(io), &json!("af_packet")));
    }
    let (ended, _) = digits_run(&["--io=udp", "--no-lab", "--worker-io=af_packet"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}

#[test]
fn a_run_goes_on_without_namespaces_where_ip_cannot_make_them() {
    let test = "a_run_goes_on_without_namespaces_where_ip_cannot_make_them";
    if !has_lab(test) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let ip = folder.path().join("ip");
    // As in a chroot that is no mount point: namespaces can be made, and not entered.
    let script = "#!/bin/sh\ncase \"$*\" in *-netns*) echo no mount point >&2; exit 1;; esac\n\
                  PATH=$OTHERS exec ip \"$@\"\n";
    fs::write(&ip, script).expect("written");
    fs::set_permissions(&ip, fs::Permissions::from_mode(0o755)).expect("made executable");
    let others = std::env::var("PATH").expect("a PATH");
    for (path, reason, out) in [
        (folder.path().join("none"), "cannot run `ip`", "without"),
        (folder.path().into(), "no mount point", "failing"),
    ] {
        let mut command = Command::new(program("weft"));
        command.arg("run").arg(digits()).args(["--io=udp", "--rounds=4", "--format=json", "--out"]);
        command.arg(folder.path().join(out)).env("PATH", &path).env("OTHERS", &others);
        let ended = ended(&mut command, PATIENCE);
        good(&ended);
        assert!(ended.stderr.contains("no network namespaces"), "{}", ended.stderr);
        assert!(ended.stderr.contains(reason), "{}", ended.stderr);
    }
}

#[test]
fn sums_by_multicast_give_the_same_model_through_faults() {
    let test = "sums_by_multicast_give_the_same_model_through_faults";
    if !has_lab(test) {
        return;
    }
    let model = lossless_model("20", "7");
    let mut boxes = vec![("udp", &[][..]), ("udp", &FAULTS[..]), ("af_packet", &[][..])];
    if has_dpdk(test) {
        boxes.push(("dpdk", &[]));
    }
    for (io, faults) in boxes {
        let mut arguments =
            vec!["--io", io, "--worker-io=udp_multicast", "--rounds=20", "--seed=7"];
        arguments.extend(faults);
        let (ended, _) = digits_run(&arguments);
        let json = good(&ended);
        assert_eq!(json["model_sha256"], model.as_str(), "{io}");
        assert_eq!((&json["io"], &json["worker_io"]), (&json!(io), &json!("udp_multicast")));
        let count = |key: &str| json[key].as_u64().expect("a number");
        let (cast, all) = (count("chunks_by_multicast"), count("chunks_aggregated"));
        // All but what came before all had said that they hear, and repeats.
        assert!(cast * 2 > all, "{cast} of {all} came by multicast");
    }
}

#[test]
fn faults_change_nothing_but_time() {
    let test = "faults_change_nothing_but_time";
    let model = lossless_model("20", "7");
    let mut ios = vec!["memory"];
    if has_lab(test) {
        ios.push("udp");
        if has_dpdk(test) {
            ios.push("dpdk");
        }
    }
    for io in ios {
        let mut arguments = vec!["--io", io, "--rounds=20", "--seed=7"];
        arguments.extend(FAULTS);
        let (ended, _) = digits_run(&arguments);
        let json = good(&ended);
        assert_eq!(json["model_sha256"], model.as_str(), "{io}");
        let repeats = json["retransmissions"].as_u64().expect("a count");
        // Of 31,920 contributions and as many answers about 2 % are lost and 1 % corrupted.
        assert!(repeats > 1000, "{io}: faults of 3 % left {repeats} retransmissions");
    }
}

/// Events of a run directory.
fn events(directory: &tempfile::TempDir) -> Vec<Value> {
    let text = fs::read_to_string(directory.path().join("run/events.jsonl")).expect("events");
    text.lines().map(|line| serde_json::from_str(line).expect("an event is JSON")).collect()
}

#[test]
fn boxes_die_and_come_back_without_a_trace_in_the_model() {
    let test = "boxes_die_and_come_back_without_a_trace_in_the_model";
    if !has_lab(test) {
        return;
    }
    let model = lossless_model("20", "7");
    // A leaf, the root, and each in the last round, when the others may be closing already.
    for (restarts, leaves) in [
        (&["a1@5", "a0@10"][..], "2"),
        (&["a0@19"][..], "2"),
        (&["a2@19"][..], "2"),
        (&["a0@7", "a0@19"][..], "0"),
    ] {
        let mut arguments = vec!["--io=udp", "--rounds=20", "--seed=7", "--leaves", leaves];
        arguments.extend(FAULTS);
        arguments.extend(restarts.iter().flat_map(|restart| ["--restart", restart]));
        let (ended, directory) = digits_run(&arguments);
        assert_eq!(good(&ended)["model_sha256"], model.as_str(), "{restarts:?}");
        let mut restarted: Vec<String> = events(&directory)
            .iter()
            .filter(|event| event["event"] == "aggregator_restart")
            .map(|event| event["box"].as_str().expect("a name").to_owned())
            .collect();
        restarted.sort_unstable();
        let mut wanted: Vec<&str> = restarts.iter().map(|restart| &restart[..2]).collect();
        wanted.sort_unstable();
        assert_eq!(restarted, wanted);
    }
}

#[test]
fn two_levels_on_dpdk_survive_the_restart_of_a_leaf() {
    let test = "two_levels_on_dpdk_survive_the_restart_of_a_leaf";
    if !has_lab(test) || !has_dpdk(test) {
        return;
    }
    let model = lossless_model("20", "7");
    let mut arguments =
        vec!["--io=dpdk", "--rounds=20", "--seed=7", "--leaves=2", "--restart=a1@8"];
    arguments.extend(FAULTS);
    let (ended, directory) = digits_run(&arguments);
    assert_eq!(good(&ended)["model_sha256"], model.as_str());
    assert!(events(&directory).iter().any(|event| event["event"] == "aggregator_restart"));
}

/// The shipped scenario with other lines in it.
fn scenario(directory: &Path, changes: &[(&str, &str)]) -> std::path::PathBuf {
    changed(&fs::read_to_string(digits()).expect("the scenario"), directory, changes)
}

#[test]
fn block_exponents_and_lanes_change_no_sum() {
    let test = "block_exponents_and_lanes_change_no_sum";
    let directory = tempfile::tempdir().expect("a temporary directory");
    let auto = ("scale_exponent = -20", "scale_exponent = \"auto\"");
    let path = scenario(directory.path(), &[auto]);
    let (ended, _) = Run::start(&path, &["--io=memory", "--rounds=10"]).end(PATIENCE);
    let model = good(&ended)["model_sha256"].clone();
    if !has_lab(test) {
        return;
    }
    let lanes = ("[faults]", "[aggregation]\nlanes = 2\n[faults]");
    let path = scenario(directory.path(), &[auto, lanes]);
    let ios = if has_dpdk(test) { &["udp", "dpdk"][..] } else { &["udp"] };
    for io in ios {
        let mut arguments = vec!["--io", io, "--rounds=10"];
        arguments.extend(FAULTS);
        let (ended, _) = Run::start(&path, &arguments).end(PATIENCE);
        assert_eq!(good(&ended)["model_sha256"], model, "{io}");
    }
}

#[test]
fn a_dead_worker_is_named_and_nothing_is_left() {
    if !has_lab("a_dead_worker_is_named_and_nothing_is_left") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = scenario(
        directory.path(),
        &[("[job]", "[job]\nmember_timeout_s = 6"), ("rounds = 150", "rounds = 100000")],
    );
    let mut run = Run::start(&path, &["--io=udp"]);
    run.wait_until_training(4);
    kill(run.workers()[2], Signal::SIGKILL).expect("the worker runs");
    let (ended, directory) = run.end(Duration::from_secs(90));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let json = ended.json.expect("a verdict");
    assert_eq!(json["verdict"], "failed");
    let reasons = json["reasons"].to_string();
    assert!(reasons.contains("worker 2: ended without a word: signal: 9"), "{reasons}");
    // Nothing was compared, and nobody came to its end to tell what it sent.
    for key in ["accuracy", "model_identical", "model_sha256", "wrong_sums", "chunks_aggregated"] {
        assert_eq!(json.get(key), Some(&Value::Null), "{key}");
    }
    let failures: Vec<Value> =
        events(&directory).into_iter().filter(|event| event["event"] == "worker_failed").collect();
    assert_eq!(failures.len(), 4, "{failures:?}");
    let died = failures.iter().find(|event| event["rank"] == 2).expect("its event");
    for event in failures.iter().filter(|event| event["rank"] != 2) {
        let error = event["error"].as_str().expect("a line");
        assert!(error.contains("waited too long for rank 2"), "{error}");
        let waited_ns = event["t_ns"].as_u64().unwrap() - died["t_ns"].as_u64().unwrap();
        assert!(waited_ns < 12_000_000_000, "{waited_ns} ns after its death");
    }
}

#[test]
fn an_interrupted_run_ends_at_once_and_cleans_up() {
    if !has_lab("an_interrupted_run_ends_at_once_and_cleans_up") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = scenario(directory.path(), &[("rounds = 150", "rounds = 100000")]);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut run = Run::start(&path, &["--io=udp"]);
        run.wait_until_training(4);
        run.signal(signal);
        let signalled = Instant::now();
        let (ended, _) = run.end(PATIENCE);
        assert!(signalled.elapsed() < Duration::from_secs(8), "{:?}", signalled.elapsed());
        assert_eq!(ended.code, Some(130), "{}", ended.stderr);
        assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
    }
}

#[test]
fn a_signal_is_heard_while_a_run_is_proved() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let resize = fs::read_to_string(digits().with_file_name("resize.toml")).expect("a scenario");
    // Enough to train again that the proof takes much longer than what is allowed below.
    let path = changed(
        &resize,
        directory.path(),
        &[("rounds = 90", "rounds = 150"), ("batch = 32", "batch = 256")],
    );
    let run = Run::start(&path, &["--no-lab"]);
    let is_proving = || run.out().join("controller.log").exists() && run.children().is_empty();
    assert!(eventually(PATIENCE, is_proving), "it does not come to the proof");
    run.signal(Signal::SIGINT);
    let (ended, _) = run.end(PATIENCE);
    // A proof that came to its end would have given a report.
    assert_eq!((ended.code, ended.json), (Some(130), None), "{}", ended.stderr);
}

/// One line, this exit status, within seconds.
fn refused(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{}", ended.stderr);
    assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "{word} in {}", ended.stderr);
    }
    assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
}

#[test]
fn mistakes_are_one_line_each() {
    let digits = digits();
    let digits = digits.to_str().expect("UTF-8");
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let path = temporary.path();
    let run = |scenario: &str, arguments: &[&str]| {
        let mut all = vec!["run", scenario];
        all.extend(arguments);
        weft(&all, PATIENCE)
    };
    let file = path.join("changed.toml");
    let file = file.to_str().expect("UTF-8");
    for (from, to, words) in [
        ("workers = 4", "workers = 65", "changed.toml:6: job.workers: "),
        ("batch = 32", "batch = \"x\"", "changed.toml:8: job.batch: "),
        ("mtu = 1500", "mtu = 1500\nmtx = 1", "changed.toml:18: lab.mtx: "),
        ("loss = 0.0", "loss = 2.0", "changed.toml:20: faults.loss: "),
    ] {
        scenario(path, &[(from, to)]);
        refused(&run(file, &["--io=memory"]), 2, &[words]);
    }
    refused(&run("/nowhere.toml", &[]), 2, &["/nowhere.toml"]);
    refused(&run(digits, &["--restart=a7@3", "--io=udp"]), 2, &["a7"]);
    refused(&run(digits, &["--restart=a0@150", "--io=udp"]), 2, &["restart", "150"]);
    refused(&run(digits, &["--restart=a0", "--io=udp"]), 2, &["a1@40"]);
    refused(&run(digits, &["--leaves=3", "--io=udp"]), 2, &["aggregation.leaves"]);
    refused(&run(digits, &["--leaves=2", "--io=memory"]), 2, &["memory"]);
    // Not even root makes directories below a file.
    let under_a_file = format!("{file}/run");
    refused(&run(digits, &["--io=memory", "--out", &under_a_file]), 2, &[&under_a_file]);
    let existing = path.join("existing");
    let existing = existing.to_str().expect("UTF-8");
    let first = run(digits, &["--io=memory", "--rounds=1", "--out", existing]);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    refused(&run(digits, &["--io=memory", "--rounds=1", "--out", existing]), 2, &[existing]);
}

#[test]
fn a_port_in_use_is_named() {
    let ip = weft_tests::live::node::own_address();
    let _taken = std::net::UdpSocket::bind((ip, 22341)).expect("a free port");
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let config = temporary.path().join("node.toml");
    let node = NodeConfig::new(PortSection::new(Io::Udp, std::net::IpAddr::from(ip)));
    fs::write(&config, to_toml(&node)).expect("a file in a temporary directory");
    let mut command = Command::new(program("weft-node"));
    command.arg("--config").arg(config);
    let refusal = ended(&mut command, PATIENCE);
    refused(&refusal, 3, &["22341 is in use", "ss -ulpn"]);
}
