//! A box's process: started from its configuration, restarted, ended with its statistics.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::Serialize;
use weft_config::to_toml;

use super::BoxCounters;
use super::additions::{capture_path, life_path, life_recording_path, recording_path};
use super::plan::BoxPlan;
use super::process::{Process, io, program};
use super::processes::ProcessError;

/// How long a box may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a box may take to write its statistics after SIGINT.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// A box's process.
#[derive(Debug)]
pub(super) struct RunningBox {
    name: String,
    namespace: Option<String>,
    node: PathBuf,
    config: PathBuf,
    log: PathBuf,
    process: Process,
    is_dead: bool,
    /// Times that it was killed and started again.
    restarts: u32,
}

impl RunningBox {
    pub(super) fn start(
        node: &Path,
        plan: &BoxPlan<impl Serialize>,
        namespace: Option<String>,
        directory: &Path,
    ) -> Result<Self, ProcessError> {
        let config = directory.join(format!("{}.toml", plan.name));
        fs::write(&config, to_toml(&plan.config)).map_err(io("writing a box's configuration"))?;
        let log = directory.join(format!("{}.log", plan.name));
        let process = spawn_box(node, &config, &log, namespace.as_deref())?;
        let (name, node) = (plan.name.clone(), node.to_owned());
        Ok(Self { name, namespace, node, config, log, process, is_dead: false, restarts: 0 })
    }

    pub(super) fn wait_until_ready(&mut self) -> Result<(), ProcessError> {
        wait_until_ready(&mut self.process, &self.name, &self.log)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What became of the box, if somebody else has ended it.
    pub(super) fn ended(&mut self) -> Option<ProcessError> {
        let status = self.process.ended()?;
        Some(ProcessError::BoxEnded { name: self.name.clone(), status: status.to_string() })
    }

    /// Kills the box without a word and starts it again: it comes back knowing nothing.
    pub(super) fn restart(&mut self) -> Result<(), ProcessError> {
        let _ = self.process.0.kill();
        let _ = self.process.0.wait();
        fs::write(&self.log, "").map_err(io("emptying a box's log"))?;
        let directory = self.log.parent().unwrap_or_else(|| Path::new(""));
        let capture = capture_path(directory, &self.name);
        let recording = recording_path(directory, &self.name);
        // The next life writes its own; most boxes have none.
        let _ = fs::rename(&capture, life_path(&capture, self.restarts));
        let _ = fs::rename(&recording, life_recording_path(&recording, self.restarts));
        self.restarts += 1;
        self.process = spawn_box(&self.node, &self.config, &self.log, self.namespace.as_deref())?;
        self.wait_until_ready()
    }

    /// Kills the box without a word, for good.
    pub(super) fn crash(&mut self) {
        self.process.end(Duration::ZERO);
        self.is_dead = true;
    }

    /// Ends the box and reads its statistics; one that crashed on purpose took them along.
    ///
    /// # Errors
    /// Why there are none, or why they are not of the whole run.
    pub(super) fn stop(&mut self) -> Result<Option<BoxCounters>, String> {
        if self.is_dead {
            return Ok(None);
        }
        let cpu_ns = self.process.cpu_ns();
        let ended = self.process.ended();
        self.process.signal(Signal::SIGINT);
        let status = self.process.end(STOP_TIMEOUT);
        let mut text = String::new();
        if let Some(stdout) = &mut self.process.0.stdout {
            let _ = stdout.read_to_string(&mut text);
        }
        // What it counted, whole, beside its configuration; a report lacks nothing without it.
        let _ = fs::write(self.config.with_extension(STATISTICS), &text);
        let why = || {
            let how = status.map_or_else(
                || format!("it did not end within {} s of SIGINT", STOP_TIMEOUT.as_secs()),
                |status| format!("it ended with {status}"),
            );
            format!("{} left no statistics: {how}", self.name)
        };
        let counters = counters(&text, None).ok_or_else(why)?;
        let log = || fs::read_to_string(&self.log).unwrap_or_default();
        let last = |log: String| log.lines().last().unwrap_or("an empty log").to_owned();
        match (ended, status) {
            (Some(status), _) => Err(format!(
                "{} ended before the run did, with {status}: {}",
                self.name,
                last(log())
            )),
            (None, Some(status)) if !status.success() => {
                Err(format!("{} ended with {status}: {}", self.name, last(log())))
            }
            _ => Ok(()),
        }?;
        Ok(Some(BoxCounters { cpu_ns, ..counters }))
    }
}

/// Waits for the line that says so in a process's log.
pub(super) fn wait_until_ready(
    process: &mut Process,
    name: &str,
    log: &Path,
) -> Result<(), ProcessError> {
    let begun = Instant::now();
    loop {
        let said = fs::read_to_string(log).unwrap_or_default();
        if said.contains("\"ready\":true") {
            return Ok(());
        }
        let ended = !matches!(process.0.try_wait(), Ok(None));
        if ended || begun.elapsed() > READY_TIMEOUT {
            let said = said.lines().last().unwrap_or("nothing").to_owned();
            return Err(ProcessError::BoxNotReady { name: name.to_owned(), said });
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn spawn_box(
    node: &Path,
    config: &Path,
    log: &Path,
    namespace: Option<&str>,
) -> Result<Process, ProcessError> {
    let stderr = File::create(log).map_err(io("creating a box's log"))?;
    let child = program(node, namespace)
        .arg("--config")
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        // EAL wants a directory of its own where it may write.
        .env("RUNTIME_DIRECTORY", log.parent().unwrap_or_else(|| Path::new("/tmp")))
        .spawn()
        .map_err(io("starting weft-node"))?;
    Ok(Process(child))
}

/// Where a box's final statistics are in the run directory.
pub(super) fn statistics_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.{STATISTICS}"))
}

const STATISTICS: &str = "stats.json";

/// Reads a box's final statistics: of its port, and of one of its jobs or of all.
pub(super) fn counters(text: &str, of_job: Option<u16>) -> Option<BoxCounters> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    let number = |value: &serde_json::Value, key: &str| value[key].as_u64().unwrap_or(0);
    let port = &json["port"];
    // A controller has jobs and no lanes.
    let lanes = json["lanes"].as_array().into_iter().flatten();
    let mut counters = BoxCounters {
        rx_packets: number(port, "rx_packets"),
        rx_bytes: number(port, "rx_bytes"),
        tx_bytes: number(port, "tx_bytes"),
        port_losses: number(port, "rx_missed")
            + number(port, "rx_nombuf")
            + lanes.map(|lane| number(lane, "tx_dropped")).sum::<u64>(),
        capture: serde_json::from_value(json["trace"].clone()).ok(),
        ..BoxCounters::default()
    };
    // A node's jobs have an `id`, a controller's are called by `job`.
    let is_of =
        |job: &&serde_json::Value| of_job.is_none_or(|of| job["id"] == of || job["job"] == of);
    for job in json["jobs"].as_array()?.iter().filter(is_of) {
        counters.contributions_added += number(job, "contributions_added");
        counters.chunks_completed += number(job, "chunks_completed");
        counters.duplicates += number(job, "duplicates");
        counters.policy_failures += number(job, "policy_failures");
    }
    Some(counters)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::run::CaptureCounters;

    #[test]
    fn the_statistics_of_a_node_and_of_a_controller_are_read() {
        let node = r#"{"port": {"rx_packets": 3, "rx_missed": 2}, "lanes": [{"tx_dropped": 1}],
            "trace": {"frames": 5, "bytes": 600, "cut": 2, "errors": 0},
            "jobs": [{"contributions_added": 7, "duplicates": 1}]}"#;
        let read = counters(node, None).expect("a node's");
        assert_eq!((read.rx_packets, read.port_losses, read.contributions_added), (3, 3, 7));
        let capture = CaptureCounters { frames: 5, cut: 2, errors: 0 };
        assert_eq!(read.capture, Some(capture));
        let controller = r#"{"jobs": [{"name": "train", "policy_failures": 4},
            {"name": "other", "policy_failures": 1}], "plans": 9}"#;
        let read = counters(controller, None).expect("a controller's");
        assert_eq!((read.policy_failures, read.capture), (5, None));
    }

    /// A program that is ready at once, and leaves the statistics of a node; then does `rest`.
    fn fake(directory: &Path, rest: &str) -> RunningBox {
        let node = directory.join("node");
        let script = format!(
            "#!/bin/sh\necho '{{\"ready\":true}}' >&2\necho '{{\"jobs\":[]}}'\n\
             echo 'another primary' >&2\n{rest}\n"
        );
        fs::write(&node, script).expect("written");
        fs::set_permissions(&node, fs::Permissions::from_mode(0o755)).expect("made executable");
        let plan = BoxPlan { name: "a0".to_owned(), config: BTreeMap::<String, String>::new() };
        let mut running = RunningBox::start(&node, &plan, None, directory).expect("started");
        running.wait_until_ready().expect("ready");
        running
    }

    #[test]
    fn a_box_that_ended_before_its_run_is_no_part_of_a_good_run() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (rest, said) in [("exit 1", "exit status: 1"), ("exit 0", "exit status: 0")] {
            let mut running = fake(directory.path(), rest);
            while running.process.ended().is_none() {
                thread::sleep(Duration::from_millis(5));
            }
            let why = running.stop().expect_err("it ended by itself");
            assert!(why.contains("a0 ended before the run did") && why.contains(said), "{why}");
            assert!(why.contains("another primary"), "{why}");
        }
        let waiting = "exec 1>&-; trap 'exit CODE' INT; while :; do sleep 0.05; done";
        let mut running = fake(directory.path(), &waiting.replace("CODE", "0"));
        running.stop().expect("it ended when it was asked to");
        let mut running = fake(directory.path(), &waiting.replace("CODE", "3"));
        let why = running.stop().expect_err("it failed at its end");
        assert!(why.contains("a0 ended with exit status: 3"), "{why}");
    }

    #[test]
    fn the_share_of_a_job_is_read() {
        let node = r#"{"port": {"rx_packets": 3}, "lanes": [], "jobs": [
            {"id": 0, "contributions_added": 7}, {"id": 3, "contributions_added": 9}]}"#;
        let read = |job| counters(node, Some(job)).expect("a node's").contributions_added;
        assert_eq!([read(0), read(1), read(3)], [7, 0, 9]);
        let controller =
            r#"{"jobs": [{"job": 2, "policy_failures": 4}, {"job": 3, "policy_failures": 1}]}"#;
        assert_eq!(counters(controller, Some(3)).expect("a controller's").policy_failures, 1);
    }
}
