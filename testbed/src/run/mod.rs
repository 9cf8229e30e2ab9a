//! `weft run`: a scenario, live, and the proof that it computed what it should have.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `plan` | which boxes and workers there are, and where (pure) |
//! | `additions` | captures and delays, as boxes and workers are told of them (pure) |
//! | `worker` | opens a worker's port; the same code in a process and in a thread |
//! | `message` | what workers and boxes say while a run goes on |
//! | `recording` | what a worker leaves behind for the proof |
//! | `watch` | what is due while a run goes on (pure) |
//! | `processes` | starts, restarts and stops processes in a lab or on loopback |
//! | `running_box`, `running_worker` | one child process each |
//! | `caller` | calls the controller from where it is |
//! | `switch` | BMv2 in the place of a lab's bridge |
//! | `process` | a child process that is gone when its owner is |
//! | `background` | traffic of others beside it |
//! | `memory` | the same in one process, over memory ports |
//! | `packet` | the same in virtual time, on a simulated network |
//! | `proof` | recomputes the run from what it left, independently |
//! | `captures` | the captures that boxes left |
//! | `bottleneck` | names what limited the run, with evidence (pure) |
//! | `finished` | the verdict, and the rows of the run directory |
//! | `reduce` | an allreduce's configurations, training, proof and rows |
//! | [`resize`] | an allreduce whose number of workers changes |
//! | [`factorisation`] | processes that factor a matrix over a table of rows |
//! | [`push`] | the same of a run with a parameter server |
//! | [`several`] | several jobs side by side |
//!
//! A scenario with `[push]` has a parameter server. All ways of running, of either kind, give the
//! same messages, recordings and report.

mod additions;
mod background;
mod bottleneck;
mod caller;
mod captures;
pub mod factorisation;
mod finished;
mod memory;
mod message;
mod packet;
mod plan;
mod process;
mod processes;
mod proof;
pub mod push;
mod recording;
mod reduce;
pub mod resize;
mod running_box;
mod running_worker;
pub mod several;
mod switch;
mod watch;
pub mod worker;

use std::path::PathBuf;

use crate::scenario::RateStepSection;
use push::LogLine;

pub use additions::DelayedBy;
pub use background::{FlowPlan, FlowSeen};
pub use bottleneck::{Bottleneck, Usage};
pub use caller::Caller;
pub use captures::captures;
pub use finished::{Finished, Ground};
pub(crate) use memory::breathe_until;
pub use memory::{MemoryError, run_in_memory};
pub use message::{
    BoxCounters, CaptureCounters, RoundMessage, UpdateMessage, UpdateOutcome, WorkerMessage,
    WorkerSummary,
};
pub use packet::{PacketError, VirtualClock, check_virtual_time, run_in_virtual_time};
pub(crate) use plan::box_config;
pub use plan::{
    BoxPlan, Io, LOOPBACK_FIRST, LOOPBACK_PORTS, LOOPBACK_STRIDE, Place, Plan, PlanError,
    SWITCH_PROGRAM, WorkerIo, WorkerPlan,
};
pub use processes::{ProcessError, find_controller, find_node, run_processes};
pub use proof::{PrepareError, Proof, prepare, prove, remove_recordings};
pub use recording::{Recording, RecordingError, RecordingReader};
pub use switch::SwitchPlan;
pub(crate) use switch::offload_on;

/// What a run produced, before it is proved and reported.
#[derive(Debug, Default)]
pub struct Observed {
    /// When workers joined.
    pub joined: Vec<(u64, u8)>,
    /// Every worker's rounds of an allreduce, in the order of their arrival.
    pub rounds: Vec<(u8, RoundMessage)>,
    /// Every update whose outcome a worker told, with rank and life, in the order of arrival.
    pub updates: Vec<(u8, u32, UpdateMessage)>,
    /// The summary of each worker that finished.
    pub summaries: Vec<(u8, WorkerSummary)>,
    /// Workers that gave up: when, who, why.
    pub failures: Vec<(u64, u8, String)>,
    /// What boxes counted, by name; a killed box took its counters along.
    pub boxes: Vec<(String, BoxCounters)>,
    /// Which boxes left no counters though nothing of the run killed them, or ended by themselves,
    /// and why.
    pub missing: Vec<String>,
    /// Processor time of what is neither box nor worker: a P4 switch, the bridge of a memif.
    pub others_cpu_ns: u64,
    /// What was killed and started again: when, by the monotonic clock, and what.
    pub restarts: Vec<(u64, String)>,
    /// Links that got another rate: when, and which.
    pub rate_steps: Vec<(u64, RateStepSection)>,
    /// What was killed for good: when, and what.
    pub crashes: Vec<(u64, String)>,
    /// The version and loss that ended a run which trains until a loss.
    pub reached: Option<(u64, f64)>,
    /// Why the run was ended before its workers had finished.
    pub ended: Option<String>,
    /// What became of the traffic of others.
    pub background: Vec<FlowSeen>,
    /// The logs of server, replica, aggregators and controller, by name.
    pub logs: Vec<(String, Vec<LogLine>)>,
}

impl Observed {
    /// The log of a box.
    #[must_use]
    pub fn log(&self, name: &str) -> Option<&[LogLine]> {
        self.logs.iter().find(|(box_name, _)| box_name == name).map(|(_, lines)| lines.as_slice())
    }

    /// Takes in what a box left at its end.
    fn take_box(&mut self, name: &str, stopped: Result<Option<BoxCounters>, String>) {
        match stopped {
            Ok(counters) => {
                self.boxes.extend(counters.map(|counters| (name.to_owned(), counters)));
            }
            Err(why) => self.missing.push(why),
        }
    }

    /// Takes in what a life of a worker says.
    fn take(&mut self, rank: u8, life: u32, message: WorkerMessage) {
        match message {
            WorkerMessage::Joined { at_ns } => self.joined.push((at_ns, rank)),
            WorkerMessage::Round(round) => self.rounds.push((rank, round)),
            WorkerMessage::Measured { .. } => {}
            WorkerMessage::Update(update) => self.updates.push((rank, life, update)),
            WorkerMessage::Done(summary) => self.summaries.push((rank, *summary)),
            WorkerMessage::Failed { at_ns, error } => self.failures.push((at_ns, rank, error)),
        }
    }
}

/// Where a worker's recording of its rounds is in the run directory.
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
