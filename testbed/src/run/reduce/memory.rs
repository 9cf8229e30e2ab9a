//! The aggregator of an allreduce in one process.

use weft_io::Port as _;
use weft_io::memory::MemoryPort;
use weft_kernel::Kernels;
use weft_lane::{AggregatorLane, Settings};

use crate::run::memory::{MemoryError, Serve, Served, breathe_until, port_counters};
use crate::run::plan::BoxPlan;

pub(in crate::run) fn aggregator(
    planned: &BoxPlan,
    seed: u64,
    port: MemoryPort,
) -> Result<Serve, MemoryError> {
    let settings = Settings::new(planned.config.clone())
        .map_err(|problem| MemoryError::Config(planned.name.clone(), problem))?;
    let table = settings.table_at(port.info().mac);
    let engine = settings.aggregator(&table, 0, seed ^ 0xb0c5, Kernels::detect());
    Ok(Box::new(move |stop| {
        let mut lane = AggregatorLane::new(port, engine);
        breathe_until(stop, &mut lane, |_| ());
        let mut counters = port_counters(&lane);
        for (_, job) in lane.engine().jobs() {
            counters.contributions_added += job.contributions_added;
            counters.chunks_completed += job.chunks_completed;
            counters.duplicates += job.duplicates;
        }
        Served { counters, ..Served::default() }
    }))
}
