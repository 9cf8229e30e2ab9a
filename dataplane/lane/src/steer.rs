//! Which lane a frame belongs to, by its UDP source port alone (PROTOCOL section 10).
//!
//! Decides only. The map is made from the ports of members and roots: port + `i` is lane `i`. A
//! source port that none of them uses, and whatever is not UDP, goes to lane 0, whose engine counts
//! it.
//! Invariant: a source port means one lane, whoever sends from it. O(1) per frame.

use std::fmt;

use weft_engine::table::BoxConfig;
use weft_wire::frame::Udp;

/// Source port to lane.
#[derive(Clone)]
pub struct LaneMap {
    lanes: Box<[u8]>,
}

/// Two boxes' or members' ports that ask for different lanes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Conflict {
    /// Row of the second member.
    pub row: u16,
    port: u16,
    lanes: [u8; 2],
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, lanes: [one, other], .. } = self;
        write!(
            f,
            "UDP source port {port} would be lane {one} for one member or root and lane {other} \
             for another; give all the same port, or ports that are a multiple of the lanes \
             apart"
        )
    }
}

impl LaneMap {
    /// Maps the ports of every member and root of a box.
    ///
    /// # Errors
    /// [`Conflict`] if a port would belong to two lanes.
    pub fn new(config: &BoxConfig) -> Result<Self, Conflict> {
        let mut lanes = vec![UNKNOWN; 1 << 16].into_boxed_slice();
        for row in &config.rows {
            let members = row.members.iter().map(|member| member.addr.port());
            let root = row.parent.iter().map(|parent| parent.endpoint.addr.port());
            for first in members.chain(root) {
                for lane in 0..u8::try_from(config.shards).expect("the table bounds the shards") {
                    let port = first + u16::from(lane);
                    let entry = &mut lanes[usize::from(port)];
                    if *entry != UNKNOWN && *entry != lane {
                        return Err(Conflict { row: row.row, port, lanes: [*entry, lane] });
                    }
                    *entry = lane;
                }
            }
        }
        for entry in &mut lanes {
            if *entry == UNKNOWN {
                *entry = 0;
            }
        }
        Ok(Self { lanes })
    }

    /// The lane of a frame.
    #[inline]
    #[must_use]
    pub fn lane_of(&self, frame: &[u8]) -> usize {
        Udp::parse(frame).map_or(0, |udp| usize::from(self.lanes[usize::from(udp.source.port())]))
    }
}

impl fmt::Debug for LaneMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneMap").finish_non_exhaustive()
    }
}

const UNKNOWN: u8 = u8::MAX;
