//! A real process on a packet ring, between two network namespaces of its own. Needs root; without
//! it the test says so and passes.

mod common;
#[path = "common/lab.rs"]
mod lab;
#[path = "common/member.rs"]
mod member;

use common::ConfigFile;
use lab::{Lab, serves};
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
    // Again: the peer knows the node by now, but the node does not know the peer.
    serves(&lab, &good, "af_packet", false);
}
