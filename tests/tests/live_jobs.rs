//! Several jobs in one run, live: push jobs whose servers share a host and a `weft-node`, and an
//! allreduce beside them, each proved by itself; and what `weft top` says meanwhile. Over UDP on
//! loopback: needs `weft`, `weft-node` and `weft-controller` beside this test.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use weft_tests::live::run::{Run, weft};
use weft_tests::live::{PATIENCE, eventually, has_lab, program};

/// A job of two workers with 4,810 parameters.
fn job(name: &str, rounds: u32, more: &str) -> String {
    format!(
        "[[job]]\nname = \"{name}\"\nworkers = 2\nrounds = {rounds}\nbatch = 16\nhidden = [64]\n\
         learning_rate = 0.02\nmomentum = 0.5\nelement_type = \"i32\"\nscale_exponent = -24\n{more}\n"
    )
}

/// Two push jobs, one of them through an aggregator, and an allreduce that comes later.
fn scenario(rounds: u32) -> String {
    let push = |mode: &str, aggregators: u8| {
        format!(
            "server = \"ps\"\npush = {{ mode = \"{mode}\", aggregators = {aggregators}, \
             compute_ms = [5, 10] }}"
        )
    };
    [
        "name = \"several\"\n".to_owned(),
        job("one", rounds, &push("sync", 1)),
        job("two", rounds, &push("async", 0)),
        job("sums", rounds, "start_s = 0.3"),
    ]
    .concat()
}

fn written(directory: &Path, text: &str) -> String {
    let path = directory.join("several.toml");
    fs::write(&path, text).expect("a file in a temporary directory");
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn each_of_several_jobs_has_the_bits_of_its_own_reference() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = written(directory.path(), &scenario(8));
    let arguments = ["--no-lab", "--keep-recordings"];
    let (ended, out) = Run::start(Path::new(&path), &arguments).end(PATIENCE);
    let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!((ended.code, &json["verdict"]), (Some(0), &"ok".into()), "{json}");
    let rows = json["jobs"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["job"].as_str()).collect();
    assert_eq!(names, ["one", "two", "sums"]);
    for row in rows {
        assert_eq!((&row["model_identical"], &row["rounds"]), (&true.into(), &8.into()), "{row}");
        assert!(row["jct_s"].as_f64() > Some(0.0), "{row}");
    }
    // Each learnt from data of its own.
    assert_ne!(rows[0]["model_sha256"], rows[1]["model_sha256"]);
    // Nobody waits in an asynchronous job; whether a push is summed on its way its plan decides.
    assert_eq!((&rows[0]["barrier_waits"], &rows[1]["barrier_waits"]), (&16.into(), &0.into()));
    assert!(rows[0]["barrier_wait_mean_ms"].as_f64() > Some(0.0), "{json}");
    // Not 0: nobody measures them there.
    for key in ["barrier_wait_mean_ms", "barrier_wait_p99_ms", "barrier_wait_variance_ms2"] {
        assert_eq!(rows[1].get(key), Some(&Value::Null), "{key}");
    }
    let chunks = |key: &str| rows[0][key].as_u64().expect("a count");
    assert!(chunks("chunks_aggregated") + chunks("chunks_direct") > 0, "{json}");
    assert_eq!(rows[1]["chunks_aggregated"], 0, "{json}");
    assert!(rows[2]["chunks_aggregated"].as_u64() > Some(0), "{json}");
    let run = out.path().join("run");
    for job in names {
        for file in ["run.json", "rounds.csv", "round_times.svg"] {
            assert!(run.join(job).join(file).is_file(), "{job}/{file}");
        }
    }
    let again = weft(&["report", &run.to_string_lossy(), "--format", "json"], PATIENCE);
    assert_eq!(again.json.expect("the same"), json);
    let one = weft(&["report", &run.join("two").to_string_lossy()], PATIENCE);
    assert_eq!(one.code, Some(0), "{}", one.stderr);
}

/// While one update takes the server's downlink for 80 ms, longer than a worker computes, the other
/// two of its job wait, and are summed on their way.
#[test]
fn updates_that_wait_for_a_narrow_link_are_summed_on_their_way() {
    if !has_lab("live_jobs: updates that wait") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let text = scenario(8).replacen("workers = 2", "workers = 3", 1)
        + "[lab]\nrate_mbit = 40\n[lab.links]\nps = { up = 40, down = 2 }\n";
    let path = written(directory.path(), &text);
    // Whether the two overlap is up to a busy machine, so a run without a sum is repeated.
    let has_summed = (0..4).any(|_| {
        let (ended, _out) = Run::start(Path::new(&path), &["--keep-recordings"]).end(PATIENCE);
        let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
        assert_eq!((ended.code, &json["verdict"]), (Some(0), &"ok".into()), "{json}");
        let aggregated = |row: usize| json["jobs"][row]["chunks_aggregated"].as_u64();
        assert_eq!(aggregated(1), Some(0), "it has no aggregator: {json}");
        aggregated(0) > Some(0)
    });
    assert!(has_summed, "no update was summed in four runs");
}

/// The workers that have this folder for their job's.
fn workers_in(folder: &Path) -> Vec<Pid> {
    let wanted = format!("worker\0{}\0", folder.display());
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    let id = |entry: fs::DirEntry| {
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let id = entry.file_name().to_str()?.parse().ok()?;
        line.ends_with(&wanted).then(|| Pid::from_raw(id))
    };
    processes.filter_map(id).collect()
}

/// Whether a worker has recorded an update.
fn has_updates(folder: &Path) -> bool {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_long = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with('w') && entry.metadata().is_ok_and(|it| it.len() > 1 << 14)
    };
    files.into_iter().any(is_long)
}

#[test]
fn a_job_that_loses_a_worker_fails_by_name_and_takes_no_other_along() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = written(directory.path(), &scenario(40));
    let run = Run::start(Path::new(&path), &["--no-lab"]);
    let folder = run.out().join("two");
    let is_begun = eventually(PATIENCE, || workers_in(&folder).len() == 2 && has_updates(&folder));
    assert!(is_begun, "no worker of it has computed anything");
    kill(workers_in(&folder)[0], Signal::SIGKILL).expect("it runs");
    let (ended, _out) = run.end(PATIENCE);
    let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    let verdicts: Vec<&str> = (json["jobs"].as_array().expect("rows").iter())
        .filter_map(|row| row["verdict"].as_str())
        .collect();
    assert_eq!((ended.code, verdicts), (Some(1), vec!["ok", "failed", "ok"]), "{json}");
    let reasons = json["reasons"].as_array().expect("reasons");
    assert!(!reasons.is_empty(), "{json}");
    assert!(
        reasons.iter().all(|it| it.as_str().is_some_and(|it| it.starts_with("two: "))),
        "{json}"
    );
}

/// A run that goes on until it is told to end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Asked, it ends the processes that it has started; killed, it would leave them.
        let _ = i32::try_from(self.0.id()).map(|pid| kill(Pid::from_raw(pid), Signal::SIGTERM));
        let _ = self.0.wait();
    }
}

#[test]
fn top_tells_of_jobs_links_groups_and_stragglers_while_they_run() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = written(directory.path(), &scenario(2000));
    let mut child = Command::new(program("weft"))
        .args(["run", &path, "--no-lab", "--out"])
        .arg(directory.path().join("out"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weft runs");
    let stderr = BufReader::new(child.stderr.take().expect("piped"));
    let _running = Running(child);
    let told = stderr
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.split_once("weft top ").map(|(_, words)| words.to_owned()))
        .expect("it says how it is watched");
    let words: Vec<&str> = told.split_whitespace().collect();
    let read = |format: &str| {
        weft(&[&["top", "--once", "--format", format], words.as_slice()].concat(), PATIENCE)
    };
    let mut view = Value::Null;
    let is_busy = eventually(PATIENCE, || {
        view = read("json").json.unwrap_or_default();
        // One worker alone may commit before the other has come.
        let is_under_way =
            |job: &Value| job["committed"].as_u64() > Some(0) && job["workers_attached"] == 2;
        let lags = |worker: &Value| worker["lag_mean_ms"].as_f64() > Some(0.0);
        view["jobs"].as_array().is_some_and(|jobs| jobs.len() == 2 && jobs.iter().all(is_under_way))
            && view["stragglers"].as_array().is_some_and(|workers| workers.iter().any(lags))
    });
    assert!(is_busy, "{view}");
    for key in ["jobs", "reduces", "bands", "links", "groups", "stragglers", "drops", "nodes"] {
        assert!(view[key].is_array(), "{key}: {view}");
    }
    let job = &view["jobs"][0];
    assert_eq!((&job["job"], &job["state"]), (&"one".into(), &"running".into()), "{view}");
    assert_eq!((&job["workers_attached"], &job["is_server_attached"]), (&2.into(), &true.into()));
    let hosts = view["links"].as_array().expect("links");
    assert!(hosts.iter().any(|link| link["host"] == "ps"), "{view}");
    let workers = view["stragglers"].as_array().expect("workers");
    assert_eq!(workers.len(), 4, "{view}");
    let boxes: Vec<&Value> = view["nodes"]
        .as_array()
        .expect("boxes")
        .iter()
        .filter(|b| b["is_attached"] == true)
        .collect();
    assert_eq!(boxes.len(), 2, "one for both servers, one aggregator: {view}");
    let text = Command::new(program("weft")).args(["top", "--once"]).args(&words).output();
    let text = String::from_utf8_lossy(&text.expect("weft runs").stdout).into_owned();
    for word in ["stragglers", "one", "two", "links", "boxes"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // It reads with an operator's certificate, and not without one.
    let stranger = weft(&["top", "--once", words[0]], PATIENCE);
    assert_eq!(stranger.code, Some(2), "{}", stranger.stderr);
    assert!(stranger.stderr.contains("needs a certificate"), "{}", stranger.stderr);
    let terminal = weft(&[&["top"], words.as_slice()].concat(), PATIENCE);
    assert_eq!(terminal.code, Some(3), "{}", terminal.stderr);
    assert!(terminal.stderr.contains("no terminal: add --once"), "{}", terminal.stderr);
}

/// The shipped scenario in which an operator sets bands, pauses and resizes.
fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/scenarios").join(name)
}

#[test]
fn an_operators_words_show_within_a_second_and_every_model_is_right() {
    if !has_lab("live_jobs: an operator's words") {
        return;
    }
    let (ended, _out) = Run::start(&shipped("steering.toml"), &["--strict"]).end(PATIENCE);
    let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!((ended.code, &json["verdict"]), (Some(0), &"ok".into()), "{json}");
    let words = json["words"].as_array().expect("words");
    let said: Vec<&str> = words.iter().filter_map(|word| word["word"].as_str()).collect();
    assert_eq!(said, ["bands one", "pause ps0", "resume ps0", "resize sums to 4"]);
    for word in words {
        assert!(word["problem"].is_null(), "{word}");
        assert!(word["seen_ms"].as_f64().is_some_and(|ms| ms < 1000.0), "{word}");
    }
    let rows = json["jobs"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["model_identical"] == true), "{json}");
    // Both servers' jobs got a band; the allreduce has no server, and twice the workers.
    let changes: Vec<u64> = rows.iter().filter_map(|row| row["band_changes"].as_u64()).collect();
    assert!(changes[0] > 0 && changes[1] > 0 && changes[2] == 0, "{json}");
    assert_eq!(rows[2]["widths"], "2-4");
    assert!(rows[2]["pause_s"].as_f64() > Some(0.0), "{json}");
}

/// Workers that push and workers that sum, of which an operator makes more, each on its interface.
#[test]
fn workers_of_several_jobs_may_have_packet_sockets() {
    if !has_lab("live_jobs: packet sockets") {
        return;
    }
    let arguments = ["--strict", "--worker-io=af_packet"];
    let (ended, _out) = Run::start(&shipped("steering.toml"), &arguments).end(PATIENCE);
    let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!((ended.code, &json["verdict"]), (Some(0), &"ok".into()), "{json}");
    let rows = json["jobs"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["model_identical"] == true), "{json}");
    let refused = |port: &str| {
        let path = shipped("steering.toml");
        let path = path.to_str().expect("a path in UTF-8");
        let ended = weft(&["run", path, "--dry-run", "--worker-io", port], PATIENCE);
        assert_eq!(ended.code, Some(2), "{port}: {}", ended.stderr);
        assert!(ended.stderr.contains("--worker-io"), "{port}: {}", ended.stderr);
    };
    // Some of them push, and none shares memory with a box.
    refused("udp_multicast");
    refused("shm");
}

#[test]
fn bands_without_a_lab_and_options_of_one_job_are_refused_with_a_reason() {
    let lights = shipped("lights.toml");
    let lights = lights.to_str().expect("a path in UTF-8");
    let cases: [(&[&str], i32, &str); 5] = [
        (&["--no-lab"], 3, "[bands] orders what leaves over links of a lab"),
        (&["--policy", "fastest"], 2, "--policy: "),
        (&["--pcap"], 2, "--pcap is for a scenario of one job"),
        (&["--level", "packet"], 2, "--level packet is for a scenario of one job"),
        (&["--rounds", "0"], 2, "rounds is 0"),
    ];
    for (arguments, code, expected) in cases {
        let ended = weft(&[&["run", lights], arguments].concat(), PATIENCE);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
    }
}
