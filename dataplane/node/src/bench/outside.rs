//! A bench's surroundings: EAL, the device, the clocks, the stop flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use weft_engine::table::Table;
use weft_io::Port;
use weft_kernel::Kernels;
use weft_wire::Nanos;

use super::frames::Frames;
use super::{BenchError, Measurement, generate, replay};
use crate::config::{BenchMode, Io, Settings};
use crate::node::{NodeError, Options};
use crate::{dpdk, environment};

pub(super) fn run(settings: &Settings, options: Options) -> Result<Measurement, NodeError> {
    let config = &settings.config;
    let bench = config.bench.as_ref().ok_or(BenchError::Unsupported)?;
    let duration =
        Duration::try_from_secs_f64(bench.seconds).map_err(|_| BenchError::Unsupported)?;
    let one_row = settings.table.rows.len() == 1 && settings.table.rows[0].parent.is_none();
    if !one_row || config.lcores.shards != 1 || duration.is_zero() || config.port.io != Io::Dpdk {
        return Err(BenchError::Unsupported.into());
    }
    let seed = match config.node.seed {
        Some(seed) => seed,
        None => environment::random_seed().map_err(NodeError::Seed)?,
    };
    let mut table = settings.table.clone();
    let frames = Frames::new(&table, &table.rows[0], bench.frames, seed);
    if let Some(path) = &bench.pcap {
        frames.write(path)?;
    }
    let (eal, mut queues) = dpdk::open(config, options.eal_args)?;
    let port = queues.remove(0);
    table.local.mac = config.port.mac.unwrap_or_else(|| port.info().mac);
    let table = Table::new(table).expect("it was judged when the configuration was read");
    let _lcore = eal.register_lcore(config.lcores.cpus.first().copied())?;
    let outside = Process { origin: Instant::now(), stop: options.stop };
    let run = replay::Settings { duration, seed, check_every: bench.check_every };
    let measurement = match bench.mode {
        BenchMode::Replay => replay::run(port, &table, &frames, run, Kernels::detect(), &outside)?,
        BenchMode::Generate => generate::run(port, &table, &frames, run, false, &outside)?,
        BenchMode::Echo => generate::run(port, &table, &frames, run, true, &outside)?,
    };
    Ok(measurement)
}

struct Process {
    origin: Instant,
    stop: Arc<AtomicBool>,
}

impl replay::Outside for Process {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn cpu(&self) -> Duration {
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn mark(&self, event: &str) {
        eprintln!("weft-node bench: {event}");
    }

    fn wait_to_end(&self) {
        let begun = Instant::now();
        while !self.is_stopped() && begun.elapsed() < LINGER_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// How long a generator waits for its signal.
const LINGER_MAX: Duration = Duration::from_secs(30);
