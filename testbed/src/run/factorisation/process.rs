//! One process of a factorisation: joins the table and has its threads work. It uses nothing of
//! Weft but `weft-client` and a port.

use std::io::BufRead;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use weft_client::keys::{KeyError, KeySession, KeyTicket};
use weft_client::{Config, WorkerPort};
use weft_io::fault::{Fault, member_seed};
use weft_io::nic::NicCounters;

use super::FACTORS;
use super::gate::{Gate, Stopped};
use super::message::{ProcessMessage, TableSummary};
use super::plan::ProcessPlan;
use super::script::{Action, in_calls, script};
use crate::run::worker::fault_config;
use crate::run::{monotonic_ns, process_cpu_ns};
use crate::workload::factorisation::{Entry, Matrix};

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
    let wire = Wire::new(plan.processes[usize::from(plan.node)].ip());
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for thread in 0..threads {
            let (matrix, keys, gate, wire) = (&matrix, &keys, &gate, &wire);
            let work = Work { plan, matrix, keys, gate, wire, say, thread };
            let failure = &failure;
            scope.spawn(move || {
                let Err(why) = work.run(directory) else { return };
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                gate.stop();
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None => {
            let summary = TableSummary::new(&keys.statistics(), process_cpu_ns());
            let (rx_bytes, tx_bytes) = wire.carried();
            Ok(TableSummary { rx_bytes, tx_bytes, ..summary })
        }
        Some(Why::Failed(error)) => Err(error),
        Some(Why::Stopped) => anyhow::bail!("the run was given up before this process was done"),
    }
}

fn connect(plan: &ProcessPlan) -> anyhow::Result<KeySession> {
    let config = plan.config();
    let own = config.processes[usize::from(config.me)];
    let port = WorkerPort::open_to_many(&Config {
        io: config.io,
        mtu: config.mtu,
        offload: config.offload,
        frame_count: config.frame_count,
        ..Config::new(own, config.home)
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
    wire: &'a Wire,
    say: &'a (dyn Fn(ProcessMessage) + Sync),
    thread: u8,
}

impl Work<'_> {
    fn run(&self, directory: &Path) -> Result<(), Why> {
        let section = &self.plan.scenario.factorisation;
        let place = (self.plan.node, self.thread);
        let mut learner = Learner::default();
        let mut begun = Instant::now();
        for action in script(section, self.matrix, place) {
            match action {
                Action::Set(keys) => {
                    let factors: Vec<f32> =
                        keys.iter().flat_map(|key| self.matrix.first_factor(*key)).collect();
                    self.keys.set(&keys, &factors)?;
                }
                Action::Intend(keys, ahead) => {
                    let clock = self.keys.clock() + ahead;
                    self.keys.intend(&keys, clock, clock + 1)?;
                }
                Action::Localize(keys) => self.keys.localize(&keys)?,
                Action::Begin(keys) => learner.coming.push(self.keys.start_localize(&keys)?),
                Action::Learn(entry) => self.learn(entry, &mut learner)?,
                Action::Await => {
                    learner.coming.drain(..).try_for_each(|ticket| ticket.wait().map(drop))?;
                }
                Action::Pass => self.pass()?,
                Action::EpochBegins => {
                    begun = Instant::now();
                    self.wire.begin(self.thread);
                }
                Action::EpochEnds(epoch) if self.thread == 0 => {
                    let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    self.wire.end();
                    (self.say)(ProcessMessage::Epoch { epoch, took_ns });
                }
                Action::EpochEnds(_) => {}
                Action::Keep => self.keep_factors(directory)?,
            }
        }
        Ok(())
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

    fn learn(&self, entry: &Entry, learner: &mut Learner) -> Result<(), Why> {
        let keys = self.matrix.keys(entry);
        let Learner { factors, change, .. } = learner;
        factors.resize(keys.len() * usize::from(self.plan.scenario.factorisation.row_len()), 0.0);
        change.resize(factors.len(), 0.0);
        self.keys.pull(&keys, factors)?;
        self.matrix.descend(entry.value, factors, change);
        Ok(self.keys.push(&keys, change)?)
    }

    /// Writes all factors to the run's directory.
    fn keep_factors(&self, directory: &Path) -> Result<(), Why> {
        let section = &self.plan.scenario.factorisation;
        let keys: Vec<u64> = (0..section.key_count().into()).collect();
        let mut octets = Vec::new();
        for keys in in_calls(&keys) {
            let mut factors = vec![0.0; keys.len() * usize::from(section.row_len())];
            self.keys.pull(&keys, &mut factors)?;
            octets.extend(factors.iter().flat_map(|element: &f32| element.to_le_bytes()));
        }
        let path = directory.join(FACTORS);
        std::fs::write(&path, octets)
            .with_context(|| format!("writing {}", path.display()))
            .map_err(Why::Failed)
    }
}

/// What a thread works with.
#[derive(Default)]
struct Learner {
    coming: Vec<KeyTicket>,
    factors: Vec<f32>,
    change: Vec<f32>,
}

/// Bytes on this process's own link while epochs last; none where it has no link of its own.
struct Wire {
    counters: Option<NicCounters>,
    /// Received and sent, at first and in the end.
    seen: Mutex<[Option<(u64, u64)>; 2]>,
}

impl Wire {
    fn new(ip: IpAddr) -> Self {
        Self { counters: NicCounters::of_link(ip, None), seen: Mutex::default() }
    }

    fn read(&self) -> Option<(u64, u64)> {
        let (received, sent) = self.counters.as_ref()?.read();
        received.zip(sent)
    }

    /// An epoch begins for a thread.
    fn begin(&self, thread: u8) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if thread == 0 && seen[0].is_none() {
            seen[0] = self.read();
        }
    }

    /// An epoch has ended.
    fn end(&self) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)[1] = self.read();
    }

    /// What was received and sent.
    fn carried(&self) -> (u64, u64) {
        let [first, last] = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let ((rx0, tx0), (rx1, tx1)) = (first.unwrap_or_default(), last.unwrap_or_default());
        (rx1.saturating_sub(rx0), tx1.saturating_sub(tx0))
    }
}
