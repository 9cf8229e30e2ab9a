//! `weft-bench`: measures the aggregator's lane. `weft bench` and the instruction gate start it
//! with a node's configuration that has a `[bench]`.
//!
//! | module | what it does |
//! | --- | --- |
//! | `frames` | makes the contributions, and their sums by plain loops |
//! | `join` | plays the members' handshake, so that a real engine opens its lease |
//! | `replay` | the aggregator's lane on a device that replays the contributions |
//! | `lanes` | the same with several lanes, which hand each other frames |
//! | `whole` | the same on whole leases |
//! | `checked` | restamps for both, and compares what leaves |
//! | `forged` | a job at its quota, alone and among forged frames |
//! | `memory` | a device of memory that replays them without DPDK |
//! | `outside` | devices, clocks, the stop flag |
//! | `generate` | all members at once, against an aggregator or an echo on another process |
//!
//! What is measured is the lane that serves (`weft_lane::AggregatorLane`) with its engine; the
//! restamping of replayed frames and the comparison of sampled sums run on its lcore and count as
//! its time. A sum is compared with `frames`, which shares no code with slots and kernels, and
//! whose numbers no bank meets twice in a row.

// These macros panic when nobody reads: `weft_process::say` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]
#![forbid(unsafe_code)]

mod checked;
mod forged;
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "DPDK devices need all of it"))]
mod frames;
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "DPDK devices need all of it"))]
mod generate;
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "DPDK devices need all of it"))]
mod join;
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "DPDK devices need all of it"))]
mod lanes;
mod memory;
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "DPDK devices need all of it"))]
mod outside;
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "DPDK devices need all of it"))]
mod replay;
#[cfg_attr(not(feature = "dpdk"), allow(dead_code, reason = "DPDK devices need all of it"))]
mod whole;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use weft_node::error::NodeError;

/// Why a bench gave no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// It did not begin, as a node would not.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// There is nothing to measure.
    #[error("the configuration has no [bench]; `weft-node` serves it")]
    NoBench,
    /// The section asks for more than benches do.
    #[error(
        "[bench] needs seconds > 0, and rows without parent that have as many \
         members each, belong to jobs 0, 1, … in turn and have a window of at least bench.order; \
         whole leases, generate and echo take one row, one lane, order 1 and no \
         VLAN tags; loop takes one lane"
    )]
    Unsupported,
    /// The contributions could not be written.
    #[error("writing the contributions to {}: {source}; name a writable file in bench.pcap", .path.display())]
    Pcap {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The lease did not open.
    #[error("the aggregator did not open the lease: {0}")]
    Join(String),
    /// A lane could not run.
    #[error("running a further lane: {0}")]
    Lane(String),
    /// Nothing came back.
    #[error(
        "no answer for {0:?} while {1} frames were out: is the other process still running, and do \
         its rings hold a window of every member?"
    )]
    Stalled(Duration, u64),
}

impl BenchError {
    /// The process's exit status: 2 for the configuration, 3 for what this machine lacks, 1 for a
    /// measurement that failed.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Node(error) => error.exit_status(),
            Self::NoBench | Self::Unsupported => 2,
            Self::Pcap { .. } => 3,
            Self::Join(_) | Self::Lane(_) | Self::Stalled(..) => 1,
        }
    }
}

/// One measurement, as the node prints it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measurement {
    /// `replay`, `generate`, `echo`, `quota` or `forged`.
    pub mode: &'static str,
    /// Frames received (replay) or sent (generate, echo), or contributions due (quota, forged).
    pub packets: u64,
    /// Contributions that entered a sum (replay), or were answered (generate, echo).
    pub contributions_added: u64,
    /// Answers sent (replay) or received.
    pub answers: u64,
    /// CPU time of the thread that measured.
    pub cpu_seconds: f64,
    /// Time that passed meanwhile.
    pub wall_seconds: f64,
    /// Answers that were compared with the reference.
    pub checked: u64,
    /// Answers that differed from it.
    pub wrong: u64,
    /// Frames that the restamping refused.
    pub refused: u64,
    /// Frames that the engine refused, by reason; only reasons that happened.
    pub drops: BTreeMap<&'static str, u64>,
    /// Frames that were sent again because no answer came (generate, echo).
    pub repeated: u64,
    /// Forged frames received.
    pub forged: u64,
    /// Frames lost because a transmit ring was full or a pool empty.
    pub lost: u64,
    /// Instruction set of the arithmetic.
    pub isa: String,
}

impl Measurement {
    /// The measurement as one line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and names can be written")
    }
}

pub use outside::run;

#[cfg(test)]
mod tests;
