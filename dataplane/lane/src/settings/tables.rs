//! What the sections of tables of rows mean to their homes.

use std::net::SocketAddr;

use weft_config::Problem;
use weft_config::node::{Io, KeysSection, NodeConfig};
use weft_engine::role::keys::{TableConfig, TableError};
use weft_engine::table::JOBS_MAX;
use weft_wire::{JobId, Nanos};

use super::payload_max;

/// A table of rows whose home the box is.
#[derive(Clone, Debug)]
pub struct KeyTable {
    /// The table.
    pub table: TableConfig,
    /// Its processes.
    pub processes: Vec<SocketAddr>,
    /// How long a process may be silent.
    pub death_timeout: Nanos,
}

/// What the sections mean.
pub(super) fn resolve(config: &NodeConfig) -> Result<Vec<KeyTable>, Problem> {
    if config.keys.is_empty() {
        return Ok(Vec::new());
    }
    check_node(config)?;
    let sections = config.keys.iter().enumerate();
    sections.map(|(index, section)| resolve_one(config, index, section)).collect()
}

fn check_node(config: &NodeConfig) -> Result<(), Problem> {
    let is_model = !config.server.is_empty() || !config.replica.is_empty();
    if is_model || config.bench.is_some() || config.port.io == Io::Switch {
        let problem = "are an aggregator's that receives its frames itself: a server, a replica, \
                       a bench or a box behind a switch is no home of rows";
        return Err(Problem::new("keys", problem));
    }
    if config.lcores.shards > 1 {
        return Err(Problem::new("lcores.shards", "must be 1 where there is a [[keys]]"));
    }
    if config.record.is_some() {
        return Err(Problem::new("record", "is not for a box with [[keys]]: record its peers"));
    }
    Ok(())
}

fn resolve_one(
    config: &NodeConfig,
    index: usize,
    section: &KeysSection,
) -> Result<KeyTable, Problem> {
    let refuse = |key: &str, problem: String| Err(Problem::of_entry("keys", index, key, problem));
    let table = TableConfig {
        job: JobId(section.job),
        table: section.table,
        row_len: section.row_len,
        first_key: section.first_key,
        key_count: section.key_count,
        processes: u8::try_from(section.processes.len()).unwrap_or(u8::MAX),
        payload_max: payload_max(config),
        // Its processes have it; a home sends their accesses on, however many.
        in_flight: 1,
    };
    if usize::from(section.job) >= JOBS_MAX {
        return refuse("job", format!("is {}; it must be below {JOBS_MAX}", section.job));
    }
    if let Err(error) = table.check() {
        return refuse(key_of(&error), error.to_string());
    }
    let mut before = config.keys[..index].iter();
    if before.any(|other| (other.job, other.table) == (section.job, section.table)) {
        let (job, table) = (section.job, section.table);
        return refuse("table", format!("job {job} has table {table} already: give it another"));
    }
    for (place, addr) in section.processes.iter().enumerate() {
        if addr.is_ipv4() != config.port.ip.ip.is_ipv4() {
            return refuse("processes", format!("{addr} is not of the family of port.ip"));
        }
        if section.processes[..place].contains(addr) {
            return refuse("processes", format!("{addr} is there twice: each has its own"));
        }
    }
    if section.death_timeout_ms == 0 {
        return refuse("death_timeout_ms", "must be at least 1".to_owned());
    }
    Ok(KeyTable {
        table,
        processes: section.processes.clone(),
        death_timeout: Nanos(section.death_timeout_ms.saturating_mul(1_000_000)),
    })
}

/// The key that a table's error is about.
fn key_of(error: &TableError) -> &'static str {
    match error {
        TableError::Table(_) => "table",
        TableError::NoElements | TableError::RowTooLong { .. } => "row_len",
        TableError::Keys(_) => "key_count",
        TableError::Processes(_) | TableError::Addresses | TableError::InFlight(_) => "processes",
    }
}
