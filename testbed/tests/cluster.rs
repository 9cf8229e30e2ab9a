//! `weft cluster` as scripts see it, and what docs/job-policies.md says of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
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
        "jobs_without_curve",
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
        (&["--queues", "7200,3250"], "3250 is not above 7200"),
        (&["--queues", "-5"], "-5"),
        (&["--quantum", "-1"], "invalid value '-1'"),
        (&["--quantum", "1e-10"], "--quantum: must be at least 0.001"),
        (&["--restart-cost", "-1"], "invalid value '-1'"),
        (&["--pack-limit", "-1"], "--pack-limit: expected a part between 0 and 1, not -1"),
        (&["--queues", "0"], "expected a number above 0"),
        (
            &["--mode", "compat-tiresias", "--policy", "sjf", "--placement", "yarn"],
            "--placement: only",
        ),
        (&["--spread-slowdown", "0.5"], "at least 1, not 0.5"),
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

/// Whether a process runs; one that nobody waited for does.
fn runs(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

#[test]
fn a_program_goes_with_each_signal_and_leaves_the_files_of_before() {
    let directory = tempfile::tempdir().unwrap();
    let [script, pid_file, out] = ["p.sh", "pid", "out"].map(|name| directory.path().join(name));
    fs::create_dir(&out).unwrap();
    fs::write(out.join("jobs.csv"), "old").unwrap();
    fs::write(out.join("summary.json"), "old").unwrap();
    // It answers nothing.
    let text = format!(
        "read -r line; echo $$ > {0}.tmp; mv {0}.tmp {0}; exec sleep 1000\n",
        pid_file.display()
    );
    fs::write(&script, text).unwrap();
    let program = format!("exec:sh {}", script.display());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let _ = fs::remove_file(&pid_file);
        let mut child = Command::new("env")
            .args(["--default-signal", env!("CARGO_BIN_EXE_weft"), "cluster", "--trace", TRACE])
            .args(["--cluster", CLUSTER, "--policy", &program, "--policy-timeout-ms", "4000"])
            .args(["--out", out.to_str().unwrap()])
            .current_dir(root())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weft starts");
        let begun = Instant::now();
        while !pid_file.exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the program starts");
            std::thread::sleep(Duration::from_millis(5));
        }
        let program: i32 = fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        assert!(runs(program));
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        let status = child.wait().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(60), "it ends with the program's time");
        assert_eq!(status.code(), Some(130), "{signal}");
        assert!(!runs(program), "{signal}: the program is killed and waited for");
        let mut left: Vec<_> =
            fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["jobs.csv", "summary.json"]);
        assert_eq!(fs::read_to_string(out.join("jobs.csv")).unwrap(), "old");
    }
}

#[test]
fn a_program_is_gone_when_the_run_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let pid_file = directory.path().join("pid");
    let script = directory.path().join("p.sh");
    let answer = "python3 docs/policies/shortest_job.py";
    fs::write(&script, format!("echo $$ > {}; exec {answer}\n", pid_file.display())).unwrap();
    assert_eq!(summary(&["--policy", &format!("exec:sh {}", script.display())])["jobs"], 60);
    assert!(!runs(fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap()));
}

#[test]
fn a_run_that_fails_leaves_the_files_of_before() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path();
    summary(&["--policy", "fifo", "--out", out.to_str().unwrap()]);
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let all = ["completions.svg", "jobs.csv", "summary.json", "utilisation.svg"];
    assert_eq!(names(), all);
    let before = fs::read_to_string(out.join("jobs.csv")).unwrap();
    let inputs = ["--trace", TRACE, "--cluster", CLUSTER, "--policy", "exec:true", "--out"];
    assert_eq!(weft(&[&inputs[..], &[out.to_str().unwrap()]].concat()).status.code(), Some(1));
    assert_eq!(names(), all);
    assert_eq!(fs::read_to_string(out.join("jobs.csv")).unwrap(), before);
}

#[test]
fn what_has_no_effect_is_told() {
    let told = |arguments: &[&str]| {
        let output = weft(&[&["--trace", TRACE, "--cluster", CLUSTER], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (arguments, words) in [
        (&["--policy", "fifo", "--promote-knob", "2"][..], "--promote-knob has no effect: fifo"),
        (&["--policy", "dlas-gpu-8", "--promote-knob", "2"], "no effect: dlas-gpu-8"),
        (&["--policy", "doubling"], "doubling: without --throughputs jobs run as wide"),
        (&["--policy", "fixed-4"], "fixed-4: without --throughputs jobs run as wide"),
        (&["--policy", "dlas-gpu", "--promote-knob", "2"], ""),
        (&["--policy", "fifo"], ""),
    ] {
        let said = told(arguments);
        assert_eq!(said.lines().count(), usize::from(!words.is_empty()), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn jobs_that_are_left_out_are_told() {
    let trace = "controller/jobs/tests/traces/philly.json";
    let output = weft(&["--trace", trace, "--cluster", CLUSTER]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "philly.json: jobs left out, since none of their attempts is over: 2\n";
    assert!(said.ends_with(expected) && said.lines().count() == 1, "{said}");
}

#[test]
fn help_tells_units_and_defaults() {
    let output = weft(&["--help"]);
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in [
        "GPU-seconds",
        "in seconds",
        "default: 60",
        "default: 3250,7200",
        "exec:CMD",
        "skew (",
        "SIGKILL",
    ] {
        assert!(help.contains(word), "{word}");
    }
}
