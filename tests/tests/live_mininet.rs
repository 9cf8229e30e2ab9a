//! Scenarios on Mininet, with `weft-node` or BMv2 as the switch: the same model as anywhere else,
//! and what `weft run --lab` refuses.
//!
//! Needs root, Mininet, for a part simple_switch_grpc on PATH, and `weft`, `weft-node` and
//! `weft-controller` beside this test (`.ci/test` builds them).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use weft_tests::live::run::digits;
use weft_tests::live::{has_switch, program, skip};

fn mininet() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/deploy/mininet")
}

/// Whether Mininet can be run here; says SKIPPED where not.
fn has_mininet(test: &str) -> bool {
    let import = Command::new("/usr/bin/python3").args(["-c", "import mininet.net"]).output();
    if !import.is_ok_and(|output| output.status.success()) {
        skip(test, "no Mininet for /usr/bin/python3: apt install mininet");
        return false;
    }
    if !nix::unistd::geteuid().is_root() {
        skip(test, "Mininet needs root");
        return false;
    }
    true
}

/// Runs a scenario on Mininet; what `weft run` printed as JSON.
fn on_mininet(scenario: &Path, options: &[&str], run: &[&str]) -> (Value, Output) {
    let directory = TempDir::new().expect("a temporary directory");
    let mut command = Command::new(mininet().join("weft-mininet"));
    command.arg("--weft").arg(program("weft")).args(options).arg(scenario);
    command.args(["--", "--format", "json", "--out"]).arg(directory.path().join("run"));
    let output = command.args(run).output().expect("weft-mininet starts");
    let json = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (json, output)
}

fn in_memory(scenario: &Path, run: &[&str]) -> Value {
    let directory = TempDir::new().expect("a temporary directory");
    let mut command = Command::new(program("weft"));
    command.arg("run").arg(scenario).args(["--io", "memory", "--format", "json", "--out"]);
    let output = command.arg(directory.path().join("run")).args(run).output().expect("weft starts");
    serde_json::from_slice(&output.stdout).expect("a report")
}

/// The topology of `scenario` as Mininet's users write it, with a slow and lossy link of `host`.
fn impaired(scenario: &Path, host: &str, directory: &Path) -> PathBuf {
    let output = Command::new(program("weft")).args(["lab", "topology"]).arg(scenario).output();
    let mut topology: Value =
        serde_json::from_slice(&output.expect("weft runs").stdout).expect("a topology");
    let links = topology["links"].as_array_mut().expect("links");
    let link = links.iter_mut().find(|link| link[0] == host).expect("its link");
    link[2]["delay"] = "3ms".into();
    link[2]["loss"] = 1.into();
    let path = directory.join("topology.json");
    fs::write(&path, topology.to_string()).expect("a file in a temporary directory");
    path
}

#[test]
fn digits_come_to_the_same_model_over_slow_and_lossy_links() {
    let test = "digits_come_to_the_same_model_over_slow_and_lossy_links";
    if !has_mininet(test) {
        return;
    }
    let directory = TempDir::new().unwrap();
    let topology = impaired(&digits(), "w1", directory.path());
    let options = ["--topology", topology.to_str().unwrap()];
    let (report, output) = on_mininet(&digits(), &options, &["--rounds", "10"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let expected = in_memory(&digits(), &["--rounds", "10"]);
    assert_eq!(report["model_sha256"], expected["model_sha256"], "{report:#}");
    assert!(report["model_sha256"].is_string(), "{report:#}");
    // Whoever makes it, a delay and a loss that were asked for are there.
    assert!(report["retransmissions"].as_u64().is_some_and(|count| count > 0), "{report:#}");
    let by = &report["link_delay"]["by"];
    let is_by_fault_ports = stderr.contains("no netem");
    assert!(is_by_fault_ports == (by == "fault_ports"), "{by} {stderr}");
    let p50_ns = report["round_time_ns"]["p50"].as_f64();
    assert!(p50_ns.is_some_and(|p50_ns| p50_ns > 6e6), "two ways of 3 ms each: {p50_ns:?}");
}

#[test]
fn four_workers_push_in_order_to_a_server_and_its_replica() {
    let test = "four_workers_push_in_order_to_a_server_and_its_replica";
    if !has_mininet(test) {
        return;
    }
    let (report, output) = on_mininet(&mininet().join("push.toml"), &[], &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(report["verdict"], "ok", "{report:#}");
    assert_eq!(report["replica_identical"], true, "{report:#}");
    assert!(report["chunks_aggregated"].as_u64().is_some_and(|count| count > 0), "{report:#}");
}

#[test]
fn a_p4_switch_in_mininet_sums_a_push_for_server_and_replica() {
    let test = "a_p4_switch_in_mininet_sums_a_push_for_server_and_replica";
    if !has_switch(test) || !has_mininet(test) {
        return;
    }
    let (report, output) = on_mininet(&mininet().join("push.toml"), &["--switch", "bmv2"], &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!((&report["verdict"], &report["io"]), (&"ok".into(), &"bmv2".into()), "{report:#}");
    assert_eq!(report["replica_identical"], true, "{report:#}");
    assert!(report["chunks_aggregated"].as_u64().is_some_and(|count| count > 0), "{report:#}");
}

#[test]
fn a_p4_switch_in_mininet_gives_the_model_of_software() {
    let test = "a_p4_switch_in_mininet_gives_the_model_of_software";
    if !has_switch(test) || !has_mininet(test) {
        return;
    }
    let rounds = ["--rounds", "4"];
    let (report, output) = on_mininet(&digits(), &["--switch", "bmv2"], &rounds);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let expected = in_memory(&digits(), &rounds);
    assert_eq!(report["model_sha256"], expected["model_sha256"], "{report:#}");
    assert_eq!(report["io"], "bmv2", "{report:#}");
}

#[test]
fn a_lab_that_is_not_up_or_not_the_scenarios_is_refused() {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(program("weft"));
        let output =
            command.arg("run").arg(digits()).args(arguments).output().expect("weft starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, stderr) = run(&["--io", "udp", "--lab", "nosuchlab"]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stderr.contains("nosuchlab") && stderr.contains("a0, w0, w1, w2, w3"), "{stderr}");
    let (code, stderr) = run(&["--io", "af_packet", "--lab", "nosuchlab"]);
    assert_eq!((code, stderr.contains("--switch bmv2")), (Some(2), true), "{stderr}");
}
