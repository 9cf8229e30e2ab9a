//! What a switch can do, and which jobs are refused because it cannot (PROTOCOL section 11).
//!
//! Decides at planning what would fail later: each refusal names the key and the reason. Sizes are
//! those that the program was compiled with.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_control::{HoldingError, SumOrder};
use weft_wire::header::ElementType;
use weft_wire::hello::{Integrity, Overflow};

use crate::table::{BoxConfig, PushConfig, RowConfig, TableError};

/// A switch: the sizes of its program, and who is at its ports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Elements of each chunk.
    pub elements: u16,
    /// Banks of all leases together.
    pub banks: u32,
    /// Rows of all jobs together.
    pub rows: u16,
    /// Windowed leases and push jobs together.
    pub scopes: u16,
    /// The port that this box is behind.
    pub cpu_port: u16,
    /// Which host is at which port.
    pub hosts: Vec<(Ipv4Addr, u16)>,
    /// What frames to this box may come to: bytes a second, and at once. `None`: anything.
    pub cpu_quota: Option<(u64, u64)>,
}

impl Target {
    /// The port that a host is at.
    #[must_use]
    pub fn port_of(&self, ip: Ipv4Addr) -> Option<u16> {
        self.hosts.iter().find(|(host, _)| *host == ip).map(|(_, port)| *port)
    }

    /// Every port that frames to unknown hosts leave by.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.hosts.iter().map(|(_, port)| *port).collect();
        ports.push(self.cpu_port);
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Judges a box and all that its file installs.
    ///
    /// # Errors
    /// [`TableError`] naming the entry, the field and the reason.
    pub fn check_box(&self, config: &BoxConfig) -> Result<(), TableError> {
        let error = |field, problem| {
            let reason = HoldingError::Switch;
            Err(TableError { entry: "box", index: 0, field, problem, reason })
        };
        if config.shards != 1 {
            return error("shards", "must be 1: the lanes of a switch are its own");
        }
        if !config.local.addr.is_ipv4() {
            return error("local", "must be IPv4: the switch's program knows no IPv6");
        }
        config.rows.iter().try_for_each(|row| self.check_row(row))?;
        config.pushes.iter().try_for_each(|push| self.check_push(push))?;
        if config.rows.len() + config.pushes.len() > usize::from(self.scopes) {
            let problem = "are more, with the push jobs, than the switch's program has scopes for";
            return error("rows", problem);
        }
        let banks = config.rows.iter().map(|row| u64::from(row.window) * 2).sum::<u64>();
        if banks > u64::from(self.banks) {
            return error("rows", "take more banks together than the switch's program has");
        }
        Ok(())
    }

    /// Judges a row.
    ///
    /// # Errors
    /// As [`Target::check_box`].
    pub fn check_row(&self, row: &RowConfig) -> Result<(), TableError> {
        let error = |field, problem| {
            let (index, reason) = (u32::from(row.row), HoldingError::Switch);
            Err(TableError { entry: "row", index, field, problem, reason })
        };
        if row.parent.is_some() {
            return error("parent", "cannot be: a switch is no leaf");
        }
        if row.element_type != ElementType::I32 {
            return error("element_type", "must be i32: a switch adds no floats");
        }
        if row.sum_order == SumOrder::Rank {
            return error("sum_order", "must be arrival: a switch keeps no row per member");
        }
        if row.integrity != Integrity::Checksum16 {
            return error(
                "integrity",
                "must be checksum16: a switch computes UDP's checksum alone",
            );
        }
        if row.overflow != Overflow::Wrap {
            return error("overflow", "must be wrap: a switch clamps nothing");
        }
        if row.elements != self.elements {
            return error("elements", "must be those that the switch's program was built for");
        }
        if u64::from(row.window) * 2 > u64::from(self.banks) {
            return error("window", "takes more banks, two a slot, than the switch's program has");
        }
        if !row.members.iter().all(|member| self.has_host(member.addr)) {
            let problem = "must be IPv4 hosts that [[switch.port]] names a port for";
            return error("members", problem);
        }
        Ok(())
    }

    /// Judges a push job.
    ///
    /// # Errors
    /// As [`Target::check_box`].
    pub fn check_push(&self, push: &PushConfig) -> Result<(), TableError> {
        let error = |field, problem| {
            let (index, reason) = (u32::from(push.job.0), HoldingError::Switch);
            Err(TableError { entry: "push", index, field, problem, reason })
        };
        if push.element_type != ElementType::I32 {
            return error("element_type", "must be i32: a switch adds no floats");
        }
        if push.integrity != Integrity::Checksum16 {
            return error(
                "integrity",
                "must be checksum16: a switch computes UDP's checksum alone",
            );
        }
        if push.overflow != Overflow::Wrap {
            return error("overflow", "must be wrap: a switch clamps nothing");
        }
        if push.elements != self.elements {
            return error("elements", "must be those that the switch's program was built for");
        }
        if push.chunks > self.banks {
            return error("chunks", "take more banks, one each, than the switch's program has");
        }
        if !push.workers.iter().all(|addr| self.has_host(*addr)) {
            let problem = "must be IPv4 hosts that [[switch.port]] names a port for";
            return error("workers", problem);
        }
        if !self.has_host(push.server.addr) {
            return error("server", "must be an IPv4 host that [[switch.port]] names a port for");
        }
        if push.replica.is_some_and(|replica| !self.has_host(replica.addr)) {
            return error("replica", "must be an IPv4 host that [[switch.port]] names a port for");
        }
        Ok(())
    }

    fn has_host(&self, addr: SocketAddr) -> bool {
        matches!(addr.ip(), IpAddr::V4(ip) if self.port_of(ip).is_some())
    }
}
