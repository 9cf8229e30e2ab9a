//! `weft-node` over UDP on loopback, with jobs and rows that a test writes.
//!
//! Every node gets an address of its own in 127/8 and its members live on it too, so tests that
//! run at the same time never meet.

use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use weft_config::node::{Io, JobSection, KeysSection, NodeConfig, PortSection, RowSection};
use weft_config::{StatsFormat, to_toml};

use super::{PATIENCE, eventually, program};

/// UDP port of the node.
pub const NODE_PORT: u16 = 22341;
/// First UDP port of rank 0 of job 0; ranks are 64 apart, jobs 4096. The rows of a job share them.
const MEMBER_PORT: u16 = 24000;

/// An address in 127/8 that no other test uses.
#[must_use]
pub fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let own = NEXT.fetch_add(1, Ordering::Relaxed) % 254 + 1;
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::from([127, 64 | high & 63, low, u8::try_from(own).expect("below 255")])
}

/// What a node is to be started with.
#[derive(Debug)]
pub struct Config {
    ip: Ipv4Addr,
    file: NodeConfig,
}

impl Config {
    /// A node with `shards` lanes.
    #[must_use]
    pub fn new(shards: u16) -> Self {
        let ip = own_address();
        let mut file = NodeConfig::new(PortSection::new(Io::Udp, IpAddr::from(ip)));
        file.node.stats_format = StatsFormat::Json;
        file.lcores.shards = shards;
        Self { ip, file }
    }

    /// Adds a job.
    #[must_use]
    pub fn job(mut self, job: JobSection) -> Self {
        self.file.job.push(job);
        self
    }

    /// Makes it the home of a table.
    #[must_use]
    pub fn keys(mut self, keys: KeysSection) -> Self {
        self.file.keys.push(keys);
        self
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((self.ip, NODE_PORT))
    }

    /// Adds a row of `job` with `workers` members, of which `like` says the rest.
    #[must_use]
    pub fn row(mut self, row: u16, job: u16, workers: u8, like: &RowSection) -> Self {
        let members = (0..workers).map(|rank| member(self.ip, job, rank).into()).collect();
        self.file.row.push(RowSection { row, job, members, ..like.clone() });
        self
    }
}

fn member(ip: Ipv4Addr, job: u16, rank: u8) -> SocketAddr {
    SocketAddr::from((ip, MEMBER_PORT + 4096 * job + 64 * u16::from(rank)))
}

/// A running `weft-node`; killed when dropped.
#[derive(Debug)]
pub struct Node {
    ip: Ipv4Addr,
    child: Child,
    directory: TempDir,
}

impl Node {
    /// Starts a node and waits until it serves.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn start(config: &Config) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (file, log) = (directory.path().join("node.toml"), directory.path().join("log"));
        fs::write(&file, to_toml(&config.file)).expect("a file in a temporary directory");
        let child = Command::new(program("weft-node"))
            .arg("--config")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).expect("a file in a temporary directory"))
            .spawn()
            .expect("weft-node starts");
        let mut node = Self { ip: config.ip, child, directory };
        let ready = eventually(PATIENCE, || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            assert!(matches!(node.child.try_wait(), Ok(None)), "weft-node ended: {text}");
            text.contains("\"ready\":true")
        });
        assert!(ready, "weft-node is not ready; see {}", node.directory.path().display());
        node
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((self.ip, NODE_PORT))
    }

    /// Where `rank` of `job` sends from.
    #[must_use]
    pub fn member(&self, job: u16, rank: u8) -> SocketAddr {
        member(self.ip, job, rank)
    }

    /// The client's configuration for `rank` of `row` of `job`.
    #[must_use]
    pub fn client(&self, job: u16, row: u16, rank: u8) -> weft_client::Config {
        weft_client::Config::new(self.member(job, rank), self.addr()).job(job).row(row).rank(rank)
    }

    /// Ends the node with SIGINT; returns its statistics.
    ///
    /// # Panics
    /// When it does not end, fails, or writes no JSON.
    #[must_use]
    pub fn end(mut self) -> Value {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGINT).expect("the node runs");
        let ended =
            eventually(Duration::from_secs(10), || !matches!(self.child.try_wait(), Ok(None)));
        assert!(ended, "weft-node does not end");
        assert!(self.child.wait().expect("the node is ours").success(), "weft-node failed");
        let mut text = String::new();
        let mut stdout = self.child.stdout.take().expect("piped");
        stdout.read_to_string(&mut text).expect("statistics are UTF-8");
        serde_json::from_str(&text).expect("statistics are JSON")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
