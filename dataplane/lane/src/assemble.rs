//! Engines of what a configuration says.
//!
//! Decides nothing that the configuration leaves open: what it names is judged by the engines'
//! crate. Servers and replicas are made by [`Server::new`](weft_engine::role::server::Server::new)
//! and [`Replica::new`](weft_engine::role::replica::Replica::new) alone.

use weft_engine::admit::StrangersQuota;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::gather::{Gather, PushConfig};
use weft_engine::table::{Table, TableError};
use weft_kernel::Kernels;
use weft_wire::Nanos;

/// Makes lane `lane` of an aggregator that reduces the rows of `table` and gathers `pushes`. Takes
/// all memory that it will ever use. `seed` must differ from start to start.
///
/// # Errors
/// [`TableError`], where a push job cannot be.
pub fn aggregator(
    table: &Table,
    pushes: &[PushConfig],
    strangers: StrangersQuota,
    lane: u16,
    seed: u64,
    kernels: &'static Kernels,
) -> Result<Aggregator, TableError> {
    let engine = Aggregator::new(table, lane, seed, kernels).with_strangers(strangers);
    if pushes.is_empty() {
        return Ok(engine);
    }
    let config = table.config();
    // What reduces and what gathers must not draw the same numbers.
    let gather = Gather::new(config.local, config.mtu, pushes, !seed, Nanos(0), kernels)?;
    Ok(engine.with_pushes(gather))
}
