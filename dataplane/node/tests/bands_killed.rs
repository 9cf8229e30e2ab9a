//! `kill -9` of a node in every step of an installation of bands, of a turn and of a removal, on
//! the real kernel: what is left is recognised and removed, the bands are right again afterwards,
//! nothing of Weft's remains after a clean stop, and what is somebody else's stays as it was.
//!
//! The node knows nothing of it: a `tc` that comes first on its PATH counts what it is asked for,
//! each line of a batch as a step, waits before the step that it is told to, and has the real `tc`
//! do the others. Needs namespaces, `tc` and HTB; without them each test says so and passes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::{ConfigFile, PATIENCE, Running};
use crate::rig::{RATE_BYTES_PER_SEC, Rig};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use weft_config::node::BandsSection;
use weft_rpc::v1::BandPolicy;

/// A `tc` that stops.
struct Tool(TempDir);

impl Tool {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let script = format!(
            r#"#!/bin/sh
dir={}
step() {{
    n=$(($(cat "$dir/step") + 1))
    echo $n > "$dir/step"
    echo "$n $*" >> "$dir/calls"
    [ $n = "$(cat "$dir/stop")" ] || return 0
    echo $$ > "$dir/pid"
    mv "$dir/pid" "$dir/stopped"
    while [ ! -e "$dir/go" ]; do sleep 0.01; done
}}
case $1 in
-batch)
    if [ -e "$dir/fail" ]; then rm "$dir/fail"; exit 1; fi
    while IFS= read -r line; do
        step "$line"
        echo "$line" | {real} -batch - || exit 1
    done
    ;;
*)
    step "$@"
    exec {real} "$@"
    ;;
esac
"#,
            directory.path().display(),
            real = real_tc().display()
        );
        let path = directory.path().join("tc");
        fs::write(&path, script).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it may run");
        let tool = Self(directory);
        tool.stop_before(0);
        tool
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// It waits before this step from now, the first being 1; 0: before none.
    fn stop_before(&self, step: u32) {
        for old in ["stopped", "go", "calls"] {
            let _ = fs::remove_file(self.file(old));
        }
        fs::write(self.file("step"), "0\n").expect("a number");
        fs::write(self.file("stop"), format!("{step}\n")).expect("a number");
    }

    /// Who waits.
    fn stopped(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.file("stopped")).ok()?;
        Some(Pid::from_raw(text.trim().parse().expect("a process id")))
    }

    /// Waits until it waits; none when `is_over` comes first.
    fn wait(&self, mut is_over: impl FnMut() -> bool) -> Option<Pid> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(pid) = self.stopped() {
                return Some(pid);
            }
            if is_over() {
                return None;
            }
            assert!(Instant::now() < deadline, "{}", self.calls());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.file("calls")).unwrap_or_default()
    }

    /// A node whose `tc` this is.
    fn start(&self, rig: &Rig, file: &ConfigFile) -> Running {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.0.path().display());
        Running::start(rig.lab.weft_node(file, &["--format", "json"]).env("PATH", path))
    }
}

fn real_tc() -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let all = path.split(':').map(|directory| Path::new(directory).join("tc"));
    all.chain(["/sbin/tc".into()]).find(|path| path.is_file()).expect("iproute2 is installed")
}

/// Where the classes of jobs are.
struct Place {
    section: BandsSection,
    root: &'static str,
    classes: [[&'static str; 2]; 2],
}

fn own() -> Place {
    Place {
        section: BandsSection::host("vn0".into(), Some(RATE_BYTES_PER_SEC)),
        root: "5745:",
        classes: [["5745:103", "5745:207"], ["5745:203", "5745:107"]],
    }
}

fn under_a_labs_class(rig: &Rig) -> Place {
    rig.shape_as_a_lab();
    let under = Some("1:1".to_owned());
    Place {
        section: BandsSection { under, ..BandsSection::host("vn0".into(), None) },
        root: "1:",
        classes: [["1:103", "1:207"], ["1:203", "1:107"]],
    }
}

/// What is cut off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Change {
    /// The node starts where nothing is, and installs.
    Installation,
    /// It starts where a former life was killed, removes, and installs.
    Recovery,
    /// Two jobs change places.
    Turn,
    /// It is told to end.
    Removal,
}

/// How the `tc` ends whose node was killed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Orphan {
    /// With its node, as by a crash of the host's whole control group.
    Dies,
    /// It does what is left of its batch when the next life has begun.
    GoesOn,
}

struct Attack<'a> {
    rig: &'a Rig,
    place: &'a Place,
    tool: Tool,
    file: ConfigFile,
    /// What is there without bands.
    before: [Vec<String>; 3],
}

impl<'a> Attack<'a> {
    fn new(rig: &'a Rig, place: &'a Place) -> Self {
        let before = rig.listed();
        let file = rig.config("bands-killed", Some(place.section.clone()));
        Self { rig, place, tool: Tool::new(), file, before }
    }

    /// Each job's class is that of its band.
    fn are_right(&self, flipped: usize) {
        let found = self.rig.classes_of_labels(self.place.root);
        assert_eq!(found, self.place.classes[flipped].map(str::to_owned));
    }

    /// All lines of what was there before are there.
    fn foreign_is_as_it_was(&self, when: &str) {
        let now = self.rig.listed();
        for (before, now) in self.before.iter().zip(&now).skip(usize::from(self.is_own())) {
            let missing: Vec<_> = before.iter().filter(|line| !now.contains(line)).collect();
            assert!(missing.is_empty(), "{when}: {missing:?} of {now:?}");
        }
    }

    /// Weft's own root takes the place of the interface's default one.
    fn is_own(&self) -> bool {
        self.place.section.under.is_none()
    }

    /// Kills a node before a step of a change; false when the change has no such step.
    fn kills_before(&self, change: Change, step: u32, orphan: Orphan) -> bool {
        let (rig, tool) = (self.rig, &self.tool);
        let when = format!("{change:?}, step {step}, {orphan:?}");
        rig.set(BandPolicy::One, 3600);
        tool.stop_before(0);
        let is_in_place = |step| {
            move || {
                let status = rig.status();
                status.jobs.iter().zip(step).all(|(job, band)| {
                    job.band == Some(band)
                        && job.band_boxes_done == 1
                        && job.band_boxes_awaited == 0
                })
            }
        };
        let (node, met) = match change {
            Change::Installation | Change::Recovery => {
                if change == Change::Recovery {
                    let former = tool.start(rig, &self.file);
                    rig.settled([Some(0), Some(1)]);
                    former.end(Signal::SIGKILL);
                    self.wait_until_gone();
                }
                tool.stop_before(step);
                let node = tool.start(rig, &self.file);
                let met = tool.wait(is_in_place([0, 1]));
                (node, met)
            }
            Change::Turn => {
                let node = tool.start(rig, &self.file);
                rig.settled([Some(0), Some(1)]);
                tool.stop_before(step);
                rig.set(BandPolicy::RoundRobin, 1);
                let met = tool.wait(is_in_place([1, 0]));
                (node, met)
            }
            Change::Removal => {
                let mut node = tool.start(rig, &self.file);
                rig.settled([Some(0), Some(1)]);
                tool.stop_before(step);
                node.signal(Signal::SIGINT);
                let met = tool.wait(|| node.has_ended());
                (node, met)
            }
        };
        let was_met = met.is_some();
        match met {
            None if change == Change::Removal => {}
            None => {
                // The change is over; its end is not to be cut off.
                fs::write(tool.file("stop"), "0\n").expect("a number");
                let ended = node.end(Signal::SIGINT);
                assert_eq!(ended.code, Some(0), "{when}: {:?}", ended.stderr);
            }
            Some(waiting) => {
                node.end(Signal::SIGKILL);
                self.foreign_is_as_it_was(&when);
                if orphan == Orphan::Dies {
                    kill(waiting, Signal::SIGKILL).expect("it waits");
                }
                fs::write(tool.file("stop"), "0\n").expect("a number");
                self.begins_anew(&when, orphan);
            }
        }
        assert_eq!(rig.listed(), self.before, "{when}: {}", tool.calls());
        was_met
    }

    /// The next life: it removes what is left before anybody tells it anything, then it is told.
    fn begins_anew(&self, when: &str, orphan: Orphan) {
        let (rig, tool) = (self.rig, &self.tool);
        self.wait_until_gone();
        rig.set(BandPolicy::Fifo, 0);
        let node = tool.start(rig, &self.file);
        match orphan {
            Orphan::Dies => {
                let deadline = Instant::now() + PATIENCE;
                while rig.listed() != self.before {
                    assert!(Instant::now() < deadline, "{when}: {:?}", rig.listed());
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            Orphan::GoesOn => {
                fs::write(tool.file("go"), "").expect("a file");
                std::thread::sleep(ORPHAN_TAKES);
            }
        }
        self.foreign_is_as_it_was(when);
        rig.set(BandPolicy::One, 3600);
        rig.settled([Some(0), Some(1)]);
        self.are_right(0);
        let ended = node.end(Signal::SIGINT);
        assert_eq!(ended.code, Some(0), "{when}: {:?}", ended.stderr);
    }

    fn wait_until_gone(&self) {
        while self.rig.status().nodes.iter().any(|node| node.name == "s0" && node.is_attached) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills in every step of a change by night, else in every fifth, begun at a random one
    /// (`WEFT_STEP` names it); how many steps there are, at most.
    fn kills_in_each(&self, change: Change) -> u32 {
        let stride = if std::env::var_os("WEFT_NIGHTLY").is_some() { 1 } else { 5 };
        let first = std::env::var("WEFT_STEP").ok().and_then(|step| step.parse().ok());
        let first = first.unwrap_or_else(|| 1 + std::process::id() % stride);
        let mut step = first;
        while self.kills_before(change, step, Orphan::Dies) {
            step += stride;
        }
        println!("{change:?}: killed in step {first} and every {stride} until {step}");
        println!("{}", self.tool.calls());
        step - 1
    }
}

/// Reads of disciplines, classes and filters; a root, four classes besides and eight filters.
#[test]
fn a_node_that_is_killed_in_any_step_leaves_what_its_next_life_removes() {
    let Some(rig) = Rig::up("one") else { return };
    let place = own();
    let attack = Attack::new(&rig, &place);
    // At the start it reads; then it reads, does all lines, and reads again.
    assert!(attack.kills_in_each(Change::Installation) >= 3 + 3 + 14 + 3);
    assert!(attack.kills_in_each(Change::Recovery) >= 3 + 1 + 3 + 14 + 3);
    // A class in the other band for each, and a filter of each family.
    assert!(attack.kills_in_each(Change::Turn) >= 3 + 6 + 3);
    assert!(attack.kills_in_each(Change::Removal) > 3);
}

#[test]
fn under_a_labs_class_nothing_of_the_labs_is_touched_whenever_a_node_is_killed() {
    let Some(rig) = Rig::up("one") else { return };
    let place = under_a_labs_class(&rig);
    let attack = Attack::new(&rig, &place);
    assert!(attack.kills_in_each(Change::Installation) >= 3 + 3 + 11 + 3);
    // Tables of four families, and three classes, go one by one.
    assert!(attack.kills_in_each(Change::Removal) >= 3 + 7);
    assert!(attack.kills_in_each(Change::Turn) >= 3 + 6 + 3);
}

/// A batch that was handed over is done to its end, whoever asked for it is dead: here when the
/// next life has begun.
#[test]
fn what_an_orphaned_tc_still_does_is_gone_after_the_next_life() {
    for is_own in [true, false] {
        let Some(rig) = Rig::up("one") else { return };
        let place = if is_own { own() } else { under_a_labs_class(&rig) };
        let attack = Attack::new(&rig, &place);
        // Before its first line, within it, and before its last read.
        for step in [7, 9, 12, 15] {
            assert!(attack.kills_before(Change::Installation, step, Orphan::GoesOn), "{step}");
        }
        assert!(attack.kills_before(Change::Turn, 5, Orphan::GoesOn));
        assert!(attack.kills_before(Change::Removal, 4, Orphan::GoesOn));
    }
}

#[test]
fn a_batch_that_fails_once_is_run_again() {
    let Some(rig) = Rig::up("one") else { return };
    let place = under_a_labs_class(&rig);
    let attack = Attack::new(&rig, &place);
    fs::write(attack.tool.file("fail"), "").expect("a file");
    let node = attack.tool.start(&rig, &attack.file);
    rig.settled([Some(0), Some(1)]);
    attack.are_right(0);
    assert!(!attack.tool.file("fail").exists());
    assert_eq!(node.end(Signal::SIGINT).code, Some(0));
}

/// What is left of a batch takes so long, line by line.
const ORPHAN_TAKES: Duration = Duration::from_millis(300);
