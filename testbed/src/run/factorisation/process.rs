//! One process of a factorisation: joins the table and has its threads work. It uses nothing of
//! Weft but `weft-client` and a port.

use std::io::BufRead;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use weft_client::keys::{KeyError, KeySession};
use weft_io::fault::{Fault, member_seed};
use weft_io::udp::{UdpConfig, UdpPort};

use super::FACTORS;
use super::gate::{Gate, Stopped};
use super::message::{ProcessMessage, TableSummary};
use super::plan::ProcessPlan;
use crate::run::worker::fault_config;
use crate::run::{monotonic_ns, process_cpu_ns};
use crate::scenario::{ModeWord, ModelWord};
use crate::workload::factorisation::Matrix;

/// Runs a process to its end; the last message is `Done` or `Failed`. Each line of `opened` opens a
/// gate.
pub fn run(
    plan: &ProcessPlan,
    directory: &Path,
    opened: impl BufRead + Send + 'static,
    say: &(dyn Fn(ProcessMessage) + Sync),
) {
    match carry_out(plan, directory, opened, say) {
        Ok(summary) => say(ProcessMessage::Done(Box::new(summary))),
        Err(error) => {
            let error = weft_process::say::chain(error.as_ref());
            say(ProcessMessage::Failed { at_ns: monotonic_ns(), error });
        }
    }
}

fn carry_out(
    plan: &ProcessPlan,
    directory: &Path,
    opened: impl BufRead + Send + 'static,
    say: &(dyn Fn(ProcessMessage) + Sync),
) -> anyhow::Result<TableSummary> {
    let threads = plan.scenario.factorisation.threads;
    let matrix = Matrix::new(&plan.scenario.factorisation, plan.seed);
    let keys = connect(plan)?;
    let gate = Arc::new(Gate::new(threads.into()));
    let kept = Arc::clone(&gate);
    // Ends with the process, for it may be waiting for a line for ever.
    thread::spawn(move || {
        opened.lines().map_while(Result::ok).for_each(|_| kept.open());
        kept.stop();
    });
    let failure = std::sync::Mutex::new(None);
    thread::scope(|scope| {
        for thread in 0..threads {
            let work = Work { plan, matrix: &matrix, keys: &keys, gate: &gate, say, thread };
            let (failure, gate) = (&failure, &gate);
            scope.spawn(move || {
                let Err(why) = work.run(directory) else { return };
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                gate.stop();
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None => Ok(TableSummary::new(&keys.statistics(), process_cpu_ns())),
        Some(Why::Failed(error)) => Err(error),
        Some(Why::Stopped) => anyhow::bail!("the run was given up before this process was done"),
    }
}

fn connect(plan: &ProcessPlan) -> anyhow::Result<KeySession> {
    let config = plan.config();
    let port = UdpPort::open(&UdpConfig {
        mtu: usize::from(config.mtu),
        offload: config.offload,
        frame_count: config.frame_count,
        ..UdpConfig::new(config.processes[usize::from(config.me)])
    })
    .context("opening this process's port")?;
    let faults = fault_config(&plan.scenario.faults, 0, member_seed(plan.seed, plan.node));
    Ok(KeySession::over(Fault::new(port, &faults), &config)?)
}

/// Why a thread did not come to its end.
enum Why {
    Stopped,
    Failed(anyhow::Error),
}

impl From<Stopped> for Why {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<KeyError> for Why {
    fn from(error: KeyError) -> Self {
        Self::Failed(error.into())
    }
}

/// A thread's.
struct Work<'a> {
    plan: &'a ProcessPlan,
    matrix: &'a Matrix,
    keys: &'a KeySession,
    gate: &'a Gate,
    say: &'a (dyn Fn(ProcessMessage) + Sync),
    thread: u8,
}

impl Work<'_> {
    fn run(&self, directory: &Path) -> Result<(), Why> {
        let section = &self.plan.scenario.factorisation;
        let worker =
            u32::from(self.plan.node) * u32::from(section.threads) + u32::from(self.thread);
        self.set_first_factors()?;
        self.pass()?;
        for epoch in 0..section.epochs {
            let begun = Instant::now();
            for step in 0..section.workers() {
                self.step(worker, step)?;
                self.pass()?;
            }
            if self.thread == 0 {
                let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                (self.say)(ProcessMessage::Epoch { epoch, took_ns });
            }
        }
        if section.mode.has_copies() {
            // Until no copy is as old as the last step.
            for _ in 0..=section.staleness {
                self.pass()?;
            }
        }
        if worker == 0 {
            self.keep_factors(directory)?;
        }
        // Rows leave with their process: nobody goes before process 0 has them.
        self.pass()
    }

    fn pass(&self) -> Result<(), Why> {
        let mut clock = Ok(0);
        self.gate.pass(|gate| {
            // All threads of this process have done their step.
            if self.plan.scenario.factorisation.mode.has_copies() {
                clock = self.keys.advance_clock();
            }
            (self.say)(ProcessMessage::Arrived { gate });
        })?;
        clock?;
        Ok(())
    }

    /// This thread's share of the keys that are here at first.
    fn set_first_factors(&self) -> Result<(), Why> {
        let section = &self.plan.scenario.factorisation;
        let range = u64::from(section.key_count() / u32::from(section.nodes));
        let first = u64::from(self.plan.node) * range + u64::from(self.thread);
        let end = u64::from(self.plan.node + 1) * range;
        let keys: Vec<u64> = (first..end).step_by(section.threads.into()).collect();
        for keys in keys.chunks(KEYS_OF_CALL) {
            let factors: Vec<f32> =
                keys.iter().flat_map(|key| self.matrix.first_factor(*key)).collect();
            self.keys.set(keys, &factors)?;
        }
        Ok(())
    }

    /// Has the factors come that others have worked on, and goes through the entries.
    fn step(&self, worker: u32, step: u32) -> Result<(), Why> {
        let section = &self.plan.scenario.factorisation;
        let now = self.matrix.keys_of(worker, step);
        let next = self.matrix.keys_of(worker, step + 1);
        let mut coming = Vec::new();
        if section.mode == ModeWord::Managed {
            let clock = self.keys.clock();
            for (keys, clock) in [(&now, clock), (&next, clock + 1)] {
                self.keys.intend(keys, clock, clock + 1)?;
            }
        } else if section.model == ModelWord::Matrix || step == 0 {
            now.chunks(KEYS_OF_CALL).try_for_each(|keys| self.keys.localize(keys))?;
        }
        if section.mode == ModeWord::Relocation && section.model != ModelWord::Matrix {
            // While this step's entries are gone through.
            for keys in next.chunks(KEYS_OF_CALL) {
                coming.push(self.keys.start_localize(keys)?);
            }
        }
        let (mut factors, mut change) = (Vec::new(), Vec::new());
        for entry in self.matrix.entries(worker, step) {
            let keys = self.matrix.keys(entry);
            factors.resize(keys.len() * usize::from(section.row_len()), 0.0);
            change.resize(factors.len(), 0.0);
            self.keys.pull(&keys, &mut factors)?;
            self.matrix.descend(entry.value, &factors, &mut change);
            self.keys.push(&keys, &change)?;
        }
        for ticket in coming {
            ticket.wait()?;
        }
        Ok(())
    }

    /// Writes all factors to the run's directory.
    fn keep_factors(&self, directory: &Path) -> Result<(), Why> {
        let section = &self.plan.scenario.factorisation;
        let keys: Vec<u64> = (0..section.key_count().into()).collect();
        let mut octets = Vec::new();
        for keys in keys.chunks(KEYS_OF_CALL) {
            let mut factors = vec![0.0; keys.len() * usize::from(section.row_len())];
            self.keys.pull(keys, &mut factors)?;
            octets.extend(factors.iter().flat_map(|element: &f32| element.to_le_bytes()));
        }
        let path = directory.join(FACTORS);
        std::fs::write(&path, octets)
            .with_context(|| format!("writing {}", path.display()))
            .map_err(Why::Failed)
    }
}

/// Keys of one call.
const KEYS_OF_CALL: usize = 1000;
