//! `weft-controller` as a process, configured for a test, and `weft top` as scripts call it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use weft_config::controller::ControllerConfig;
use weft_config::{StatsFormat, to_toml};

use super::{PATIENCE, eventually, program};

/// A running `weft-controller`; killed when dropped.
#[derive(Debug)]
pub struct Controller {
    child: Child,
    addr: SocketAddr,
    /// Network namespace that it and its callers run in; none: the test's.
    namespace: Option<String>,
    directory: TempDir,
}

impl Controller {
    /// Starts a controller, in a network namespace or the test's own, and waits until it listens.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn start(namespace: Option<&str>, config: &ControllerConfig) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (file, log) = (directory.path().join("controller.toml"), directory.path().join("log"));
        let config = ControllerConfig { stats_format: StatsFormat::Json, ..config.clone() };
        fs::write(&file, to_toml(&config)).expect("a file in a temporary directory");
        let mut child = within(namespace, &program("weft-controller"))
            .arg("--config")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).expect("a file in a temporary directory"))
            .spawn()
            .expect("weft-controller starts");
        let mut addr = None;
        eventually(PATIENCE, || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            assert!(matches!(child.try_wait(), Ok(None)), "weft-controller ended: {text}");
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut ready = lines.filter(|line| line["ready"] == true);
            addr = ready.find_map(|line| line["listen"].as_str()?.parse().ok());
            addr.is_some()
        });
        let addr = addr.expect("weft-controller says where it listens");
        Self { child, addr, namespace: namespace.map(str::to_owned), directory }
    }

    /// Where it is called.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The port that it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.addr.port()
    }

    /// What it wrote to standard error.
    #[must_use]
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// `weft top --once` in this format.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn top_as(&self, format: &str) -> String {
        let output = within(self.namespace.as_deref(), &program("weft"))
            .args(["top", "--once", "--format", format, &self.endpoint()])
            .output()
            .expect("weft runs");
        assert!(output.status.success(), "weft top: {output:?}");
        String::from_utf8(output.stdout).expect("it writes UTF-8")
    }

    /// `weft top --once --format json`.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn top(&self) -> Value {
        serde_json::from_str(&self.top_as("json")).expect("it writes JSON")
    }

    /// `weft top` until what it shows is as wanted.
    ///
    /// # Panics
    /// When it never is.
    pub fn top_until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Value::Null;
        let has_come = eventually(PATIENCE, || {
            seen = self.top();
            is_so(&seen)
        });
        assert!(has_come, "{what}: {seen:#}\n{}", self.stderr());
        seen
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program, in a network namespace or here.
#[must_use]
pub fn within(namespace: Option<&str>, program: &Path) -> Command {
    match namespace {
        None => Command::new(program),
        Some(name) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name]).arg(program);
            command
        }
    }
}
