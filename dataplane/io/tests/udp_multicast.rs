//! Multicast addresses that UDP ports hear, on the loopback interface.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::common::{configure, datagram, encap, inside_namespace, payload, receive, skip};
use weft_io::udp::{Hears, UdpConfig, UdpPort};
use weft_io::{Burst, Port};
use weft_wire::Nanos;
use weft_wire::frame::Udp;

const NOW: Nanos = Nanos(0);

/// A box of two lanes.
fn server(ip: &str) -> UdpPort {
    let addr = SocketAddr::new(ip.parse().unwrap(), 0);
    UdpPort::open(&UdpConfig { socket_count: 2, offload: true, ..UdpConfig::new(addr) }).unwrap()
}

fn listening(ip: &str, group: &str, server: &UdpPort) -> UdpConfig {
    let source = server.local_addr();
    let group = SocketAddr::new(group.parse().unwrap(), source.port());
    UdpConfig {
        socket_count: 2,
        offload: true,
        hears: vec![Hears { group, source }],
        ..UdpConfig::new(SocketAddr::new(ip.parse().unwrap(), 0))
    }
}

/// Sends one datagram.
fn send(port: &mut UdpPort, from: SocketAddr, to: SocketAddr, text: &[u8]) {
    let frame = datagram(port, &encap(from, to), text);
    port.tx_burst(NOW, &mut [frame].into_iter().collect());
}

fn above(mut addr: SocketAddr, lane: u16) -> SocketAddr {
    addr.set_port(addr.port() + lane);
    addr
}

fn each_listener_hears_both_lanes(ip: &str, group: &str) {
    let mut server = server(ip);
    let config = listening(ip, group, &server);
    let to = config.hears[0].group;
    let mut ports = [UdpPort::open(&config).unwrap(), UdpPort::open(&config).unwrap()];
    assert!(ports.iter().all(|port| port.hears(to.ip())));
    assert!(!ports[0].hears("239.9.9.9".parse().unwrap()));
    let mut tx = Burst::new();
    for index in 0..20_u8 {
        let lane = u16::from(index % 2);
        let route = encap(above(server.local_addr(), lane), above(to, lane));
        tx.push(datagram(&mut server, &route, &[index; 700]));
    }
    assert_eq!(server.tx_burst(NOW, &mut tx), 20, "{ip}");
    for port in &mut ports {
        let mut seen = receive(port, 20);
        seen.sort_by_key(|frame| payload(frame.as_ref())[0]);
        assert_eq!(seen.len(), 20, "{ip}");
        for (index, frame) in (0..20_u8).zip(&seen) {
            let lane = u16::from(index % 2);
            let udp = Udp::parse(frame.as_ref()).unwrap();
            assert_eq!(payload(frame.as_ref()), [index; 700]);
            assert_eq!(udp.source, above(server.local_addr(), lane));
            assert_eq!(udp.target, above(to, lane), "as it was addressed");
        }
    }
    // What is for one alone still comes to one alone.
    let (from, own) = (server.local_addr(), ports[0].local_addr());
    send(&mut server, from, own, b"yours");
    assert_eq!(receive(&mut ports[0], 1).len(), 1);
    assert_eq!(ports[1].rx_burst(NOW, &mut Burst::new()), 0);
}

#[test]
fn each_listener_hears_both_lanes_over_ipv4() {
    each_listener_hears_both_lanes("127.0.0.1", "239.87.69.1");
}

#[test]
fn each_listener_hears_both_lanes_over_ipv6() {
    if !inside_namespace("udp_multicast::each_listener_hears_both_lanes_over_ipv6") {
        return;
    }
    // Loopback has no route for IPv6 multicast.
    for command in [
        "ip link set lo up",
        "ip link add v0 type veth peer name v1",
        "ip address add fd00::1/64 dev v0 nodad",
        "ip link set v1 up",
        "ip link set v0 up",
    ] {
        if !configure(command) {
            return skip(&format!("`{command}` failed: has this kernel veth and IPv6?"));
        }
    }
    // The kernel sees a new link come up once a second where many do.
    let shown = || std::process::Command::new("ip").args(["link", "show", "v0"]).output();
    while !String::from_utf8_lossy(&shown().expect("it ran before").stdout).contains("state UP") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    each_listener_hears_both_lanes("fd00::1", "ff12::5745:1");
}

#[test]
fn what_others_send_there_is_not_taken_in() {
    let mut server = server("127.0.0.1");
    let config = listening("127.0.0.1", "239.87.69.2", &server);
    let to = config.hears[0].group;
    let mut port = UdpPort::open(&config).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(b"forged", to).unwrap();
    let from = server.local_addr();
    send(&mut server, from, to, b"the box's");
    let seen = receive(&mut port, 1);
    assert_eq!(payload(seen[0].as_ref()), b"the box's");
    assert_eq!(port.rx_burst(NOW, &mut Burst::new()), 0);
}

#[test]
fn a_port_does_not_send_from_a_multicast_address() {
    let server = server("127.0.0.1");
    let config = listening("127.0.0.1", "239.87.69.3", &server);
    let mut port = UdpPort::open(&config).unwrap();
    send(&mut port, config.hears[0].group, server.local_addr(), b"no");
    let third = above(port.local_addr(), 2);
    send(&mut port, third, server.local_addr(), b"no");
    assert_eq!((port.stats().tx_packets, port.stats().tx_errors), (0, 2));
}

#[test]
fn what_cannot_be_heard_is_refused() {
    let server = server("127.0.0.1");
    let good = listening("127.0.0.1", "239.87.69.4", &server);
    let hears = |group: &str, source: SocketAddr| {
        let group = SocketAddr::new(group.parse::<IpAddr>().unwrap(), 22341);
        UdpConfig { hears: vec![Hears { group, source }], ..good.clone() }
    };
    let source = server.local_addr();
    let last = SocketAddr::new(source.ip(), 65535);
    let sixty_four = vec![good.hears[0]; 32];
    for (config, words) in [
        (hears("10.0.0.1", source), "must be one"),
        (hears("ff12::1", source), "of the family"),
        (hears("239.87.69.4", last), "must be one"),
        (UdpConfig { hears: sixty_four, ..good.clone() }, "more than 64 sockets"),
    ] {
        let error = UdpPort::open(&config).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_port_that_another_program_has_is_named() {
    let taken = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let group = SocketAddr::new("239.87.69.5".parse().unwrap(), port);
    let source = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
    let config = UdpConfig {
        hears: vec![Hears { group, source }],
        ..UdpConfig::new("127.0.0.1:0".parse().unwrap())
    };
    let error = UdpPort::open(&config).expect_err("somebody has the port");
    assert!(error.to_string().starts_with(&format!("UDP port {group} is in use")), "{error}");
}
