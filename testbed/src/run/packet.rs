//! A run in virtual time: the engines with the configurations that the programs would have, and the
//! workers' training, on a simulated network. It leaves what the programs leave, so that the same
//! proof and report are made of it. No time passes but on links and in the engines' timers.

mod trainee;

use std::path::{Path, PathBuf};

use weft_config::Problem;
use weft_io::fault::FaultRates;
use weft_lane::Settings;
use weft_sim::allreduce::Ended;
use weft_sim::allreduce::node::BoxNode;
use weft_sim::allreduce::scenario::Action;
use weft_sim::allreduce::site::{Site, run_members};
use weft_sim::links::HostLink;
use weft_sim::transcript::Fingerprint;
use weft_sim::world::Cue;
use weft_wire::{MacAddr, Nanos};

use super::Observed;
use super::message::{BoxCounters, WorkerMessage};
use super::plan::Plan;
use super::recording::RecordingError;
use crate::lab::tc::Rate;
use crate::scenario::{RestartSection, Scenario};
use crate::workload::digits::TrainerError;
use trainee::Trainee;

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

/// Runs a plan in virtual time. `progress` sees every message of worker 0; `interrupted` is asked
/// now and then.
///
/// # Errors
/// [`PacketError`].
pub fn run_in_virtual_time(
    scenario: &Scenario,
    plan: &Plan,
    seed: u64,
    directory: &Path,
    progress: &mut dyn FnMut(usize, &WorkerMessage),
    interrupted: &dyn Fn() -> bool,
) -> Result<(Observed, VirtualClock), PacketError> {
    let boxes = plan.boxes.iter().enumerate().map(|(index, planned)| {
        let settings = Settings::new(planned.config.clone()).map_err(PacketError::Config)?;
        Ok((settings.table_at(mac(0, index)), settings.lanes))
    });
    let names = plan.boxes.iter().map(|planned| planned.name.clone());
    let hosts = names.chain(plan.workers.iter().map(|worker| format!("w{}", worker.rank)));
    let restart = |restart: &RestartSection| {
        let index = plan.boxes.iter().position(|planned| planned.name == restart.name)?;
        let action = Action::RestartBox { index, pause: RESTART_PAUSE };
        Some(Cue { after: u64::from(restart.after_round) + 1, delay: Nanos(0), action })
    };
    let site = Site {
        seed,
        boxes: boxes.collect::<Result<_, PacketError>>()?,
        links: hosts.map(|name| host_link(scenario, &name)).collect(),
        rates: fault_rates(scenario),
        cues: scenario.restart.iter().filter_map(restart).collect(),
    };
    let members = plan.workers.iter().map(|worker| Trainee::new(worker, directory));
    let (mut looks, mut shown, mut is_interrupted) = (0_u32, 0, false);
    let mut is_over = |_: Nanos, members: &[Trainee<'_>]| {
        for (_, message) in &members[0].messages()[shown..] {
            progress(0, message);
        }
        shown = members[0].messages().len();
        looks = looks.wrapping_add(1);
        is_interrupted = is_interrupted || looks.is_multiple_of(LOOK_EVERY) && interrupted();
        is_interrupted
    };
    let members = members.collect::<Result<Vec<_>, PacketError>>()?;
    let ended = run_members(&site, members, &mut is_over);
    if is_interrupted {
        return Err(PacketError::Interrupted);
    }
    let clock = VirtualClock::new(ended.ended_at, ended.events, ended.fingerprint);
    Ok((observed(scenario, plan, ended), clock))
}

/// What a live run would have left.
fn observed(scenario: &Scenario, plan: &Plan, ended: Ended<Trainee<'_>>) -> Observed {
    let mut observed = Observed::default();
    let box_count = ended.boxes.len();
    let faults = ended.coverage.all("fault").filter(|(name, _)| FAULTS.contains(name));
    let mut faults_fired: u64 = faults.map(|(_, count)| count).sum();
    let mut messages = Vec::new();
    for (rank, member) in ended.members.into_iter().enumerate() {
        let (rx_bytes, tx_bytes) = ended.links.carried(box_count + rank);
        for (at, mut message) in member.into_messages() {
            if let WorkerMessage::Done(summary) = &mut message {
                (summary.rx_bytes, summary.tx_bytes) = (rx_bytes, tx_bytes);
                // The network's, whoever's frames they hit.
                summary.faults_fired = std::mem::take(&mut faults_fired);
            }
            messages.push((at, rank, message));
        }
    }
    messages.sort_by_key(|(at, rank, _)| (*at, *rank));
    if !ended.violations.is_empty() {
        let error = ended.violations.join("; ");
        let failed = WorkerMessage::Failed { at_ns: ended.ended_at.0, error };
        messages.push((ended.ended_at, 0, failed));
    }
    let rank_0 = messages.iter().filter(|(_, rank, _)| *rank == 0);
    let rounds: Vec<u64> = rank_0
        .filter(|(.., message)| matches!(message, WorkerMessage::Round(_)))
        .map(|(at, ..)| at.0)
        .collect();
    let restarts = scenario.restart.iter();
    observed.restarts = restarts
        .filter_map(|r| Some((*rounds.get(r.after_round as usize)?, r.name.clone())))
        .collect();
    observed.messages = messages.into_iter().map(|(_, rank, message)| (rank, message)).collect();
    let names = plan.boxes.iter().map(|planned| planned.name.clone());
    let counters = ended.boxes.iter().enumerate().map(|(index, node)| {
        let (rx_bytes, tx_bytes) = ended.links.carried(index);
        BoxCounters { rx_bytes, tx_bytes, ..counters(node) }
    });
    observed.boxes = names.zip(counters).collect();
    observed
}

fn counters(node: &BoxNode) -> BoxCounters {
    let mut counters = BoxCounters::default();
    for (_, job) in node.lanes().flat_map(|lane| lane.jobs()) {
        counters.contributions_added += job.contributions_added;
        counters.chunks_completed += job.chunks_completed;
        counters.duplicates += job.duplicates;
    }
    counters
}

/// How long a node is away that is killed and started again.
pub(super) const RESTART_PAUSE: Nanos = Nanos::from_millis(100);
/// Events between two looks for a signal.
pub(super) const LOOK_EVERY: u32 = 4_096;
/// Of the network.
const FAULTS: [&str; 4] = ["loss", "duplicate", "reorder", "corrupt"];
