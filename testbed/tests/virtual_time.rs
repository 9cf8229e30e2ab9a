//! `weft run --level packet` and `weft soak` as scripts see them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn weft(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft")).args(arguments).output().expect("weft runs")
}

fn json(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

fn scenario(name: &str) -> String {
    format!("{}/scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

/// Runs a scenario in virtual time for a few rounds; its status and its report.
fn run(out: &Path, scenario: &str, more: &[&str]) -> (Option<i32>, Value) {
    let out = out.to_str().expect("a plain path");
    let usual = ["run", scenario, "--level", "packet", "--format", "json", "--out", out];
    let output = weft(&[&usual, more].concat());
    (output.status.code(), json(&output))
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["digits", "async"] {
        let of = |run_name: &str, seed: &str| {
            let faults = ["--loss", "0.01", "--corrupt", "0.01"];
            let more = [&["--seed", seed, "--rounds", "2"][..], &faults].concat();
            run(&directory.path().join(format!("{name}-{run_name}")), &scenario(name), &more)
        };
        let [(status, one), (_, same), (_, other)] = [of("a", "1"), of("b", "1"), of("c", "2")];
        assert_eq!((status, &one["verdict"]), (Some(0), &"ok".into()), "{one:#}");
        assert_eq!((&one["level"], &one["io"]), (&"packet".into(), &"virtual".into()));
        assert_eq!(one["model_identical"], true);
        for key in ["fingerprint", "events", "virtual_seconds", "model_sha256", "recorded_events"] {
            assert_eq!(one[key], same[key], "{key}");
            assert!(!one[key].is_null(), "{key}");
        }
        assert_ne!(one["fingerprint"], other["fingerprint"]);
        assert!(one["wall_seconds"].as_f64() > Some(0.0) && one["events"].as_u64() > Some(1_000));
    }
}

#[test]
fn a_table_of_rows_is_the_same_again_and_its_rows_move_faster_than_they_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(scenario("factorisation")).unwrap();
    let classic = directory.path().join("classic.toml");
    fs::write(&classic, text.replace("\"relocation\"", "\"classic-fast-local\"")).unwrap();
    let classic = classic.to_str().unwrap().to_owned();
    let of = |name: &str, file: &str| run(&directory.path().join(name), file, &[]);
    let moving = scenario("factorisation");
    let [(status, one), (_, same), (_, stays)] =
        [of("a", &moving), of("b", &moving), of("c", &classic)];
    assert_eq!((status, &one["verdict"], &one["level"]), (Some(0), &"ok".into(), &"packet".into()));
    for key in ["fingerprint", "events", "virtual_seconds", "epochs_s", "latencies", "wire_bytes"] {
        assert_eq!(one[key], same[key], "{key}");
        assert!(!one[key].is_null(), "{key}");
    }
    for report in [&one, &stays] {
        assert_eq!((&report["verdict"], &report["wrong_values"]), (&"ok".into(), &0.into()));
    }
    let seconds = [&one, &stays].map(|report| report["epoch_s"].as_f64().unwrap());
    assert!(seconds[1] > 10.0 * seconds[0], "{seconds:?}");
    assert!(one["relocations"].as_u64() > Some(1_000) && stays["relocations"] == 0, "{one:#}");
}

/// Commits fell from 9.9 a second to 5.9, 1.4 and 0.2 at 10, 19 and 30 % when each loss halved a
/// window and only timeouts found what was lost.
#[test]
fn losses_each_way_cost_pushes_little_more_than_the_frames_that_they_take() {
    let directory = tempfile::tempdir().unwrap();
    let rate = |seed: u32, loss: &str| {
        let out = directory.path().join(format!("{seed}-{loss}"));
        let more = ["--rounds", "10", "--seed", &seed.to_string(), "--loss", loss];
        let (status, report) = run(&out, &scenario("async"), &more);
        assert_eq!((status, &report["verdict"]), (Some(0), &"ok".into()), "{report:#}");
        let of = |key: &str| report[key].as_f64().unwrap();
        of("updates_committed") / of("virtual_seconds")
    };
    // The median of three seeds, which run at once.
    let median = |loss: &str| {
        thread::scope(|scope| {
            let runs = [1, 2, 3].map(|seed| scope.spawn(move || rate(seed, loss)));
            let mut rates = runs.map(|run| run.join().expect("no run panics"));
            rates.sort_by(f64::total_cmp);
            rates[1]
        })
    };
    let [whole, tenth, third] = [rate(1, "0"), median("0.1"), median("0.3")];
    let shares = [tenth / whole, third / whole];
    assert!(shares[0] >= 0.7 && shares[1] >= 0.3, "of the rate without loss: {shares:.2?}");
}

#[test]
fn boxes_restart_and_die_in_virtual_time_as_live() {
    let directory = tempfile::tempdir().unwrap();
    let leaves = ["--rounds", "4", "--leaves", "2", "--restart", "a1@1"];
    let (status, report) = run(&directory.path().join("a"), &scenario("digits"), &leaves);
    assert_eq!((status, &report["verdict"]), (Some(0), &"ok".into()), "{report:#}");
    assert_eq!(report["recorded_events"]["aggregator_restart"], 1);
    let (status, report) = run(&directory.path().join("b"), &scenario("failover"), &[]);
    assert_eq!((status, &report["promotions"]), (Some(0), &1.into()), "{report:#}");
}

#[test]
fn what_virtual_time_has_not_is_refused_by_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(scenario("async")).unwrap();
    let file = directory.path().join("busy.toml");
    let flow = "\n[[background]]\nfrom = \"w0\"\nto = \"w1\"\nrate_mbit = 1\n";
    fs::write(&file, text + flow).unwrap();
    let (file, plain) = (file.to_str().unwrap().to_owned(), scenario("async"));
    let table = scenario("factorisation");
    let bare = directory.path().join("bare.toml");
    let text = fs::read_to_string(&table).unwrap();
    fs::write(&bare, text.split("[costs]").next().unwrap()).unwrap();
    let bare = bare.to_str().unwrap().to_owned();
    let rows: [(&str, &[&str], &str); 7] = [
        (&table, &["--no-lab"], "--no-lab is for --level live"),
        (&table, &["--loss", "0.1"], "faults: virtual time has no faults of tables"),
        (&bare, &[], "costs: virtual time needs what things take"),
        (&file, &[], "background: virtual time has no traffic of others"),
        (&plain, &["--pcap"], "--pcap is for --level live"),
        (&plain, &["--io", "dpdk"], "--io is for --level live"),
        (&plain, &["--no-lab"], "--no-lab is for --level live"),
    ];
    for (scenario, more, why) in rows {
        let output = weft(&[&["run", scenario, "--level", "packet"], more].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(why) && errors.lines().count() == 1, "{errors}");
    }
}

#[test]
fn an_outside_policys_answers_are_kept_and_its_silence_ends_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let program = format!("{}/../docs/policies/oldest_first.py", env!("CARGO_MANIFEST_DIR"));
    let policy = format!("exec:python3 {program}");
    let runs = ["a", "b"].map(|name| {
        let out = directory.path().join(name);
        let more = ["--rounds", "2", "--policy", &policy];
        let (status, report) = run(&out, &scenario("async"), &more);
        assert_eq!((status, &report["verdict"]), (Some(0), &"ok".into()), "{report:#}");
        let answers = fs::read_to_string(out.join("policy.jsonl")).expect("its answers");
        (report["fingerprint"].clone(), answers)
    });
    assert_eq!(runs[0], runs[1], "what the program takes is not the run's time");
    let first: Value = serde_json::from_str(runs[0].1.lines().next().unwrap()).unwrap();
    assert!(first["case"]["updates"].is_array() && first["plan"]["order"].is_array(), "{first}");

    // The second answers once, and then not until the wall clock's limit for it is over.
    let silent = directory.path().join("silent.sh");
    fs::write(&silent, "read -r line\necho '{}'\nexec sleep 60\n").unwrap();
    let silent = format!("exec:sh {}", silent.display());
    for (policy, why) in [("exec:true", "it has ended"), (&silent, "within 10000 ms")] {
        let out = directory.path().join(why);
        let more = ["--rounds", "2", "--policy", policy];
        let (status, report) = run(&out, &scenario("async"), &more);
        let reasons = report["reasons"].to_string();
        assert_eq!((status, &report["verdict"]), (Some(1), &"failed".into()));
        assert!(reasons.contains("gave no answer: ") && reasons.contains(why), "{reasons}");
    }
}

#[test]
fn answers_that_are_refused_are_counted_as_live() {
    let directory = tempfile::tempdir().unwrap();
    // `{}` lacks an order.
    let more = ["--rounds", "2", "--policy", "exec:sed -u s/.*/{}/"];
    let (status, report) = run(&directory.path().join("a"), &scenario("async"), &more);
    assert_eq!((status, &report["verdict"]), (Some(3), &"ok".into()), "{report:#}");
    assert!(report["policy_failures"].as_u64() > Some(0), "{report:#}");
    assert!(report["reasons"].to_string().contains("the default policy made"), "{report:#}");
}

#[test]
fn a_soak_says_what_it_tried() {
    let output = weft(&["soak", "--minutes", "0.02", "--from", "5", "--format", "json"]);
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!((&report["violations"], &report["first_seed"]), (&0.into(), &5.into()));
    assert!(report["seeds"].as_u64() >= Some(1) && report["faults"].is_object(), "{report:#}");
    assert_eq!(report["fingerprint"].as_str().map(str::len), Some(16));
    let output = weft(&["soak", "--replay", "push/nobody:7"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("push/workers"), "{errors}");
    let output = weft(&["soak", "--replay", "allreduce/late:3"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("node 0: "), "frames are printed");
}

#[test]
fn a_soak_that_is_interrupted_reports_what_it_tried() {
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_weft"), "soak", "--minutes", "10"]);
    command.args(["--format", "json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("weft starts");
    thread::sleep(Duration::from_secs(2));
    let pid = Pid::from_raw(child.id().try_into().unwrap());
    kill(pid, Signal::SIGINT).expect("it runs");
    let output = child.wait_with_output().unwrap();
    let report = json(&output);
    assert_eq!(output.status.code(), Some(130), "{report:#}");
    assert_eq!(report["interrupted"], true);
    assert!(report["seeds"].as_u64() >= Some(1));
}
