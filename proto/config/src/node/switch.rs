//! `[switch]`: the P4 switch that this node is behind.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::defaults;
use crate::FilePath;

/// `[switch]`: a P4 switch whose slots are those of this node's leases. Goes with `port.io =
/// "switch"`: the node is the switch's controller and a host on its CPU port.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchSection {
    /// Host and port of its P4Runtime server, or `unix:` and the path of its socket:
    /// simple_switch_grpc's `--grpc-server-addr`. Default `127.0.0.1:9559`.
    #[serde(default = "defaults::grpc")]
    pub grpc: String,
    /// Its number there: simple_switch_grpc's `--device-id`. Default 0.
    #[serde(default)]
    pub device_id: u64,
    /// Of several controllers the one with the highest is the primary. Default 1.
    #[serde(default = "defaults::election_id")]
    pub election_id: u64,
    /// Folder of the compiled program: `weft-v1model-E.json` and `weft-v1model-E.p4info.txtpb`, E
    /// being `elements`. Default `p4/build`.
    #[serde(default = "defaults::program")]
    pub program: FilePath,
    /// Elements of each chunk that the program was built for. Default 32.
    #[serde(default = "defaults::switch_elements")]
    pub elements: u16,
    /// The port that the program knows as the node's: simple_switch_grpc's `--cpu-port`. Default
    /// 255.
    #[serde(default = "defaults::cpu_port")]
    pub cpu_port: u16,
    /// Bytes a second that may come to the node. Default 8000000.
    #[serde(default = "defaults::cpu_rate_bytes_per_sec")]
    pub cpu_rate_bytes_per_sec: u64,
    /// Bytes of these that may come at once. Default 1048576.
    #[serde(default = "defaults::burst_bytes")]
    pub cpu_burst_bytes: u64,
    /// Who is at which port: `[[switch.port]]`. Workers, servers and replicas must be among them.
    pub port: Vec<SwitchPortSection>,
}

/// `[[switch.port]]`
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchPortSection {
    /// The switch's port, below 511.
    pub port: u16,
    /// The host behind it.
    pub ip: Ipv4Addr,
}

impl SwitchSection {
    /// A switch with what has no default.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(port: Vec<SwitchPortSection>) -> Self {
        section!(port)
    }

    /// The key that makes no sense by itself, and what would be right.
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let ports = self.port.iter().map(|entry| entry.port).chain([self.cpu_port]);
        if self.election_id == 0 {
            return Some(("election_id", "must be positive: 0 is nobody's"));
        }
        if !matches!(self.elements, 32 | 64 | 128 | 256) {
            return Some((
                "elements",
                "must be 32, 64, 128 or 256: the program is built for these",
            ));
        }
        if ports.clone().any(|port| port >= PORTS_MAX) {
            return Some(("port", "and cpu_port must be below 511: 511 is where frames end"));
        }
        if self.port.iter().any(|entry| entry.port == self.cpu_port) {
            return Some(("cpu_port", "is a host's in [[switch.port]]; give each its own"));
        }
        let is_double = |(index, entry): (usize, &SwitchPortSection)| {
            self.port[..index].iter().any(|other| other.ip == entry.ip)
        };
        if self.port.iter().enumerate().any(is_double) {
            return Some(("port", "must name each ip once"));
        }
        let is_short = self.cpu_burst_bytes < 2048;
        if self.cpu_rate_bytes_per_sec == 0 || is_short {
            let problem = "and cpu_burst_bytes must let a frame through: positive, and 2048";
            return Some(("cpu_rate_bytes_per_sec", problem));
        }
        None
    }
}

/// v1model's ports have nine bits, and the last is where frames are dropped.
const PORTS_MAX: u16 = 511;
