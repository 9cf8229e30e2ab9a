//! An allreduce in virtual time, on the simulated network of `weft_sim::allreduce`.

mod trainee;

use std::path::Path;

use weft_lane::Settings;
use weft_sim::allreduce::Ended;
use weft_sim::allreduce::node::BoxNode;
use weft_sim::allreduce::scenario::Action;
use weft_sim::allreduce::site::{Site, run_members};
use weft_sim::world::Cue;
use weft_wire::Nanos;

use crate::run::packet::{
    LOOK_EVERY, PacketError, RESTART_PAUSE, VirtualClock, fault_rates, host_link, mac,
};
use crate::run::plan::Plan;
use crate::run::{BoxCounters, Observed, WorkerMessage};
use crate::scenario::{RestartSection, Scenario};
use trainee::Trainee;

/// Runs a plan in virtual time. `progress` sees every message of worker 0.
pub(in crate::run) fn run(
    scenario: &Scenario,
    plan: &Plan,
    seed: u64,
    directory: &Path,
    progress: &mut dyn FnMut(u8, &WorkerMessage),
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
    let rank_0 = messages.iter().filter(|(_, rank, _)| *rank == 0);
    let rounds: Vec<u64> = rank_0
        .filter(|(.., message)| matches!(message, WorkerMessage::Round(_)))
        .map(|(at, ..)| at.0)
        .collect();
    let restarts = scenario.restart.iter();
    observed.restarts = restarts
        .filter_map(|r| Some((*rounds.get(r.after_round as usize)?, r.name.clone())))
        .collect();
    for (_, rank, message) in messages {
        observed.take(u8::try_from(rank).expect("a rank is below 64"), 0, message);
    }
    if !ended.violations.is_empty() {
        observed.ended = Some(ended.violations.join("; "));
    }
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

/// Faults of the network.
const FAULTS: [&str; 4] = ["loss", "duplicate", "reorder", "corrupt"];
