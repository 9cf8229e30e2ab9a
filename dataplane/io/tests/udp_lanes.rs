//! The ports of a box's lanes, which share a UDP port, against plain sockets on loopback.

use std::net::{SocketAddr, UdpSocket};

use crate::common::{datagram, encap, payload, receive, skip};
use weft_io::udp::{UdpConfig, UdpError, UdpPort};
use weft_io::{Burst, Port};
use weft_wire::Nanos;
use weft_wire::frame::Udp;

const NOW: Nanos = Nanos(0);
const LANES: u16 = 4;

fn config(addr: SocketAddr) -> UdpConfig {
    UdpConfig { socket_count: LANES.into(), ..UdpConfig::new(addr) }
}

fn open(ip: &str) -> Vec<UdpPort> {
    UdpPort::open_lanes(&config(SocketAddr::new(ip.parse().unwrap(), 0)))
        .unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

/// A plain socket whose port is of this lane.
fn member(ip: &str, lane: u16) -> UdpSocket {
    let sockets = (0..).map(|_| UdpSocket::bind((ip, 0)).unwrap());
    let mut of_lane = sockets.filter(|it| it.local_addr().unwrap().port() % LANES == lane);
    of_lane.next().expect("a port")
}

fn every_lane_receives_its_part_and_sends_from_its_port(ip: &str) {
    let mut lanes = open(ip);
    let first = lanes[0].local_addr();
    for round in 0..8_u8 {
        for lane in 0..LANES {
            let member = member(ip, lane);
            member.send_to(&[round, lane.to_le_bytes()[0]], first).unwrap();
            let port = &mut lanes[usize::from(lane)];
            let frames = receive(port, 1);
            assert_eq!(payload(frames[0].as_ref()), [round, lane.to_le_bytes()[0]], "lane {lane}");
            let udp = Udp::parse(frames[0].as_ref()).unwrap();
            assert_eq!((udp.source, udp.target), (member.local_addr().unwrap(), first));
            let own = SocketAddr::new(first.ip(), first.port() + lane);
            assert_eq!(port.local_addr(), own);
            let answer = encap(own, member.local_addr().unwrap());
            let mut tx: Burst<_> = [datagram(port, &answer, &[7])].into_iter().collect();
            assert_eq!(port.tx_burst(NOW, &mut tx), 1);
            let mut buffer = [0; 8];
            assert_eq!(member.recv_from(&mut buffer).unwrap(), (1, own));
            // What comes to the lane's own port is the lane's, whoever sends it.
            member.send_to(&[9], own).unwrap();
            assert_eq!(payload(receive(port, 1)[0].as_ref()), [9]);
        }
    }
    for port in &lanes {
        assert_eq!(port.stats().rx_packets, 16, "nothing went elsewhere");
    }
}

#[test]
fn every_lane_receives_its_part_over_ipv4() {
    every_lane_receives_its_part_and_sends_from_its_port("127.0.0.1");
}

#[test]
fn every_lane_receives_its_part_over_ipv6() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return skip("no IPv6 on loopback");
    }
    every_lane_receives_its_part_and_sends_from_its_port("::1");
}

#[test]
fn a_second_box_does_not_take_a_part_of_the_firsts_port() {
    let lanes = open("127.0.0.1");
    let again = config(lanes[0].local_addr());
    for outcome in [UdpPort::open_lanes(&again).map(drop), UdpPort::open(&again).map(drop)] {
        assert!(matches!(outcome, Err(UdpError::InUse { .. })), "{outcome:?}");
    }
    drop(lanes);
    assert_eq!(UdpPort::open_lanes(&again).unwrap().len(), usize::from(LANES));
}

#[test]
fn lanes_are_a_power_of_two() {
    let addr = "127.0.0.1:0".parse().unwrap();
    let error = UdpPort::open_lanes(&UdpConfig { socket_count: 3, ..UdpConfig::new(addr) });
    assert!(matches!(error, Err(UdpError::Config { .. })));
}
