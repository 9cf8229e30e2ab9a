//! `weft run`: a scenario, live, and the proof that it computed what it should have.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `plan` | which boxes and workers there are, and each one's configuration (pure) |
//! | `worker` | trains on one worker over a session; the same code in a process and in a thread |
//! | `recording` | what a worker leaves behind for the proof |
//! | `verify` | recomputes the run from the recordings, independently |
//! | `processes` | starts and stops `weft-node` and worker processes in a lab or on loopback |
//! | `running_box`, `running_worker` | one child process each |
//! | `process` | a child process that is gone when its owner is |
//! | `background` | traffic of others beside it |
//! | `memory` | the same in one process, over memory ports |
//! | `packet` | the same in virtual time, on a simulated network |
//! | `additions` | captures and delays, as boxes and workers are told of them (pure) |
//! | `captures` | the captures that boxes left |
//! | `bottleneck` | names what limited the run, with evidence (pure) |
//! | `finished` | the verdict, and the rows of the run directory (pure but for writing them) |
//!
//! All ways of running give the same messages, recordings and report.

mod additions;
mod background;
mod bottleneck;
mod captures;
mod finished;
mod memory;
mod message;
mod packet;
mod plan;
mod process;
mod processes;
pub mod push;
mod recording;
mod running_box;
mod running_worker;
mod verify;
pub mod worker;

use std::path::PathBuf;

pub use additions::DelayedBy;
pub use background::{FlowPlan, FlowSeen};
pub use bottleneck::{Bottleneck, Usage};
pub use captures::captures;
pub use finished::{Finished, Ground};
pub(crate) use memory::breathe_until;
pub use memory::run_in_memory;
pub use message::{BoxCounters, CaptureCounters, RoundMessage, WorkerMessage, WorkerSummary};
pub use packet::{PacketError, VirtualClock, check_virtual_time, run_in_virtual_time};
pub(crate) use plan::box_config;
pub use plan::{
    Io, LOOPBACK_FIRST, LOOPBACK_PORTS, LOOPBACK_STRIDE, Place, Plan, PlanError, WorkerPlan,
};
pub use processes::{ProcessError, find_node, run_processes};
pub use recording::{Recording, RecordingError, RecordingReader};
pub use verify::{Proof, RoundProof, VerifyError, verify};

/// What a run produced, before it is proved and reported.
#[derive(Debug, Default)]
pub struct Observed {
    /// Every worker's messages with its rank, in the order of their arrival.
    pub messages: Vec<(usize, WorkerMessage)>,
    /// What the boxes counted, by name; a killed box took its counters along.
    pub boxes: Vec<(String, BoxCounters)>,
    /// Boxes that were restarted: when, by the monotonic clock, and which.
    pub restarts: Vec<(u64, String)>,
    /// What became of the traffic of others.
    pub background: Vec<FlowSeen>,
}

impl Observed {
    /// The summary of each worker that finished.
    pub fn summaries(&self) -> impl Iterator<Item = (usize, &WorkerSummary)> {
        self.messages.iter().filter_map(|(rank, message)| match message {
            WorkerMessage::Done(summary) => Some((*rank, summary)),
            _ => None,
        })
    }

    /// Why workers failed.
    pub fn failures(&self) -> impl Iterator<Item = (usize, &str)> {
        self.messages.iter().filter_map(|(rank, message)| match message {
            WorkerMessage::Failed { error, .. } => Some((*rank, error.as_str())),
            _ => None,
        })
    }
}

/// Where a worker's recording is in the run directory.
#[must_use]
pub fn recording_path(directory: &std::path::Path, rank: usize) -> PathBuf {
    directory.join(format!("w{rank}.rec"))
}

/// Nanoseconds of the machine's monotonic clock, the same in all processes and namespaces.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .expect("Linux has a monotonic clock");
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
}

/// Processor time of this thread's process so far, user and system, in nanoseconds.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .expect("Linux has a processor time clock");
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
}
