//! Addresses and shares: who is where, and who sends where. Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use weft_client::push::TlsFiles;
use weft_config::node::{SwitchPortSection, SwitchSection};
use weft_rpc::identity::Identity;
use weft_wire::hello::Integrity;

use super::{Io, Place, SWITCH_CPU_PORT, WorkerIo, WorkerPlan, switch_grpc};
use crate::certs::file_name;
use crate::lab::topology::{Link, Topology};
use crate::run::push::certs::worker_identity;
use crate::scenario::{CONTROLLER, PushSection, SERVER, Scenario, Site};

/// UDP port that boxes in a lab listen on.
const BOX_PORT: u16 = 22341;
/// TCP port of the controller in a lab.
const CONTROLLER_PORT: u16 = 22342;
/// First UDP port of the lanes of a worker in a lab.
const WORKER_PORT: u16 = 23000;
/// First UDP port of runs on loopback. Wireshark has no other protocol at this port, nor at one
/// that is a multiple of [`LOOPBACK_STRIDE`] above it.
pub const LOOPBACK_FIRST: u16 = 10_005;
/// UDP ports between one process's lanes and the next on loopback.
pub const LOOPBACK_STRIDE: u16 = 16;
/// UDP ports that a run on loopback may use from its base on.
pub const LOOPBACK_PORTS: u16 = 65 * LOOPBACK_STRIDE;
/// TCP port of the controller on loopback, above the base of a run.
const LOOPBACK_CONTROLLER: u16 = 1;

/// Where boxes, controller and workers of a run are.
pub(in crate::run) struct Layout<'a> {
    pub(in crate::run) scenario: &'a Scenario,
    pub(in crate::run) io: Io,
    pub(in crate::run) place: &'a Place,
    pub(in crate::run) topology: Option<&'a Topology>,
    /// Where the job's hosts are, if it is one of several.
    pub(in crate::run) site: &'a Site,
    /// Folder of the switch's compiled program.
    pub(in crate::run) program: &'a Path,
    /// The job's boxes.
    pub(in crate::run) names: &'a [String],
    /// The hosts of all jobs' boxes.
    pub(in crate::run) nodes: &'a [String],
    pub(in crate::run) directory: &'a Path,
    pub(in crate::run) certs: Option<&'a Path>,
}

impl Layout<'_> {
    /// Elements in a packet.
    pub(in crate::run) fn elements(&self) -> u16 {
        self.scenario.job.chunk_elements(self.scenario.lab.mtu)
    }

    /// What the job is called by boxes and controller.
    pub(in crate::run) fn job_name(&self) -> &str {
        let name = self.scenario.job.name.as_str();
        if name.is_empty() { "train" } else { name }
    }

    /// The scenario's `[push]`, in a run that has one.
    pub(in crate::run) fn push(&self) -> &PushSection {
        self.scenario.push.as_ref().expect("a scenario with [push]")
    }

    fn lab_ip(&self, name: &str) -> Option<IpAddr> {
        let host = self.topology.and_then(|topology| topology.host(self.site.host(name)));
        host.and_then(|host| host.ip).map(|cidr| cidr.address)
    }

    /// Where a box listens; on loopback every box has an address of its own, so that all use one
    /// port.
    pub(in crate::run) fn box_addr(&self, name: &str) -> SocketAddr {
        let port = self.place.port_base().unwrap_or(BOX_PORT);
        let host = self.site.host(name);
        let index = self.nodes.iter().position(|known| known == host).unwrap_or(0);
        let last = 1 + u8::try_from(index).expect("few boxes");
        let ip = self.lab_ip(name).unwrap_or_else(|| Ipv4Addr::new(127, 0, 0, last).into());
        SocketAddr::new(ip, port)
    }

    /// Where the controller listens.
    pub(in crate::run) fn controller_addr(&self) -> SocketAddr {
        let host = self.topology.and_then(|topology| topology.host(CONTROLLER));
        match (host.and_then(|host| host.control.or(host.ip)), self.place.port_base()) {
            (Some(cidr), _) => SocketAddr::new(cidr.address, CONTROLLER_PORT),
            (None, base) => {
                let base = base.unwrap_or(0);
                SocketAddr::from((Ipv4Addr::LOCALHOST, base + LOOPBACK_CONTROLLER))
            }
        }
    }

    /// The controller's endpoint, if there is one.
    pub(in crate::run) fn endpoint(&self) -> Option<String> {
        let scheme = if self.certs.is_some() { "https" } else { "http" };
        let has_controller = self.scenario.push.as_ref().is_some_and(|push| push.controller)
            || self.scenario.resize.is_some();
        has_controller.then(|| format!("{scheme}://{}", self.controller_addr()))
    }

    /// The certificate of a controller, a node or a worker.
    pub(in crate::run) fn tls(&self, identity: &Identity) -> Option<TlsFiles> {
        self.certs.map(|folder| TlsFiles::in_folder(folder, &file_name(identity)))
    }

    /// Where a worker sends from.
    pub(in crate::run) fn worker_addr(&self, rank: u8) -> SocketAddr {
        let number = self.site.workers_before + u16::from(rank);
        match self.lab_ip(&format!("w{rank}")) {
            // Hosts of several jobs may have several workers.
            Some(ip) if self.site.is_shared() => {
                SocketAddr::new(ip, WORKER_PORT + LOOPBACK_STRIDE * number)
            }
            Some(ip) => SocketAddr::new(ip, WORKER_PORT),
            None => {
                // The boxes' lanes have the first ports.
                let base = self.place.port_base().unwrap_or(WORKER_PORT);
                let port = base + LOOPBACK_STRIDE * (1 + number);
                SocketAddr::from((Ipv4Addr::LOCALHOST, port))
            }
        }
    }

    /// Where the workers send from, by rank.
    pub(in crate::run) fn worker_addrs(&self) -> Vec<SocketAddr> {
        (0..self.scenario.job.workers).map(|rank| self.worker_addr(rank)).collect()
    }

    /// The interface of a box in its namespace.
    pub(in crate::run) fn interface(&self, name: &str) -> &str {
        let ends = self.topology.iter().flat_map(|topology| &topology.links).flat_map(|l| &l.ends);
        let host = self.site.host(name);
        ends.into_iter().find(|end| end.node == host).map_or("lo", |end| end.interface.as_str())
    }

    /// The box that a worker sends to, and its rank there.
    pub(in crate::run) fn box_of(&self, rank: u8) -> (&str, u8) {
        if self.scenario.push.is_some() {
            return (SERVER, rank);
        }
        match self.scenario.job.workers.checked_div(self.scenario.aggregation.leaves) {
            None => (&self.names[0], rank),
            Some(of_leaf) => (&self.names[1 + usize::from(rank / of_leaf)], rank % of_leaf),
        }
    }

    /// The switch, with who is at which of its ports: the order of the lab's links.
    pub(in crate::run) fn switch(&self) -> SwitchSection {
        let topology = self.topology.expect("a switch is in a lab");
        let switch = topology.switches.first();
        let at_switch = |link: &&Link| link.ends.iter().any(|end| Some(&end.node) == switch);
        let host = |(port, link): (u16, &Link)| {
            let end = link.ends.iter().find(|end| Some(&end.node) != switch)?;
            match topology.host(&end.node)?.ip?.address {
                IpAddr::V4(ip) => Some(SwitchPortSection { port, ip }),
                IpAddr::V6(_) => None,
            }
        };
        let links = topology.links.iter().filter(at_switch);
        SwitchSection {
            grpc: switch_grpc(self.directory),
            elements: self.elements(),
            cpu_port: SWITCH_CPU_PORT,
            program: self.program.to_string_lossy().into_owned(),
            ..SwitchSection::new((0..).zip(links).filter_map(host).collect())
        }
    }

    /// What protects the payloads of all boxes alike: a switch computes UDP's checksum alone.
    pub(in crate::run) fn integrity(&self) -> Integrity {
        if self.io == Io::Bmv2 { Integrity::Checksum16 } else { Integrity::Crc32c }
    }

    pub(in crate::run) fn worker(&self, rank: u8, seed: u64) -> WorkerPlan {
        let (box_name, box_rank) = self.box_of(rank);
        WorkerPlan {
            job: self.site.job,
            host: self.site.host(&format!("w{rank}")).to_owned(),
            rank,
            box_rank,
            life: 0,
            local: self.worker_addr(rank),
            target: self.box_addr(box_name),
            controller: self.endpoint(),
            tls: self.tls(&worker_identity(self.site.job, rank)),
            mtu: u16::try_from(self.scenario.lab.mtu).expect("an MTU is below 65,536"),
            checksums: self.io == Io::Bmv2,
            io: WorkerIo::beside(self.io),
            offload: self.io.takes_runs(),
            link_delay_us: 0,
            cohort: None,
            seed,
            scenario: self.scenario.clone(),
        }
    }
}
