//! Runs of frames that cross the kernel as one packet between packet sockets: they are the same
//! frames at the end, and the same datagrams for a kernel.

mod common;

use std::net::SocketAddr;

use common::{configure, fill, inside_namespace, receive};
use weft_io::af_packet::{AfPacketConfig, AfPacketPort};
use weft_io::{Burst, Frame, Port};
use weft_wire::Nanos;
use weft_wire::frame::{Encap, Endpoint};

const NOW: Nanos = Nanos(0);

type PoolFrame = <AfPacketPort as Port>::Frame;

/// Makes the pair near-far with jumbo frames, both up, silent but for what the test sends.
fn veth() {
    assert!(configure("ip link add near type veth peer name far"), "veth in a fresh namespace");
    for end in ["near", "far"] {
        let path = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
        std::fs::write(path, "1").expect("this namespace is ours");
        assert!(configure(&format!("ip link set {end} mtu 9000 up")));
    }
}

fn open(interface: &str, offload: bool) -> AfPacketPort {
    let config = AfPacketConfig { offload, ..AfPacketConfig::new(interface) };
    AfPacketPort::open(&config).unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

fn route(source: &AfPacketPort, target: &AfPacketPort, ipv6: bool) -> Encap {
    let addr = |last: u16, port: u16| -> SocketAddr {
        let ip = if ipv6 { format!("[fd00::{last}]") } else { format!("10.9.0.{last}") };
        format!("{ip}:{port}").parse().expect("an address")
    };
    let end = |port: &AfPacketPort, addr| Endpoint { mac: port.info().mac, addr };
    Encap::new(end(source, addr(1, 1000)), end(target, addr(2, 22341))).expect("one family")
}

fn datagram(port: &mut AfPacketPort, route: &Encap, payload: &[u8]) -> PoolFrame {
    let mut frame = port.alloc().expect("a frame");
    fill(&mut frame, route, payload);
    frame
}

/// Packets that an interface has received.
fn packets(interface: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
    let output =
        std::process::Command::new("ip").args(["-s", "-j", "link", "show", interface]).output();
    let text = String::from_utf8(output.expect("ip runs").stdout).expect("text");
    let after = text.split("\"rx\":{").nth(1).unwrap_or_else(|| panic!("{path}: {text}"));
    let count = after.split("\"packets\":").nth(1).expect("a count");
    count.split([',', '}']).next().expect("a number").parse().expect("a number")
}

/// Payloads as an engine sends them: two long runs, one with a short end, and single ones between.
fn payloads() -> Vec<Vec<u8>> {
    let mut payloads = vec![vec![0; 1000]; 12];
    payloads.push(vec![0; 999]);
    payloads.extend(vec![vec![0; 32]; 9]);
    payloads.extend([vec![0; 8900], vec![0; 1], vec![0; 40]]);
    payloads.extend(vec![vec![0; 8900]; 7]);
    assert_eq!(payloads.len(), 32);
    for (index, payload) in (0_u8..).zip(&mut payloads) {
        let len = payload.len();
        payload[len / 2..].fill(index ^ 0xff);
        payload[0] = index;
    }
    payloads
}

#[test]
fn runs_arrive_as_they_were_sent() {
    if !inside_namespace("runs_arrive_as_they_were_sent") {
        return;
    }
    veth();
    for ipv6 in [false, true] {
        let (mut near, mut far) = (open("near", true), open("far", true));
        assert!(near.merges());
        far.set_ipv4_checksum(false);
        let before = packets("far");
        for _ in 0..20 {
            let route = route(&near, &far, ipv6);
            let mut tx = Burst::new();
            for payload in payloads() {
                tx.push(datagram(&mut near, &route, &payload));
            }
            assert_eq!(near.tx_burst(NOW, &mut tx), 32);
            let seen = receive(&mut far, 32);
            assert_eq!(seen.len(), 32);
            for (frame, payload) in seen.iter().zip(payloads()) {
                let mut sent = near.alloc().expect("a frame");
                fill(&mut sent, &route, &payload);
                assert_eq!(frame.as_ref(), sent.as_ref());
                assert!(frame.arrived_ns().is_some());
            }
        }
        // 13 of 1000, 9 of 32, one of 8900 with one of 1, one of 40, seven of 8900.
        assert_eq!(packets("far") - before, 20 * 5);
        let stats = [near.stats(), far.stats()];
        assert_eq!((stats[0].tx_packets, stats[0].tx_errors), (640, 0));
        assert_eq!((stats[1].rx_packets, stats[1].rx_errors), (640, 0));
        assert_eq!(stats[0].tx_bytes, stats[1].rx_bytes);
        assert_eq!(far.complaint(), None);
    }
}
