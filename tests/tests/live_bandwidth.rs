//! What a live controller believes of its links, second by second: traffic of others on a worker's
//! uplink, links that are idle for seconds, a rack's uplink as the bottleneck. Controller, server
//! and workers in namespaces, on links that HTB shapes and of which the controller is told nothing.
//!
//! Needs `weft`, `weft-node` and `weft-controller` beside this test (`.ci/test` builds them), and
//! namespaces. A loaded machine may hold up a shaper's timer, or a sender, for longer than a train
//! lasts: a measurement that misses is repeated, at most three times. What the job computes must be
//! right every time: every run is proved bit for bit.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_testbed::lab::netns;
use weft_tests::live::run::{Run, changed};
use weft_tests::live::{PATIENCE, eventually, has_lab, skip};

/// Three workers, 76 chunks an update: enough for a train of 25 to be a third of it.
const SCENARIO: &str = r#"
name = "unknown"
[job]
workers = 3
rounds = 60
batch = 16
hidden = [256]
learning_rate = 0.02
momentum = 0.5
element_type = "i32"
scale_exponent = -24
[push]
mode = "async"
aggregators = 0
compute_ms = [20, 60]
link_rates = "estimated"
[lab]
rate_mbit = 20
"#;

const TRIES: usize = 4;

fn scenario(directory: &Path, changes: &[(&str, &str)]) -> PathBuf {
    changed(SCENARIO, directory, changes)
}

/// What the controller has said so far, a line a second.
fn told(run: &Run) -> Vec<Value> {
    let text = fs::read_to_string(run.out().join("controller.log")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["hosts"].is_array()).collect()
}

/// A host's or a rack's line of one of those.
fn of<'v>(told: &'v Value, kind: &str, name: &str) -> &'v Value {
    let rows = told[kind].as_array().unwrap_or_else(|| panic!("no {kind} in {told}"));
    let row = rows.iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no {name} in {told}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn mbit(row: &Value, key: &str) -> f64 {
    number(&row[key]) / 125e3
}

/// The run must end well, whatever was measured.
fn good(run: Run) {
    let (ended, _) = run.end(3 * PATIENCE);
    let json = ended.json.unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!(json["verdict"], "ok", "{} {}", json["reasons"], ended.stderr);
    assert_eq!((ended.code, &json["model_identical"]), (Some(0), &true.into()));
    assert_eq!(json["controller_fallbacks"], 0, "{json}");
}

/// Runs the changed scenario until `measure` is content, which sees the run under way.
fn measured(
    test: &str,
    changes: &[(&str, &str)],
    measure: impl Fn(&Run) -> Result<String, String>,
) {
    if !has_lab(test) {
        return;
    }
    let mut missed = Vec::new();
    for _ in 0..TRIES {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let run = Run::start(&scenario(directory.path(), changes), &["--io=udp"]);
        let outcome = measure(&run);
        good(run);
        match outcome {
            Ok(words) => return eprintln!("{test}: {words}; missed before: {missed:?}"),
            Err(miss) => missed.push(miss),
        }
    }
    panic!("{test}: no run of {TRIES} was as it should be: {missed:#?}");
}

/// Waits for a second's line that is as it should be, at most `patience`: how long it took, or the
/// last one that was not.
fn waited(
    run: &Run,
    patience: Duration,
    is_it: impl Fn(&Value) -> bool,
) -> Result<Duration, String> {
    let (begun, before) = (Instant::now(), told(run).len());
    let is_there = || told(run).iter().skip(before).any(&is_it);
    match eventually(patience, is_there) {
        true => Ok(begun.elapsed()),
        false => Err(told(run).last().map_or_else(|| "nothing".into(), Value::to_string)),
    }
}

/// Sends UDP of others' at a steady rate of frames from a namespace until told to stop.
fn cross(namespace: &str, target: SocketAddr, bits_per_sec: f64, stop: &AtomicBool) {
    netns::within(namespace, || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
        let payload = [0; 1000];
        let gap = Duration::from_secs_f64((payload.len() as f64 + 42.0) * 8.0 / bits_per_sec);
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            // A full queue is what cross traffic is for.
            let _ = socket.send_to(&payload, target);
            next += gap;
            let now = Instant::now();
            if now < next {
                thread::sleep(next - now);
            } else if now - next > Duration::from_millis(20) {
                next = now;
            }
        }
    })
    .expect("the sender's namespace");
}

#[test]
fn what_others_take_of_a_workers_uplink_is_known_in_a_second() {
    let test = "what_others_take_of_a_workers_uplink_is_known_in_a_second";
    // Its own measure, 60 % of which others take.
    let changes = [("rate_mbit = 20", "rate_mbit = 20\n[lab.links]\nw0 = 10")];
    measured(test, &changes, |run| {
        let up = |line: &Value| mbit(of(line, "hosts", "w0"), "up_bytes_per_sec");
        // The first guess is 1 Gb/s.
        let found = waited(run, PATIENCE, |line| (up(line) / 10.0 - 1.0).abs() < 0.1)?;
        let namespace = format!("wf-run{}-w0", run.id());
        if !netns::path(&namespace).exists() {
            skip(test, "the lab is in a user namespace");
            return Ok("skipped".to_owned());
        }
        let stop = AtomicBool::new(false);
        // To another worker, where nobody listens and nothing else comes but models.
        let sink = SocketAddr::from((Ipv4Addr::new(10, 87, 0, 3), 9));
        let noticed = thread::scope(|scope| {
            scope.spawn(|| cross(&namespace, sink, 6e6, &stop));
            let noticed = waited(run, Duration::from_secs(4), |line| {
                let confidence = number(&of(line, "hosts", "w0")["confidence"]);
                (up(line) / 4.0 - 1.0).abs() < 0.2 && confidence > 0.3 && confidence < 1.0
            });
            stop.store(true, Ordering::Relaxed);
            noticed
        })?;
        let gone = waited(run, Duration::from_secs(5), |line| up(line) > 8.5)?;
        Ok(format!("found in {found:?}, less in {noticed:?}, more again in {gone:?}"))
    });
}

/// The same, of a flow that the scenario has.
#[test]
fn a_background_flow_of_the_scenario_is_taken_off_what_a_link_has() {
    let test = "a_background_flow_of_the_scenario_is_taken_off_what_a_link_has";
    let flow = "rate_mbit = 20\n[[background]]\nfrom = \"w0\"\nto = \"w2\"\nrate_mbit = 12\n";
    measured(test, &[("rate_mbit = 20\n", flow)], |run| {
        let up = |line: &Value, host: &str| mbit(of(line, "hosts", host), "up_bytes_per_sec");
        let found = waited(run, PATIENCE, |line| {
            (up(line, "w0") / 8.0 - 1.0).abs() < 0.2 && (up(line, "w1") / 20.0 - 1.0).abs() < 0.15
        })?;
        Ok(format!("8 Mbit/s of 20 found in {found:?}"))
    });
}

#[test]
fn idle_links_stay_known_by_probes_within_a_percent() {
    let test = "idle_links_stay_known_by_probes_within_a_percent";
    // Every worker computes for seconds: links are idle for longer than an estimate stays fresh.
    let changes =
        [("rounds = 60", "rounds = 2"), ("compute_ms = [20, 60]", "compute_ms = [9000, 10000]")];
    let hosts = ["w0", "w1", "w2", "server"];
    measured(test, &changes, |run| {
        let known = |line: &Value| {
            hosts.iter().all(|host| {
                let row = of(line, "hosts", host);
                ["up_bytes_per_sec", "down_bytes_per_sec"]
                    .iter()
                    .all(|key| (mbit(row, key) / 20.0 - 1.0).abs() < 0.15)
                    && number(&row["confidence"]) > 0.45
            })
        };
        let found = waited(run, PATIENCE, known)?;
        thread::sleep(Duration::from_secs(7));
        let lines = told(run);
        let last = lines.last().expect("it has said so before");
        if !known(last) {
            return Err(format!("not known any more: {last}"));
        }
        let probes = number(&last["probes"]);
        if probes < 8.0 {
            return Err(format!("{probes} probes: {last}"));
        }
        // Over ten seconds or the whole life of the controller, whichever is longer.
        let span_s = number(&last["uptime_s"]).max(10.0);
        let share = |host: &&str| {
            let row = of(last, "hosts", host);
            let most = number(&row["probe_up_bytes"]).max(number(&row["probe_down_bytes"]));
            most / (20e6 / 8.0) / span_s
        };
        let share = hosts.iter().map(share).fold(0.0, f64::max);
        assert!(share <= 0.01, "probes took {share} of a link: {last}");
        Ok(format!("known in {found:?}, {probes} probes took {:.2} %", share * 100.0))
    });
}

#[test]
fn a_racks_uplink_is_found_to_be_the_bottleneck() {
    let test = "a_racks_uplink_is_found_to_be_the_bottleneck";
    let rack = "rate_mbit = 20\n[[lab.rack]]\nhosts = [\"w0\", \"w1\"]\nup = 8";
    measured(test, &[("rate_mbit = 20", rack)], |run| {
        let found = waited(run, Duration::from_secs(12), |line| {
            let uplink = mbit(of(line, "racks", "r0"), "up_bytes_per_sec");
            (uplink / 8.0 - 1.0).abs() < 0.15
        })?;
        Ok(format!("found in {found:?}"))
    });
}
