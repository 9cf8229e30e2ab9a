//! The same in virtual time: real engines of processes and home, on hosts where frames, waking up
//! and going through entries take what the scenario's `[costs]` say, and on links of its rate. Each
//! thread has a core of its own, so what is seen is the table and not the machine.
//!
//! | file | does or decides |
//! | --- | --- |
//! | `crew` | all threads of all processes, the gates, what they leave |
//! | `process` | a process and its threads: what each does and waits for |
//! | `call` | a call of many keys, from its begin to its end |

mod call;
mod crew;
mod process;

use std::collections::BTreeMap;

use weft_engine::role::keys::{HomeStats, ProcessStats};
use weft_sim::keys::timed::{self, Costs, Ended, Setup};
use weft_sim::links::HostLink;
use weft_wire::Nanos;
use weft_wire::frame::UdpAddr;

use self::crew::Crew;
use super::live::Seen;
use super::message::TableSummary;
use super::plan::FactorisationPlan;
use crate::lab::tc::Rate;
use crate::run::{PacketError, VirtualClock};
use crate::scenario::{CostsSection, FactorisationScenario, FaultSection};
use crate::workload::factorisation::Matrix;

/// Refuses what virtual time has not, by the key that asks for it; what things take.
///
/// # Errors
/// [`PacketError::Unsupported`].
pub fn check_virtual_time(scenario: &FactorisationScenario) -> Result<CostsSection, PacketError> {
    let refuse = |key, what| Err(PacketError::Unsupported { key, what });
    if !scenario.kill.is_empty() {
        return refuse("kill", "deaths of the home (they are in the simulation of keys)");
    }
    if scenario.faults != FaultSection::default() {
        return refuse("faults", "faults of tables (they are in the simulation of keys)");
    }
    let missing = PacketError::Missing { key: "costs", what: "what things take" };
    scenario.costs.ok_or(missing)
}

/// Runs a plan in virtual time.
///
/// # Errors
/// [`PacketError`].
pub fn run(
    plan: &FactorisationPlan,
    interrupted: &dyn Fn() -> bool,
) -> Result<(Seen, VirtualClock), PacketError> {
    let costs = check_virtual_time(&plan.scenario)?;
    let wrong = |error: &dyn std::fmt::Display| PacketError::Table(error.to_string());
    let mut configs = Vec::new();
    let addrs: Vec<UdpAddr> = plan.processes[0].processes.iter().map(|at| (*at).into()).collect();
    for process in &plan.processes {
        let config = process.config();
        let table = config.check().map_err(|error| wrong(&error))?;
        configs.push(config.of_process(table, &addrs));
    }
    let rate = plan.scenario.lab.rate_mbit.and_then(Rate::from_mbit).map(Rate::bytes_per_sec);
    // A frame passes two links, its sender's and its receiver's.
    let link = HostLink { rates: [rate; 2], delay: Nanos(costs.delay_ns / 2), rack: None };
    let setup = Setup {
        processes: &configs,
        death_timeout: Nanos::from_millis(plan.home.config.keys[0].death_timeout_ms),
        links: &vec![link; configs.len() + 1],
        costs: Costs { frame: Nanos(costs.frame_ns), wake: Nanos(costs.wake_ns) },
        seed: plan.seed,
    };
    let section = &plan.scenario.factorisation;
    let matrix = Matrix::new(section, plan.seed);
    let mut crew = Crew::new(section, &matrix, costs, interrupted);
    let ended = timed::run(&setup, &mut crew).map_err(|error| wrong(&error))?;
    if interrupted() {
        return Err(PacketError::Interrupted);
    }
    let clock = VirtualClock::new(ended.at, ended.events, ended.fingerprint);
    Ok((seen(crew, &ended), clock))
}

fn seen(crew: Crew<'_>, ended: &Ended) -> Seen {
    let mut left = crew.left();
    let summaries = ended.processes.iter().zip(&mut left.summaries).enumerate();
    let summaries = summaries.map(|(node, (process, summary))| {
        count(process.stats(), summary);
        (u8::try_from(node).unwrap_or(u8::MAX), std::mem::take(summary))
    });
    Seen {
        summaries: if left.is_done { summaries.collect() } else { Vec::new() },
        epochs: left.epochs,
        factors: left.factors,
        home: figures(&ended.home),
        problems: left.problems,
        ..Seen::default()
    }
}

fn count(stats: &ProcessStats, summary: &mut TableSummary) {
    summary.local = stats.local + stats.copied;
    summary.remote = stats.remote;
    summary.relocations = stats.rows_taken;
    summary.served = stats.served;
    summary.passed_on = stats.passed_on;
    summary.repeats = stats.repeats;
    summary.lives = stats.lives;
}

/// By the names of a live home's.
fn figures(stats: &HomeStats) -> BTreeMap<String, u64> {
    let named = [
        ("accesses", stats.accesses),
        ("localizes", stats.localizes),
        ("row_acks", stats.row_acks),
        ("waits", stats.waits),
        ("claims", stats.claims),
        ("lives", stats.lives),
        ("deaths", stats.deaths),
    ];
    named.map(|(name, count)| (name.to_owned(), count)).into_iter().collect()
}

#[cfg(test)]
mod tests;
