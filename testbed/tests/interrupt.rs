//! Signals in each command that makes something, and what is left after SIGKILL.

use std::fs;
use std::io::Read as _;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_testbed::lab::{self, LabName, rootless};

const TOPOLOGY: &str = r#"{"hosts": {"h1": {}, "h2": {}}, "links": [["h1", "h2"]]}"#;
const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
const PATIENCE: Duration = Duration::from_secs(60);
/// More than it takes to end the processes of a lab one after the other.
const END_MAX: Duration = Duration::from_secs(20);

fn skip_without_rights(test: &str) -> bool {
    let skip = !rootless::is_privileged();
    if skip {
        eprintln!("SKIPPED {test}: needs CAP_NET_ADMIN and CAP_SYS_ADMIN; run as root");
    }
    skip
}

/// A command with the signals as a shell has them, whatever this test was started with.
fn weft(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(env!("CARGO_BIN_EXE_weft")).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn nodes(name: &LabName) -> usize {
    lab::nodes_of(name).expect("ip runs").len()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().expect("a process id"))
}

/// Signals a command; it must end in order, with the one status, and take its lab along.
fn ends_of(signal: Signal, mut child: Child, name: &LabName) {
    kill(pid(&child), signal).expect("it runs");
    let begun = Instant::now();
    let status = child.wait().expect("it ends");
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("UTF-8");
    assert_eq!(status.code(), Some(130), "{signal}: {said}");
    assert_eq!(said.matches("interrupted").count(), 1, "{signal}: {said}");
    assert!(begun.elapsed() < END_MAX, "{signal}: {:?}", begun.elapsed());
    assert_eq!(nodes(name), 0, "{signal}: {said}");
}

#[test]
fn a_lab_with_a_command_goes_with_each_signal() {
    if skip_without_rights("a_lab_with_a_command_goes_with_each_signal") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("two.json");
    fs::write(&file, TOPOLOGY).unwrap();
    let name: LabName = format!("i{}", std::process::id()).parse().unwrap();
    for signal in SIGNALS {
        let started = directory.path().join(signal.as_str());
        let script = format!("touch {}; exec sleep 60", started.display());
        let (lab, file) = (name.to_string(), file.to_str().unwrap());
        let up = ["lab", "up", file, "--name", &lab, "--", "sh", "-c", &script];
        let child = weft(&up).spawn().expect("weft runs");
        wait_until("the command runs", || started.exists());
        assert_eq!(nodes(&name), 2);
        ends_of(signal, child, &name);
    }
}

#[test]
fn a_measurement_goes_with_each_signal() {
    if skip_without_rights("a_measurement_goes_with_each_signal") {
        return;
    }
    for signal in SIGNALS {
        let child = weft(&["probe", "--rates", "10,10", "--seconds", "60"]).spawn().unwrap();
        let name: LabName = format!("probe{}", child.id()).parse().unwrap();
        wait_until("its lab is there", || nodes(&name) == 3);
        ends_of(signal, child, &name);
    }
}

#[test]
fn what_has_made_nothing_ends_at_once_with_the_same_status() {
    for signal in SIGNALS {
        // It waits for its case.
        let mut child = weft(&["plan", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        let catches = || {
            let path = format!("/proc/{}/status", child.id());
            let status = fs::read_to_string(path).unwrap_or_default();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask & 0x4003 == 0x4003)
        };
        wait_until("it listens", catches);
        kill(pid(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
    }
    let help = weft(&["--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("130"));
}

#[test]
fn what_a_killed_command_left_is_told_and_removed() {
    if skip_without_rights("what_a_killed_command_left_is_told_and_removed") {
        return;
    }
    // In namespaces of its own, since `--all` is all that this machine has.
    let script = format!(
        "set -e; mount -t tmpfs x /run; mkdir /run/netns; export TMPDIR=/run; weft={}
         $weft probe --rates 10,10 --seconds 60 > /run/out 2>&1 & probe=$!
         until [ $(ls /run/netns | wc -l) = 3 ]; do sleep 0.05; done
         kill -9 $probe; wait $probe || true; touch /run/weft-$probe.memif
         $weft probe --rates 10,10 --seconds 0.2 > /run/out 2>&1; grep left /run/out
         ip netns add other; ls /run/netns | wc -l; $weft lab down --all
         ls /run/netns; ls /run | grep memif || echo clean",
        env!("CARGO_BIN_EXE_weft")
    );
    let mut command = Command::new("unshare");
    let Output { status, stdout, stderr } =
        command.args(["-mn", "--propagation", "private", "bash", "-c", &script]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{out}{err}");
    assert!(out.contains("was left by a command that was killed"), "{out}{err}");
    assert!(out.contains("`weft lab down --all` removes it"), "{out}");
    assert!(out.contains(": 3 namespaces removed"), "{out}");
    assert!(out.trim_end().ends_with("other\nclean"), "only the namespace of others stays: {out}");
}
