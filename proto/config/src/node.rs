//! A node's file, one struct per section; these comments are its manual.
//!
//! | section | for |
//! | --- | --- |
//! | `[node]` | [`NodeSection`]: name, statistics |
//! | `[port]` | [`PortSection`]: the port, and the box's address on it |
//! | `[dpdk]` | [`DpdkSection`]: EAL and the DPDK device; only read when `io = "dpdk"` |
//! | `[switch]` | [`SwitchSection`]: the P4 switch that the node is behind; only with `io = "switch"` |
//! | `[lcores]` | [`LcoresSection`]: lanes and the CPUs they run on |
//! | `[idle]` | [`IdleSection`]: when a polling lcore sleeps |
//! | `[strangers]` | [`StrangersSection`]: what frames that do not show whose they are may cost |
//! | `[arena]` | [`ArenaSection`]: room for jobs and leases that come at run time |
//! | `[faults]` | [`FaultsSection`]: loss, duplication, reordering, delay, corruption, for tests |
//! | `[trace]` | [`TraceSection`]: a capture of what the port saw |
//! | `[record]` | [`RecordSection`]: a recording of what the engines met, for `weft replay` |
//! | `[bands]` | [`BandsSection`]: jobs' bands on the host's link |
//! | `[controller]` | [`ControllerSection`]: who installs groups |
//! | `[bench]` | [`BenchSection`]: what `weft-bench` measures |
//! | `[[job]]` | [`JobSection`]: a job's share of the box |
//! | `[[row]]` | [`RowSection`]: a group and its lease |
//! | `[[push]]` | [`PushSection`]: a job that pushes to a parameter server |
//! | `[[server]]` | [`ServerSection`]: a job whose parameter server this node is |
//! | `[[replica]]` | [`ReplicaSection`]: a job whose replica this node is |
//! | `[[keys]]` | [`KeysSection`]: a table of rows whose home this box is |

mod address;
mod arena;
mod bands;
mod bench;
mod check;
mod controller;
mod defaults;
mod dpdk;
mod elements;
mod faults;
mod job;
mod keys;
mod memory;
mod port;
mod push;
mod record;
mod row;
mod server;
mod strangers;
mod switch;

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use address::HostAddr;
pub use arena::ArenaSection;
pub use bands::{BandsBy, BandsSection, FixedBand};
pub use bench::{BenchMode, BenchSection, LeaseName};
pub use controller::ControllerSection;
pub use dpdk::DpdkSection;
pub use elements::Elements;
pub use faults::{FaultsSection, TraceSection};
pub use job::JobSection;
pub use keys::KeysSection;
pub use port::{Io, PortSection};
pub use push::PushSection;
pub use record::RecordSection;
pub use row::{MemberSection, ParentSection, RowSection};
pub use server::{ReplicaSection, ServerSection};
pub use strangers::StrangersSection;
pub use switch::{SwitchPortSection, SwitchSection};

use crate::{FilePath, StatsFormat};

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
    /// The P4 switch that the node is behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchSection>,
    /// Lanes and CPUs.
    #[serde(default)]
    pub lcores: LcoresSection,
    /// When a polling lcore sleeps.
    #[serde(default)]
    pub idle: IdleSection,
    /// What strangers may cost.
    #[serde(default)]
    pub strangers: StrangersSection,
    /// Room for what comes at run time.
    #[serde(default)]
    pub arena: ArenaSection,
    /// Faults, for tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultsSection>,
    /// A capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceSection>,
    /// A recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordSection>,
    /// For benches only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bench: Option<BenchSection>,
    /// Jobs' bands on the host's link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bands: Option<BandsSection>,
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
    /// The tables of rows whose home this box is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeysSection>,
}

impl NodeConfig {
    /// A node that has nothing but a port.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(port: PortSection) -> Self {
        section!(port)
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
    pub stats_format: StatsFormat,
    /// TCP address that answers `GET /metrics` in Prometheus' text format, `/healthz` and
    /// `/readyz`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// Milliseconds between two readings of the lanes' counters for that page; at least 10. Default
    /// 1000.
    pub metrics_period_ms: u64,
    /// File that tells what happens to groups: a JSON object a line. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<FilePath>,
}

impl Default for NodeSection {
    fn default() -> Self {
        Self {
            name: "node".to_owned(),
            seed: None,
            stats_period_s: 0,
            stats_format: StatsFormat::Text,
            metrics: None,
            metrics_period_ms: 1000,
            events: None,
        }
    }
}

/// `[lcores]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LcoresSection {
    /// Lanes: threads with their own slots; a power of two, at most 64. Lane `i` serves the frames
    /// from UDP source port `member port + i`. Default 1.
    ///
    /// On `udp` each lane has its own sockets, unless `[trace]` captures or a `parent.source_port`
    /// is not `port.udp_port`; on `af_packet` its own ring; on `dpdk` its own queues if the device
    /// has as many. The kernel gives a frame to the lane `source port mod shards`: member ports
    /// that are multiples of `shards` are right at once. Frames that come in at another lane are
    /// handed over through bounded rings. Else lane 0 receives and sends for all.
    pub shards: u16,
    /// The CPU of each lane, one per lane; empty (default) leaves them to the scheduler.
    pub cpus: Vec<u32>,
    /// Frames that fit the ring to each lane; what finds it full is lost and counted. At most
    /// 1048576. Default 1024.
    pub ring_frames: usize,
}

impl Default for LcoresSection {
    fn default() -> Self {
        Self { shards: 1, cpus: Vec::new(), ring_frames: 1024 }
    }
}

/// `[idle]`: after `breaths` empty bursts in a row a lane sleeps, first for `pause_min_us`, then
/// doubling up to `pause_max_us`, until a frame comes. A sleeping lane on `udp`, or on `af_packet`
/// with `offload`, wakes at once, so it sleeps for `pause_max_us` from the first time on. Such a
/// lane first yields its core and looks again, for up to 40 microseconds after the last frame;
/// where a yield takes a time slice of another program, it sleeps instead for some time.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdleSection {
    /// Empty bursts before the first sleep; 0 never sleeps. Default 512; on `udp`, and on
    /// `af_packet` with `offload`, 1, for there each is a system call, and workers on the same host
    /// may want the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaths: Option<u32>,
    /// First pause in microseconds. Default 50.
    pub pause_min_us: u64,
    /// Longest pause in microseconds, at most 100000. Default 1000.
    pub pause_max_us: u64,
}

impl Default for IdleSection {
    fn default() -> Self {
        Self { breaths: None, pause_min_us: 50, pause_max_us: 1000 }
    }
}

impl IdleSection {
    /// What it means on a port that wakes its lane at once, or does not.
    #[must_use]
    pub fn on(self, wakes_at_once: bool) -> Self {
        let (breaths, pause_min_us) =
            if wakes_at_once { (1, self.pause_max_us) } else { (512, self.pause_min_us) };
        Self { breaths: self.breaths.or(Some(breaths)), pause_min_us, ..self }
    }
}
