//! Operators' words to jobs that run, by `weft job`, and a policy that says its own: one answer
//! each, nothing half done, and every model right. Over UDP on loopback: needs `weft`, `weft-node`
//! and `weft-controller` beside this test.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use weft_tests::live::run::{Run, weft};
use weft_tests::live::{PATIENCE, eventually, has_lab};

/// A digits job that nobody in its scenario says anything to.
fn scenario(rounds: u32) -> String {
    format!(
        "name = \"steer\"\n[job]\nworkers = 2\nrounds = {rounds}\nbatch = 16\nhidden = [64]\n\
         learning_rate = 0.01\nmomentum = 0.9\nelement_type = \"i32\"\nscale_exponent = -20\n\
         [resize]\nplaces = 4\n"
    )
}

/// What `weft job` says: its exit status and standard error.
fn job(endpoint: &str, words: &[&str]) -> (i32, String) {
    let ended = weft(&[&["job"], words, &["--controller", endpoint]].concat(), PATIENCE);
    (ended.code.expect("it ends by itself"), ended.stderr)
}

/// Two words at once; what each came to.
fn both(endpoint: &str, words: [&[&str]; 2]) -> [(i32, String); 2] {
    thread::scope(|scope| {
        words
            .map(|words| scope.spawn(move || job(endpoint, words)))
            .map(|said| said.join().expect("it does not panic"))
    })
}

/// The controller of a run under way, once its job runs.
fn endpoint(run: &Run) -> String {
    let config = run.out().join("controller.toml");
    let listen = || {
        let text = fs::read_to_string(&config).ok()?;
        let line = text.lines().find(|line| line.starts_with("listen = "))?;
        Some(format!("http://{}", line.split('"').nth(1)?))
    };
    assert!(eventually(PATIENCE, || listen().is_some()), "no controller");
    let endpoint = listen().expect("just seen");
    let is_running = || reduce(&endpoint).is_some_and(|job| job["next_round"].as_u64() > Some(4));
    assert!(eventually(PATIENCE, is_running), "its job does not run");
    endpoint
}

fn reduce(endpoint: &str) -> Option<Value> {
    let told = weft(&["top", "--once", "--format", "json", endpoint], PATIENCE).json?;
    Some(told["reduces"][0].clone())
}

/// The one that was heeded, where the other heard one of these reasons.
fn one_of(said: &[(i32, String); 2], reasons: &[&str]) -> usize {
    let codes = [said[0].0, said[1].0];
    let first = codes.iter().position(|code| *code == 0);
    let first = first.unwrap_or_else(|| panic!("neither was heeded: {said:?}"));
    let (code, problem) = &said[1 - first];
    assert_eq!(*code, 1, "{said:?}");
    assert!(reasons.iter().any(|reason| problem.contains(reason)), "{said:?}");
    first
}

#[test]
fn of_two_operators_at_once_one_is_heeded_and_the_other_hears_why() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("steer.toml");
    fs::write(&path, scenario(ROUNDS)).expect("a file in a temporary directory");
    let none: [&str; 0] = [];
    let run = Run::start(Path::new(&path), &none);
    let endpoint = endpoint(&run);
    let say = |words: &[&str]| job(&endpoint, words);
    // What makes no sense changes nothing, and says so.
    for (words, code, reason) in [
        (&["pause", "digit"] as &[&str], 1, "there is no such job"),
        (&["resume", "digits"], 1, "the job is running, not paused"),
        (&["resize", "digits", "2"], 1, "the job has 2 already"),
        (&["resize", "digits", "5"], 1, "the job has 4 places"),
        (&["resize", "digits", "0"], 2, "0 is not in 1..=64"),
        (&["pause"], 2, "required"),
    ] {
        let (got, problem) = say(words);
        assert!(got == code && problem.contains(reason), "{words:?}: {got}, {problem}");
    }
    let (code, problem) = job("http://127.0.0.1:9", &["pause", "digits"]);
    assert!(code == 3 && problem.contains("cannot reach the controller"), "{problem}");
    let (mut width, mut widths) = (2, vec![2]);
    for turn in 0..TURNS {
        let pause: &[&str] = &["pause", "digits"];
        let resume: &[&str] = &["resume", "digits"];
        let others: Vec<u64> = [2, 3, 4].into_iter().filter(|to| *to != width).collect();
        let texts = [others[0].to_string(), others[1].to_string()];
        let resizes = texts.each_ref().map(|to| ["resize", "digits", to.as_str()]);
        match turn % 10 {
            8 => {
                let said = both(&endpoint, [pause, &resizes[turn % 2]]);
                let reasons = ["already; resume it first", "is being resized"];
                match one_of(&said, &reasons) {
                    0 => assert_eq!(say(resume).0, 0),
                    _ => width = others[turn % 2],
                }
            }
            9 => {
                let said = both(&endpoint, [&resizes[0], &resizes[1]]);
                width = others[one_of(&said, &["is being resized"])];
            }
            _ => {
                let said = both(&endpoint, [pause, pause]);
                one_of(&said, &["already; resume it first"]);
                let said = both(&endpoint, [resume, resume]);
                one_of(&said, &["nothing to resume"]);
            }
        }
        if widths.last() != Some(&width) {
            widths.push(width);
        }
    }
    let job = reduce(&endpoint).expect("a job");
    assert_eq!((&job["state"], &job["workers"]), (&"running".into(), &width.into()), "{job}");
    let (ended, _out) = run.end(Duration::from_secs(200));
    let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!((ended.code, &json["model_identical"]), (Some(0), &true.into()), "{json:#}");
    assert_eq!(json["widths"], Value::from(widths));
}

/// Layers are tensors: which job has a large one is learnt from what its workers sum, and where the
/// next ones go follows from that alone.
#[test]
fn a_skewed_jobs_workers_share_a_host_and_anothers_fill_what_is_left_over() {
    let skewed = placed_by_skew("[256, 320]");
    assert!(skewed.0 > 0.7 && skewed.0 < 0.9, "{skewed:?}");
    assert_eq!(skewed.1, Value::from([0, 3, 5, 7]), "all four on h0");
    let even = placed_by_skew("[64, 64, 64, 64]");
    assert!(even.0 > 0.1 && even.0 < 0.3, "{even:?}");
    assert_eq!(even.1, Value::from([1, 2, 4, 6]), "one each on h1 to h4");
}

/// The skew of a job with these hidden layers, and the places of its workers after a resize.
fn placed_by_skew(hidden: &str) -> (f64, Value) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("placing.toml");
    let text = scenario(1500).replace("[64]", hidden).replace("places = 4", "places = 8");
    let hosts = r#"hosts = ["h0", "h1", "h2", "h0", "h3", "h0", "h4", "h0"]"#;
    let text = format!("{text}{hosts}\nplacement = \"skew\"\n");
    fs::write(&path, text).expect("a file in a temporary directory");
    let none: [&str; 0] = [];
    let run = Run::start(Path::new(&path), &none);
    let endpoint = endpoint(&run);
    let told = || reduce(&endpoint).expect("a job");
    assert!(eventually(PATIENCE, || told()["skew"].is_f64()), "nothing is learnt: {}", told());
    let before = told();
    assert_eq!(before["placed"], Value::from([0, 3]), "of a model that is not known yet");
    assert_eq!(before["round_messages"], Value::from(2 * hidden.split(',').count() + 2));
    let (code, problem) = job(&endpoint, &["resize", "digits", "4"]);
    assert_eq!(code, 0, "{problem}");
    let after = told();
    let (ended, _out) = run.end(Duration::from_secs(200));
    let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!((ended.code, &json["model_identical"]), (Some(0), &true.into()), "{json:#}");
    (before["skew"].as_f64().expect("just seen"), after["placed"].clone())
}

/// Workers in namespaces, on links that have a rate, called with certificates: the same words come
/// to the same, bit for bit.
#[test]
fn a_resize_in_a_lab_with_certificates_has_the_references_bits() {
    if !has_lab("a_resize_in_a_lab_with_certificates_has_the_references_bits") {
        return;
    }
    for (port, has_multicast) in [
        (&[][..], false),
        (&["--worker-io=af_packet"], false),
        (&["--worker-io=udp_multicast"], true),
    ] {
        let (ended, out) = Run::start(&recipe("resize-lab.toml"), port).end(LIMIT);
        let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
        assert_eq!((ended.code, &json["model_identical"]), (Some(0), &true.into()), "{json:#}");
        assert_eq!(json["widths"], Value::from([2, 4, 2]), "{port:?}");
        let told = |name: &str| {
            fs::read_to_string(out.path().join("run").join(name)).expect("a file of the run")
        };
        // Whoever calls the controller is known by a certificate, the box too.
        assert!(told("a0.toml").contains("endpoint = \"https://"), "{}", told("a0.toml"));
        assert!(told("controller.toml").contains("[tls]"), "{}", told("controller.toml"));
        assert!(!told("controller.toml").contains("insecure = true"));
        assert_eq!(told("a0.toml").contains("multicast = "), has_multicast, "{port:?}");
    }
}

/// As on loopback: killed without a word in steps of a pause and of two resizes, box and controller
/// come back where they were, in their namespaces and with their certificates.
#[test]
fn a_box_and_a_controller_that_are_killed_in_a_lab_cost_no_bit() {
    if !has_lab("a_box_and_a_controller_that_are_killed_in_a_lab_cost_no_bit") {
        return;
    }
    let kills = [("controller", 0, "checkpoint"), ("a0", 1, "stand"), ("a0", 2, "lease")];
    let mut text = fs::read_to_string(recipe("resize-lab.toml")).expect("a recipe");
    for (name, word, step) in kills {
        text += &format!("\n[[resize.kill]]\nbox = \"{name}\"\nword = {word}\nstep = \"{step}\"\n");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("killed.toml");
    fs::write(&path, text).expect("a file in a temporary directory");
    let (ended, _out) = Run::start(&path, &none()).end(LIMIT);
    let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!((ended.code, &json["model_identical"]), (Some(0), &true.into()), "{json:#}");
    assert_eq!(json["widths"], Value::from([2, 4, 2]));
    let rows = json["kills"].as_array().expect("rows");
    let met: Vec<(&str, u64)> =
        rows.iter().filter_map(|row| Some((row["box"].as_str()?, row["word"].as_u64()?))).collect();
    assert_eq!(met, [("controller", 0), ("a0", 1), ("a0", 2)], "{json:#}");
    assert!(rows.iter().all(|row| row["step"].is_string()), "{json:#}");
}

/// What makes no sense with [resize] is refused by its name, before anything starts.
#[test]
fn what_is_not_for_a_resize_is_refused_by_its_name() {
    for (options, name) in [
        (&["--io", "dpdk"] as &[&str], "--io"),
        (&["--level", "packet"], "--level"),
        (&["--switch", "bmv2"], "--switch"),
        (&["--pcap"], "--pcap"),
        (&["--record"], "--record"),
        (&["--dry-run"], "--dry-run"),
        (&["--lab", "some"], "--lab"),
        (&["--worker-io", "af_packet"], "--worker-io"),
    ] {
        let scenario = recipe("resize.toml");
        let words = [&["run", scenario.to_str().expect("UTF-8")], options].concat();
        let ended = weft(&words, PATIENCE);
        assert_eq!(ended.code, Some(2), "{options:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(name), "{options:?}: {}", ended.stderr);
    }
}

fn recipe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/scenarios").join(name)
}

const fn none() -> [&'static str; 0] {
    []
}

#[test]
fn the_doubling_heuristic_widens_a_job_when_another_ends_and_halves_it_for_a_third() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/scenarios/doubling.toml");
    let (ended, out) = Run::start(&path, &["--no-lab"]).end(Duration::from_secs(200));
    let json = ended.json.clone().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!((ended.code, &json["verdict"]), (Some(0), &"ok".into()), "{json:#}");
    let rows = json["jobs"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["model_identical"] == true), "{json:#}");
    let models: BTreeSet<_> = rows.iter().filter_map(|row| row["model_sha256"].as_str()).collect();
    assert_eq!(models.len(), 3, "each learnt from its own data: {json:#}");
    let widths = rows[0]["widths"].as_str().expect("text");
    assert!(widths.starts_with("2-4-2"), "{widths}");
    // It was the policy's word, when the other had ended, and the next had come.
    let events = fs::read_to_string(out.path().join("run/controller.events.jsonl"));
    let events = events.expect("the controller's events");
    let resized: Vec<Value> = events
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &Value| event["event"] == "job_resized")
        .collect();
    assert!(resized.iter().all(|event| event["job"] == "long"), "{resized:?}");
    assert!(resized.len() >= 2 && json["words"].is_null(), "{resized:?}");
}

/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(200);
/// Turns of two operators.
const TURNS: usize = 50;
/// More than are computed meanwhile.
const ROUNDS: u32 = 12_000;
