//! A push run in one process: the server and the workers are threads, frames travel through rings.
//! No controller and no aggregators: updates are committed in the order in which they arrive.
//!
//! The same engines, client and trainer as over a network; what is missing is the network.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use weft_config::Problem;
use weft_engine::role::model::ModelConfigError;
use weft_engine::role::server::Server;
use weft_io::Port;
use weft_io::memory::{self, MemoryPort};
use weft_kernel::Kernels;
use weft_lane::{RoleLane, Settings};
use weft_node::agent::EventLines;
use weft_wire::JobId;

use super::log::LogLine;
use super::message::PushMessage;
use super::plan::{PushPlan, model_path};
use super::processes::PushObserved;
use super::until::Until;
use super::worker::train_over;
use crate::run::{BoxCounters, breathe_until, monotonic_ns};
use crate::scenario::{SERVER, Scenario};
use crate::workload::digits::{Trainer, TrainerError, model_bytes};

/// Frames in each ring.
const RING_FRAMES: usize = 4096;

/// Why a run in memory is not possible.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// What a single process cannot do.
    #[error(
        "--io memory has no controller, no aggregators, no replica and no restarts or rate steps: add --direct, \
         or use --io udp"
    )]
    Unsupported,
    /// The scenario does not fit a configuration.
    #[error("the server: {0}")]
    Config(#[from] Problem),
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

/// Runs a scenario without a controller in this process. `progress` sees every message.
///
/// # Errors
/// [`MemoryError`] when the scenario needs more than one process.
pub fn run_push_in_memory(
    scenario: &Scenario,
    plan: &PushPlan,
    seed: u64,
    directory: &Path,
    progress: &mut dyn FnMut(u8, &PushMessage),
) -> Result<PushObserved, MemoryError> {
    let push = plan.workers[0].push();
    let plain = !push.controller && push.aggregators == 0 && !push.has_replica();
    let dies = !scenario.restart.is_empty() || !scenario.crash.is_empty();
    if !plain || dies || !scenario.rate_step.is_empty() {
        return Err(MemoryError::Unsupported);
    }
    let workers = plan.workers.iter().map(|worker| format!("w{}", worker.rank));
    let names: Vec<String> = std::iter::once(SERVER.to_owned()).chain(workers).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut ports = memory::hub(RING_FRAMES, usize::from(plan.workers[0].mtu), &names);
    let port = ports.remove(0);
    let engine = server(scenario, plan, seed, &port)?;
    let lines = EventLines::new(&plan.boxes[0].config);
    let stop = AtomicBool::new(false);
    let mut until = Until::new(push, &scenario.job);
    let end = AtomicU64::new(plan.workers[0].last_version());
    let (sender, receiver) = mpsc::channel();
    let mut observed = PushObserved::default();
    let served = thread::scope(|scope| {
        let lane = scope.spawn(|| serve(port, engine, lines, &stop));
        for (plan, port) in plan.workers.iter().zip(ports) {
            let (sender, end) = (sender.clone(), &end);
            scope.spawn(move || {
                // The receiver outlives every worker; a failed send cannot happen.
                let mut say = |message| drop(sender.send((plan.rank, message)));
                train_over(plan, directory, end, port, &mut say);
            });
        }
        drop(sender);
        for (rank, message) in receiver {
            progress(rank, &message);
            if let Some(version) = until.note(&message) {
                end.store(version, Ordering::Relaxed);
            }
            take(&mut observed, rank, message);
        }
        stop.store(true, Ordering::Relaxed);
        lane.join().expect("the lane does not panic")
    });
    std::fs::write(model_path(directory, SERVER), model_bytes(&served.model))?;
    observed.reached = until.reached();
    observed.logs.push((SERVER.to_owned(), served.log));
    observed.boxes.push((SERVER.to_owned(), served.counters));
    Ok(observed)
}

fn take(observed: &mut PushObserved, rank: u8, message: PushMessage) {
    match message {
        PushMessage::Joined { at_ns } => observed.joined.push((at_ns, rank)),
        PushMessage::Measured { .. } => {}
        PushMessage::Update(update) => observed.updates.push((rank, 0, update)),
        PushMessage::Done(summary) => observed.summaries.push((rank, *summary)),
        PushMessage::Failed { at_ns, error } => observed.failures.push((at_ns, rank, error)),
    }
}

fn server(
    scenario: &Scenario,
    plan: &PushPlan,
    seed: u64,
    port: &MemoryPort,
) -> Result<Server, MemoryError> {
    let job = &scenario.job;
    let trainer = Trainer::new(0, usize::from(job.workers), seed, &job.trainer())?;
    let mut config = plan.boxes[0].config.clone();
    // Here is no disk.
    config.server.iter_mut().for_each(|section| section.state_dir = None);
    let mut settings = Settings::new(config)?;
    settings.servers.iter_mut().for_each(|job| job.initial = trainer.parameters().to_vec());
    let table = settings.table_at(port.info().mac);
    let (local, mtu) = (table.config().local, table.config().mtu);
    Server::new(local, mtu, &settings.servers, seed ^ 0xb0c5, Kernels::detect())
        .map_err(|(_, error)| MemoryError::Server(error))
}

/// What the server leaves.
struct Served {
    model: Vec<f32>,
    log: Vec<LogLine>,
    counters: BoxCounters,
}

fn serve(port: MemoryPort, engine: Server, mut lines: EventLines, stop: &AtomicBool) -> Served {
    let mut lane = RoleLane::new(port, engine);
    let mut log = Vec::new();
    breathe_until(stop, &mut lane, |server| {
        while let Some((job, event)) = server.poll_event() {
            log.push(LogLine::of(lines.event(monotonic_ns(), job, &event, 0)));
        }
    });
    let stats = lane.port().stats();
    let view = lane.engine().model(JobId(0));
    Served {
        model: view.map(|view| view.weights.to_vec()).unwrap_or_default(),
        log,
        counters: BoxCounters {
            rx_packets: stats.rx_packets,
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            port_losses: stats.rx_missed + stats.rx_nombuf + lane.stats().tx_dropped,
            ..BoxCounters::default()
        },
    }
}
