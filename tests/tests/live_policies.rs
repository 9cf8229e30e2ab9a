//! Runs whose policy is another program, and a bad one: one that crashes, one that drops whatever
//! it is asked for. Over UDP on loopback: needs `weft`, `weft-node` and `weft-controller` beside
//! this test, and python3.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use weft_tests::live::run::{Ended, Run};
use weft_tests::live::{PATIENCE, program};

/// Two workers, 4,810 parameters.
const SCENARIO: &str = r#"
name = "policies"
[job]
workers = 2
rounds = 6
batch = 16
hidden = [64]
learning_rate = 0.02
momentum = 0.5
element_type = "i32"
scale_exponent = -24
[push]
mode = "async"
aggregators = 1
compute_ms = [1, 5]
"#;

/// Answers two plans and ends.
const CRASHES: &str = "
import json, sys
for line in [sys.stdin.readline(), sys.stdin.readline()]:
    case = json.loads(line)
    print(json.dumps({'order': [u['id'] for u in case['updates']]}), flush=True)
sys.exit(1)
";

/// Sends nothing.
const DROPS: &str = "
import json, sys
for line in sys.stdin:
    drops = [{'update': u['id'], 'reason': 'no'} for u in json.loads(line)['updates']]
    print(json.dumps({'order': [], 'dropped': drops}), flush=True)
";

/// The scenario and a policy in a directory; `exec:` and how it is started.
fn policy(directory: &Path, text: &str) -> String {
    fs::write(directory.join("policy.py"), text).expect("a file in a temporary directory");
    fs::write(directory.join("scenario.toml"), SCENARIO).expect("a file");
    format!("exec:python3 {}", directory.join("policy.py").display())
}

fn run(text: &str, arguments: &[&str]) -> Option<(Ended, Value)> {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIPPED live_policies: no python3; apt-get install python3");
        return None;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let policy = policy(directory.path(), text);
    let all = [&["--io", "udp", "--no-lab", "--policy", &policy], arguments].concat();
    let (ended, _out) = Run::start(&directory.path().join("scenario.toml"), &all).end(PATIENCE);
    let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    Some((ended, json))
}

#[test]
fn a_policy_that_crashes_degrades_the_run_and_is_counted() {
    for arguments in [&[][..], &["--strict"]] {
        let Some((ended, json)) = run(CRASHES, arguments) else { return };
        assert_eq!(ended.code, Some(3), "{}", ended.stderr);
        assert!(json["policy_failures"].as_u64() > Some(0), "{json}");
        let reasons = json["reasons"].to_string();
        assert!(reasons.contains("the default policy made") && reasons.contains("exec:"), "{json}");
    }
}

#[test]
fn a_policy_that_drops_everything_ends_the_run_with_a_verdict() {
    let Some((ended, json)) = run(DROPS, &[]) else { return };
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert_eq!(json["verdict"], "failed");
    let reasons = json["reasons"].to_string();
    assert!(reasons.contains("none was committed: the run was ended after"), "{json}");
}

#[test]
fn a_policy_that_crashes_does_not_take_the_others_of_a_comparison_along() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIPPED live_policies: no python3; apt-get install python3");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let crashes = policy(directory.path(), CRASHES);
    let out = directory.path().join("out");
    let weft = |arguments: &[&str]| -> Output {
        Command::new(program("weft")).args(arguments).output().expect("weft runs")
    };
    let [scenario, out] = [directory.path().join("scenario.toml"), out]
        .map(|path| path.to_str().expect("a path in UTF-8").to_owned());
    let policies = format!("{crashes},fifo");
    let compared = weft(&[
        "compare",
        &scenario,
        "--policies",
        &policies,
        "--out",
        &out,
        "--format",
        "json",
        "--",
        "--io",
        "udp",
        "--no-lab",
    ]);
    let message = String::from_utf8_lossy(&compared.stderr).into_owned();
    assert_eq!(compared.status.code(), Some(3), "{message}");
    let rows: Value = serde_json::from_slice(&compared.stdout).expect("rows");
    assert_eq!(rows[0]["policy"], crashes.as_str());
    assert!(rows[0]["policy_failures"].as_u64() > Some(0), "{rows}");
    assert_eq!((&rows[1]["policy_failures"], &rows[1]["runs_ok"]), (&0.into(), &1.into()));
    for key in ["mean_commit_ns", "p99_ns"] {
        assert!(rows[1][key].as_f64() > Some(0.0), "{key}: {rows}");
    }
    assert!(rows[1]["time_to_loss_s"].is_null(), "no target was given: {rows}");
    let picture = Path::new(&out).join("compare.svg");
    let drawn = fs::read_to_string(&picture).expect("it was drawn");
    fs::remove_file(&picture).expect("it is there");
    let again = weft(&["report", &out, "--format", "json"]);
    let again: Value = serde_json::from_slice(&again.stdout).expect("rows");
    assert_eq!(again, rows);
    let lines = |svg: &str| svg.matches("<polyline").count();
    let redrawn = fs::read_to_string(&picture).expect("it was drawn again");
    assert_eq!(lines(&redrawn), lines(&drawn), "the same curves");
}
