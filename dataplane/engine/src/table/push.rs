//! Which push jobs a box may hold, and what memory they take.

use core::net::SocketAddr;

use arrayvec::ArrayVec;
use weft_control::{HoldingError, PushConfig, UPDATE_CHUNKS_MAX, is_pushed};
use weft_wire::MEMBERS_MAX;
use weft_wire::quant::is_exponent;

use super::{
    BoxShape, Holdings, JOBS_MAX, PUSH_BYTES_MAX, TableError, is_of_another_lane, peer_problem,
};
use crate::slot::whole::Arena;

impl BoxShape {
    /// Judges a push job beside what the box holds.
    pub(crate) fn check_push(
        &self,
        push: &PushConfig,
        held: &impl Holdings,
    ) -> Result<(), TableError> {
        let error = |reason, field, problem| Err(error(push, reason, field, problem));
        if usize::from(push.job.0) >= JOBS_MAX {
            return error(HoldingError::Number, "job", "must be below 256");
        }
        if held.pushes().any(|other| other.job == push.job) {
            let problem = "is already taken; give each job its own index";
            return error(HoldingError::Taken, "job", problem);
        }
        if held.jobs().any(|other| other.job == push.job) {
            // Groups and rows share their numbers on the wire, so a frame would name either.
            let problem = "is a [[job]] too: its groups and rows would have the same numbers on \
                           the wire; reduce under another job's index";
            return error(HoldingError::Both, "job", problem);
        }
        self.check_ends(push)?;
        self.check_shape(push)?;
        let mut ports = push.addresses().map(|addr| addr.port());
        if ports.any(|port| held.rows().any(|row| is_of_another_lane(self.shards, row, port))) {
            return error(HoldingError::Workers, "workers", PORT_OF_FURTHER_LANE);
        }
        Ok(())
    }

    fn check_ends(&self, push: &PushConfig) -> Result<(), TableError> {
        let error = |field, problem| Err(error(push, HoldingError::Workers, field, problem));
        if push.workers.is_empty() || push.workers.len() > MEMBERS_MAX {
            return error("workers", "must be 1 to 64");
        }
        let is_end = |addr| push.addresses().skip(push.workers.len()).any(|end| end == addr);
        let mut taken: ArrayVec<SocketAddr, { MEMBERS_MAX + 2 }> = ArrayVec::new();
        for addr in push.addresses() {
            let field = if is_end(addr) { "server" } else { "workers" };
            if let Some(problem) = peer_problem(&self.local, addr) {
                return error(field, problem);
            }
            if taken.contains(&addr) {
                return error(
                    field,
                    "must have an address of its own, as workers and replica have",
                );
            }
            taken.push(addr);
        }
        Ok(())
    }

    fn check_shape(&self, push: &PushConfig) -> Result<(), TableError> {
        use HoldingError::{Memory, Number, Updates};
        let error = |reason, field, problem| Err(error(push, reason, field, problem));
        if usize::from(push.box_index.0) >= MEMBERS_MAX {
            return error(Number, "box_index", "must be below 64");
        }
        if !is_pushed(push.element_type) {
            return error(Updates, "element_type", "must be i32 or f32; bf16 is for allreduce");
        }
        // Models are f32, so their chunks take four bytes an element whatever updates take.
        if push.elements == 0 || usize::from(push.elements) * 4 > self.payload_len_max() {
            let problem = "must be at least 1 and, at 4 bytes each, fit the MTU";
            return error(Updates, "elements", problem);
        }
        if push.exponent.is_some_and(|exponent| !is_exponent(exponent)) {
            return error(Updates, "exponent", "must be from -126 to 126");
        }
        if push.chunks == 0 || push.chunks > UPDATE_CHUNKS_MAX {
            return error(Number, "chunks", "must be from 1 to 2^20");
        }
        if push.quota_bytes > PUSH_BYTES_MAX {
            return error(Memory, "quota_bytes", "must be at most 2^38");
        }
        if push.pull_cache_bytes > PUSH_BYTES_MAX {
            return error(Memory, "pull_cache_bytes", "must be at most 2^38");
        }
        if push_slot_count(push) < push.chunks {
            let problem = "must hold one update: chunks x (elements x 4 + 16) bytes";
            return error(Memory, "quota_bytes", problem);
        }
        if pull_slot_count(push) == 0 {
            let problem = "must hold at least one chunk of elements x 4 bytes";
            return error(Memory, "pull_cache_bytes", problem);
        }
        if push.rate_bytes_per_sec == Some(0) {
            return error(Number, "rate_bytes_per_sec", "must be positive; omit it for no limit");
        }
        if push.rate_bytes_per_sec.is_some() && push.burst_bytes < 2048 {
            return error(Number, "burst_bytes", "must hold at least one frame (2048)");
        }
        Ok(())
    }
}

/// Slots that the quota of a push job pays for.
#[must_use]
pub fn push_slot_count(push: &PushConfig) -> u32 {
    let slots = push.quota_bytes / Arena::slot_len_bytes(push.elements);
    u32::try_from(slots).unwrap_or(u32::MAX)
}

/// Chunks of the model that the cache of a push job has room for.
pub(crate) fn pull_slot_count(push: &PushConfig) -> u32 {
    let chunk_len = u64::from(push.elements) * 4;
    u32::try_from(push.pull_cache_bytes / chunk_len.max(1)).unwrap_or(u32::MAX)
}

fn error(
    push: &PushConfig,
    reason: HoldingError,
    field: &'static str,
    problem: &'static str,
) -> TableError {
    TableError { entry: "push", index: u32::from(push.job.0), field, problem, reason }
}

/// The problem of a port of a push job's peers that [`is_of_another_lane`].
pub const PORT_OF_FURTHER_LANE: &str = "have a UDP source port that is a further lane's of a row's \
                                        member or root and a push job's peer's: push jobs are lane \
                                        0's, so give them other ports";
