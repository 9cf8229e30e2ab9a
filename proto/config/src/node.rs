//! The configuration file: TOML, one struct per section, these comments are its manual.
//!
//! Reading goes in three steps: the text becomes a [`NodeConfig`] (shape), that becomes
//! [`Settings`] (meaning; [`weft_engine::table::Table`] judges jobs and rows), and whichever step
//! refuses, the error names file, line and field ([`ConfigError`]). An unknown key is an error.
//!
//! | section | for |
//! | --- | --- |
//! | `[node]` | [`NodeSection`]: name, statistics |
//! | `[port]` | [`PortSection`]: the port, and the box's address on it |
//! | `[dpdk]` | [`DpdkSection`]: EAL and the DPDK device; only read when `io = "dpdk"` |
//! | `[lcores]` | [`LcoresSection`]: lanes and the CPUs they run on |
//! | `[idle]` | [`IdleSection`]: when a polling lcore sleeps |
//! | `[strangers]` | [`StrangersSection`]: what frames that do not show whose they are may cost |
//! | `[faults]` | [`FaultsSection`]: loss, duplication, reordering, delay, corruption, for tests |
//! | `[trace]` | [`TraceSection`]: a capture of what the port saw |
//! | `[controller]` | [`ControllerSection`]: who installs groups |
//! | `[bench]` | [`BenchSection`]: makes the node a bench that serves nobody |
//! | `[[job]]` | [`JobSection`]: a job's share of the box |
//! | `[[row]]` | [`RowSection`]: a group and its lease |
//! | `[[push]]` | [`PushSection`]: a job that pushes to a parameter server |
//! | `[[server]]` | [`ServerSection`]: a job whose parameter server this node is |
//! | `[[replica]]` | [`ReplicaSection`]: a job whose replica this node is |

mod bench;
mod controller;
mod dpdk;
mod faults;
mod locate;
mod push;
mod resolve;
mod row;
mod server;
mod strangers;
mod text;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weft_wire::MacAddr;
use weft_wire::header::PORT_BASE;

pub use bench::{BenchMode, BenchSection, LeaseName};
pub use controller::ControllerSection;
pub use dpdk::DpdkSection;
pub use faults::{FaultsSection, TraceSection};
pub use push::PushSection;
pub use resolve::Settings;
pub use row::{MemberSection, ParentSection, RowSection};
pub use text::HostAddr;

pub use server::{ReplicaSection, ServerSection};
pub use strangers::StrangersSection;

use locate::Source;

/// A whole configuration file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Name and statistics.
    #[serde(default)]
    pub node: NodeSection,
    /// The port.
    pub port: PortSection,
    /// EAL and the DPDK device.
    #[serde(default)]
    pub dpdk: DpdkSection,
    /// Lanes and CPUs.
    #[serde(default)]
    pub lcores: LcoresSection,
    /// When a polling lcore sleeps.
    #[serde(default)]
    pub idle: IdleSection,
    /// What strangers may cost.
    #[serde(default)]
    pub strangers: StrangersSection,
    /// Faults, for tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultsSection>,
    /// A capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceSection>,
    /// For benches only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bench: Option<BenchSection>,
    /// Who commands the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerSection>,
    /// The jobs.
    #[serde(default)]
    pub job: Vec<JobSection>,
    /// The rows.
    #[serde(default)]
    pub row: Vec<RowSection>,
    /// The push jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub push: Vec<PushSection>,
    /// The jobs that this node serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<ServerSection>,
    /// The jobs that this node is a replica of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replica: Vec<ReplicaSection>,
}

impl NodeConfig {
    /// The configuration as a file, every default filled in.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every section is a table, every key a string")
    }
}

/// `[node]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeSection {
    /// Name in statistics and metrics. Default `node`.
    pub name: String,
    /// Seed of epochs, cookies and tokens. For tests only: a box that restarts with the same seed
    /// looks like its former self. Default: from the operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Seconds between periodic statistics on stderr; 0, the default, is never. `--stats-period`
    /// overrides it.
    pub stats_period_s: u64,
    /// `text` (default) or `json`. `--format` overrides it.
    pub stats_format: Format,
    /// TCP address that answers `GET /metrics` in Prometheus' text format. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// File that tells what happens to groups: a JSON object a line. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<PathBuf>,
}

impl Default for NodeSection {
    fn default() -> Self {
        Self {
            name: "node".to_owned(),
            seed: None,
            stats_period_s: 0,
            stats_format: Format::Text,
            metrics: None,
            events: None,
        }
    }
}

/// How statistics are written.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people, in testpmd's words.
    Text,
    /// For programs.
    Json,
}

/// `[port]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PortSection {
    /// `udp` (kernel sockets, no privileges), `af_packet` (an interface's packet ring, CAP_NET_RAW)
    /// or `dpdk`.
    pub io: Io,
    /// The device. `dpdk`: EAL's name for it, such as `net_af_packet0` or a PCI address; by default
    /// the only one that EAL knows. `af_packet`: the interface. `udp` needs none.
    #[serde(default, alias = "interface", skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The box's IPv4 or IPv6 address with its prefix length, such as `10.0.0.1/24`. On `udp` the
    /// kernel must have it; on the others the kernel must not, for the node answers ARP, NDP and
    /// ping itself. Without a prefix length: 24, or 64 for IPv6.
    pub ip: HostAddr,
    /// The box's Ethernet address. Default: the port's own.
    #[serde(default, with = "text::optional", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// UDP port that the box listens on. Default 22341 (0x5745, "WE").
    #[serde(default = "default_udp_port")]
    pub udp_port: u16,
    /// Largest IP packet in bytes. Default 1500.
    #[serde(default = "default_mtu")]
    pub mtu: u16,
    /// `udp`, `af_packet`: frame buffers per lane, of `mtu + 14` bytes each. Default 2048.
    #[serde(default = "default_frame_count")]
    pub frame_count: usize,
    /// `udp`: bytes of socket buffer asked for in each direction. Default 4194304.
    #[serde(default = "default_socket_buffer_bytes")]
    pub socket_buffer_bytes: usize,
    /// `udp`: hand runs of frames to the kernel, and take them from it, as one message each. On a
    /// wire they are the same datagrams, for less CPU; a bridge or queueing discipline of this host
    /// sees packets of up to 64 KiB, and so does an `af_packet` or `dpdk` box, or BMv2, at a veth
    /// whose offloads are on: leave it off beside those. Default false.
    #[serde(default)]
    pub offload: bool,
    /// `af_packet`: bytes of each lane's receive ring. Default 4194304.
    #[serde(default = "default_socket_buffer_bytes")]
    pub ring_bytes: usize,
    /// `af_packet`: send past the interface's queueing discipline: faster, but a rate limit set
    /// with `tc` does not apply. Default true.
    #[serde(default = "default_qdisc_bypass")]
    pub qdisc_bypass: bool,
}

const fn default_udp_port() -> u16 {
    PORT_BASE
}

const fn default_mtu() -> u16 {
    1500
}

const fn default_frame_count() -> usize {
    2048
}

const fn default_socket_buffer_bytes() -> usize {
    4 << 20
}

const fn default_qdisc_bypass() -> bool {
    true
}

/// Which kind of port.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// The kernel's UDP sockets.
    Udp,
    /// A packet ring on a network interface.
    AfPacket,
    /// A DPDK device.
    Dpdk,
}

/// `[lcores]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LcoresSection {
    /// Lanes: threads with their own slots; a power of two, at most 64. Lane `i` serves the frames
    /// from UDP source port `member port + i`. Default 1.
    ///
    /// On `af_packet` each lane has its own ring, on `dpdk` its own queues if the device has as
    /// many; frames that come in at another lane are handed over through bounded rings. Else lane 0
    /// receives and sends for all.
    pub shards: u16,
    /// The CPU of each lane, one per lane; empty (default) leaves them to the scheduler.
    pub cpus: Vec<u32>,
    /// Frames that fit the ring to each lane; what finds it full is lost and counted. Default 1024.
    pub ring_frames: usize,
}

impl Default for LcoresSection {
    fn default() -> Self {
        Self { shards: 1, cpus: Vec::new(), ring_frames: 1024 }
    }
}

/// `[idle]`: after `breaths` empty bursts in a row a lane sleeps, first for `pause_min_us`, then
/// doubling up to `pause_max_us`, until a frame comes. A sleeping UDP lane wakes at once.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdleSection {
    /// Empty bursts before the first sleep; 0 never sleeps. Default 512.
    pub breaths: u32,
    /// First pause in microseconds. Default 50.
    pub pause_min_us: u64,
    /// Longest pause in microseconds, at most 100000. Default 1000.
    pub pause_max_us: u64,
}

impl Default for IdleSection {
    fn default() -> Self {
        Self { breaths: 512, pause_min_us: 50, pause_max_us: 1000 }
    }
}

/// `[[job]]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JobSection {
    /// Index on the wire, below 256, different for each job.
    pub id: u16,
    /// Name in statistics and metrics. Default `job` and its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Slots over all lanes that the job's rows may take together. A slot takes two banks of
    /// `elements` numbers of 4 bytes. Default 4096.
    #[serde(default = "default_slots_max")]
    pub slots_max: u32,
    /// Token bucket: bytes of frames per second over all lanes, whatever becomes of them. A
    /// question counts as much as the sum that it may be answered with, and forming a row as
    /// 55000 and some 200 for each of its slots. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_sec: Option<u64>,
    /// Token bucket: depth in bytes, at least 2048. Default 1048576.
    #[serde(default = "default_burst_bytes")]
    pub burst_bytes: u64,
}

const fn default_slots_max() -> u32 {
    4096
}

const fn default_burst_bytes() -> u64 {
    1 << 20
}

impl JobSection {
    /// The job's name in reports.
    #[must_use]
    pub fn display_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("job{}", self.id))
    }
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("reading {path}: {source}; name a readable file with --config")]
    Read {
        /// The file.
        path: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The text is no configuration.
    #[error("{path}:{line}: {field}{}{problem}", if .field.is_empty() { "" } else { ": " })]
    Invalid {
        /// The file.
        path: String,
        /// Line of the offending key, from 1.
        line: usize,
        /// The offending key as `section.key` or `row[0].key`; empty for bad TOML.
        field: String,
        /// What is wrong and what would be right.
        problem: String,
    },
}

/// Reads a configuration file.
///
/// # Errors
/// [`ConfigError`], one line.
pub fn load(path: &Path) -> Result<Settings, ConfigError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: name.clone(), source })?;
    parse(&name, &text)
}

/// Parses the text of a configuration file called `path`.
///
/// # Errors
/// [`ConfigError::Invalid`].
pub fn parse(path: &str, text: &str) -> Result<Settings, ConfigError> {
    let source = Source::new(path, text)?;
    let config: NodeConfig = toml::from_str(text).map_err(|error| source.refuse_shape(&error))?;
    resolve::resolve(config).map_err(|problem| source.refuse(&problem))
}
