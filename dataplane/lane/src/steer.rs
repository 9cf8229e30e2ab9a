//! Which lane a frame belongs to, by its UDP source port alone (PROTOCOL section 10).
//!
//! Decides only. The map is made from the ports of members and roots: port + `i` is lane `i`. A
//! source port that none of them uses, and whatever is not UDP, goes to lane 0, whose engine counts
//! it. All lanes of a box share one map, and whoever installs leases renews it.
//! Invariant: a source port means one lane, whoever sends from it: the table admits no rows that
//! differ in that. O(1) per frame.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use weft_engine::table::{BoxConfig, RowConfig};
use weft_wire::frame::Udp;

/// Source port to lane.
#[derive(Clone)]
pub struct LaneMap {
    lanes: Arc<[AtomicU8]>,
}

impl LaneMap {
    /// Maps the ports of every member and root of a box.
    #[must_use]
    pub fn new(config: &BoxConfig) -> Self {
        let map = Self { lanes: (0..PORT_COUNT).map(|_| AtomicU8::new(0)).collect() };
        map.renew(config.shards, config.rows.iter());
        map
    }

    /// Maps the ports of other rows, for all lanes at once.
    pub fn renew<'a>(&self, shards: u16, rows: impl Iterator<Item = &'a RowConfig>) {
        let mut lanes = vec![0; PORT_COUNT];
        for row in rows {
            let members = row.members.iter().map(|member| member.addr.port());
            let root = row.parent.iter().map(|parent| parent.endpoint.addr.port());
            for first in members.chain(root) {
                for lane in 0..u8::try_from(shards).expect("the table bounds the shards") {
                    lanes[usize::from(first) + usize::from(lane)] = lane;
                }
            }
        }
        for (entry, lane) in self.lanes.iter().zip(lanes) {
            // Frames that are on their way meanwhile go to either lane, and are lost at the wrong.
            entry.store(lane, Ordering::Relaxed);
        }
    }

    /// The lane of a frame.
    #[inline]
    #[must_use]
    pub fn lane_of(&self, frame: &[u8]) -> usize {
        let lane = |udp: Udp| &self.lanes[usize::from(udp.source.port())];
        Udp::parse(frame).map_or(0, |udp| usize::from(lane(udp).load(Ordering::Relaxed)))
    }
}

impl fmt::Debug for LaneMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneMap").finish_non_exhaustive()
    }
}

const PORT_COUNT: usize = 1 << 16;
