//! `weft plan` as scripts see it, and what docs/plan.md and docs/policies.md say of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const SIXTEEN: &str = "docs/examples/sixteen.json";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn weft(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weft starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("weft reads its input");
    child.wait_with_output().expect("weft ends")
}

fn plan(arguments: &[&str], input: &str) -> Value {
    let output = weft(&[&["plan"], arguments, &["--format", "json"]].concat(), input);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{message}");
    serde_json::from_slice(&output.stdout).expect("one JSON value")
}

fn sixteen() -> Value {
    let text = fs::read_to_string(root().join(SIXTEEN)).expect("the example is there");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn the_example_has_the_keys_that_scripts_read() {
    let plan = plan(&[SIXTEEN], "");
    assert_eq!(plan["policy"], "mlfabric");
    assert_eq!(plan["order"].as_array().unwrap().len(), 16);
    for key in ["dropped", "groups"] {
        assert!(plan[key].is_array(), "{key}");
    }
    for update in plan["updates"].as_object().unwrap().values() {
        assert!(update["arrival_ns"].is_u64() && update["commit_ns"].is_u64());
        assert!(update["via"].is_null() || update["via"].is_string());
        for key in ["from_ns", "to_ns", "bytes_per_sec"] {
            assert!(update["segments"][0][key].is_u64(), "{key}");
        }
    }
    assert!(plan["mean_commit_ns"].is_u64() && plan["makespan_ns"].is_u64());
    assert!(plan.as_object().unwrap().contains_key("replica"));
}

#[test]
fn the_candidate_that_won_is_said_and_can_be_switched_off() {
    let all = plan(&[SIXTEEN, "--policy", "all"], "");
    let rows = all.as_array().expect("an array of answers");
    assert_eq!(rows.len(), weft_plan::policy::names().count());
    for row in rows {
        assert_eq!(row["candidate"].is_string(), row["policy"] == "mlfabric", "{row}");
    }
    let mut case = sixteen();
    // A slow uplink that starts last.
    case["hosts"]["w2"]["up_bytes_per_sec"] = 1_000_000.into();
    let chosen = plan(&["-"], &case.to_string());
    let rules = plan(&["-", "--rules-only"], &case.to_string());
    assert_eq!(rules["candidate"], "rules");
    assert!(chosen["mean_commit_ns"].as_u64() <= rules["mean_commit_ns"].as_u64());
    let text = weft(&["plan", SIXTEEN], "").stdout;
    assert!(String::from_utf8_lossy(&text).contains("; candidate "));
}

#[test]
fn the_distance_to_the_optimum_has_the_keys_that_scripts_read() {
    let distance = plan(&["optimum", "--cases", "12"], "");
    assert_eq!(distance["cases"], 12);
    let ratio = |key: &str| distance[key].as_f64().unwrap_or_else(|| panic!("{key}: {distance}"));
    assert!(1.0 <= ratio("mean_ratio") && ratio("mean_ratio") <= ratio("max_ratio"));
    assert!(ratio("p95_ratio") <= ratio("max_ratio"));
    assert_eq!(distance["rows"].as_array().map(Vec::len), Some(6));
    let csv = weft(&["plan", "optimum", "--cases", "6", "--format", "csv"], "").stdout;
    assert_eq!(String::from_utf8_lossy(&csv).lines().count(), 8);
    assert_eq!(weft(&["plan", "optimum", "--cases", "0"], "").status.code(), Some(2));
    assert_eq!(weft(&["plan"], "").status.code(), Some(2));
}

#[test]
fn a_bad_case_ends_with_status_1_and_the_field() {
    let spoilt: [(&str, &str, Value); 7] = [
        ("/updates/3/host", "updates[3].host", "nowhere".into()),
        ("/updates/3/id", "updates[3].id", "u1".into()),
        ("/updates/3/norm", "updates[3].norm", (-1).into()),
        ("/updates/3/size_bytes", "updates[3].size_bytes", 0.into()),
        ("/hosts/w2/up_bytes_per_sec", "hosts.w2.up_bytes_per_sec", 0.into()),
        ("/servers/0/tau_max", "servers[0].tau_max", (-2).into()),
        ("/servers/0/div_max", "servers[0].div_max", 0.into()),
    ];
    for (pointer, field, value) in spoilt {
        let mut case = sixteen();
        *case.pointer_mut(pointer).unwrap() = value;
        let output = weft(&["plan", "-"], &case.to_string());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(field) && message.lines().count() == 1, "{field}: {message}");
        assert!(output.stdout.is_empty());
    }
    let output = weft(&["plan", SIXTEEN, "--policy", "none"], "");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_picture_has_a_lane_for_every_worker() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantt.svg");
    let output = weft(&["plan", SIXTEEN, "--plot", path.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(0));
    let picture = fs::read_to_string(path).unwrap();
    for worker in 0..16 {
        assert!(picture.contains(&format!("\nw{worker}\n")), "w{worker}");
    }
}

#[test]
fn the_python_policy_of_the_docs_plans() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!(
            "SKIPPED the_python_policy_of_the_docs_plans: no python3; apt-get install python3"
        );
        return;
    }
    let path = "docs/policies/oldest_first.py";
    let lines = fs::read_to_string(root().join(path)).unwrap().lines().count();
    assert!(lines <= 30, "the docs promise 30 lines, it has {lines}");
    let policy = format!("exec:python3 {path}");
    let plan = plan(&[SIXTEEN, "--policy", &policy, "--policy-timeout-ms", "30000"], "");
    let case = sixteen();
    let version = |id: &Value| {
        let updates = case["updates"].as_array().unwrap();
        updates.iter().find(|update| update["id"] == *id).unwrap()["version"].as_u64().unwrap()
    };
    let order = plan["order"].as_array().unwrap();
    assert!(order.iter().map(version).is_sorted(), "the oldest first: {order:?}");
    assert_eq!(order.len(), 16);
}

#[test]
fn an_outside_policy_that_is_late_is_named() {
    let arguments = [
        "plan",
        SIXTEEN,
        "--policy",
        "exec:sleep 60",
        "--policy-timeout-ms",
        "50",
        "--policy-start-timeout-ms",
        "100",
    ];
    let output = weft(&arguments, "");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("exec:sleep 60") && message.contains("50 ms"), "{message}");
}

#[test]
fn the_docs_list_every_policy_and_every_key_of_a_case() {
    let policies = fs::read_to_string(root().join("docs/policies.md")).unwrap();
    for name in weft_plan::policy::names() {
        assert!(policies.contains(&format!("\n| `{name}` | ")), "{name}");
    }
    let docs = fs::read_to_string(root().join("docs/plan.md")).unwrap();
    let case = docs.split("\n## ").find(|part| part.starts_with("The case")).unwrap();
    let documented: BTreeSet<String> = case
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(key, _)| key.to_owned())
        .collect();
    let mut written = BTreeSet::new();
    keys("", &full_case(), &mut written);
    assert_eq!(documented, written);
}

/// A case in which nothing has its default, as the program itself writes it.
fn full_case() -> Value {
    let text = r#"{"now_ns":1,
        "hosts":{"NAME":{"up_bytes_per_sec":1,"down_bytes_per_sec":1,"rack":"NAME"}},
        "links":{"racks":{"NAME":{"up_bytes_per_sec":1,"down_bytes_per_sec":1,"hosts":["x"]}}},
        "servers":[{"name":"s","host":"h","version":1,"tau_max":1,"momentum":0.5,"div_max":1,
            "replica":"r","job":"j","h_norm":1,"lag_norms":[1],"in_flight":1,
            "in_flight_until_ns":1,"workers":1}],
        "aggregators":["a"],
        "updates":[{"id":"u","server":"s","host":"h","size_bytes":1,"version":1,"norm":1,"job":"j",
            "dropped_before":true}],
        "reservations":[{"from":"a","to":"b","from_ns":1,"to_ns":2,"bytes_per_sec":1}],
        "options":{"theta":2,"best_of":1}}"#;
    let spec = weft_plan::spec::CaseSpec::from_json(text).unwrap();
    serde_json::to_value(spec).unwrap()
}

fn keys(path: &str, value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                keys(&format!("{path}{dot}{key}"), value, out);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            keys(&format!("{path}[]"), &items[0], out);
        }
        Value::Array(_) if path == "aggregators" => {
            out.insert("aggregators[]".to_owned());
        }
        _ => {
            out.insert(path.to_owned());
        }
    }
}
