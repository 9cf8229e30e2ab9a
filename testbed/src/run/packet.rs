//! A run in virtual time: the engines with the configurations that the programs would have, and the
//! workers' training, on a simulated network. It leaves what the programs leave, so that the same
//! proof and report are made of it. No time passes but on links and in the engines' timers.

use std::path::{Path, PathBuf};

use weft_config::Problem;
use weft_io::fault::FaultRates;
use weft_sim::links::HostLink;
use weft_sim::transcript::Fingerprint;
use weft_wire::{MacAddr, Nanos};

use super::plan::Plan;
use super::recording::RecordingError;
use super::{Observed, WorkerMessage, push, reduce};
use crate::lab::tc::Rate;
use crate::scenario::Scenario;
use crate::workload::digits::TrainerError;

/// Why a run in virtual time is not possible, or ended.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// Something that virtual time has not.
    #[error("{key}: virtual time has no {what}; leave it out, or use --level live")]
    Unsupported {
        /// The key of the scenario.
        key: &'static str,
        /// What it asks for.
        what: &'static str,
    },
    /// Something that virtual time needs.
    #[error("{key}: virtual time needs {what}; give it, or use --level live")]
    Missing {
        /// The key of the scenario.
        key: &'static str,
        /// What it says.
        what: &'static str,
    },
    /// A table cannot be so.
    #[error("the table: {0}")]
    Table(String),
    /// A box cannot be so.
    #[error("a box of the scenario: {0}")]
    Config(Problem),
    /// The initial model could not be made.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// A recording could not be written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A file could not be written.
    #[error("writing {path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A signal ended it.
    #[error("the run was interrupted")]
    Interrupted,
}

/// The clock of a run in virtual time, when it has ended.
#[derive(Debug)]
pub struct VirtualClock {
    /// How long the run took.
    pub virtual_ns: u64,
    /// Events that happened.
    pub events: u64,
    /// Hash of all frames, events and messages with their times.
    pub fingerprint: String,
}

/// Refuses what virtual time has not, by the key that asks for it.
///
/// # Errors
/// [`PacketError::Unsupported`].
pub fn check_virtual_time(scenario: &Scenario) -> Result<(), PacketError> {
    if !scenario.background.is_empty() {
        return Err(PacketError::Unsupported { key: "background", what: "traffic of others" });
    }
    Ok(())
}

impl VirtualClock {
    pub(super) fn new(ended_at: Nanos, events: u64, fingerprint: Fingerprint) -> Self {
        let fingerprint = format!("{:016x}{:016x}", fingerprint.frames, fingerprint.events);
        Self { virtual_ns: ended_at.0, events, fingerprint }
    }
}

/// What the network does to the frames of workers.
pub(super) fn fault_rates(scenario: &Scenario) -> FaultRates {
    let faults = &scenario.faults;
    FaultRates {
        loss: faults.loss,
        duplicate: faults.duplicate,
        reorder: faults.reorder,
        corrupt: faults.corrupt,
        delay: 0.0,
    }
}

/// The link of a host.
pub(super) fn host_link(scenario: &Scenario, name: &str) -> HostLink {
    let lab = &scenario.lab;
    HostLink {
        rates: bytes_per_sec(lab.rates(name)),
        delay: Nanos(u64::try_from(lab.delay(name).as_nanos()).unwrap_or(u64::MAX)),
        rack: lab.racks.iter().position(|rack| rack.hosts.iter().any(|host| host == name)),
    }
}

pub(super) fn bytes_per_sec(rates: [Option<Rate>; 2]) -> [Option<u64>; 2] {
    rates.map(|rate| rate.map(Rate::bytes_per_sec))
}

/// An Ethernet address that no other host has.
pub(super) fn mac(kind: u8, index: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, kind, u8::try_from(index).unwrap_or(u8::MAX)])
}

/// Runs a plan in virtual time. `progress` sees messages of workers; `interrupted` is asked now and
/// then.
///
/// # Errors
/// [`PacketError`].
pub fn run_in_virtual_time(
    scenario: &Scenario,
    plan: &Plan,
    seed: u64,
    directory: &Path,
    progress: &mut dyn FnMut(u8, &WorkerMessage),
    interrupted: &dyn Fn() -> bool,
) -> Result<(Observed, VirtualClock), PacketError> {
    let run = if scenario.push.is_some() { push::packet::run } else { reduce::packet::run };
    run(scenario, plan, seed, directory, progress, interrupted)
}

/// How long a node is away that is killed and started again.
pub(super) const RESTART_PAUSE: Nanos = Nanos::from_millis(100);
/// Events between two looks for a signal.
pub(super) const LOOK_EVERY: u32 = 4_096;
