//! `weft run` of a matrix that is factored over a table of rows, as scripts see it: in a lab and on
//! loopback, each mode against one process that works alone, with faults, and with the home killed.
//!
//! Needs `weft` and `weft-node` beside this test (`.ci/test` builds them); a part needs namespaces.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_config::node::KeysSection;
use weft_sim::keys::history::{Event, Value as Row, judge};
use weft_tests::live::node::{Config, Node};
use weft_tests::live::run::{Ended, Run, changed, weft};
use weft_tests::live::{PATIENCE, has_lab, program};

const SCENARIO: &str = include_str!("../../testbed/scenarios/factorisation.toml");

/// Runs the scenario with other lines in it.
fn run(changes: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = changed(SCENARIO, directory.path(), changes);
    Run::start(&path, arguments).end(PATIENCE).0
}

/// The result of a run that must have verdict ok and the reference's bits.
fn good(ended: &Ended) -> &Value {
    let json = learnt(ended);
    assert_eq!(json["loss"], json["reference_loss"]);
    json
}

/// The result of a run that must have verdict ok.
fn learnt(ended: &Ended) -> &Value {
    let json = ended.json.as_ref().unwrap_or_else(|| panic!("no JSON: {}", ended.stderr));
    assert_eq!(json["verdict"], "ok", "{} {}", json["problems"], ended.stderr);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(json["wrong_values"], 0);
    let loss = json["loss"].as_f64().expect("a number");
    assert!(loss > 0.0 && loss < 0.1, "it has learnt: {loss}");
    assert!(json["epoch_s"].as_f64().is_some_and(|seconds| seconds > 0.0));
    json
}

fn share(json: &Value) -> f64 {
    json["local_share"].as_f64().expect("a number")
}

const PACKET_SOCKETS: [&str; 1] = ["--worker-io=af_packet"];

#[test]
fn a_factorisation_in_a_lab_gives_the_model_of_one_process() {
    if !has_lab("a_factorisation_in_a_lab_gives_the_model_of_one_process") {
        return;
    }
    let rate = ("[factorisation]", "[lab]\nrate_mbit = 200\n\n[factorisation]");
    for (changes, arguments) in [(&[][..], &[][..]), (&[rate], &[]), (&[], &PACKET_SOCKETS)] {
        let ended = run(changes, arguments);
        let json = good(&ended);
        assert_eq!(json["mode"], "relocation");
        assert!(share(json) > 0.98, "{json}");
        assert!(json["relocations"].as_u64().is_some_and(|count| count > 2_000), "{json}");
        assert!(json["relocation_us_p50"].as_f64().is_some_and(|us| us > 1.0), "{json}");
        assert!(json["home"]["row_acks"].as_u64() >= json["relocations"].as_u64(), "{json}");
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

/// Who waits for each call sees no difference.
#[test]
fn several_accesses_in_flight_change_no_bit() {
    for (word, faults) in [("relocation", "0.02"), ("classic", "0")] {
        let line = format!("mode = \"{word}\"\nin_flight = 3 ");
        let loss = format!("--loss={faults}");
        let ended = run(&[("mode = \"relocation\"", &line)], &["--no-lab", &loss]);
        assert_eq!(good(&ended)["mode"], word);
    }
}

#[test]
fn modes_with_copies_learn_as_good_a_model() {
    let mode = |word: &str| {
        let line = format!("mode = \"{word}\" ");
        let ended = run(&[("mode = \"relocation\"", &line)], &["--no-lab"]);
        learnt(&ended).clone()
    };
    for word in ["managed", "stale-client", "stale-server"] {
        let json = mode(word);
        assert_eq!(json["mode"], word);
        assert!(share(&json) > 0.9, "{json}");
        let moved = json["relocations"].as_u64().expect("a number");
        assert_eq!(moved > 0, word == "managed", "{json}");
    }
}

/// Models in which workers share factors: `run` changes the matrix's scenario to theirs.
#[test]
fn graphs_and_words_are_learnt_with_and_without_copies() {
    for (model, columns, rank) in
        [("rescal", "16", "8"), ("complex", "16", "16"), ("word2vec", "240", "16")]
    {
        for word in ["relocation", "managed"] {
            let changes = [
                ("mode = \"relocation\"", format!("model = \"{model}\"\nmode = \"{word}\" ")),
                ("columns = 240", format!("columns = {columns}")),
                ("rank = 16", format!("rank = {rank}")),
                ("epochs = 6", "epochs = 12".to_owned()),
            ];
            let changes = changes.each_ref().map(|(from, to)| (*from, to.as_str()));
            let ended = run(&changes, &["--no-lab"]);
            // From 0.7 at first to less than 0.1.
            let json = learnt(&ended);
            assert_eq!(json["mode"], word);
        }
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

const PROCESSES: u8 = 4;
const THREADS: u8 = 4;
const SESSIONS: usize = PROCESSES as usize * THREADS as usize;

/// A process of a table; killed when dropped.
struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(example: &str, arguments: &[String]) -> Self {
        let mut child = Command::new(program(example))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example starts");
        let stdin = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, stdin, lines }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("it has not ended");
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.line()
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("it has not ended").expect("text")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn list(addrs: &[SocketAddr]) -> String {
    addrs.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}

fn row(words: &str) -> Row {
    let mut adds: Vec<u32> =
        words.split(' ').map(|word| word.parse().expect("a whole number")).collect();
    let set = adds.pop().expect("a row has elements");
    assert_eq!(adds.len(), SESSIONS);
    Row { set, adds }
}

/// Four processes with four threads each want one row; what every thread saw is judged by the
/// checker of the simulation.
fn hot_key(numbers: [u32; 3], kills: usize) {
    let config = Config::new(1);
    let ip = config.addr().ip();
    let processes: Vec<SocketAddr> =
        (0..u16::from(PROCESSES)).map(|me| SocketAddr::new(ip, 23_000 + me)).collect();
    let row_len = u16::try_from(SESSIONS).expect("few") + 1;
    let config = config.keys(KeysSection {
        death_timeout_ms: 20_000,
        ..KeysSection::new(0, row_len, 1, processes.clone())
    });
    let mut home = Node::start(&config);
    let start = |me: u8| {
        let mut arguments = vec![home.addr().to_string(), list(&processes)];
        arguments.extend([me, THREADS].map(|number| number.to_string()));
        arguments.extend(numbers.map(|number| number.to_string()));
        Process::start("examples/hot_key", &arguments)
    };
    let mut all: Vec<Process> = (0..PROCESSES).map(start).collect();
    for process in &mut all {
        assert_eq!(process.line(), "joined");
    }
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(100));
        drop(home);
        home = Node::start(&config);
    }
    let begun = Instant::now();
    let mut sessions: Vec<Vec<Event>> = vec![Vec::new(); SESSIONS];
    for process in &mut all {
        loop {
            let line = process.line();
            if line == "done" {
                break;
            }
            let (session, what) = line.split_once(' ').expect("two words");
            let event = match what.split_once(' ') {
                None => Event::Add,
                Some(("S", number)) => Event::Set(number.parse().expect("a number")),
                Some((_, words)) => Event::Pull(Some(row(words))),
            };
            sessions[session.parse::<usize>().expect("a number")].push(event);
        }
    }
    let took = begun.elapsed();
    let mut last = Vec::new();
    for process in &mut all {
        let line = process.ask("now");
        last.push(row(line.strip_prefix("L ").expect("a row")));
    }
    assert!(last.iter().all(|row| *row == last[0]), "{last:?}");
    let [rounds, _, set_every] = numbers;
    for events in &sessions {
        let pulls = events.iter().filter(|event| matches!(event, Event::Pull(_))).count();
        assert_eq!(pulls, rounds as usize);
    }
    judge(&sessions, |_| false, Some(&last[0])).expect("sequentially consistent");
    if set_every == 0 {
        assert_eq!(last[0].adds, vec![rounds; SESSIONS], "the sum is exact");
    }
    drop(all);
    let figures = &home.end()["tables"][0];
    let figure = |name: &str| figures[name].as_u64().expect("a number");
    // A home that is killed takes what it has counted along.
    assert!(kills > 0 || figure("row_acks") > 100, "the row has moved: {figures}");
    assert!((figure("life") > 1) == (kills > 0), "{figures}");
    let pulls = SESSIONS * rounds as usize;
    println!(
        "{SESSIONS} threads, {rounds} pushes and pulls each in {took:?}, {pulls} pulls judged, the \
         row moved {} times",
        figure("row_acks")
    );
    // The checker sees what is wrong: an add that the last row lacks.
    let mut wrong = last[0].clone();
    wrong.adds[3] += 1;
    assert!(set_every > 0 || judge(&sessions, |_| false, Some(&wrong)).is_err());
}

#[test]
fn a_hot_key_of_sixteen_threads_is_sequentially_consistent_and_its_sum_exact() {
    // `WEFT_KEYS_SCALE=50`: 100,000 rounds of each, and everyone localizes every 1,000.
    let scale =
        std::env::var("WEFT_KEYS_SCALE").map_or(1, |scale| scale.parse().expect("a number"));
    match scale {
        0 | 1 => hot_key([2_000, 10, 0], 0),
        scale => hot_key([2_000, 20, 0].map(|it: u32| it * scale), 0),
    }
}

#[test]
fn sets_among_the_adds_of_a_hot_key_come_in_one_order_for_all() {
    hot_key([1_000, 10, 10], 0);
}

#[test]
fn a_hot_key_survives_the_death_of_its_home() {
    hot_key([4_000, 10, 0], 3);
}

/// Three processes of 30 keys; with a folder rows of the dead come back from it.
fn shells(folder: Option<&Path>) -> (Node, Vec<Process>) {
    let config = Config::new(1);
    let ip = config.addr().ip();
    let processes: Vec<SocketAddr> = (0..3).map(|me| SocketAddr::new(ip, 23_000 + me)).collect();
    let keys = KeysSection { death_timeout_ms: 5_000, ..KeysSection::new(0, 4, 30, processes) };
    let list = list(&keys.processes);
    let home = Node::start(&config.keys(keys));
    let start = |me: u8| {
        let mut arguments = vec![home.addr().to_string(), list.clone(), me.to_string()];
        arguments.extend(["4".to_owned(), "30".to_owned()]);
        arguments.extend(folder.map(|folder| folder.display().to_string()));
        Process::start("examples/table_shell", &arguments)
    };
    let mut all: Vec<Process> = (0..3).map(start).collect();
    for process in &mut all {
        assert_eq!(process.line(), "ready");
    }
    (home, all)
}

#[test]
fn rows_of_a_process_that_is_killed_come_back_from_the_last_checkpoint() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (home, mut all) = shells(Some(directory.path()));
    for key in 0..30 {
        assert_eq!(all[0].ask(&format!("push {key} 1")), "ok");
    }
    let keep = |all: &mut [Process], round: u32| {
        let line = format!("keep {} {round}", directory.path().display());
        all.iter_mut().for_each(|process| process.tell(&line));
        all.iter_mut().for_each(|process| assert_eq!(process.line(), "ok"));
    };
    keep(&mut all, 1);
    keep(&mut all, 2);
    // In a third round when it is killed: that is not whole, and the second counts.
    let line = format!("keep {} 3", directory.path().display());
    all[0].tell(&line);
    for key in 20..30 {
        assert_eq!(all[1].ask(&format!("push {key} 10")), "ok");
    }
    // Dropped: killed without a word.
    drop(all.remove(2));
    let said = all[0].line();
    assert!(said.starts_with("error round 3"), "{said}");
    for key in 0..30 {
        assert_eq!(all[1].ask(&format!("pull {key}")), "1", "key {key}");
        assert_eq!(all[0].ask(&format!("push {key} 2")), "ok");
        assert_eq!(all[1].ask(&format!("pull {key}")), "3", "key {key}");
    }
    assert_eq!(all[0].ask("restored"), "10");
    keep(&mut all, 4);
    drop(all);
    let figures = &home.end()["tables"][0];
    let counts = ["life", "living", "deaths"].map(|it| &figures[it]);
    assert_eq!(counts, [2, 2, 1], "{figures}");
}

#[test]
fn a_process_that_is_killed_ends_the_job_with_its_keys_by_name() {
    let (_home, mut all) = shells(None);
    drop(all.remove(2));
    let begun = Instant::now();
    let said = all[0].ask("push 25 1");
    assert!(
        said.starts_with("error the rows of keys 2") && said.contains("restart the job"),
        "{said}"
    );
    // The first has ended, as a program does that meets this; the next one hears as well.
    drop(all.remove(0));
    let said = all[0].ask("push 26 1");
    assert!(said.contains("are lost with the process that had them"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}
