//! Which values make no sense by themselves, whoever reads them. Jobs, rows and quotas are judged
//! where engines are made of them.

use alloc::format;
use alloc::string::String;
use core::net::IpAddr;

use weft_wire::frame::multicast::group_of;

use super::{BandsBy, Io, NodeConfig, PortSection, memory};
use crate::Problem;

/// Longest pause that still lets a node end within a second.
const PAUSE_MAX_US: u64 = 100_000;
/// IPv4's and IPv6's smallest MTU.
const MTU_MIN: [u16; 2] = [576, 1280];

impl NodeConfig {
    /// Finds the first value that makes no sense by itself.
    ///
    /// # Errors
    /// The key, and what would be right.
    pub fn check(&self) -> Result<(), Problem> {
        let refuse = |field: &str, problem: &str| Err(Problem::new(field, String::from(problem)));
        let port = &self.port;
        if port.udp_port == 0 {
            return refuse("port.udp_port", "must be a port from 1 to 65535");
        }
        if port.io == Io::AfPacket && port.device.is_none() {
            return refuse("port.device", "must name the interface for af_packet");
        }
        if port.shm && port.io == Io::Switch {
            return refuse("port.shm", "goes with port.io = \"udp\", \"af_packet\" or \"dpdk\"");
        }
        if port.shm && port.io == Io::Dpdk && self.lcores.shards > 1 {
            let problem = "with several lanes needs port.io = \"udp\" or \"af_packet\"";
            return refuse("port.shm", problem);
        }
        if !port.shm_users.is_empty() && !port.shm {
            return refuse("port.shm_users", "goes with port.shm = true; set it, or remove this");
        }
        if let Some(problem) = port.multicast.and_then(|base| multicast_problem(base, port)) {
            return refuse("port.multicast", problem);
        }
        match (&self.switch, port.io == Io::Switch) {
            (None, true) => return refuse("switch", "must be there where port.io is \"switch\""),
            (Some(_), false) => {
                return refuse("switch", "goes with port.io = \"switch\"; set it, or remove it");
            }
            _ => {}
        }
        if let Some((key, problem)) = self.switch.as_ref().and_then(|switch| switch.problem()) {
            return refuse(&format!("switch.{key}"), problem);
        }
        let mtu_min = MTU_MIN[usize::from(port.ip.ip.is_ipv6())];
        if port.mtu < mtu_min {
            return refuse("port.mtu", &format!("must be at least {mtu_min}"));
        }
        if port.frame_count < 64 {
            return refuse("port.frame_count", "must be at least 64, two bursts");
        }
        memory::check(self)?;
        let lcores = &self.lcores;
        if !lcores.cpus.is_empty() && lcores.cpus.len() != usize::from(lcores.shards) {
            let shards = lcores.shards;
            let problem = format!("must name one CPU for each of the {shards} shards, or none");
            return refuse("lcores.cpus", &problem);
        }
        if lcores.ring_frames < 32 {
            return refuse("lcores.ring_frames", "must hold at least one burst (32)");
        }
        if let Some((key, problem)) = self.faults.and_then(|faults| faults.problem()) {
            return refuse(&format!("faults.{key}"), problem);
        }
        if let Some(trace) = &self.trace {
            if !trace.has_good_size() {
                return refuse("trace.size_max_mib", "must be from 1 to 1048576, a TiB");
            }
            if port.io != Io::Udp && lcores.shards > 1 {
                return refuse("trace", "is for one lane on ports where each lane sends by itself");
            }
        }
        if self.record.as_ref().is_some_and(|record| !record.has_good_size()) {
            return refuse("record.max_bytes", "must be at least 65536");
        }
        if self.record.is_some() && port.io == Io::Switch {
            return refuse("record", "is not for a box behind a switch: record its peers");
        }
        if let Some(bands) = &self.bands {
            if let Some((key, problem)) = bands.problem() {
                return refuse(&format!("bands.{key}"), problem);
            }
            if self.controller.is_none() && bands.fixed.is_empty() {
                let problem = "are given by a controller or by [[bands.fixed]]; name one of them";
                return refuse("bands", problem);
            }
            if bands.by == BandsBy::Port && self.lcores.shards > 1 {
                return refuse("bands.by", "is \"port\", which is for lcores.shards = 1");
            }
            let queued = bands.queue_frames.unwrap_or(0).saturating_mul(8);
            if queued > port.frame_count / 2 {
                let problem = "makes eight queues that take more than half of port.frame_count";
                return refuse("bands.queue_frames", problem);
            }
        }
        let idle = &self.idle;
        if idle.pause_min_us == 0 || idle.pause_min_us > idle.pause_max_us {
            return refuse("idle.pause_min_us", "must be from 1 to pause_max_us");
        }
        if idle.pause_max_us > PAUSE_MAX_US {
            return refuse("idle.pause_max_us", "must be at most 100000");
        }
        Ok(())
    }
}

/// Why rows cannot have multicast addresses from `base` on.
fn multicast_problem(base: IpAddr, port: &PortSection) -> Option<&'static str> {
    if port.io == Io::Switch {
        return Some("is not for a switch, which sends each member's answers itself");
    }
    if base.is_ipv4() != port.ip.ip.is_ipv4() {
        return Some("must be of the family of port.ip, such as 239.87.69.0 or ff12::5745:0");
    }
    let problem = "must be a multicast address that nobody has assigned, with room for 1024 rows \
                   above it, such as 239.87.69.0 or ff12::5745:0";
    group_of(base, 0).is_none().then_some(problem)
}
