//! What a job's pushes are at one aggregator: installed by a static file, judged once.

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::{BoxIndex, HoldingError, UPDATE_CHUNKS_MAX, is_pushed};
use weft_wire::frame::{ETHERNET_LEN, Endpoint, IPV4_LEN, IPV6_LEN, UDP_LEN};
use weft_wire::header::{ElementType, HEADER_LEN};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::quant::is_exponent;
use weft_wire::{JobId, MEMBERS_MAX};

use crate::slot::whole::Arena;
use crate::table::{JOBS_MAX, TableError};

/// A job whose updates this aggregator gathers, and whose pulls it relays.
#[derive(Clone, Debug, PartialEq)]
pub struct PushConfig {
    /// Index on the wire. A job is either pushed or reduced at a box, never both.
    pub job: JobId,
    /// This aggregator among the job's boxes.
    pub box_index: BoxIndex,
    /// The workers by rank: 1 to 64.
    pub workers: Vec<SocketAddr>,
    /// The server. Its Ethernet address may be broadcast until it answers.
    pub server: Endpoint,
    /// The replica, which gets a copy of each sum of the groups that say so.
    pub replica: Option<Endpoint>,
    /// Memory of the job's whole leases, in bytes: a slot takes its elements at four bytes each, in
    /// whole cache lines, and 16 more.
    pub quota_bytes: u64,
    /// Memory of the relayed model's chunks, in bytes.
    pub pull_cache_bytes: u64,
    /// Chunks of the job's model.
    pub chunks: u32,
    /// Elements of every chunk.
    pub elements: u16,
    /// What an element of an update is.
    pub element_type: ElementType,
    /// What happens when an i32 sum does not fit.
    pub overflow: Overflow,
    /// What protects payloads: `crc32c` or `none`.
    pub integrity: Integrity,
    /// Scale exponent of updates that no controller gave one.
    pub exponent: Option<i8>,
    /// Token bucket: bytes of frames per second; `None` is unlimited.
    pub rate_bytes_per_sec: Option<u64>,
    /// Token bucket: depth in bytes.
    pub burst_bytes: u64,
}

impl PushConfig {
    /// Slots that the quota pays for.
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        let slots = self.quota_bytes / Arena::slot_len_bytes(self.elements);
        u32::try_from(slots).unwrap_or(u32::MAX)
    }

    /// Chunks of the model that the cache has room for.
    #[must_use]
    pub fn pull_slot_count(&self) -> u32 {
        let chunk_len = u64::from(self.elements) * 4;
        u32::try_from(self.pull_cache_bytes / chunk_len.max(1)).unwrap_or(u32::MAX)
    }

    /// The UDP ports that its peers send from.
    pub fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        let ends = [Some(self.server.addr), self.replica.map(|replica| replica.addr)];
        let all = self.workers.iter().copied().chain(ends.into_iter().flatten());
        all.map(|addr| addr.port())
    }

    fn error(&self, field: &'static str, problem: &'static str) -> TableError {
        let reason = HoldingError::Number;
        TableError { entry: "push", index: u32::from(self.job.0), field, problem, reason }
    }
}

/// Judges the push jobs of a box.
///
/// # Errors
/// [`TableError`] with the entry `push`, naming the field and the remedy.
pub fn check(local: Endpoint, mtu: u16, pushes: &[PushConfig]) -> Result<(), TableError> {
    for (index, push) in pushes.iter().enumerate() {
        check_one(local, mtu, push)?;
        if pushes[..index].iter().any(|other| other.job == push.job) {
            return Err(push.error("job", "is already taken; give each job its own index"));
        }
    }
    Ok(())
}

fn check_one(local: Endpoint, mtu: u16, push: &PushConfig) -> Result<(), TableError> {
    let error = |field, problem| Err(push.error(field, problem));
    let is_family = |addr: &SocketAddr| addr.is_ipv4() == local.addr.is_ipv4();
    if usize::from(push.job.0) >= JOBS_MAX {
        return error("job", "must be below 256");
    }
    if usize::from(push.box_index.0) >= MEMBERS_MAX {
        return error("box_index", "must be below 64");
    }
    if push.workers.is_empty() || push.workers.len() > MEMBERS_MAX {
        return error("workers", "must be 1 to 64");
    }
    let servers = [Some(push.server), push.replica];
    let servers: Vec<SocketAddr> = servers.iter().flatten().map(|end| end.addr).collect();
    let mut taken: Vec<&SocketAddr> = Vec::new();
    for addr in push.workers.iter().chain(&servers) {
        let field = if servers.contains(addr) { "server" } else { "workers" };
        if !is_family(addr) {
            return error(field, "must be of the box's address family");
        }
        if taken.contains(&addr) {
            return error(field, "must have an address of its own, as workers and replica have");
        }
        taken.push(addr);
    }
    if !is_pushed(push.element_type) {
        return error("element_type", "must be i32 or f32; bf16 is for allreduce");
    }
    let ip_len = if local.addr.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
    let room = usize::from(mtu).saturating_sub(ip_len + UDP_LEN + HEADER_LEN);
    // Models are f32, so their chunks take four bytes an element whatever updates take.
    if push.elements == 0 || usize::from(push.elements) * 4 > room {
        return error("elements", "must be at least 1 and, at 4 bytes each, fit the MTU");
    }
    if push.integrity == Integrity::Checksum16 {
        return error("integrity", "must be crc32c or none; checksum16 is for allreduce");
    }
    if push.exponent.is_some_and(|exponent| !is_exponent(exponent)) {
        return error("exponent", "must be from -126 to 126");
    }
    if push.chunks == 0 || push.chunks > UPDATE_CHUNKS_MAX {
        return error("chunks", "must be from 1 to 2^20");
    }
    if push.slot_count() < push.chunks {
        return error("quota_bytes", "must hold one update: chunks x (elements x 4 + 16) bytes");
    }
    if push.pull_slot_count() == 0 {
        return error("pull_cache_bytes", "must hold at least one chunk of elements x 4 bytes");
    }
    if push.rate_bytes_per_sec == Some(0) {
        return error("rate_bytes_per_sec", "must be positive; omit it for no limit");
    }
    if push.rate_bytes_per_sec.is_some() && push.burst_bytes < 2048 {
        return error("burst_bytes", "must hold at least one frame (2048)");
    }
    Ok(())
}

/// Bytes of a contribution's frame.
pub(super) fn frame_len(push: &PushConfig) -> u64 {
    let ip_len = if push.server.addr.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
    let payload_len = usize::from(push.elements) * push.element_type.len_bytes();
    (ETHERNET_LEN + ip_len + UDP_LEN + HEADER_LEN + payload_len) as u64
}
