//! A real process on DPDK: net_af_packet on a veth pair between two network namespaces of its own.
//! Needs root; without it the test says so and passes.

use crate::lab;
use std::process::Command;
use std::time::Instant;

use crate::common::{ConfigFile, PATIENCE, Running};
use crate::lab::{Lab, serves};
use nix::sys::signal::Signal;
use weft_config::node::{DpdkSection, Io, NodeConfig};

fn config(name: &str, interface: &str, mtu: u16) -> ConfigFile {
    let dpdk = DpdkSection {
        vdev: vec![format!("net_af_packet0,iface={interface}")],
        memory_mib: 64,
        rx_descriptors: 256,
        tx_descriptors: 256,
        mbuf_count: 1024,
        ..DpdkSection::default()
    };
    ConfigFile::new(name, &NodeConfig { dpdk, ..lab::config(Io::Dpdk, mtu) })
}

#[test]
fn a_dpdk_port_is_a_host_and_sums() {
    let Some(lab) = Lab::up() else { return };
    let good = config("dpdk", "vn0", 1500);
    lab.refusal(&config("dpdk-iface", "nope0", 1500), "no interface nope0");
    lab.refusal(
        &config("dpdk-mtu", "vn0", 9000),
        "interface vn0 has an MTU of 1500; set port.mtu = 1500",
    );
    lab.refusal_while_the_kernel_answers(&good);

    // One queue for both lanes, and one for each, over which the kernel spreads frames by a hash.
    serves(&lab, &good, "net_af_packet", true);
    serves(&lab, &config("dpdk-queues", "vn0,qpairs=2", 1500), "net_af_packet", false);
    eal_arguments_before_the_dashes_replace_the_section(&lab, &good);
}

fn eal_arguments_before_the_dashes_replace_the_section(lab: &Lab, good: &ConfigFile) {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &lab.node, env!("CARGO_BIN_EXE_weft-node")]);
    command.args(["--no-huge", "-m", "64", "--no-pci", "--no-shconf", "--no-telemetry"]);
    command.args(["--vdev=net_null7", "--", "--config"]).arg(good.path());
    let started = Instant::now();
    let node = Running::start(&mut command);
    assert!(node.ready.contains("driver=net_null"), "{}", node.ready);
    assert_eq!(node.end(Signal::SIGTERM).code, Some(0));
    assert!(started.elapsed() < PATIENCE);
}
