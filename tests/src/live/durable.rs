//! A server that keeps its job on disk, `weft-node` on loopback, and workers that push to it.
//!
//! Each worker adds 1 to parameters of its own, so that the model says how many updates of whom it
//! holds; what a worker was told it keeps a list of. The two must agree, whatever happened to the
//! server meanwhile.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use weft_client::push::{Outcome, PushConfig, PushSession};
use weft_config::node::{Io, NodeConfig, PortSection, ServerSection};
use weft_config::{StatsFormat, to_toml};

use super::controller::within;
use super::node::{NODE_PORT, own_address};
use super::{PATIENCE, eventually, program};

/// A job of some workers, and where its files are.
#[derive(Debug)]
pub struct Job {
    ip: Ipv4Addr,
    workers: u8,
    directory: TempDir,
}

/// How a node ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; `None` after a signal.
    pub status: Option<i32>,
    /// What it wrote to standard error.
    pub stderr: String,
    /// Its report, if it came to write one.
    pub report: Value,
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    out: PathBuf,
    log: PathBuf,
}

/// Parameters that each worker adds to.
const SHARE: usize = 400;

impl Job {
    /// A job of so many workers.
    ///
    /// # Panics
    /// When there is no temporary directory.
    #[must_use]
    pub fn new(workers: u8) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Self { ip: own_address(), workers, directory }
    }

    /// Where its files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn worker(&self, rank: u8) -> SocketAddr {
        SocketAddr::from((self.ip, 7000 + u16::from(rank)))
    }

    fn model(&self) -> PathBuf {
        self.directory().join("model.f32")
    }

    /// Writes the server's configuration, whose journals are so long at most.
    ///
    /// # Panics
    /// When the file cannot be written.
    #[must_use]
    pub fn config(&self, state_dir: &Path, journal_bytes_max: Option<u64>) -> PathBuf {
        let workers = (0..self.workers).map(|rank| self.worker(rank)).collect();
        let mut section = ServerSection {
            tau_max: Some(100_000),
            state_dir: Some(state_dir.display().to_string()),
            dump_model: Some(self.model().display().to_string()),
            ..ServerSection::new(0, workers, SHARE * usize::from(self.workers))
        };
        section.journal_bytes_max = journal_bytes_max.unwrap_or(section.journal_bytes_max);
        let mut config = NodeConfig::new(PortSection::new(Io::Udp, IpAddr::from(self.ip)));
        config.node.stats_format = StatsFormat::Json;
        config.server.push(section);
        let path = self.directory().join("server.toml");
        fs::write(&path, to_toml(&config)).expect("a file in a temporary directory");
        path
    }

    /// Starts the server; waits until it serves, or has ended.
    ///
    /// # Errors
    /// How it ended.
    ///
    /// # Panics
    /// When it neither serves nor ends.
    pub fn start(&self, config: &Path) -> Result<Server, Ended> {
        Server::start(config, self.directory())
    }

    /// Pushes until `stop`, or an error; counts in `told` what was committed, and returns the
    /// versions that it was told.
    ///
    /// # Errors
    /// Why it ended before.
    pub fn train(
        &self,
        rank: u8,
        stop: &AtomicBool,
        told: &AtomicU64,
    ) -> Result<Vec<u64>, weft_client::push::PushError> {
        let server = SocketAddr::from((self.ip, NODE_PORT));
        let config = PushConfig {
            connect_timeout: PATIENCE,
            member_timeout: PATIENCE,
            close_linger: PATIENCE,
            ..PushConfig::new(self.worker(rank), server).rank(rank)
        };
        let mut session = PushSession::connect(&config)?;
        let mut model = vec![0.0; SHARE * usize::from(self.workers)];
        let mut update = model.clone();
        update[usize::from(rank) * SHARE..][..SHARE].fill(1.0);
        let mut versions = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let version = session.pull(&mut model)?;
            if let Outcome::Committed { version } = session.push(&update, version)?.wait()? {
                versions.push(version.0);
                told.fetch_add(1, Ordering::Relaxed);
            }
        }
        session.close()?;
        Ok(versions)
    }

    /// How many updates of each worker the model holds that the server left when it ended.
    ///
    /// # Panics
    /// When there is no model, or a worker's parameters are not equal.
    #[must_use]
    pub fn updates(&self) -> Vec<u64> {
        let bytes = fs::read(self.model()).expect("the server left its model");
        let words = bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word));
        let weights: Vec<f32> = words.collect();
        let count = |share: &[f32]| {
            assert!(share.iter().all(|weight| *weight == share[0]), "a part of an update");
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let count = share[0] as u64;
            count
        };
        weights.chunks(SHARE).map(count).collect()
    }
}

impl Server {
    /// Starts a node in a directory that takes what it writes; waits until it serves.
    ///
    /// # Errors
    /// How it ended.
    ///
    /// # Panics
    /// When it neither serves nor ends.
    pub fn start(config: &Path, directory: &Path) -> Result<Self, Ended> {
        Self::start_in(None, config, directory)
    }

    /// The same, in a network namespace.
    ///
    /// # Errors
    /// How it ended.
    ///
    /// # Panics
    /// When it neither serves nor ends.
    pub fn start_in(
        namespace: Option<&str>,
        config: &Path,
        directory: &Path,
    ) -> Result<Self, Ended> {
        let (out, log) = (directory.join("out"), directory.join("log"));
        let file = |path| fs::File::create(path).expect("a file in a temporary directory");
        let child = within(namespace, &program("weft-node"))
            .arg("--config")
            .arg(config)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(file(&out))
            .stderr(file(&log))
            .spawn()
            .expect("weft-node starts");
        let mut server = Self { child, out, log };
        let mut has_ended = false;
        let is_known = eventually(PATIENCE, || {
            has_ended = server.has_ended();
            has_ended || server.stderr().contains("\"ready\":true")
        });
        assert!(is_known, "weft-node neither serves nor ends: {}", server.stderr());
        if has_ended { Err(server.ended()) } else { Ok(server) }
    }

    fn stderr(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn ended(mut self) -> Ended {
        let has_ended = eventually(PATIENCE, || self.has_ended());
        assert!(has_ended, "weft-node does not end: {}", self.stderr());
        let status = self.child.wait().expect("the node is ours").code();
        let out = fs::read_to_string(&self.out).unwrap_or_default();
        let report = serde_json::from_str(&out).unwrap_or_default();
        Ended { status, stderr: self.stderr(), report }
    }

    /// Sends a signal and waits for the end.
    ///
    /// # Panics
    /// When it does not end.
    #[must_use]
    pub fn end(self, signal: Signal) -> Ended {
        self.signal(signal);
        self.ended()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When it has ended.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("the node is ours");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many times longer than in `make test` attacks last: `WEFT_ATTACK_SCALE`, 1 without it.
///
/// # Panics
/// When it is no number.
#[must_use]
pub fn scale() -> u32 {
    std::env::var("WEFT_ATTACK_SCALE")
        .map_or(1, |scale| scale.parse().expect("WEFT_ATTACK_SCALE is a number"))
}

/// Waits until the workers were told of so many updates.
///
/// # Panics
/// When that takes too long.
pub fn wait_for(told: &AtomicU64, count: u64) {
    let is_told = eventually(PATIENCE, || told.load(Ordering::Relaxed) >= count);
    assert!(is_told, "{} updates of {count} in {PATIENCE:?}", told.load(Ordering::Relaxed));
}
