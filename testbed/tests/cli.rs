//! The `weft` binary as scripts see it: exit statuses, JSON on standard output, files written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use weft_testbed::report::{
    Machine, PauseRow, Record, ResizeOutcome, RoundRow, RunOutcome, RunWriter, Surroundings,
    Verdict,
};

fn weft(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft")).args(arguments).output().expect("weft runs")
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).expect("one JSON value on standard output")
}

fn record<O>(configuration: serde_json::Value) -> Record<O> {
    Record {
        name: "x".to_owned(),
        weft_version: "0.1.0".to_owned(),
        commit: "unknown".to_owned(),
        started_unix_s: 0,
        arguments: vec![],
        seed: 7,
        configuration,
        machine: Machine::read(),
        outcome: None,
    }
}

fn write_run(directory: &Path, verdict: Verdict) {
    let record = record(serde_json::Value::Null);
    let mut writer = RunWriter::create(directory, record).unwrap();
    for round in 0..50 {
        let duration_ns = 1_000_000 + round * 1_000;
        writer.round(&RoundRow { round, duration_ns, ..RoundRow::default() }).unwrap();
    }
    let outcome = RunOutcome {
        verdict,
        reasons: vec![],
        io_requested: "memory".to_owned(),
        io: "memory".to_owned(),
        worker_io: "memory".to_owned(),
        rounds: 50,
        rounds_per_second: Some(10.0),
        accuracy: Some(0.96),
        model_identical: Some(true),
        model_sha256: Some("00".to_owned()),
        wrong_sums: Some(0),
        chunks_aggregated: Some(1),
        chunks_direct: Some(0),
        chunks_by_multicast: Some(0),
        retransmissions: Some(0),
        duplicates_dropped: Some(0),
        bottleneck: Some("cpu".to_owned()),
        bottleneck_evidence: Some("measured".to_owned()),
        seed: 7,
        surroundings: Surroundings::default(),
        push: None,
    };
    writer.finish(outcome).unwrap();
}

#[test]
fn report_draws_from_the_directory_alone_and_exits_with_the_verdict() {
    let directory = tempfile::tempdir().unwrap();
    for (name, verdict, status) in [("good", Verdict::Ok, 0), ("bad", Verdict::Failed, 1)] {
        let path = directory.path().join(name);
        write_run(&path, verdict);
        let output = weft(&["report", path.to_str().unwrap(), "--format", "json"]);
        assert_eq!(output.status.code(), Some(status), "{name}");
        assert_eq!(json(&output)["round_time_ns"]["count"], 50);
        let picture = fs::read_to_string(path.join("round_times.svg")).unwrap();
        assert!(picture.contains("</svg>"));
    }
    let csv = weft(&["report", directory.path().join("good").to_str().unwrap(), "--format", "csv"]);
    assert!(String::from_utf8_lossy(&csv.stdout).contains("\naccuracy,0.96\n"));
    let missing = weft(&["report", directory.path().join("none").to_str().unwrap()]);
    assert_eq!(missing.status.code(), Some(2));
    let message = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(message.contains("run.json") && message.lines().count() == 1, "{message}");
    assert_eq!(weft(&["report"]).status.code(), Some(2));
}

fn write_resize(directory: &Path, pauses: Vec<PauseRow>) {
    let mut record = record(serde_json::json!({"resize": {}}));
    record.outcome = Some(ResizeOutcome {
        name: "x".to_owned(),
        model_identical: Some(true),
        model_sha256: vec![],
        reference_sha256: String::new(),
        pause_s: 0.25,
        widths: vec![2; pauses.len() + 1],
        pauses,
        standstills_s: vec![],
        rounds: 9,
        accuracy: Some(0.5),
        killed: vec![],
        kills: vec![],
        problems: vec![],
        verdict: Verdict::Ok,
    });
    record.create(directory, "run.json").unwrap();
}

#[test]
fn a_report_of_resizes_has_a_header_without_any_and_draws_where_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let [still, moved] = ["still", "moved"].map(|name| directory.path().join(name));
    write_resize(&still, vec![]);
    write_resize(&moved, vec![PauseRow { round: 4, to: 2, pause_s: 0.25, ..Default::default() }]);
    let report =
        |path: &Path, more: &[&str]| weft(&[&["report", path.to_str().unwrap()], more].concat());
    let csv = String::from_utf8(report(&still, &["--format", "csv"]).stdout).unwrap();
    assert!(csv.starts_with("round,from,to,pause_s,") && csv.lines().count() == 1, "{csv}");
    assert_eq!(fs::read_to_string(still.join("pauses.csv")).unwrap(), csv);
    let picture = directory.path().join("mine.svg");
    let svg = ["--svg", picture.to_str().unwrap()];
    assert_eq!(report(&still, &svg).status.code(), Some(1), "there is nothing to draw");
    let drawn = report(&moved, &svg);
    assert_eq!(drawn.status.code(), Some(0), "{}", String::from_utf8_lossy(&drawn.stderr));
    assert!(fs::read_to_string(&picture).unwrap().contains("</svg>"));
    assert!(!moved.join("pauses.svg").exists(), "it was to be elsewhere");
}

#[test]
fn a_picture_that_there_is_not_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jobs");
    let several: Record<()> = record(serde_json::Value::Null);
    several.create(&path, "jobs.json").unwrap();
    let svg = directory.path().join("mine.svg");
    let output = weft(&["report", path.to_str().unwrap(), "--svg", svg.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--svg is for a run of one job"), "{said}");
}

#[test]
fn a_comparison_refuses_an_unknown_policy_before_it_starts_anything() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/async.toml");
    for unknown in ["no-such", "exec:", ""] {
        let policies = format!("fifo,{unknown}");
        let arguments = ["compare", scenario.to_str().unwrap(), "--policies", &policies, "--out"];
        let output = weft(&[&arguments[..], &[out.to_str().unwrap()]].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&format!("--policies: no policy `{unknown}`")), "{message}");
        assert!(!message.contains("seed 1") && !out.exists(), "it ran: {message}");
    }
}

#[test]
fn report_shows_a_comparison_again() {
    let directory = tempfile::tempdir().unwrap();
    let rows = r#"[{"policy": "fifo", "runs": 2, "runs_ok": 2, "mean_commit_ns": 2.5e6,
            "p99_ns": 4000000, "policy_failures": 0},
        {"policy": "exec:./crash", "runs": 2, "runs_ok": 1, "mean_commit_ns": null,
            "policy_failures": 7, "error": "seed 2: the run ended with a signal"}]"#;
    fs::write(directory.path().join("compare.json"), rows).unwrap();
    let path = directory.path().to_str().unwrap();
    let output = weft(&["report", path]);
    assert_eq!(output.status.code(), Some(1), "a run was broken off");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("exec:./crash: DEGRADED: the default policy made 7 plans"), "{text}");
    let rows = json(&weft(&["report", path, "--format", "json"]));
    assert_eq!((&rows[0]["p99_ns"], &rows[1]["policy_failures"]), (&4_000_000.into(), &7.into()));
    let csv = weft(&["report", path, "--format", "csv"]).stdout;
    assert!(String::from_utf8_lossy(&csv).starts_with("policy,runs,runs_ok,mean_commit_ns,"));
}

#[test]
fn a_run_until_a_loss_ends_there_or_at_its_rounds() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let scenario = path("small.toml");
    for mode in ["async", "sync"] {
        let text = format!(
            "name = \"small\"\n[job]\nworkers = 2\nrounds = 2000\nbatch = 16\nhidden = [16]\n\
             learning_rate = 0.05\nmomentum = 0.5\nelement_type = \"i32\"\nscale_exponent = -20\n\
             [push]\nmode = \"{mode}\"\ncontroller = false\naggregators = 0\n"
        );
        fs::write(&scenario, text).unwrap();
        let run = |name: &str, more: &[&str]| {
            let out = path(&format!("{mode}-{name}"));
            let fixed = ["run", &scenario, "--io", "memory", "--format", "json", "--out", &out];
            let output = weft(&[&fixed[..], more].concat());
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            json(&output)
        };
        let reached = run("reached", &["--until-loss", "1.5"]);
        assert_eq!((&reached["verdict"], &reached["target_loss"]), (&"ok".into(), &1.5.into()));
        assert!(reached["rounds"].as_u64() < Some(2000), "{reached}");
        assert!(reached["time_to_loss_s"].as_f64() > Some(0.0), "{reached}");
        let bound = run("bound", &["--until-loss", "0.0001", "--rounds", "3"]);
        assert_eq!((&bound["verdict"], &bound["rounds"]), (&"ok".into(), &3.into()));
        assert!(bound["time_to_loss_s"].is_null(), "{bound}");
        let text = weft(&["report", &path(&format!("{mode}-bound"))]).stdout;
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains("0.0001 was not reached in the run's 3 rounds"), "{text}");
    }
}

#[test]
fn doctor_says_the_same_in_json_and_in_its_exit_status() {
    let output = weft(&["doctor", "--format", "json"]);
    let value = json(&output);
    let can_run = value["can_run"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if can_run { 0 } else { 3 }));
    let findings = value["findings"].as_array().unwrap();
    let text = String::from_utf8(weft(&["doctor"]).stdout).unwrap();
    // What does not fit a line goes on in the next, behind blanks.
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(lines.len(), findings.len());
    for (line, finding) in lines.into_iter().zip(findings) {
        let level = finding["level"].as_str().unwrap();
        assert!(line.starts_with(&format!("{level} {}: ", finding["name"].as_str().unwrap())));
        assert_eq!(level == "ok", finding["fix"].is_null(), "{line}");
    }
}

#[test]
fn reports_fit_eighty_columns() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    write_run(&run, Verdict::Ok);
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/sixteen.json");
    let (run, case) = (run.to_str().unwrap(), case.to_str().unwrap());
    let compared = directory.path().join("compared");
    fs::create_dir(&compared).unwrap();
    let rows = r#"[{"policy": "mlfabric", "runs": 2, "runs_ok": 2, "mean_commit_ns": 2.5e6,
        "p99_ns": 4000000, "policy_failures": 0}]"#;
    fs::write(compared.join("compare.json"), rows).unwrap();
    for arguments in [
        vec!["report", run],
        vec!["report", "--columns"],
        vec!["report", compared.to_str().unwrap()],
        vec!["plan", case],
        vec!["plan", case, "--policy", "all"],
        vec!["doctor"],
        vec!["lab", "list"],
    ] {
        let output = weft(&arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        for line in text.lines() {
            // One word cannot be folded: a hash, a path.
            let is_word = line.split_whitespace().count() == 1;
            let fits = line.chars().count() <= 80 || is_word || line.starts_with("model ");
            assert!(fits, "{arguments:?}: {line}");
        }
    }
}

#[test]
fn a_reader_that_has_gone_is_a_clean_end() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    write_run(&run, Verdict::Ok);
    let run = run.to_str().unwrap();
    let weft = env!("CARGO_BIN_EXE_weft");
    for script in [
        format!("{weft} report --columns | head -1 >/dev/null"),
        format!("{weft} report {run} 2>&- | head -1 >/dev/null"),
        format!("{weft} report {run} >/dev/null 2>&-"),
        // The reader of standard error is gone before the first line.
        format!(
            "{weft} report {run} 2> >(exec true) >/dev/null; sleep 0.2; {weft} report {run} \
                 2> >(exec <&-; sleep 1) > >(exec <&-; sleep 1)"
        ),
    ] {
        let script = format!("set -o pipefail; {script}");
        let output = Command::new("bash").args(["-c", &script]).output().expect("bash runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{script}: {said}");
        assert!(!said.contains("panicked"), "{script}: {said}");
    }
}

#[test]
fn a_mistake_in_an_override_names_its_option_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let path = |name: &str| scenarios.join(name).to_str().unwrap().to_owned();
    let (digits, push) = (path("digits.toml"), path("async.toml"));
    for (scenario, option, field) in [
        (&digits, "--loss=2", "faults.loss"),
        (&digits, "--leaves=3", "aggregation.leaves"),
        (&digits, "--rounds=0", "job.rounds"),
        (&digits, "--restart=a7@3", "restart"),
        (&push, "--policy=no-such", "push.policy"),
        (&push, "--policy=exec:", "push.policy"),
    ] {
        let output = weft(&["run", scenario, option, "--out", out.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let name = option.split('=').next().unwrap();
        assert!(said.starts_with(&format!("weft: {name}: {field}")), "{option}: {said}");
        assert!(!out.exists() && said.trim_end().lines().count() == 1, "{option}: {said}");
    }
    let text = fs::read_to_string(&push).unwrap();
    let file = directory.path().join("bad.toml");
    fs::write(&file, text.replace("policy = \"mlfabric\"", "policy = \"no-such\"")).unwrap();
    let output = weft(&["run", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("bad.toml:") && said.contains("policy"), "{said}");
}

/// A program that answers as `weft-node` does, and does what `then` says. It has no DPDK.
fn played_node(folder: &Path, then: &str) -> PathBuf {
    let path = folder.join("played-node");
    let version = env!("CARGO_PKG_VERSION");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo weft-node {version}; exit; fi\n{then}\n"
    );
    fs::write(&path, script).expect("a temporary folder");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    path
}

/// The last line of standard error and the exit status.
fn refusal(output: &Output) -> (Option<i32>, String) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), stderr.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn workers_that_cannot_have_a_port_of_their_own_are_told_the_cause() {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/digits.toml");
    let scenario = scenario.to_str().expect("UTF-8");
    let folder = tempfile::tempdir().unwrap();
    let node = played_node(folder.path(), "exit 1");
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(["run", scenario, "--worker-io=af_packet"]).args(more);
        refusal(&command.env("WEFT_NODE", &node).output().expect("weft runs"))
    };
    for (more, code, cause) in [
        // DPDK is the default.
        (&[][..], 3, "weft-node was built without DPDK"),
        (&[], 3, "try --io udp or --io af_packet"),
        (&["--io=shm"], 2, "workers of --io shm have its memory"),
        (&["--io=memory"], 2, "workers of --io memory have its memory"),
    ] {
        let (status, line) = run(more);
        assert_eq!(status, Some(code), "{more:?}: {line}");
        assert!(line.contains("--worker-io") && line.contains(cause), "{more:?}: {line}");
    }
    let (status, line) = refusal(&weft(&["bench", "allreduce", "--io=shm", "--lab"]));
    assert_eq!(status, Some(2), "{line}");
    assert!(line.contains("use udp, af_packet or dpdk"), "{line}");
}

#[test]
fn a_folder_for_what_is_temporary_that_cannot_be_made_names_its_variable() {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/async.toml");
    let folder = tempfile::tempdir().unwrap();
    let node = played_node(folder.path(), "exit 1");
    let (out, scenario) = (folder.path().join("out"), scenario.to_str().expect("UTF-8"));
    let run = ["run", scenario, "--io=udp", "--out", out.to_str().expect("UTF-8")];
    for arguments in [&run[..], &["bench", "allreduce", "--io=udp"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(arguments).env("TMPDIR", "/dev/null").env("WEFT_NODE", &node);
        let (status, line) = refusal(&command.output().expect("weft runs"));
        assert!(matches!(status, Some(1 | 3)), "{line}");
        assert!(line.contains("TMPDIR") && line.contains("/dev/null/weft-"), "{line}");
    }
}

/// A box that dies under a bench is named, at once, in rows that have no figures.
#[test]
fn a_bench_whose_box_dies_says_so_in_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let then = "echo '{\"ready\":true}'; sleep 1; echo out of memory >&2; kill -9 $$";
    let node = played_node(folder.path(), then);
    let bench = |format: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        let sizes = ["-b", "4K", "-e", "16K", "-w", "2", "-n", "1"];
        command.args(["bench", "allreduce", "--io=udp", "--format", format]).args(sizes);
        let begun = Instant::now();
        let output = command.env("WEFT_NODE", &node).output().expect("weft runs");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(begun.elapsed() < Duration::from_secs(8), "nobody waits for workers' patience");
        output
    };
    let why = "weft-node ended during the sums: signal: 9 (SIGKILL): out of memory";
    let json = json(&bench("json"));
    let rows = json.as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert!(row["failure"].as_str().expect("a reason").contains(why), "{row}");
        for figure in ["time_us", "wrong", "algbw_bytes_per_sec", "time_min_us", "time_max_us"] {
            assert!(row[figure].is_null(), "{figure}: {row}");
        }
    }
    for format in ["text", "csv"] {
        let output = bench(format);
        let text = String::from_utf8_lossy(&output.stdout);
        let told = text.lines().filter(|line| line.contains("weft-node ended during the sums"));
        assert_eq!(told.count(), 2, "{text}");
        assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
    }
}

#[test]
fn what_goes_with_peers_is_refused_without() {
    let refused = |options: &str, words: &str| {
        let arguments: Vec<&str> =
            ["bench", "allreduce"].into_iter().chain(options.split(' ')).collect();
        let output = weft(&arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{options}: {stderr}");
        assert!(stderr.contains(words), "{options}: {stderr}");
    };
    for option in [
        "--mtus 9000",
        "--rates 100",
        "--box-links same",
        "--rounds 2",
        "--only gloo",
        "--one-host",
    ] {
        for other in ["--io udp", "--worker-io udp", "--type f32", "--lab", "--rate-mbit 9"] {
            refused(&format!("{other} {option}"), "cannot be used with");
        }
        refused(option, "required arguments were not provided");
    }
}
