//! A run in one process: boxes and workers are threads, frames travel through rings.
//!
//! The same engines, client and trainer as over a network; what is missing is the network.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use weft_config::Problem;
use weft_engine::role::aggregator::Aggregator;
use weft_io::Port;
use weft_io::memory::{self, MemoryPort};
use weft_kernel::Kernels;
use weft_lane::{AggregatorLane, LaneEngine, RoleLane, Settings};
use weft_wire::Nanos;

use super::plan::Plan;
use super::{BoxCounters, Observed, WorkerMessage, worker};

/// Frames in each ring.
const RING_FRAMES: usize = 4096;
/// How long an idle box sleeps.
const IDLE_NS: u64 = 50_000;

/// Runs a one-level scenario in this process. `progress` sees every worker message.
///
/// # Errors
/// When the scenario does not fit a box: what of its configuration cannot be.
pub fn run_in_memory(
    plan: &Plan,
    seed: u64,
    directory: &Path,
    progress: &mut dyn FnMut(usize, &WorkerMessage),
) -> Result<Observed, Problem> {
    let names: Vec<String> = std::iter::once("a0".to_owned())
        .chain(plan.workers.iter().map(|worker| format!("w{}", worker.rank)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut ports = memory::hub(RING_FRAMES, usize::from(plan.workers[0].mtu), &names);
    let box_port = ports.remove(0);
    let settings = Settings::new(plan.boxes[0].config.clone())?;
    let table = settings.table_at(box_port.info().mac);
    let engine = settings.aggregator(&table, 0, seed ^ 0xb0c5, Kernels::detect());
    let stop = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    let mut observed = Observed::default();
    let counters = thread::scope(|scope| {
        let lane = scope.spawn(|| serve(box_port, engine, &stop));
        for (plan, port) in plan.workers.iter().zip(ports) {
            let sender = sender.clone();
            scope.spawn(move || {
                // The receiver outlives every worker; a failed send cannot happen.
                let mut say = |message| drop(sender.send((usize::from(plan.rank), message)));
                worker::run(plan, directory, port, &mut say);
            });
        }
        drop(sender);
        for (rank, message) in receiver {
            progress(rank, &message);
            observed.messages.push((rank, message));
        }
        stop.store(true, Ordering::Relaxed);
        lane.join().expect("the lane does not panic")
    });
    observed.boxes.push(("a0".to_owned(), counters));
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

fn serve(port: MemoryPort, engine: Aggregator, stop: &AtomicBool) -> BoxCounters {
    let mut lane = AggregatorLane::new(port, engine);
    breathe_until(stop, &mut lane, |_| ());
    let port = lane.port().stats();
    let mut counters = BoxCounters {
        rx_packets: port.rx_packets,
        rx_bytes: port.rx_bytes,
        port_losses: port.rx_missed + port.rx_nombuf + lane.stats().tx_dropped,
        ..BoxCounters::default()
    };
    for (_, job) in lane.engine().jobs() {
        counters.contributions_added += job.contributions_added;
        counters.chunks_completed += job.chunks_completed;
        counters.duplicates += job.duplicates;
    }
    counters
}
