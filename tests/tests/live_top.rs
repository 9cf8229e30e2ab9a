//! `weft top` as people see it: its screen in a real terminal (tmux), with keys, another size and
//! an end after which the terminal is as it was; and its recording, of which each line has every
//! key. Over UDP on loopback: needs `weft`, `weft-node` and `weft-controller` beside this test.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use weft_tests::live::{PATIENCE, eventually, program};

/// A run that goes on until it is told to end, and the words with which it is watched.
struct Watched {
    child: Child,
    words: Vec<String>,
    directory: TempDir,
}

impl Watched {
    /// Two push jobs on loopback, for as long as it takes.
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let job = |name: &str| {
            format!(
                "[[job]]\nname = \"{name}\"\nworkers = 2\nrounds = 100000\nbatch = 16\n\
                 hidden = [64]\nlearning_rate = 0.02\nmomentum = 0.5\nelement_type = \"i32\"\n\
                 scale_exponent = -24\nserver = \"ps\"\n\
                 push = {{ mode = \"sync\", aggregators = 0, compute_ms = [5, 10] }}\n"
            )
        };
        let text = format!("name = \"watched\"\n{}{}", job("one"), job("two"));
        let path = directory.path().join("watched.toml");
        fs::write(&path, text).expect("a file in a temporary directory");
        let mut child = Command::new(program("weft"))
            .arg("run")
            .arg(&path)
            .args(["--no-lab", "--out"])
            .arg(directory.path().join("out"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weft runs");
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let told = stderr.lines().map_while(Result::ok).find_map(|line| {
            let (_, words) = line.split_once("weft top ")?;
            Some(words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        });
        let words = told.expect("it says how it is watched");
        let watched = Self { child, words, directory };
        // It says so before its controller listens.
        let mut once = Command::new(program("weft"));
        once.arg("top").args(&watched.words).arg("--once").stdout(Stdio::null());
        let answers = || once.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        assert!(eventually(PATIENCE, answers), "the controller does not answer");
        watched
    }

    fn ask_to_end(&self) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Asked, it ends the processes that it has started; killed, it would leave them.
        self.ask_to_end();
        let _ = self.child.wait();
    }
}

/// A terminal of a tmux server of its own.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// None where there is no tmux.
    fn open(columns: u16, lines: u16) -> Option<Self> {
        let terminal = Self { socket: format!("weft-top-{}", std::process::id()) };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let shell = "PS1='ready> ' exec sh";
        let made = Command::new("tmux")
            .args(["-L", &terminal.socket, "-f", "/dev/null", "new-session", "-d"])
            .args(["-x", &columns, "-y", &lines, shell])
            .output();
        match made {
            Ok(output) if output.status.success() => Some(terminal),
            other => {
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED: live_top: the screen: tmux does not start ({other:?}); install tmux"
                );
                None
            }
        }
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let output = Command::new("tmux").args(["-L", &self.socket]).args(arguments).output();
        let output = output.expect("tmux is there");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// A variable of the terminal, such as whether its other screen is on.
    fn is_on(&self, variable: &str) -> bool {
        let format = format!("#{{{variable}}}");
        let out = self.tmux(&["display-message", "-p", &format]).stdout;
        String::from_utf8_lossy(&out).trim() == "1"
    }

    fn types(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen is as wanted.
    fn shows(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        let is_so = eventually(PATIENCE, || wanted(&self.screen()));
        assert!(is_so, "{what}:\n{}", self.screen());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Its own server: nobody else's sessions are there.
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output();
    }
}

#[test]
fn the_screen_follows_a_run_takes_keys_and_another_size_and_leaves_the_terminal_as_it_was() {
    let Some(terminal) = Terminal::open(100, 40) else { return };
    let run = Watched::start();
    let top = program("weft").display().to_string();
    terminal.shows("a shell", |screen| screen.contains("ready>"));
    for (ending, key) in [("its key", "q"), ("escape", "Escape"), ("a break", "C-c")] {
        let line = format!("{top} top --interval 0.2 {}", run.words.join(" "));
        terminal.types(&[&line, "Enter"]);
        terminal.shows("the jobs", |screen| {
            ["weft top", "jobs", "one", "two", "links", "stragglers", "boxes", "q: quit"]
                .iter()
                .all(|word| screen.contains(word))
        });
        assert!(terminal.is_on("alternate_on"), "it draws beside what was there");
        assert!(!terminal.is_on("cursor_flag"), "no cursor in the tables");
        // It goes on by itself, and no other key ends it.
        terminal.types(&["x", "j", "Up"]);
        let first = terminal.screen();
        terminal.shows("another reading", |screen| *screen != first && screen.contains("q: quit"));
        terminal.types(&[key]);
        terminal.shows(ending, |screen| {
            screen.trim_end().ends_with("ready>") && !screen.contains("q: quit")
        });
        assert!(!terminal.is_on("alternate_on") && terminal.is_on("cursor_flag"), "{ending}");
        // What is typed is seen again.
        terminal.types(&["echo $((40 + 2)) $?", "Enter"]);
        terminal.shows("the shell as before", |screen| screen.contains("42 0"));
        terminal.types(&["clear", "Enter"]);
        terminal.shows("a clear screen", |screen| screen.trim() == "ready>");
    }
    // Smaller, far too small, and large again, while it draws.
    let line = format!("{top} top --interval 0.2 {}", run.words.join(" "));
    terminal.types(&[&line, "Enter"]);
    terminal.shows("the jobs", |screen| screen.contains("boxes"));
    for (columns, lines) in [("60", "18"), ("20", "3"), ("120", "50")] {
        terminal.tmux(&["resize-window", "-x", columns, "-y", lines]);
        let height: usize = lines.parse().expect("a number");
        terminal.shows("it fits", |screen| {
            let shown: Vec<&str> = screen.lines().collect();
            let last = shown.get(height - 1).copied().unwrap_or_default();
            shown.first().is_some_and(|line| line.starts_with("weft top")) && last.contains("q: qu")
        });
    }
    terminal.shows("all of it", |screen| screen.contains("boxes"));
    // A controller that goes is said to be gone, and what was read last stays.
    run.ask_to_end();
    terminal.shows("the last reading", |screen| screen.contains("OLD: ") && screen.contains("one"));
    terminal.types(&["q"]);
    terminal.shows("the end", |screen| screen.trim_end().ends_with("ready>"));
}

/// A terminal that is closed, as by a connection that breaks: nobody is left to watch for, whether
/// a hang-up is heard of or ignored (`nohup`).
#[test]
fn the_screen_ends_with_its_terminal() {
    let run = Watched::start();
    let top = program("weft").display().to_string();
    for before in ["", "trap '' HUP; "] {
        let Some(terminal) = Terminal::open(100, 40) else { return };
        terminal.shows("a shell", |screen| screen.contains("ready>"));
        let path = run.directory.path().join("pid");
        let words = run.words.join(" ");
        let line =
            format!("{before}echo $$ > {}; exec {top} top --interval 0.2 {words}", path.display());
        terminal.types(&[&line, "Enter"]);
        terminal
            .shows("the jobs", |screen| screen.contains("weft top") && screen.contains("boxes"));
        let pid: i32 = fs::read_to_string(&path).expect("a file").trim().parse().expect("a pid");
        let is_watched = || {
            let line = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // Of a process that has ended, until somebody takes note of it, the state is Z.
            line.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        assert!(is_watched(), "{before}it runs");
        drop(terminal);
        let has_ended = eventually(Duration::from_secs(10), || !is_watched());
        if !has_ended {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        assert!(has_ended, "{before}it goes on without a terminal");
    }
}

/// Every key of a reading, as docs/run.md lists them.
const KEYS: [(&str, &[&str]); 10] = [
    (
        "",
        &[
            "uptime_s",
            "plans",
            "band_policy",
            "band_policy_changes",
            "jobs",
            "bands",
            "queues",
            "links",
            "groups",
            "stragglers",
            "reduces",
            "drops",
            "nodes",
        ],
    ),
    (
        "jobs",
        &[
            "job",
            "index",
            "policy",
            "state",
            "band",
            "band_changes",
            "band_boxes_done",
            "band_boxes_awaited",
            "band_refused",
            "pauses",
            "standstill_max_ms",
            "version",
            "committed",
            "commits_per_s",
            "pending",
            "in_flight",
            "commit_mean_ms",
            "aggregated_share",
            "workers",
            "workers_attached",
            "is_server_attached",
            "refusing",
        ],
    ),
    ("bands", &["band", "jobs"]),
    (
        "queues",
        &[
            "node",
            "band",
            "sent",
            "sent_bytes",
            "sent_mbit",
            "full",
            "aged",
            "wait_max_ms",
            "waiting",
            "waiting_bytes",
            "oldest_ms",
        ],
    ),
    ("links", &["host", "up_mbit", "down_mbit", "sent_mbit", "received_mbit", "confidence"]),
    ("groups", &["job", "group", "order", "ranks", "via", "state", "age_ms", "is_late"]),
    (
        "stragglers",
        &[
            "job",
            "rank",
            "host",
            "is_attached",
            "committed",
            "outstanding",
            "lag_mean_ms",
            "asked_ago_ms",
        ],
    ),
    (
        "reduces",
        &[
            "job",
            "index",
            "state",
            "workers",
            "workers_attached",
            "cohort",
            "next_round",
            "rounds_per_s",
            "resizes",
            "pauses",
            "refusing",
        ],
    ),
    ("drops", &["job", "node", "what", "count"]),
    ("nodes", &["node", "is_attached", "events", "commands"]),
];

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().into_iter().flatten().map(|it| &**it.0).collect();
    keys.sort_unstable();
    keys
}

/// Panics for a key too many, too few, or a row of them.
fn check_keys(reading: &Value) {
    for (section, expected) in &KEYS {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        let rows = match *section {
            "" => vec![reading],
            section => reading[section].as_array().expect("rows").iter().collect(),
        };
        rows.into_iter().for_each(|row| assert_eq!(keys(row), expected, "{section}: {row}"));
    }
}

#[test]
fn each_line_of_a_recording_is_a_reading_with_every_key() {
    let run = Watched::start();
    let path = run.directory.path().join("top.jsonl");
    let mut top = Command::new(program("weft"))
        .args(["top", "--interval", "0.1", "--record"])
        .arg(&path)
        .args(&run.words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("weft runs");
    let read = || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let readings = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        readings.collect::<Vec<Value>>()
    };
    let has_moved = eventually(PATIENCE, || {
        let readings = read();
        readings.len() > 5
            && readings.last().is_some_and(|last| last["jobs"][0]["committed"].as_u64() > Some(3))
    });
    assert!(has_moved, "{:?}", read().last());
    // It ends with the controller, and says that it has read.
    run.ask_to_end();
    let is_over = eventually(PATIENCE, || top.try_wait().expect("it is ours").is_some());
    let status = top.try_wait().expect("it is ours");
    assert!(is_over && status.is_some_and(|status| status.success()), "{status:?}");
    let readings = read();
    readings.iter().for_each(check_keys);
    let uptimes: Vec<f64> = readings.iter().filter_map(|it| it["uptime_s"].as_f64()).collect();
    assert!(uptimes.is_sorted() && uptimes.len() == readings.len(), "{uptimes:?}");
    // Rates are of two readings.
    let rate = |at: usize| readings[at]["jobs"][0]["commits_per_s"].as_f64();
    assert!(rate(0).is_none() && (1..readings.len()).any(|at| rate(at) > Some(0.0)));
}

/// The page that people read has each key.
#[test]
fn the_documentation_names_every_key() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/run.md");
    let page = fs::read_to_string(path).expect("a page");
    let (_, after) = page.split_once("## Watching a run").expect("its section");
    let section = after.split("\n## ").next().expect("its end");
    for key in KEYS.iter().flat_map(|(_, keys)| *keys) {
        assert!(section.contains(&format!("`{key}`")), "`{key}` is not in docs/run.md");
    }
}
