//! The group table: what a controller or a static file installs, judged here alone.
//!
//! Whatever a box holds has passed `check_job`, `check_row` or `check_push` of its [`BoxShape`],
//! beside what it held by then (`Holdings`): every row's window is a power of two, its chunk fits
//! the MTU, its members are distinct, the leases of a job fit its quota (DESIGN I6, I8), and no job
//! is both reduced and pushed. A [`Table`] is what a static file installs, in its order. The data
//! path indexes it and never searches.

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use weft_control::HoldingError;
pub use weft_control::{JobConfig, MemberConfig, ParentConfig, PushConfig, RowConfig};
use weft_wire::JobId;
use weft_wire::frame::{ETHERNET_LEN, Endpoint, IPV4_LEN, IPV6_LEN, UDP_LEN, is_host};
use weft_wire::header::HEADER_LEN;

mod arena;
mod push;
mod row;

pub use arena::{ArenaConfig, LEASE_BYTES_MAX, PUSH_BYTES_MAX, slot_bytes};
pub(crate) use push::pull_slot_count;
pub use push::{PORT_OF_FURTHER_LANE, push_slot_count};
pub use row::{PORT_OF_TWO_LANES, is_of_another_lane, port_of_two_lanes};

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
/// Most bytes of slots of all leases, and of all push jobs, that a box takes.
pub const TABLE_BYTES_MAX: u64 = 1 << 40;

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
    /// The jobs that are pushed; none of them is among `jobs`.
    pub pushes: Vec<PushConfig>,
}

/// What a box holds: what more may be installed is judged beside it.
pub(crate) trait Holdings {
    /// The jobs that are reduced.
    fn jobs(&self) -> impl Iterator<Item = &JobConfig>;
    /// Their rows.
    fn rows(&self) -> impl Iterator<Item = &RowConfig>;
    /// The jobs that are pushed.
    fn pushes(&self) -> impl Iterator<Item = &PushConfig>;
}

impl Holdings for BoxConfig {
    fn jobs(&self) -> impl Iterator<Item = &JobConfig> {
        self.jobs.iter()
    }

    fn rows(&self) -> impl Iterator<Item = &RowConfig> {
        self.rows.iter()
    }

    fn pushes(&self) -> impl Iterator<Item = &PushConfig> {
        self.pushes.iter()
    }
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
    /// What the entry is: `box`, `job`, `row`, `push` or `arena`.
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
    /// Validates a configuration: installs its jobs, rows and push jobs one after the other.
    ///
    /// # Errors
    /// [`TableError`] naming the entry, the field and the remedy.
    pub fn new(mut config: BoxConfig) -> Result<Self, TableError> {
        let shape = config.shape();
        shape.check(config.jobs.len(), config.rows.len())?;
        let jobs = core::mem::take(&mut config.jobs);
        let rows = core::mem::take(&mut config.rows);
        let pushes = core::mem::take(&mut config.pushes);
        for job in jobs {
            shape.check_job(&job, &config)?;
            config.jobs.push(job);
        }
        for row in rows {
            shape.check_row(&row, &config)?;
            config.rows.push(row);
        }
        for push in pushes {
            shape.check_push(&push, &config)?;
            config.pushes.push(push);
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
        if self.config.pushes.len() + usize::from(arena.pushes) > JOBS_MAX {
            return error("pushes", "are more than 256 together with those of the file");
        }
        if arena.push_bytes > PUSH_BYTES_MAX {
            return error("push_bytes", "must be at most 2^38: no slots are counted beyond");
        }
        if arena.pull_cache_bytes > PUSH_BYTES_MAX {
            return error("pull_cache_bytes", "must be at most 2^38: no chunks are counted beyond");
        }
        let held: u64 = self.config.rows.iter().map(slot_bytes).sum();
        let kept = u64::from(arena.leases).saturating_mul(arena.lease_bytes);
        if held.saturating_add(kept) > TABLE_BYTES_MAX {
            return error("lease_bytes", "makes more than 2^40 bytes of slots with the rows");
        }
        let bytes_of = |push: &PushConfig| push.quota_bytes.saturating_add(push.pull_cache_bytes);
        let held = self.config.pushes.iter().map(bytes_of).fold(0, u64::saturating_add);
        let each = arena.push_bytes.saturating_add(arena.pull_cache_bytes);
        if held.saturating_add(u64::from(arena.pushes).saturating_mul(each)) > TABLE_BYTES_MAX {
            return error("push_bytes", "makes more than 2^40 bytes with the push jobs");
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

/// Finds fault with an address that a box at `local` is to send to.
pub(crate) fn peer_problem(local: &Endpoint, peer: SocketAddr) -> Option<&'static str> {
    if peer.is_ipv4() != local.addr.is_ipv4() {
        Some("must be of the box's address family")
    } else if peer == local.addr {
        Some("must not have the box's own address")
    } else if !is_host(peer.ip()) {
        Some("must have addresses of one host each, no multicast or broadcast")
    } else {
        None
    }
}

impl BoxConfig {
    /// The box without what it holds.
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

    /// Judges a job beside what the box holds.
    pub(crate) fn check_job(
        &self,
        job: &JobConfig,
        held: &impl Holdings,
    ) -> Result<(), TableError> {
        let error = |reason, field, problem| Err(job_error(job.job, reason, field, problem));
        let number = HoldingError::Number;
        if usize::from(job.job.0) >= JOBS_MAX {
            return error(number, "job", "must be below 256");
        }
        if held.jobs().any(|other| other.job == job.job) {
            let problem = "is already taken; give each job its own index";
            return error(HoldingError::Taken, "job", problem);
        }
        if held.pushes().any(|push| push.job == job.job) {
            let problem = "is pushed here; give each job its own index";
            return error(HoldingError::Both, "job", problem);
        }
        if job.rate_bytes_per_sec == Some(0) {
            return error(number, "rate_bytes_per_sec", "must be positive; omit it for no limit");
        }
        if job.rate_bytes_per_sec.is_some() && job.burst_bytes < 2048 {
            return error(number, "burst_bytes", "must hold at least one frame (2048)");
        }
        Ok(())
    }

    /// Bytes of elements that a datagram has room for.
    fn payload_len_max(&self) -> usize {
        let ip_len = if self.local.addr.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        usize::from(self.mtu).saturating_sub(ip_len + UDP_LEN + HEADER_LEN)
    }
}

fn job_error(
    job: JobId,
    reason: HoldingError,
    field: &'static str,
    problem: &'static str,
) -> TableError {
    TableError { entry: "job", index: u32::from(job.0), field, problem, reason }
}

/// Largest frame of a box with this MTU, in bytes.
#[must_use]
pub const fn frame_len_max(mtu: u16) -> usize {
    mtu as usize + ETHERNET_LEN
}
