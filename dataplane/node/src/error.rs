//! Why a node did not run: one line each, and an exit status.

use std::io;
use std::path::PathBuf;

use weft_config::ConfigError;
use weft_io::af_packet::AfPacketError;
use weft_io::udp::UdpError;

/// Why a node did not run. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The controller's agent could not be started.
    #[error("cannot start the controller's agent: {0}; check `controller.endpoint`")]
    Controller(String),
    /// The configuration cannot be read.
    #[error("reading {path}: {source}; name a readable file with --config")]
    Unreadable {
        /// The file.
        path: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The configuration was refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A UDP port could not be opened.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// Memory cannot be shared.
    #[error(transparent)]
    Shm(#[from] weft_io::shm::ShmError),
    /// A packet ring could not be opened.
    #[error(transparent)]
    AfPacket(#[from] AfPacketError),
    /// DPDK refused.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Eal(#[from] weft_dpdk::EalError),
    /// A DPDK device could not be opened.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    DpdkPort(#[from] weft_dpdk::PortError),
    /// There is no switch.
    #[error(transparent)]
    Switch(#[from] weft_switch::SwitchError),
    /// The switch is not what it was; the node begins anew.
    #[error("the switch was lost: {reason}")]
    SwitchLost {
        /// What became of it.
        reason: String,
        /// What the node had counted.
        report: Box<crate::stats::Report>,
    },
    /// This binary has no DPDK.
    #[error(
        "port.io = \"dpdk\": this weft-node was built without DPDK; install libdpdk-dev and build \
         with `cargo build -p weft-node --features dpdk`, or set port.io = \"udp\""
    )]
    NoDpdk,
    /// EAL arguments without DPDK.
    #[error("EAL arguments came before `--`, but port.io is not \"dpdk\"; remove them")]
    UnusedEalArgs,
    /// Something about this machine.
    #[error("{0}")]
    Environment(String),
    /// Signal handlers.
    #[error("installing signal handlers")]
    Signals(#[source] io::Error),
    /// No randomness.
    #[error("reading a seed from /dev/urandom")]
    Seed(#[source] io::Error),
    /// A lane's CPU.
    #[error("pinning a lane to CPU {cpu}: {source}; see `taskset -p $$` for the CPUs allowed here")]
    Pin {
        /// The CPU.
        cpu: u32,
        /// The kernel's answer.
        source: nix::Error,
    },
    /// A lane's thread.
    #[error("starting the thread of lane {lane}")]
    Thread {
        /// The lane.
        lane: usize,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// The thread of figures.
    #[error("starting the thread that reports: raise the limits of memory and threads")]
    Reporter(#[source] io::Error),
    /// The capture.
    #[error("writing the capture {}: {source}; choose another trace.pcap", .path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A recording cannot be begun.
    #[error("beginning a recording in {}: {problem}", .path.display())]
    Record {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// A model's file.
    #[error("the model file {}: {problem}; see initial_model and dump_model", .path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// What a server keeps on disk.
    #[error("the state in {}: {problem}", .path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The log of events.
    #[error("opening the log of events {}: {source}; choose another node.events", .path.display())]
    Events {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The bands of the host's link.
    #[error(
        "applying bands on {device}: {source}; of all nodes of a host only one has [bands] for an \
         interface: remove it from the others, or end them"
    )]
    Bands {
        /// The interface.
        device: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The configuration of a bench.
    #[error("[bench] measures and serves nobody: start weft-bench with it, or remove the section")]
    Bench,
    /// The metrics listener.
    #[error("listening on {addr} for /metrics: {source}; choose another node.metrics")]
    Metrics {
        /// The address.
        addr: std::net::SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl NodeError {
    /// The process's exit status: 2 for usage and configuration, 3 for what this machine lacks.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Unreadable { .. } | Self::Config(_) | Self::UnusedEalArgs | Self::Bench => 2,
            _ => 3,
        }
    }
}

/// The remedy for a file that could not be written, where its error has one.
pub(crate) fn remedy(error: &io::Error) -> Option<&'static str> {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    use nix::libc::{EIO, EMFILE, ENFILE};
    Some(match (error.raw_os_error(), error.kind()) {
        (Some(EMFILE | ENFILE), _) => "raise the limit of open files (`ulimit -n`, LimitNOFILE=)",
        (Some(EIO), _) => "the disk fails, as `dmesg` says: use another one",
        (_, StorageFull | QuotaExceeded) => "make room",
        (_, ReadOnlyFilesystem) => "mount it for writing",
        (_, PermissionDenied) => "let this user write there",
        _ => return None,
    })
}

/// The error and its causes on one line.
#[must_use]
pub fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let text = weft_process::say::chain(error);
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}
