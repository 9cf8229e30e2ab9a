//! Which rows a box may hold, and which UDP source port means which lane.

use weft_control::{HoldingError, PushConfig, RowConfig, SumOrder};
use weft_wire::MEMBERS_MAX;
use weft_wire::header::{ElementType, HEADER_LEN, Operation};
use weft_wire::quant::is_exponent;

use super::push::PORT_OF_FURTHER_LANE;
use super::{
    BoxShape, CHUNKS_MAX, Holdings, LEASE_BYTES_MAX, ROWS_MAX, TableError, WINDOW_MAX, job_error,
    peer_problem, slot_bytes,
};
use crate::steps::handshake_len;

impl BoxShape {
    /// Judges a row beside what the box holds.
    pub(crate) fn check_row(
        &self,
        row: &RowConfig,
        held: &impl Holdings,
    ) -> Result<(), TableError> {
        let error = |reason, field, problem| Err(row_error(row, reason, field, problem));
        if usize::from(row.row) >= ROWS_MAX {
            return error(HoldingError::Number, "row", "must be below 1024");
        }
        let Some(job) = held.jobs().find(|job| job.job == row.job) else {
            return error(HoldingError::UnknownJob, "job", "names no job of this box");
        };
        if let Some(other) = held.rows().find(|other| other.row == row.row) {
            let is_own = other.job == row.job;
            let reason = if is_own { HoldingError::Taken } else { HoldingError::OtherJob };
            return error(reason, "row", "is already taken; give each row its own index");
        }
        self.check_members(row)?;
        self.check_numbers(row)?;
        self.check_lanes(row, held)?;
        let of_job = held.rows().filter(|other| other.job == row.job);
        let slots: u64 = of_job.map(|other| u64::from(other.window)).sum();
        if slots + u64::from(row.window) > u64::from(job.slots_max) {
            let problem = "is smaller than the windows of the job's rows together";
            return Err(job_error(row.job, HoldingError::Quota, "slots_max", problem));
        }
        Ok(())
    }

    fn check_lanes(&self, row: &RowConfig, held: &impl Holdings) -> Result<(), TableError> {
        let error = |problem| Err(row_error(row, HoldingError::Members, "members", problem));
        if port_of_two_lanes(self.shards, row, held.rows().chain([row])).is_some() {
            return error(PORT_OF_TWO_LANES);
        }
        let mut peers = held.pushes().flat_map(PushConfig::addresses);
        if peers.any(|peer| is_of_another_lane(self.shards, row, peer.port())) {
            return error(PORT_OF_FURTHER_LANE);
        }
        Ok(())
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
            if let Some(problem) = peer_problem(&self.local, member.addr) {
                return error("members", problem);
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
        let room = self.payload_len_max();
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
        if slot_bytes(row) > LEASE_BYTES_MAX {
            let problem = "makes slots of more than 2^32 bytes: lower it, or elements";
            return error(HoldingError::Memory, "window", problem);
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
            if let Some(problem) = peer_problem(&self.local, parent.endpoint.addr) {
                return error(of_root, "parent", problem);
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

fn row_error(
    row: &RowConfig,
    reason: HoldingError,
    field: &'static str,
    problem: &'static str,
) -> TableError {
    TableError { entry: "row", index: u32::from(row.row), field, problem, reason }
}

/// The problem of members of which [`port_of_two_lanes`] names a port.
pub const PORT_OF_TWO_LANES: &str = "have a UDP source port that would be of two lanes";
