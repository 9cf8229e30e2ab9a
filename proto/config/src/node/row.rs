//! `[[row]]`: a group as this box serves it.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, de};
use weft_control::SumOrder;
use weft_wire::MacAddr;
use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::{Integrity, Overflow};

use super::{Elements, address, defaults};

/// `[[row]]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RowSection {
    /// Row index on the wire, below 1024, different for each row.
    pub row: u16,
    /// Id of the job that owns it.
    pub job: u16,
    /// `i32` (default), `f32`, or `bf16` (summed in f32).
    #[serde(default = "defaults::element_type")]
    pub element_type: ElementType,
    /// `sum` (default) or `max` (i32 only).
    #[serde(default = "defaults::operation")]
    pub operation: Operation,
    /// f32 additions as they `arrival` (default, fast) or by `rank` (bit-reproducible; takes a row
    /// of memory per member and slot).
    #[serde(default)]
    pub sum_order: SumOrder,
    /// i32 sums that do not fit: `wrap` (default), or `clamp` each contribution first.
    #[serde(default = "defaults::overflow")]
    pub overflow: Overflow,
    /// `crc32c` (default), `checksum16` (UDP's, for P4 peers), or `none`.
    #[serde(default)]
    pub integrity: Integrity,
    /// Elements per chunk: a number, or `"auto"` for as many whole cache lines as one packet of
    /// `port.mtu` holds (352 of 4 bytes at an MTU of 1500, 2224 at 9000, 16368 at 65535): the
    /// larger, the less work a byte takes, and a short vector is padded to one. Default 256.
    #[serde(default = "defaults::row_elements")]
    pub elements: Elements,
    /// Slots over all lanes, a power of two, at most 2048 per lane, and so few that a handshake of
    /// 104 + a lane's slots / 2 bytes fits the MTU. Default 256.
    #[serde(default = "defaults::window")]
    pub window: u16,
    /// Chunks before the group must be formed again, at most 2^31. Default 2^31.
    #[serde(default = "defaults::chunks_max")]
    pub chunks_max: u32,
    /// Job-fixed scale exponent, -126 to 126: a value is element x 2^exponent. Default: the members
    /// agree on one per chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exponent: Option<i8>,
    /// Contributions in a final sum, over all levels. Default: the members' weights together, which
    /// is right at the root and where there is one level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan_in: Option<u32>,
    /// The members by rank, 1 to 64: `"ip:port"`, or a table with `addr`, `weight`, `is_box`. The
    /// port is the member's lane 0; its lane `i` sends from `port + i`.
    pub members: Vec<MemberSection>,
    /// On a leaf: where its sums go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentSection>,
}

impl RowSection {
    /// A row with what has no default.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(row: u16, job: u16, members: Vec<MemberSection>) -> Self {
        section!(row, job, members)
    }
}

/// A member of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemberSection {
    /// Address and UDP port of its lane 0.
    pub addr: SocketAddr,
    /// Workers that its contribution stands for: 1 (default), or a leaf's fan-in.
    pub weight: u32,
    /// True for a leaf aggregator, which may rejoin an open lease. Default false.
    pub is_box: bool,
}

/// A worker.
impl From<SocketAddr> for MemberSection {
    fn from(addr: SocketAddr) -> Self {
        Self { addr, weight: defaults::weight(), is_box: false }
    }
}

impl<'de> Deserialize<'de> for MemberSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MemberVisitor)
    }
}

/// Takes both spellings, with errors about the one that was used.
struct MemberVisitor;

impl<'de> de::Visitor<'de> for MemberVisitor {
    type Value = MemberSection;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"ip:port\" or { addr = \"ip:port\", weight = 1, is_box = false }")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<MemberSection, E> {
        let addr: SocketAddr =
            text.parse().map_err(|_| E::custom(format!("expected \"ip:port\", not \"{text}\"")))?;
        Ok(addr.into())
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<MemberSection, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Member {
            addr: SocketAddr,
            #[serde(default = "defaults::weight")]
            weight: u32,
            #[serde(default)]
            is_box: bool,
        }
        let member = Member::deserialize(MapAccessDeserializer::new(map))?;
        let Member { addr, weight, is_box } = member;
        Ok(MemberSection { addr, weight, is_box })
    }
}

/// The root of a leaf. Both have the same lanes: a leaf's lane `i` sends from `source_port + i`,
/// the root's from its port + `i`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ParentSection {
    /// Where the root listens.
    pub addr: SocketAddr,
    /// The row at the root.
    pub row: u16,
    /// This leaf's rank there.
    pub rank: u8,
    /// UDP port that lane 0 sends up from. Default: `port.udp_port`. On `udp` at most 64 - shards
    /// above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// The root's Ethernet address. Default: broadcast until its first answer.
    #[serde(default, with = "address::optional", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
}
