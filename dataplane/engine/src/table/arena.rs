//! What a box keeps free for jobs and leases that come at run time.

use weft_wire::hello::Integrity;

use super::{BoxShape, ParentConfig, RowConfig};
use crate::slot::accumulate::Arithmetic;

/// What a box keeps free for what comes at run time, beside the jobs and rows of its file. All of
/// it is taken when the box starts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ArenaConfig {
    /// Jobs.
    pub jobs: u16,
    /// Windowed leases.
    pub leases: u16,
    /// Bytes of slots of each of them, over all lanes.
    pub lease_bytes: u64,
    /// Push jobs.
    pub pushes: u16,
    /// Bytes of whole leases of each of them.
    pub push_bytes: u64,
    /// Bytes of each one's cache of the model.
    pub pull_cache_bytes: u64,
    /// The box's port was opened without UDP checksums.
    pub lacks_checksums: bool,
    /// UDP ports, from the box's own on, that it was opened to send from; `None`: any.
    pub socket_count: Option<u16>,
}

impl ArenaConfig {
    /// True when the box's port can carry a lease that comes at run time.
    #[must_use]
    pub fn carries(&self, shape: &BoxShape, row: &RowConfig) -> bool {
        let reaches = |parent: &ParentConfig| {
            let above = parent.source_port.checked_sub(shape.local.addr.port());
            let room = self.socket_count.unwrap_or(u16::MAX).saturating_sub(shape.shards);
            self.socket_count.is_none() || above.is_some_and(|above| above <= room)
        };
        let is_summed = row.integrity == Integrity::Checksum16;
        !(is_summed && self.lacks_checksums) && row.parent.as_ref().is_none_or(reaches)
    }
}

/// Bytes of slots that a row's lease takes, over all lanes.
#[must_use]
pub fn slot_bytes(row: &RowConfig) -> u64 {
    let banks = usize::from(row.window) * 2;
    let arithmetic = Arithmetic::of(row);
    let words = arithmetic.word_count(usize::from(row.elements), row.members.len(), banks);
    words as u64 * 4
}

/// Bytes of whole leases, and of the model's chunks, that an arena keeps for one push job at most.
pub const PUSH_BYTES_MAX: u64 = 1 << 38;
/// Bytes of slots that an arena keeps for one lease at most.
pub const LEASE_BYTES_MAX: u64 = 1 << 32;
