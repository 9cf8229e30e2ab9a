//! `weft cluster` as scripts see it, and what docs/job-policies.md says of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn weft(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft"))
        .arg("cluster")
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("weft starts")
}

const ORACLES: &str = "controller/jobs/tests/tiresias";
const TRACE: &str = "controller/jobs/tests/tiresias/traces/syn60_job.csv";
const CLUSTER: &str = "controller/jobs/tests/tiresias/traces/n15g4.csv";

fn summary(arguments: &[&str]) -> Value {
    let inputs = ["--trace", TRACE, "--cluster", CLUSTER, "--format", "json"];
    let output = weft(&[&inputs, arguments].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{message}");
    serde_json::from_slice(&output.stdout).expect("one JSON value")
}

#[test]
fn compat_mode_writes_the_public_simulators_rows() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("new");
    for policy in ["fifo", "dlas-gpu-05", "dlas-gpu-gittins", "shortest-gpu"] {
        let arguments = ["--policy", policy, "--mode", "compat-tiresias", "--out"];
        summary(&[&arguments[..], &[out.to_str().unwrap()]].concat());
        let got = fs::read_to_string(out.join("jobs.csv")).unwrap();
        let expected = format!("{ORACLES}/expected/syn60__n15g4__{policy}.csv");
        let expected = fs::read_to_string(root().join(expected)).unwrap();
        // The public simulator ends its lines as Windows does.
        assert!(got.lines().eq(expected.lines()), "{policy}");
    }
}

#[test]
fn the_summary_has_the_keys_that_scripts_read() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    let printed = summary(&["--policy", "fifo", "--mode", "compat-tiresias", "--out", out]);
    let text = fs::read_to_string(directory.path().join("summary.json")).unwrap();
    let written: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(printed, written);
    let mut keys: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let mut expected = [
        "policy",
        "jobs",
        "avg_jct_s",
        "median_jct_s",
        "p95_jct_s",
        "makespan_s",
        "utilisation",
        "preemptions",
        "resizes",
        "restart_s",
    ];
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!((written["policy"].as_str(), written["jobs"].as_u64()), (Some("fifo"), Some(60)));
    // The public simulator's mean and makespan.
    assert!((written["avg_jct_s"].as_f64().unwrap() - 2_848.417).abs() < 0.0006);
    assert_eq!(written["makespan_s"], 14_644.0);
}

#[test]
fn options_turn_what_they_say() {
    let base = ["--policy", "dlas-gpu"];
    let plain = summary(&base);
    for more in [
        &["--queues", "100,200"][..],
        &["--promote-knob", "0.5"],
        &["--preemption-cost", "60"],
        &["--placement", "skew", "--spread-slowdown", "3", "--pack-limit", "0"],
    ] {
        assert_ne!(summary(&[&base, more].concat())["avg_jct_s"], plain["avg_jct_s"], "{more:?}");
    }
    let costly = summary(&["--policy", "dlas-gpu", "--preemption-cost", "60"]);
    let most_s = 60.0 * costly["preemptions"].as_f64().unwrap();
    let restart_s = costly["restart_s"].as_f64().unwrap();
    // A job that is stopped again before it works has not paid for all.
    assert!(restart_s > 0.9 * most_s && restart_s <= most_s, "{restart_s} of {most_s}");
    // The same as by name.
    let named = summary(&["--policy", "dlas-gpu-05"]);
    assert_eq!(
        named["avg_jct_s"],
        summary(&["--policy", "dlas-gpu", "--promote-knob", "0.5"])["avg_jct_s"]
    );
}

#[test]
fn elastic_policies_run_on_clusters_narrower_than_their_jobs() {
    let folder = "controller/jobs/tests/elastic";
    let [trace, curves] =
        ["trace_100.csv", "throughputs/a100.csv"].map(|f| format!("{folder}/{f}"));
    let directory = tempfile::tempdir().unwrap();
    let cluster = directory.path().join("eight.csv");
    let header = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node";
    fs::write(&cluster, format!("{header}\n1,1,8,128,256\n")).unwrap();
    let arguments = ["--cluster", cluster.to_str().unwrap(), "--trace", &trace];
    let refused = weft(&arguments);
    assert_eq!(refused.status.code(), Some(2));
    let output = weft(
        &[&arguments[..], &["--policy", "doubling", "--throughputs", &curves, "--format", "json"]]
            .concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(summary["resizes"].as_u64().unwrap() > 0, "{summary}");
}

#[test]
fn bad_input_is_one_line_with_file_line_and_field() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let header = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n";
    let trace = |name: &str, rows: &str| file(name, &format!("{header}{rows}"));
    let no_gpus =
        "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,2,0,1,1\n";
    for (trace, cluster, word) in [
        (file("e.csv", ""), CLUSTER.to_owned(), "e.csv:1: header: the file is empty"),
        (
            file("m.csv", "job_id,num_gpu\n1,1\n"),
            CLUSTER.to_owned(),
            "m.csv:1: submit_time: there is no",
        ),
        (trace("n.csv", "0,1,-3,1,a,5,0\n"), CLUSTER.to_owned(), "n.csv:2: submit_time: "),
        (trace("x.csv", "0,1,3,1,a,NaN,0\n"), CLUSTER.to_owned(), "x.csv:2: duration: "),
        (
            trace("w.csv", "0,61,3,1,a,5,0\n"),
            CLUSTER.to_owned(),
            "w.csv:2: num_gpu: 61 GPUs are more",
        ),
        (trace("d.csv", "0,1,3,1,a,5,0\n0,1,3,1,a,5,0\n"), CLUSTER.to_owned(), "d.csv:3: job_id: "),
        (TRACE.to_owned(), file("c.csv", no_gpus), "c.csv:2: num_gpu_p_node: is 0"),
        (TRACE.to_owned(), "no/such.csv".to_owned(), "reading no/such.csv"),
    ] {
        let output = weft(&["--trace", &trace, "--cluster", &cluster]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(word) && message.trim_end().lines().count() == 1, "{message}");
    }
}

#[test]
fn unknown_names_and_impossible_choices_are_refused() {
    for (arguments, word) in [
        (&["--policy", "magic"][..], "--policy: there is no policy `magic`; known are dlas-gpu, "),
        (&["--mode", "compat-tiresias", "--policy", "2d-las"], "known are dlas-gpu, fifo"),
        (&["--placement", "tetris"], "--placement: there is no placement `tetris`"),
        (&["--queues", "7200,3250"], "--queues: each limit has to be above"),
        (&["--queues", "0"], "expected a number above 0"),
        (
            &["--mode", "compat-tiresias", "--policy", "sjf", "--placement", "yarn"],
            "--placement: only",
        ),
        (&["--spread-slowdown", "0.5"], "--spread-slowdown: expected"),
    ] {
        let inputs = ["--trace", TRACE, "--cluster", CLUSTER];
        let output = weft(&[&inputs, arguments].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(word), "{arguments:?}: {message}");
    }
}

#[test]
fn the_program_of_the_guide_decides_who_runs() {
    let shortest = summary(&["--policy", "exec:python3 docs/policies/shortest_job.py"]);
    assert_eq!(shortest["jobs"], 60);
    assert_eq!(shortest["preemptions"], 0);
    // Where some jobs find no place at first, they are started later.
    let program = "exec:python3 docs/policies/shortest_job.py";
    assert_eq!(summary(&["--policy", program, "--placement", "yarn"])["jobs"], 60);
    // Shortest first is better than first come, and no better than knowing and stopping.
    let mean = |summary: &Value| summary["avg_jct_s"].as_f64().unwrap();
    let [fifo, srtf] = ["fifo", "shortest"].map(|policy| summary(&["--policy", policy]));
    assert!(mean(&srtf) < mean(&shortest) && mean(&shortest) < mean(&fifo));
}

#[test]
fn a_program_that_answers_nonsense_ends_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("policy.sh");
    let answer = r#"{"changes":[{"job":"x","gpus":1}]}"#;
    fs::write(&script, format!("while read -r line; do echo '{answer}'; done\n")).unwrap();
    let nonsense = format!("exec:sh {}", script.display());
    for (program, word) in [(nonsense.as_str(), "no job `x`"), ("exec:true", "it has ended")] {
        let output = weft(&["--trace", TRACE, "--cluster", CLUSTER, "--policy", program]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn help_tells_units_and_defaults() {
    let output = weft(&["--help"]);
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in
        ["GPU-seconds", "in seconds", "default: 60", "default: 3250,7200", "exec:CMD", "skew ("]
    {
        assert!(help.contains(word), "{word}");
    }
}
