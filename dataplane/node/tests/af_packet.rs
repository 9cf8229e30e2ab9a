//! A real process on a packet ring, between two network namespaces of its own. Needs root; without
//! it the test says so and passes.

use crate::common::{ConfigFile, Running};
use crate::lab;
use crate::lab::{Lab, ip, serves};
use nix::sys::signal::Signal;
use weft_config::node::Io;

fn config(name: &str, interface: &str, mtu: u16) -> ConfigFile {
    let mut config = lab::config(Io::AfPacket, mtu);
    config.port.device = Some(interface.to_owned());
    ConfigFile::new(name, &config)
}

#[test]
fn a_packet_ring_is_a_host_and_sums() {
    let Some(lab) = Lab::up() else { return };
    let good = config("af", "vn0", 1500);
    lab.refusal(&config("af-iface", "nope0", 1500), "no interface nope0");
    lab.refusal(&config("af-mtu", "vn0", 9000), "vn0 has an MTU of 1500; set port.mtu = 1500");
    lab.refusal_while_the_kernel_answers(&good);
    serves(&lab, &good, "af_packet", false);
    no_second_box(&lab, &good);
    the_smaller_mtu_is_what_is_used(&lab);
    // Again: the peer knows the node by now, but the node does not know the peer.
    serves(&lab, &good, "af_packet", false);
}

/// Two boxes with one address would both answer; only the second is told, and a box that was killed
/// is in nobody's way.
fn no_second_box(lab: &Lab, config: &ConfigFile) {
    let first = Running::start(&mut lab.weft_node(config, &[]));
    lab.refusal(config, "another box has 10.77.0.1:22341 on vn0");
    let mut other = lab::config(Io::AfPacket, 1500);
    (other.port.device, other.port.udp_port) = (Some("vn0".to_owned()), 22_441);
    let other = ConfigFile::new("af-other", &other);
    let beside = Running::start(&mut lab.weft_node(&other, &[]));
    assert_eq!(beside.end(Signal::SIGINT).code, Some(0), "another port is another box");
    assert_eq!(first.end(Signal::SIGKILL).code, None);
}

/// A box that was told less than its interface allows says so, and a longer handshake is lost.
fn the_smaller_mtu_is_what_is_used(lab: &Lab) {
    let less = config("af-less", "vn0", 1000);
    let node = Running::start(&mut lab.weft_node(&less, &["--format", "json"]));
    let ready: serde_json::Value = serde_json::from_str(&node.ready).expect("JSON");
    assert_eq!(ready["mtu"], 1000);
    let ping = |bytes: &str| {
        let mut ping = vec!["netns", "exec", &lab.peer, "ping", "-c1", "-W1", "-M", "do"];
        ping.extend(["-s", bytes, "10.77.0.1"]);
        ip(&ping).status.success()
    };
    assert!(ping("972"), "1000 bytes with their headers");
    assert!(!ping("973"), "one more does not come in");
    assert_eq!(node.end(Signal::SIGINT).code, Some(0));
}
