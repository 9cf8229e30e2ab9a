//! A run in one process: the box and the workers are threads, frames travel through rings. A push
//! has no controller and no aggregators here: updates are committed in the order in which they
//! arrive.
//!
//! The same engines, client and trainer as over a network; what is missing is the network.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use weft_config::Problem;
use weft_engine::role::model::ModelConfigError;
use weft_io::Port;
use weft_io::memory::{self, MemoryPort};
use weft_lane::{LaneEngine, RoleLane};
use weft_wire::Nanos;

use super::plan::{Plan, model_path};
use super::push::LogLine;
use super::watch::Watch;
use super::{BoxCounters, Observed, WorkerMessage, push, reduce, worker};
use crate::scenario::Scenario;
use crate::workload::digits::{TrainerError, model_bytes};

/// Frames in each ring.
const RING_FRAMES: usize = 4096;
/// How long an idle box sleeps.
const IDLE_NS: u64 = 50_000;

/// Why a run in memory is not possible.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The scenario does not fit a configuration.
    #[error("{0}: {1}")]
    Config(String, Problem),
    /// The scenario does not fit a server.
    #[error("the server: {0}")]
    Server(ModelConfigError),
    /// The initial model could not be made.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// The final model could not be written.
    #[error("writing the final model: {0}")]
    Io(#[from] std::io::Error),
}

/// A box that serves over a port of memory until it is told to stop.
pub(super) type Serve = Box<dyn FnOnce(&AtomicBool) -> Served + Send>;

/// What a box leaves.
#[derive(Default)]
pub(super) struct Served {
    /// A server's model.
    pub(super) model: Option<Vec<f32>>,
    pub(super) log: Vec<LogLine>,
    pub(super) counters: BoxCounters,
}

/// Runs a scenario with one box in this process. `progress` sees every worker message.
///
/// # Errors
/// [`MemoryError`] when the scenario does not fit a box.
pub fn run_in_memory(
    scenario: &Scenario,
    plan: &Plan,
    seed: u64,
    directory: &Path,
    progress: &mut dyn FnMut(u8, &WorkerMessage),
) -> Result<Observed, MemoryError> {
    let planned = &plan.boxes[0];
    let workers = plan.workers.iter().map(|worker| format!("w{}", worker.rank));
    let names: Vec<String> = std::iter::once(planned.name.clone()).chain(workers).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut ports = memory::hub(RING_FRAMES, usize::from(plan.workers[0].mtu), &names);
    let port = ports.remove(0);
    let serve = match &scenario.push {
        None => reduce::memory::aggregator(planned, seed, port)?,
        Some(_) => push::memory::server(scenario, planned, seed, port)?,
    };
    let stop = AtomicBool::new(false);
    let patience = scenario.job.member_timeout();
    let mut watch = Watch::new(scenario, plan, patience, Instant::now());
    let end = AtomicU64::new(plan.workers[0].last_version());
    let (sender, receiver) = mpsc::channel();
    let mut observed = Observed::default();
    let served = thread::scope(|scope| {
        let lane = scope.spawn(|| serve(&stop));
        for (plan, port) in plan.workers.iter().zip(ports) {
            let (sender, end) = (sender.clone(), &end);
            scope.spawn(move || {
                // The receiver outlives every worker; a failed send cannot happen.
                let mut say = |message| drop(sender.send((plan.rank, message)));
                worker::run(plan, directory, end, port, &mut say);
            });
        }
        drop(sender);
        for (rank, message) in receiver {
            progress(rank, &message);
            let noted = watch.note(rank, &message, Instant::now());
            if let Some(version) = noted.end {
                end.store(version, Ordering::Relaxed);
            }
            observed.take(rank, 0, message);
        }
        stop.store(true, Ordering::Relaxed);
        lane.join().expect("the lane does not panic")
    });
    if let Some(model) = served.model {
        std::fs::write(model_path(directory, &planned.name), model_bytes(&model))?;
    }
    observed.reached = watch.reached();
    observed.logs.push((planned.name.clone(), served.log));
    observed.boxes.push((planned.name.clone(), served.counters));
    Ok(observed)
}

/// Serves until it is told to stop; `look` sees the engine after each breath.
pub(crate) fn breathe_until<E: LaneEngine>(
    stop: &AtomicBool,
    lane: &mut RoleLane<MemoryPort, E>,
    mut look: impl FnMut(&mut E),
) {
    let origin = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let received = lane.breathe(now, &mut ());
        look(lane.engine_mut());
        if received == 0 {
            lane.port_mut().wait(IDLE_NS);
        }
    }
}

/// What a lane's port counted.
pub(super) fn port_counters<E: LaneEngine>(lane: &RoleLane<MemoryPort, E>) -> BoxCounters {
    let port = lane.port().stats();
    BoxCounters {
        rx_packets: port.rx_packets,
        rx_bytes: port.rx_bytes,
        tx_bytes: port.tx_bytes,
        port_losses: port.rx_missed + port.rx_nombuf + lane.stats().tx_dropped,
        ..BoxCounters::default()
    }
}
