//! The lab of these tests: a star of a box and workers.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Stdio};

use weft_config::node::{JobSection, NodeConfig, PortSection, RowSection};
use weft_config::to_toml;
use weft_testbed::lab::topology::{LinkEnd, Star, Topology};
use weft_testbed::lab::{self, LabName, netns, rootless};
use weft_tests::live::{program, skip};
use weft_wire::hello::Overflow;

/// A star of a box and workers, taken down when it ends.
pub(crate) struct Lab {
    pub(crate) name: LabName,
    pub(crate) topology: Topology,
    directory: tempfile::TempDir,
    pub(crate) nodes: Vec<Child>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
        let _ = lab::down(&self.name);
    }
}

impl Lab {
    pub(crate) fn up(test: &str, prefix: &str, workers: u8, keeps_offloads: bool) -> Option<Self> {
        if !rootless::is_privileged() {
            skip(test, "run as root");
            return None;
        }
        let star = Star { workers, aggregators: 1, rate: None, mtu: 1500 };
        let topology = Topology::star(&star).expect("a few hosts");
        let topology = Topology { keeps_offloads, ..topology };
        let name: LabName =
            format!("{prefix}{}", std::process::id() % 100_000).parse().expect("a lab name");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let lab = Self { name, topology, directory, nodes: Vec::new() };
        lab::up(&lab.name, &lab.topology).expect("a lab");
        Some(lab)
    }

    pub(crate) fn ip(&self, host: &str) -> IpAddr {
        self.topology.host(host).and_then(|host| host.ip).expect("an address").address
    }

    pub(crate) fn namespace(&self, host: &str) -> String {
        self.name.namespace(host)
    }

    pub(crate) fn end(&self, host: &str) -> &LinkEnd {
        let mut ends = self.topology.links.iter().flat_map(|link| &link.ends);
        ends.find(|end| end.node == host).expect("a link")
    }

    pub(crate) fn interface(&self, host: &str) -> &str {
        &self.end(host).interface
    }

    pub(crate) fn tool(&self, host: &str, program: &str, arguments: &[&str]) {
        let status = netns::command(&self.namespace(host), program).args(arguments).status();
        assert!(status.expect("it runs").success(), "{program} {arguments:?} at {host}");
    }

    /// Starts the box, of so many lanes, with a row of these members.
    pub(crate) fn start(&mut self, port: PortSection, members: &[SocketAddr], lanes: u16) {
        let members = members.iter().copied().map(Into::into).collect();
        let row = RowSection {
            exponent: Some(0),
            overflow: Overflow::Wrap,
            ..RowSection::new(0, 0, members)
        };
        let mut config =
            NodeConfig { job: vec![JobSection::new(0)], row: vec![row], ..NodeConfig::new(port) };
        config.lcores.shards = lanes;
        self.start_as(&config);
    }

    /// Starts a box of this file.
    pub(crate) fn start_as(&mut self, config: &NodeConfig) {
        let file = self.directory.path().join("node.toml");
        std::fs::write(&file, to_toml(config)).expect("a file in a temporary directory");
        self.nodes.push(spawn(&self.namespace("a0"), &file));
    }

    pub(crate) fn box_addr(&self) -> SocketAddr {
        (self.ip("a0"), 22341).into()
    }

    pub(crate) fn within<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        netns::within(&self.namespace(host), work).expect("the lab's namespace")
    }
}

pub(crate) fn spawn(namespace: &str, file: &Path) -> Child {
    let node = program("weft-node");
    let mut command = netns::command(namespace, node.to_str().expect("UTF-8"));
    command.arg("--config").arg(file).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().expect("weft-node starts")
}
