//! A bench's surroundings: EAL, the device, the clocks, the stop flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use weft_config::node::{BenchMode, BenchSection, LeaseName};
use weft_engine::table::Table;
use weft_kernel::Kernels;
use weft_lane::Settings;
use weft_wire::Nanos;

use super::frames::{Frames, Shape};
use super::memory::{Endless, MemoryDevice};
use super::replay::Limit;
use super::{BenchError, Measurement, forged, replay, whole};
use weft_node::environment;
use weft_node::error::NodeError;

/// Measures what `[bench]` says, until `stop` is set at most. `eal_args` replace those that the
/// configuration gives.
///
/// # Errors
/// [`BenchError`].
pub fn run(
    settings: &Settings,
    eal_args: Option<Vec<String>>,
    stop: Arc<AtomicBool>,
) -> Result<Measurement, BenchError> {
    let config = &settings.config;
    let bench = config.bench.as_ref().ok_or(BenchError::NoBench)?;
    let rows = &settings.table.rows;
    let members = rows.first().map_or(0, |row| row.members.len());
    let fits = rows
        .iter()
        .zip(0..)
        .all(|(row, job)| row.parent.is_none() && row.job.0 == job && row.members.len() == members);
    let one_row = bench.lease == LeaseName::Whole
        || matches!(bench.mode, BenchMode::Generate | BenchMode::Echo);
    let one_lane = one_row || bench.mode == BenchMode::Loop;
    let is_one = rows.len() == 1 && bench.order == 1 && !bench.vlan;
    let is_one_lane = config.lcores.shards == 1;
    if rows.is_empty() || !fits || (one_row && !is_one) || (one_lane && !is_one_lane) {
        return Err(BenchError::Unsupported);
    }
    let seed = match config.node.seed {
        Some(seed) => seed,
        None => environment::random_seed().map_err(NodeError::Seed)?,
    };
    if matches!(bench.mode, BenchMode::Quota | BenchMode::Forged) {
        let time =
            Duration::try_from_secs_f64(bench.seconds).map_err(|_| BenchError::Unsupported)?;
        let table = Table::new(settings.table.clone()).expect("it was judged when it was read");
        let run = replay::Settings { limit: Limit::Time(time), seed, check_every: 1 };
        let outside = Process { origin: Instant::now(), stop };
        let floods = bench.mode == BenchMode::Forged;
        return forged::run(&table, run, floods, Kernels::detect(), &outside);
    }
    let shape = Shape {
        count: bench.frames,
        order: bench.order,
        credits: bench.lease == LeaseName::Whole,
        vlan: bench.vlan,
        seed: u64::from(bench.frames),
    };
    let frames = Frames::new(&settings.table, shape);
    let kernels = Kernels::detect();
    let check_every = bench.check_every;
    if bench.mode == BenchMode::Loop {
        let table = Table::new(settings.table.clone()).expect("it was judged when it was read");
        let run = replay::Settings { limit: Limit::Packets(bench.packets), seed, check_every };
        let outside = Process { origin: Instant::now(), stop };
        let port = MemoryDevice::new(Endless::new(&frames));
        return match bench.lease {
            LeaseName::Windowed => replay::run(port, &table, &frames, run, kernels, &outside),
            LeaseName::Whole => whole::run(port, &table, &frames, run, kernels, &outside),
        };
    }
    on_device(settings, (eal_args, stop), bench, &frames, seed)
}

#[cfg(not(feature = "dpdk"))]
fn on_device(
    _: &Settings,
    _: (Option<Vec<String>>, Arc<AtomicBool>),
    _: &BenchSection,
    _: &Frames,
    _: u64,
) -> Result<Measurement, BenchError> {
    Err(NodeError::NoDpdk.into())
}

#[cfg(feature = "dpdk")]
fn on_device(
    settings: &Settings,
    (eal_args, stop): (Option<Vec<String>>, Arc<AtomicBool>),
    bench: &BenchSection,
    frames: &Frames,
    seed: u64,
) -> Result<Measurement, BenchError> {
    use super::{generate, lanes};
    use weft_io::Port;
    use weft_lane::Ring;
    use weft_node::dpdk;

    let config = &settings.config;
    let time = Duration::try_from_secs_f64(bench.seconds).map_err(|_| BenchError::Unsupported)?;
    if time.is_zero() || config.port.io != weft_config::node::Io::Dpdk {
        return Err(BenchError::Unsupported);
    }
    if let Some(path) = &bench.pcap {
        frames.write(path.as_ref())?;
    }
    let (eal, device) = dpdk::start(config, eal_args)?;
    let mut queues = dpdk::open(&eal, &device, 1)?;
    let port = queues.remove(0);
    let mut table = settings.table.clone();
    table.local.mac = config.port.mac.unwrap_or_else(|| port.info().mac);
    let table = Table::new(table).expect("it was judged when the configuration was read");
    let outside = Process { origin: Instant::now(), stop };
    let run = replay::Settings { limit: Limit::Time(time), seed, check_every: bench.check_every };
    let cpu = |lane: usize| config.lcores.cpus.get(lane).copied();
    if config.lcores.shards > 1 {
        let ring_frames = config.lcores.ring_frames;
        let relay = Arc::new(Ring::new(ring_frames));
        let sender = |_| dpdk::relay_port(&eal, &device, &relay, port.info());
        let senders = (1..config.lcores.shards).map(sender).collect::<Result<_, _>>()?;
        let map = &settings.lanes;
        let ground = lanes::Ground { port, senders, relay: Arc::clone(&relay), map, ring_frames };
        let handle = (*eal).clone();
        let prepare = |lane| {
            handle.register_lcore(cpu(lane)).map_err(|error| BenchError::Lane(error.to_string()))
        };
        let kernels = Kernels::detect();
        return lanes::run(ground, &table, frames, run, kernels, &outside, prepare);
    }
    let _lcore = eal.register_lcore(cpu(0)).map_err(NodeError::from)?;
    match bench.mode {
        BenchMode::Generate => generate::run(port, &table, frames, run, time, false, &outside),
        BenchMode::Echo => generate::run(port, &table, frames, run, time, true, &outside),
        _ if bench.lease == LeaseName::Whole => {
            whole::run(port, &table, frames, run, Kernels::detect(), &outside)
        }
        _ => replay::run(port, &table, frames, run, Kernels::detect(), &outside),
    }
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
        weft_process::say!("weft-bench: {event}");
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
