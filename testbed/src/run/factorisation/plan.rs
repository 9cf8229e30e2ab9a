//! Decides what home and processes are told. Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use weft_client::keys::KeyConfig;
use weft_config::node::{KeysSection, NodeConfig};

use crate::lab::topology::{Topology, TopologyError};
use crate::run::plan::{BoxPlan, Io, LOOPBACK_STRIDE, Place, PlanError, WorkerIo, box_config};
use crate::scenario::{FactorisationScenario, HOME};

/// Home and processes.
#[derive(Clone, Debug)]
pub struct FactorisationPlan {
    /// The scenario.
    pub scenario: FactorisationScenario,
    /// Seed of data, first factors and faults.
    pub seed: u64,
    /// The lab, if there is one.
    pub topology: Option<Topology>,
    /// The home.
    pub home: BoxPlan<NodeConfig>,
    /// The processes by number.
    pub processes: Vec<ProcessPlan>,
}

/// What a process is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ProcessPlan {
    /// Its number.
    pub node: u8,
    /// The host that it is on.
    pub host: String,
    /// Where the home is.
    pub home: SocketAddr,
    /// Where all processes are.
    pub processes: Vec<SocketAddr>,
    /// Its port.
    pub io: WorkerIo,
    /// Seed of data, first factors and faults.
    pub seed: u64,
    /// The scenario.
    pub scenario: FactorisationScenario,
}

impl FactorisationPlan {
    /// Gives the processes another port than UDP sockets. What is for all of a group is no row's,
    /// so they hear no multicasts.
    ///
    /// # Errors
    /// [`PlanError::WorkerIo`] where a process cannot have it.
    pub fn set_worker_io(&mut self, io: WorkerIo) -> Result<(), PlanError> {
        io.check_beside_udp(self.topology.is_some(), true)?;
        self.processes.iter_mut().for_each(|process| process.io = io);
        Ok(())
    }

    /// Plans a run at a place. On loopback all are at this address, so that runs of others do not
    /// meet it.
    ///
    /// # Errors
    /// When the lab cannot be laid out.
    pub fn new(
        scenario: &FactorisationScenario,
        place: &Place,
        loopback: Ipv4Addr,
        seed: u64,
    ) -> Result<Self, TopologyError> {
        let section = &scenario.factorisation;
        let is_lab = *place == Place::Lab;
        let topology = is_lab.then(|| scenario.topology()).transpose()?;
        let lab_ip =
            |host: &str| -> Option<IpAddr> { Some(topology.as_ref()?.host(host)?.ip?.address) };
        let base = place.port_base().unwrap_or(LAB_PORT);
        let addr = |host: &str, number: u16| match lab_ip(host) {
            Some(ip) => SocketAddr::new(ip, LAB_PORT),
            None => SocketAddr::from((loopback, base + LOOPBACK_STRIDE * number)),
        };
        let home = addr(HOME, 0);
        let host = |node: u8| format!("w{node}");
        let processes: Vec<SocketAddr> =
            (0..section.nodes).map(|node| addr(&host(node), 1 + u16::from(node))).collect();
        let mut config = box_config(HOME, Io::Udp, home, scenario.lab.mtu, "lo");
        config.keys.push(KeysSection {
            death_timeout_ms: DEATH_TIMEOUT_MS,
            dscp: section.dscp,
            bulk_dscp: section.bulk_dscp,
            ..KeysSection::new(JOB, section.row_len(), section.key_count(), processes.clone())
        });
        let of = |node| ProcessPlan {
            node,
            host: host(node),
            home,
            processes: processes.clone(),
            io: WorkerIo::Udp,
            seed,
            scenario: scenario.clone(),
        };
        Ok(Self {
            scenario: scenario.clone(),
            seed,
            home: BoxPlan { name: HOME.to_owned(), config },
            processes: (0..section.nodes).map(of).collect(),
            topology,
        })
    }
}

impl ProcessPlan {
    /// Its session's configuration.
    #[must_use]
    pub fn config(&self) -> KeyConfig {
        let section = &self.scenario.factorisation;
        let mut config = KeyConfig::new(
            self.home,
            self.processes.clone(),
            self.node,
            section.row_len(),
            section.key_count(),
        )
        .job(JOB)
        .mode(section.mode.mode())
        .in_flight(section.in_flight)
        .staleness(section.staleness)
        .dscp(section.dscp)
        .bulk_dscp(section.bulk_dscp);
        config.mtu = u16::try_from(self.scenario.lab.mtu).unwrap_or(u16::MAX);
        config.io = self.io.of_client();
        config
    }

    /// The process in a line, as `--dry-run` prints it.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { node, host, home, .. } = self;
        let addr = self.processes[usize::from(*node)];
        let threads = self.scenario.factorisation.threads;
        format!("process {node} on {host}: {addr} with home {home}, {threads} threads")
    }
}

const JOB: u16 = 0;
const LAB_PORT: u16 = 22341;
/// A machine with more threads than cores may keep a process waiting.
const DEATH_TIMEOUT_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use weft_config::{ConfigFile, to_toml};

    use super::*;
    use crate::scenario::FactorisationScenario;

    const TEXT: &str = include_str!("../../../scenarios/factorisation.toml");

    #[test]
    fn home_and_processes_agree_on_the_table() {
        let labels = "[factorisation]\ndscp = 46\nbulk_dscp = 14";
        let text = TEXT.replace("[factorisation]", labels);
        let scenario = FactorisationScenario::parse("factorisation.toml", &text).unwrap();
        for place in [Place::Lab, Place::Loopback { port_base: 20_000 }] {
            let plan = FactorisationPlan::new(&scenario, &place, Ipv4Addr::LOCALHOST, 1).unwrap();
            let file = ConfigFile::new("a0.toml", to_toml(&plan.home.config));
            let read: NodeConfig = file.read().unwrap();
            assert_eq!(read, plan.home.config);
            assert!(weft_lane::Settings::new(read).is_ok());
            let keys = &plan.home.config.keys[0];
            for process in &plan.processes {
                let table = process.config().check().unwrap();
                assert_eq!(keys.processes, process.processes);
                let config = process.config();
                assert_eq!((config.dscp, config.bulk_dscp), (46, Some(14)));
                assert_eq!((keys.dscp, keys.bulk_dscp), (46, Some(14)));
                assert_eq!((keys.row_len, keys.key_count), (table.row_len, table.key_count));
            }
            let mut all = plan.processes[0].processes.clone();
            all.push(plan.processes[0].home);
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), plan.processes.len() + 1, "an address each");
        }
    }
}
