//! `weft run` of a matrix that is factored over a table of rows, as scripts see it: in a lab and on
//! loopback, each mode against one process that works alone, with faults, and with the home killed.
//!
//! Needs `weft` and `weft-node` beside this test (`.ci/test` builds them); a part needs namespaces.

use serde_json::Value;
use weft_tests::live::run::{Ended, Run, changed, weft};
use weft_tests::live::{PATIENCE, has_lab};

const SCENARIO: &str = include_str!("../../testbed/scenarios/factorisation.toml");

/// Runs the scenario with other lines in it.
fn run(changes: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = changed(SCENARIO, directory.path(), changes);
    Run::start(&path, arguments).end(PATIENCE).0
}

/// The result of a run that must have verdict ok and the reference's bits.
fn good(ended: &Ended) -> &Value {
    let json = ended.json.as_ref().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!(json["verdict"], "ok", "{} {}", json["problems"], ended.stderr);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(json["wrong_values"], 0);
    assert_eq!(json["loss"], json["reference_loss"]);
    let loss = json["loss"].as_f64().expect("a number");
    assert!(loss > 0.0 && loss < 0.1, "it has learnt: {loss}");
    assert!(json["epoch_s"].as_f64().is_some_and(|seconds| seconds > 0.0));
    json
}

fn share(json: &Value) -> f64 {
    json["local_share"].as_f64().expect("a number")
}

#[test]
fn a_factorisation_in_a_lab_gives_the_model_of_one_process() {
    if !has_lab("a_factorisation_in_a_lab_gives_the_model_of_one_process") {
        return;
    }
    let rate = ("[factorisation]", "[lab]\nrate_mbit = 200\n\n[factorisation]");
    for changes in [&[][..], &[rate]] {
        let ended = run(changes, &[]);
        let json = good(&ended);
        assert_eq!(json["mode"], "relocation");
        assert!(share(json) > 0.98, "{json}");
        assert!(json["relocations"].as_u64().is_some_and(|count| count > 2_000), "{json}");
        assert!(json["relocation_us_p50"].as_f64().is_some_and(|us| us > 1.0), "{json}");
    }
}

#[test]
fn classic_tables_give_the_same_model_by_messages() {
    let mode = |word| {
        let line = format!("mode = \"{word}\" ");
        run(&[("mode = \"relocation\"", &line)], &["--no-lab"])
    };
    let ended = mode("classic");
    let classic = good(&ended);
    assert_eq!((&classic["mode"], share(classic)), (&Value::from("classic"), 0.0));
    let ended = mode("classic-fast-local");
    let fast = good(&ended);
    // The rows' factors, which are half of all, and one of two columns' that are here anyway.
    assert!((0.7..0.8).contains(&share(fast)), "{fast}");
    for json in [classic, fast] {
        assert_eq!((&json["relocations"], &json["relocation_us_p50"]), (&0.into(), &0.0.into()));
    }
}

#[test]
fn faults_and_a_home_that_is_killed_change_no_bit() {
    let faults =
        ["--no-lab", "--loss=0.02", "--duplicate=0.02", "--reorder=0.05", "--corrupt=0.01"];
    let kill = ("rate = 0.1", "rate = 0.1\n[[kill]]\nbox = \"home\"\nin_epoch = 1");
    let ended = run(&[kill], &faults);
    let json = good(&ended);
    assert_eq!(json["home_kills"], serde_json::json!([1]));
    assert!(json["repeats"].as_u64().is_some_and(|count| count > 0), "{json}");
}

#[test]
fn other_numbers_of_processes_and_threads_give_their_reference() {
    for (nodes, threads) in [("1", "1"), ("4", "1"), ("3", "4")] {
        let changes = [
            ("nodes = 2 ", &*format!("nodes = {nodes} ")),
            ("threads = 2 ", &*format!("threads = {threads} ")),
        ];
        let ended = run(&changes, &["--no-lab"]);
        let json = good(&ended);
        let moved = json["relocations"].as_u64().expect("a number");
        assert_eq!(moved > 0, nodes != "1", "{json}");
    }
}

#[test]
fn a_report_shows_the_run_again_and_bad_input_is_one_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = changed(SCENARIO, directory.path(), &[]);
    let run = Run::start(&path, &["--no-lab"]);
    let out = run.out();
    let (ended, _kept) = run.end(PATIENCE);
    let arguments = ["report".as_ref(), out.as_os_str(), "--format".as_ref(), "json".as_ref()];
    let again = weft(&arguments, PATIENCE);
    assert_eq!((again.code, again.json.as_ref()), (Some(0), Some(good(&ended))));
    let refused = |changes: &[(&str, &str)], arguments: &[&str], expected: &str| {
        let path = changed(SCENARIO, directory.path(), changes);
        let all = [&["run", path.to_str().expect("a path"), "--no-lab"], arguments].concat();
        let ended = weft(&all, PATIENCE);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let is_short = ended.stderr.lines().filter(|line| line.contains("weft: ")).count() == 1;
        assert!(ended.stderr.contains(expected) && is_short, "{}", ended.stderr);
    };
    refused(&[("nodes = 2 ", "nodes = 0 ")], &[], "factorisation.nodes");
    refused(&[("rows = 240", "rows = 241")], &[], "factorisation.rows");
    refused(&[("\"relocation\"", "\"stale\"")], &[], "mode");
    refused(&[], &["--pcap"], "--pcap");
    refused(&[], &["--rounds=3"], "--rounds");
}
