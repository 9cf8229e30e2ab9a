//! The group table: what a controller or a static file installs, validated once.
//!
//! A [`Table`] is built from plain configuration and is correct by construction: every row's
//! window is a power of two, its chunk fits the MTU, its members are distinct, and the leases of
//! a job fit its quota (DESIGN I6, I8). The data path indexes it and never searches.

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use weft_control::SumOrder;
use weft_wire::frame::{ETHERNET_LEN, Endpoint, IPV4_LEN, IPV6_LEN, UDP_LEN};
use weft_wire::header::{ElementType, HEADER_LEN, Operation};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::quant::is_exponent;
use weft_wire::{JobId, MEMBERS_MAX, Rank};

use crate::steps::handshake_len;

/// Jobs that one box can serve.
pub const JOBS_MAX: usize = 256;
/// Rows that one box can serve.
pub const ROWS_MAX: usize = 1024;
/// Largest window of a lane, in slots.
pub const WINDOW_MAX: usize = 2048;
/// Chunks of one formation of a group; step arithmetic has room above it.
pub const CHUNKS_MAX: u32 = 1 << 31;
/// Lanes of one box.
pub const SHARDS_MAX: usize = 64;

/// A box as its configuration describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct BoxConfig {
    /// Where the box listens.
    pub local: Endpoint,
    /// Lanes, a power of two.
    pub shards: u16,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// The jobs.
    pub jobs: Vec<JobConfig>,
    /// The rows, at most one lease each.
    pub rows: Vec<RowConfig>,
}

/// A job's share of the box.
#[derive(Clone, Debug, PartialEq)]
pub struct JobConfig {
    /// Index on the wire.
    pub job: JobId,
    /// Slots over all lanes that its leases may take (both banks of a slot count once).
    pub slots_max: u32,
    /// Token bucket: bytes of frames per second over all lanes; `None` is unlimited.
    pub rate_bytes_per_sec: Option<u64>,
    /// Token bucket: depth in bytes.
    pub burst_bytes: u64,
}

/// A group as the box serves it.
#[derive(Clone, Debug, PartialEq)]
pub struct RowConfig {
    /// Row index on the wire.
    pub row: u16,
    /// The job that owns it.
    pub job: JobId,
    /// Members by rank.
    pub members: Vec<MemberConfig>,
    /// What an element is.
    pub element_type: ElementType,
    /// How elements combine.
    pub operation: Operation,
    /// Order of floating-point additions.
    pub sum_order: SumOrder,
    /// What happens when an i32 sum does not fit.
    pub overflow: Overflow,
    /// What protects the payload.
    pub integrity: Integrity,
    /// Elements per chunk.
    pub elements: u16,
    /// Slots over all lanes, a power of two and at least one per lane.
    pub window: u16,
    /// Chunks before the group must be formed again.
    pub chunks_max: u32,
    /// Job-fixed exponent; `None`: the members agree on one per chunk.
    pub exponent: Option<i8>,
    /// Contributions in a final sum, over all levels.
    pub fan_in: u32,
    /// Set on a leaf: where its sums go.
    pub parent: Option<ParentConfig>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberConfig {
    /// Its address; the port is its lane 0, lane `i` uses `port + i`.
    pub addr: SocketAddr,
    /// Workers that its contribution stands for: 1, or a leaf's fan-in.
    pub weight: u32,
    /// True for a leaf aggregator, which may rejoin an open lease.
    pub is_box: bool,
}

/// The root of a leaf.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentConfig {
    /// Where the root listens. The Ethernet address may be broadcast until it is learnt.
    pub endpoint: Endpoint,
    /// The row at the root.
    pub row: u16,
    /// This leaf's rank there.
    pub rank: Rank,
    /// UDP port that lane 0 sends up from; lane `i` uses `port + i`.
    pub source_port: u16,
}

/// Why a configuration is refused. `row` and `job` name the entry, `field` the key in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TableError {
    /// What the entry is: `box`, `job` or `row`.
    pub entry: &'static str,
    /// Its index on the wire.
    pub index: u32,
    /// The key.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub problem: &'static str,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: `{}` {}", self.entry, self.index, self.field, self.problem)
    }
}

impl core::error::Error for TableError {}

/// A validated [`BoxConfig`].
#[derive(Clone, Debug)]
pub struct Table {
    config: BoxConfig,
}

impl Table {
    /// Validates a configuration.
    ///
    /// # Errors
    /// [`TableError`] naming the entry, the field and the remedy.
    pub fn new(config: BoxConfig) -> Result<Self, TableError> {
        let of_box = |field, problem| TableError { entry: "box", index: 0, field, problem };
        let shards = usize::from(config.shards);
        if !shards.is_power_of_two() || shards > SHARDS_MAX {
            return Err(of_box("shards", "must be a power of two, at most 64"));
        }
        if config.local.addr.port().checked_add(config.shards).is_none() {
            return Err(of_box("local", "needs a port with room for one port per lane above it"));
        }
        if config.jobs.len() > JOBS_MAX {
            return Err(of_box("jobs", "are more than 256"));
        }
        if config.rows.len() > ROWS_MAX {
            return Err(of_box("rows", "are more than 1024"));
        }
        for (index, job) in config.jobs.iter().enumerate() {
            check_job(job, &config.jobs[..index])?;
        }
        for (index, row) in config.rows.iter().enumerate() {
            check_row(&config, row, &config.rows[..index])?;
        }
        for job in &config.jobs {
            let slots: u64 = config
                .rows
                .iter()
                .filter(|row| row.job == job.job)
                .map(|row| u64::from(row.window))
                .sum();
            if slots > u64::from(job.slots_max) {
                let problem = "is smaller than the windows of the job's rows together";
                return Err(job_error(job, "slots_max", problem));
            }
        }
        Ok(Self { config })
    }

    /// What was validated.
    #[must_use]
    pub fn config(&self) -> &BoxConfig {
        &self.config
    }
}

fn job_error(job: &JobConfig, field: &'static str, problem: &'static str) -> TableError {
    TableError { entry: "job", index: u32::from(job.job.0), field, problem }
}

fn check_job(job: &JobConfig, earlier: &[JobConfig]) -> Result<(), TableError> {
    if usize::from(job.job.0) >= JOBS_MAX {
        return Err(job_error(job, "job", "must be below 256"));
    }
    if earlier.iter().any(|other| other.job == job.job) {
        return Err(job_error(job, "job", "is already taken; give each job its own index"));
    }
    if job.rate_bytes_per_sec == Some(0) {
        return Err(job_error(job, "rate_bytes_per_sec", "must be positive; omit it for no limit"));
    }
    if job.rate_bytes_per_sec.is_some() && job.burst_bytes < 2048 {
        return Err(job_error(job, "burst_bytes", "must hold at least one frame (2048)"));
    }
    Ok(())
}

fn check_row(config: &BoxConfig, row: &RowConfig, earlier: &[RowConfig]) -> Result<(), TableError> {
    let error = |field, problem| {
        Err(TableError { entry: "row", index: u32::from(row.row), field, problem })
    };
    if usize::from(row.row) >= ROWS_MAX {
        return error("row", "must be below 1024");
    }
    if earlier.iter().any(|other| other.row == row.row) {
        return error("row", "is already taken; give each row its own index");
    }
    if !config.jobs.iter().any(|job| job.job == row.job) {
        return error("job", "names no job of this box");
    }
    if row.members.is_empty() || row.members.len() > MEMBERS_MAX {
        return error("members", "must be 1 to 64; use leaves for more");
    }
    for (rank, member) in row.members.iter().enumerate() {
        if member.weight == 0 {
            return error("weight", "must be at least 1");
        }
        if member.addr.is_ipv4() != config.local.addr.is_ipv4() {
            return error("members", "must be of the box's address family");
        }
        if member.addr.port().checked_add(config.shards).is_none() {
            return error("members", "need a port with room for one port per lane above it");
        }
        if row.members[..rank].iter().any(|other| other.addr == member.addr) {
            return error("members", "must have distinct addresses");
        }
    }
    let window = usize::from(row.window);
    let shards = usize::from(config.shards);
    if !window.is_power_of_two() || window < shards || window / shards > WINDOW_MAX {
        return error("window", "must be a power of two, from 1 to 2048 slots per lane");
    }
    let element_len = row.element_type.len_bytes();
    if element_len == 0 {
        return error("element_type", "must be i32, f32 or bf16");
    }
    let ip_len = if config.local.addr.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
    let room = usize::from(config.mtu).saturating_sub(ip_len + UDP_LEN + HEADER_LEN);
    if row.elements == 0 || usize::from(row.elements) * element_len > room {
        return error("elements", "must be at least 1 and fit one packet of the MTU");
    }
    if handshake_len(u32::from(row.window / config.shards)) > room + HEADER_LEN {
        let problem = "is too large for the MTU: a handshake takes 104 + window / 2 bytes for the \
                       window of a lane; lower it or raise the MTU";
        return error("window", problem);
    }
    match (row.operation, row.element_type) {
        (Operation::Sum, _) | (Operation::Max, ElementType::I32) => {}
        (Operation::Max, _) => return error("operation", "max is for i32 only"),
        (Operation::None, _) => return error("operation", "must be sum or max"),
    }
    if row.sum_order == SumOrder::Rank && row.element_type != ElementType::F32 {
        return error("sum_order", "rank is for f32; integer sums never depend on order");
    }
    if row.exponent.is_some_and(|exponent| !is_exponent(exponent)) {
        return error("exponent", "must be from -126 to 126");
    }
    let weights: u64 = row.members.iter().map(|member| u64::from(member.weight)).sum();
    if u64::from(row.fan_in) < weights || row.fan_in > i32::MAX.unsigned_abs() {
        return error("fan_in", "must be at least the members' weights together");
    }
    if row.chunks_max == 0 || row.chunks_max > CHUNKS_MAX {
        return error("chunks_max", "must be from 1 to 2^31");
    }
    if let Some(parent) = &row.parent {
        if parent.endpoint.addr.is_ipv4() != config.local.addr.is_ipv4() {
            return error("parent", "must be of the box's address family");
        }
        let ports = [parent.source_port, parent.endpoint.addr.port()];
        if ports.iter().any(|port| port.checked_add(config.shards).is_none()) {
            return error("parent", "needs ports with room for one port per lane above them");
        }
    }
    Ok(())
}

/// Largest frame of a box with this MTU, in bytes.
#[must_use]
pub const fn frame_len_max(mtu: u16) -> usize {
    mtu as usize + ETHERNET_LEN
}
