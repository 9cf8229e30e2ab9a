//! The group table: what a controller or a static file installs, judged here alone.
//!
//! Whatever a box holds has passed [`BoxShape::check_job`] or [`BoxShape::check_row`], beside what
//! it held by then: every row's window is a power of two, its chunk fits the MTU, its members are
//! distinct, and the leases of a job fit its quota (DESIGN I6, I8). A [`Table`] is what a static
//! file installs, in its order. The data path indexes it and never searches.

use alloc::vec::Vec;
use core::fmt;

use weft_control::{HoldingError, SumOrder};
pub use weft_control::{JobConfig, MemberConfig, ParentConfig, RowConfig};
use weft_wire::frame::{ETHERNET_LEN, Endpoint, IPV4_LEN, IPV6_LEN, UDP_LEN};
use weft_wire::header::{ElementType, HEADER_LEN, Operation};
use weft_wire::quant::is_exponent;
use weft_wire::{JobId, MEMBERS_MAX};

use crate::steps::handshake_len;

mod arena;

pub use arena::{ArenaConfig, LEASE_BYTES_MAX, slot_bytes};

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

/// What a box is before it serves anybody: what every job and row is held against.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BoxShape {
    /// Where the box listens.
    pub local: Endpoint,
    /// Lanes, a power of two.
    pub shards: u16,
    /// Largest IP packet in bytes.
    pub mtu: u16,
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
    /// The same for a controller.
    pub reason: HoldingError,
}

/// The problem of members of which [`port_of_two_lanes`] names a port.
pub const PORT_OF_TWO_LANES: &str = "have a UDP source port that would be of two lanes";

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: `{}` {}", self.entry, self.index, self.field, self.problem)
    }
}

impl core::error::Error for TableError {}

/// A validated [`BoxConfig`], and what the box keeps free beside it.
#[derive(Clone, Debug)]
pub struct Table {
    config: BoxConfig,
    arena: ArenaConfig,
}

impl Table {
    /// Validates a configuration: installs its jobs and rows one after the other.
    ///
    /// # Errors
    /// [`TableError`] naming the entry, the field and the remedy.
    pub fn new(mut config: BoxConfig) -> Result<Self, TableError> {
        let shape = config.shape();
        shape.check(config.jobs.len(), config.rows.len())?;
        let jobs = core::mem::take(&mut config.jobs);
        let rows = core::mem::take(&mut config.rows);
        for job in jobs {
            shape.check_job(&job, &config.jobs)?;
            config.jobs.push(job);
        }
        for row in rows {
            shape.check_row(&row, &config.jobs, || config.rows.iter())?;
            config.rows.push(row);
        }
        Ok(Self { config, arena: ArenaConfig::default() })
    }

    /// Keeps this much free for what comes at run time.
    ///
    /// # Errors
    /// [`TableError`] of the entry `arena`, where the box would hold more than it can.
    pub fn with_arena(self, arena: ArenaConfig) -> Result<Self, TableError> {
        let error = |field, problem| {
            Err(TableError { entry: "arena", index: 0, field, problem, reason: HoldingError::Full })
        };
        if self.config.jobs.len() + usize::from(arena.jobs) > JOBS_MAX {
            return error("jobs", "are more than 256 together with those of the file");
        }
        if self.config.rows.len() + usize::from(arena.leases) > ROWS_MAX {
            return error("leases", "are more than 1024 together with the rows of the file");
        }
        if arena.lease_bytes > LEASE_BYTES_MAX {
            return error("lease_bytes", "must be at most 2^32: no window takes more");
        }
        Ok(Self { arena, ..self })
    }

    /// What was validated.
    #[must_use]
    pub fn config(&self) -> &BoxConfig {
        &self.config
    }

    /// What is kept free.
    #[must_use]
    pub fn arena(&self) -> ArenaConfig {
        self.arena
    }
}

impl BoxConfig {
    /// The box without its jobs and rows.
    #[must_use]
    pub const fn shape(&self) -> BoxShape {
        BoxShape { local: self.local, shards: self.shards, mtu: self.mtu }
    }
}

impl BoxShape {
    fn check(&self, job_count: usize, row_count: usize) -> Result<(), TableError> {
        let error = |field, problem| {
            let reason = HoldingError::Number;
            Err(TableError { entry: "box", index: 0, field, problem, reason })
        };
        let shards = usize::from(self.shards);
        if !shards.is_power_of_two() || shards > SHARDS_MAX {
            return error("shards", "must be a power of two, at most 64");
        }
        if self.local.addr.port().checked_add(self.shards).is_none() {
            return error("local", "needs a port with room for one port per lane above it");
        }
        if job_count > JOBS_MAX {
            return error("jobs", "are more than 256");
        }
        if row_count > ROWS_MAX {
            return error("rows", "are more than 1024");
        }
        Ok(())
    }

    /// Judges a job beside those that the box has.
    ///
    /// # Errors
    /// [`TableError`] naming the field and the remedy.
    pub fn check_job<'a>(
        &self,
        job: &JobConfig,
        jobs: impl IntoIterator<Item = &'a JobConfig>,
    ) -> Result<(), TableError> {
        let error = |reason, field, problem| Err(job_error(job.job, reason, field, problem));
        let number = HoldingError::Number;
        if usize::from(job.job.0) >= JOBS_MAX {
            return error(number, "job", "must be below 256");
        }
        if jobs.into_iter().any(|other| other.job == job.job) {
            let problem = "is already taken; give each job its own index";
            return error(HoldingError::Taken, "job", problem);
        }
        if job.rate_bytes_per_sec == Some(0) {
            return error(number, "rate_bytes_per_sec", "must be positive; omit it for no limit");
        }
        if job.rate_bytes_per_sec.is_some() && job.burst_bytes < 2048 {
            return error(number, "burst_bytes", "must hold at least one frame (2048)");
        }
        Ok(())
    }

    /// Judges a row beside the jobs and rows that the box has.
    ///
    /// # Errors
    /// [`TableError`] naming the field and the remedy.
    pub fn check_row<'a, R: Iterator<Item = &'a RowConfig>>(
        &self,
        row: &'a RowConfig,
        jobs: impl IntoIterator<Item = &'a JobConfig>,
        rows: impl Fn() -> R,
    ) -> Result<(), TableError> {
        let error = |reason, field, problem| Err(row_error(row, reason, field, problem));
        if usize::from(row.row) >= ROWS_MAX {
            return error(HoldingError::Number, "row", "must be below 1024");
        }
        let Some(job) = jobs.into_iter().find(|job| job.job == row.job) else {
            return error(HoldingError::UnknownJob, "job", "names no job of this box");
        };
        if let Some(other) = rows().find(|other| other.row == row.row) {
            let is_own = other.job == row.job;
            let reason = if is_own { HoldingError::Taken } else { HoldingError::OtherJob };
            return error(reason, "row", "is already taken; give each row its own index");
        }
        self.check_members(row)?;
        self.check_numbers(row)?;
        self.check_lanes(row, rows().chain([row]))?;
        let of_job = rows().filter(|other| other.job == row.job);
        let slots: u64 = of_job.map(|other| u64::from(other.window)).sum();
        if slots + u64::from(row.window) > u64::from(job.slots_max) {
            let problem = "is smaller than the windows of the job's rows together";
            return Err(job_error(row.job, HoldingError::Quota, "slots_max", problem));
        }
        Ok(())
    }

    fn check_lanes<'a>(
        &self,
        row: &RowConfig,
        rows: impl Iterator<Item = &'a RowConfig>,
    ) -> Result<(), TableError> {
        match port_of_two_lanes(self.shards, row, rows) {
            None => Ok(()),
            Some(_) => Err(row_error(row, HoldingError::Members, "members", PORT_OF_TWO_LANES)),
        }
    }

    fn check_members(&self, row: &RowConfig) -> Result<(), TableError> {
        let error = |field, problem| Err(row_error(row, HoldingError::Members, field, problem));
        if row.members.is_empty() || row.members.len() > MEMBERS_MAX {
            return error("members", "must be 1 to 64; use leaves for more");
        }
        for (rank, member) in row.members.iter().enumerate() {
            if member.weight == 0 {
                return error("weight", "must be at least 1");
            }
            if member.addr.is_ipv4() != self.local.addr.is_ipv4() {
                return error("members", "must be of the box's address family");
            }
            if member.addr.port().checked_add(self.shards).is_none() {
                return error("members", "need a port with room for one port per lane above it");
            }
            if row.members[..rank].iter().any(|other| other.addr == member.addr) {
                return error("members", "must have distinct addresses");
            }
        }
        Ok(())
    }

    fn check_numbers(&self, row: &RowConfig) -> Result<(), TableError> {
        let error = |reason, field, problem| Err(row_error(row, reason, field, problem));
        let of_window = HoldingError::Window;
        let of_elements = HoldingError::Elements;
        let window = usize::from(row.window);
        let shards = usize::from(self.shards);
        if !window.is_power_of_two() || window < shards || window / shards > WINDOW_MAX {
            let problem = "must be a power of two, from 1 to 2048 slots per lane";
            return error(of_window, "window", problem);
        }
        let element_len = row.element_type.len_bytes();
        if element_len == 0 {
            return error(of_elements, "element_type", "must be i32, f32 or bf16");
        }
        let ip_len = if self.local.addr.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        let room = usize::from(self.mtu).saturating_sub(ip_len + UDP_LEN + HEADER_LEN);
        if row.elements == 0 || usize::from(row.elements) * element_len > room {
            let problem = "must be at least 1 and fit one packet of the MTU";
            return error(of_elements, "elements", problem);
        }
        if handshake_len(u32::from(row.window / self.shards)) > room + HEADER_LEN {
            let problem = "is too large for the MTU: a handshake takes 104 + window / 2 bytes for \
                           the window of a lane; lower it or raise the MTU";
            return error(of_window, "window", problem);
        }
        match (row.operation, row.element_type) {
            (Operation::Sum, _) | (Operation::Max, ElementType::I32) => {}
            (Operation::Max, _) => return error(of_elements, "operation", "max is for i32 only"),
            (Operation::None, _) => return error(of_elements, "operation", "must be sum or max"),
        }
        if row.sum_order == SumOrder::Rank && row.element_type != ElementType::F32 {
            let problem = "rank is for f32; integer sums never depend on order";
            return error(of_elements, "sum_order", problem);
        }
        if row.exponent.is_some_and(|exponent| !is_exponent(exponent)) {
            return error(of_elements, "exponent", "must be from -126 to 126");
        }
        let weights: u64 = row.members.iter().map(|member| u64::from(member.weight)).sum();
        if u64::from(row.fan_in) < weights || row.fan_in > i32::MAX.unsigned_abs() {
            let problem = "must be at least the members' weights together";
            return error(HoldingError::Members, "fan_in", problem);
        }
        if row.chunks_max == 0 || row.chunks_max > CHUNKS_MAX {
            return error(HoldingError::Number, "chunks_max", "must be from 1 to 2^31");
        }
        if let Some(parent) = &row.parent {
            let of_root = HoldingError::Root;
            if parent.endpoint.addr.is_ipv4() != self.local.addr.is_ipv4() {
                return error(of_root, "parent", "must be of the box's address family");
            }
            let ports = [parent.source_port, parent.endpoint.addr.port()];
            if ports.iter().any(|port| port.checked_add(self.shards).is_none()) {
                let problem = "needs ports with room for one port per lane above them";
                return error(of_root, "parent", problem);
            }
        }
        Ok(())
    }
}

/// The ports that members and a root send from in lane 0.
fn ports(row: &RowConfig) -> impl Iterator<Item = u16> + '_ {
    let members = row.members.iter().map(|member| member.addr.port());
    members.chain(row.parent.iter().map(|parent| parent.endpoint.addr.port()))
}

/// A UDP source port that would be one lane's for a member or root of the row, and another's for
/// one of `rows`, if there is one. A port means one lane, whoever sends from it (PROTOCOL section
/// 10).
#[must_use]
pub fn port_of_two_lanes<'a>(
    shards: u16,
    row: &RowConfig,
    mut rows: impl Iterator<Item = &'a RowConfig>,
) -> Option<u16> {
    if shards == 1 {
        return None;
    }
    let differ = |one: u16, other: u16| {
        (one != other && one.abs_diff(other) < shards).then_some(one.max(other))
    };
    rows.find_map(|other| ports(row).find_map(|port| ports(other).find_map(|at| differ(port, at))))
}

/// True when a peer that sends from `port`, and is lane 0's, would be another lane's because of
/// the row.
#[must_use]
pub fn is_of_another_lane(shards: u16, row: &RowConfig, port: u16) -> bool {
    ports(row).any(|first| first < port && port - first < shards)
}

fn job_error(
    job: JobId,
    reason: HoldingError,
    field: &'static str,
    problem: &'static str,
) -> TableError {
    TableError { entry: "job", index: u32::from(job.0), field, problem, reason }
}

fn row_error(
    row: &RowConfig,
    reason: HoldingError,
    field: &'static str,
    problem: &'static str,
) -> TableError {
    TableError { entry: "row", index: u32::from(row.row), field, problem, reason }
}

/// Largest frame of a box with this MTU, in bytes.
#[must_use]
pub const fn frame_len_max(mtu: u16) -> usize {
    mtu as usize + ETHERNET_LEN
}
