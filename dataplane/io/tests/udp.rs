//! The UDP port against itself and against plain sockets, on the loopback interface.

use crate::common;
use std::net::{SocketAddr, UdpSocket};

use crate::common::{
    configure, datagram, encap, ethernet, inside_namespace, payload, receive, skip,
};
use weft_io::udp::{UdpConfig, UdpError, UdpPort, pseudo_mac};
use weft_io::{BURST_MAX, Burst, Port};
use weft_wire::frame::Udp;
use weft_wire::{MacAddr, Nanos};

const NOW: Nanos = Nanos(0);

fn open(ip: &str, socket_count: usize) -> UdpPort {
    let addr = SocketAddr::new(ip.parse().expect("an address"), 0);
    let config = UdpConfig { socket_count, mtu: 9000, ..UdpConfig::new(addr) };
    UdpPort::open(&config).unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

fn lane(port: &UdpPort, index: u16) -> SocketAddr {
    let mut addr = port.local_addr();
    addr.set_port(addr.port() + index);
    addr
}

fn bursts_cross_both_ways(ip: &str) {
    let (mut worker, mut server) = (open(ip, 4), open(ip, 1));
    for round in 0..20_u8 {
        let mut tx = Burst::new();
        for index in 0..32_u8 {
            let route = encap(lane(&worker, u16::from(index % 4)), server.local_addr());
            tx.push(datagram(&mut worker, &route, &[index, round, 0xaa]));
        }
        assert_eq!(worker.tx_burst(NOW, &mut tx), 32);
        assert!(tx.is_empty());
        let mut seen = receive(&mut server, 32);
        seen.sort_by_key(|frame| payload(frame.as_ref())[0]);
        assert_eq!(seen.len(), 32);
        for (index, frame) in (0..32_u8).zip(&mut seen) {
            assert_eq!(payload(frame.as_ref()), [index, round, 0xaa]);
            let udp = Udp::parse(frame.as_ref()).expect("a datagram");
            assert_eq!(udp.source, lane(&worker, u16::from(index % 4)));
            assert_eq!(udp.target, server.local_addr());
            assert_eq!(udp.source_mac, pseudo_mac(udp.source.ip()));
            assert!(!udp.congestion);
            // What the frame looks like on a wire is what its sender wrote.
            let mut wire = worker.alloc().expect("a frame");
            common::fill(&mut wire, &encap(udp.source, udp.target), &[index, round, 0xaa]);
            assert_eq!(frame.as_ref(), wire.as_ref());
            // Answer in place.
            let answer = encap(udp.target, udp.source);
            frame.as_mut()[udp.payload_start + 2] = 0xbb;
            answer.emit(frame.as_mut(), 3);
        }
        let mut tx: Burst<_> = seen.into_iter().collect();
        assert_eq!(server.tx_burst(NOW, &mut tx), 32);
        let mut answers = receive(&mut worker, 32);
        answers.sort_by_key(|frame| payload(frame.as_ref())[0]);
        for (index, frame) in (0..32_u8).zip(&answers) {
            assert_eq!(payload(frame.as_ref()), [index, round, 0xbb]);
            let udp = Udp::parse(frame.as_ref()).expect("a datagram");
            assert_eq!(udp.target, lane(&worker, u16::from(index % 4)));
            assert_eq!(udp.checksum_ok(frame.as_ref()), udp.target.is_ipv6());
        }
        assert_eq!(answers.len(), 32);
    }
    assert_eq!(worker.stats().tx_packets, 640);
    assert_eq!(server.stats().rx_packets, 640);
    assert_eq!(server.stats().tx_errors + server.stats().rx_errors, 0);
}

#[test]
fn ipv4_bursts_cross_both_ways() {
    bursts_cross_both_ways("127.0.0.1");
}

#[test]
fn ipv6_bursts_cross_both_ways() {
    if UdpSocket::bind("[::1]:0").is_err() {
        skip("this host has no IPv6 loopback address ::1");
        return;
    }
    bursts_cross_both_ways("::1");
}

#[test]
fn a_full_send_buffer_refuses_and_loses_nothing() {
    if !inside_namespace("udp::a_full_send_buffer_refuses_and_loses_nothing") {
        return;
    }
    // Loopback frees the send buffer at once, so a slow queue must stand in for a wire.
    assert!(configure("ip link set lo up"));
    if !configure("tc qdisc add dev lo root tbf rate 20mbit burst 4000 limit 100000") {
        skip("this kernel has no tbf qdisc");
        return;
    }
    for (offload, len) in [(false, 1000), (true, 3000)] {
        a_full_send_buffer_refuses(offload, len);
    }
}

fn a_full_send_buffer_refuses(offload: bool, len: usize) {
    let config = UdpConfig {
        socket_buffer_bytes: 1,
        mtu: 9000,
        offload,
        ..UdpConfig::new("127.0.0.1:0".parse().expect("an address"))
    };
    let mut port = UdpPort::open(&config).expect("a port");
    let mut server = open("127.0.0.1", 1);
    let route = encap(port.local_addr(), server.local_addr());
    let mut tx = Burst::new();
    for index in 0..32 {
        tx.push(datagram(&mut port, &route, &vec![index; len]));
    }
    let first = port.tx_burst(NOW, &mut tx);
    assert!((1..32).contains(&first), "{first} of 32 sent");
    assert_eq!(tx.len(), 32 - first);
    let mut seen: Vec<u8> = Vec::new();
    let start = std::time::Instant::now();
    while start.elapsed().as_secs() < 5 {
        let mut rx = Burst::new();
        server.rx_burst(NOW, &mut rx);
        seen.extend(rx.iter().map(|frame| payload(frame.as_ref())[0]));
        port.tx_burst(NOW, &mut tx);
        if seen.len() == 32 {
            break;
        }
    }
    assert_eq!(seen, (0..32).collect::<Vec<u8>>());
    assert_eq!(port.stats().tx_packets, 32);
    assert_eq!(port.stats().tx_errors, 0);
}

#[test]
fn unsendable_frames_are_counted_and_the_others_leave() {
    let (mut port, mut server) = (open("127.0.0.1", 1), open("127.0.0.1", 1));
    let good = encap(port.local_addr(), server.local_addr());
    let foreign_port = encap(lane(&port, 1), server.local_addr());
    let foreign_ip = encap("10.9.9.9:9".parse().expect("an address"), server.local_addr());
    let refused = encap(port.local_addr(), "255.255.255.255:9".parse().expect("an address"));
    let mut tx = Burst::new();
    tx.push(datagram(&mut port, &good, b"first"));
    tx.push(ethernet(&mut port, MacAddr::BROADCAST, MacAddr::default(), 0));
    tx.push(datagram(&mut port, &foreign_port, b"wrong port"));
    tx.push(datagram(&mut port, &foreign_ip, b"wrong source"));
    // The kernel says EACCES: broadcast is not allowed on this socket.
    tx.push(datagram(&mut port, &refused, b"to everyone"));
    tx.push(datagram(&mut port, &good, b"second"));
    assert_eq!(port.tx_burst(NOW, &mut tx), 6);
    assert!(tx.is_empty());
    assert_eq!((port.stats().tx_packets, port.stats().tx_errors), (2, 4));
    let seen = receive(&mut server, 2);
    assert_eq!(payload(seen[0].as_ref()), b"first");
    assert_eq!(payload(seen[1].as_ref()), b"second");
}

#[test]
fn oversized_datagrams_are_refused_both_ways() {
    let addr = "127.0.0.1:0".parse().expect("an address");
    let mut small = UdpPort::open(&UdpConfig { mtu: 100, ..UdpConfig::new(addr) }).expect("a port");
    let mut large = open("127.0.0.1", 1);
    let route = encap(large.local_addr(), small.local_addr());
    let mut tx = Burst::new();
    tx.push(datagram(&mut large, &route, &[1; 73]));
    tx.push(datagram(&mut large, &route, &[2; 72]));
    assert_eq!(large.tx_burst(NOW, &mut tx), 2);
    let seen = receive(&mut small, 1);
    assert_eq!(payload(seen[0].as_ref()), [2; 72]);
    assert_eq!((small.stats().rx_packets, small.stats().rx_errors), (1, 1));
}

#[test]
fn an_ecn_mark_survives_with_a_right_checksum() {
    let mut port = open("127.0.0.1", 1);
    let router =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).expect("a socket");
    router.set_tos_v4(0xbb).expect("DSCP 46 and CE");
    router.send_to(b"marked", &port.local_addr().into()).expect("sent");
    let seen = receive(&mut port, 1);
    // `parse` verifies the IPv4 checksum.
    let udp = Udp::parse(seen[0].as_ref()).expect("a datagram with a right checksum");
    assert!(udp.congestion);
    assert_eq!(seen[0].as_ref()[15], 0xbb);
    assert_eq!(payload(seen[0].as_ref()), b"marked");
}

#[test]
fn sent_datagrams_are_ecn_capable() {
    let mut port = open("127.0.0.1", 1);
    let mut server = open("127.0.0.1", 1);
    let route = encap(port.local_addr(), server.local_addr());
    let mut tx = Burst::new();
    tx.push(datagram(&mut port, &route, b"x"));
    port.tx_burst(NOW, &mut tx);
    assert_eq!(receive(&mut server, 1)[0].as_ref()[15], 0b10);
}

#[test]
fn checksums_are_written_for_groups_that_use_them() {
    let config = UdpConfig {
        ipv4_checksum: true,
        ..UdpConfig::new("127.0.0.1:0".parse().expect("an address"))
    };
    let mut port = UdpPort::open(&config).expect("a port");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    sender.send_to(b"odd length!", port.local_addr()).expect("sent");
    let seen = receive(&mut port, 1);
    assert!(Udp::parse(seen[0].as_ref()).expect("a datagram").checksum_ok(seen[0].as_ref()));
}

#[test]
fn a_dead_peer_neither_blocks_nor_spins() {
    let mut port = open("127.0.0.1", 1);
    let dead = UdpSocket::bind("127.0.0.1:0").and_then(|s| s.local_addr()).expect("an address");
    let route = encap(port.local_addr(), dead);
    let mut taken = 0;
    for _ in 0..10 {
        let mut tx = Burst::new();
        for _ in 0..BURST_MAX {
            tx.push(datagram(&mut port, &route, b"anyone?"));
        }
        taken += port.tx_burst(NOW, &mut tx);
        let mut rx = Burst::new();
        assert_eq!(port.rx_burst(NOW, &mut rx), 0);
    }
    let stats = port.stats();
    assert_eq!(stats.tx_packets + stats.tx_errors, taken as u64);
    assert!(taken > 0);
}

#[test]
fn a_port_in_use_says_what_to_do() {
    let port = open("127.0.0.1", 1);
    let Err(error) = UdpPort::open(&UdpConfig::new(port.local_addr())) else {
        panic!("the port is in use")
    };
    assert!(matches!(error, UdpError::InUse { .. }), "{error:?}");
    let text = error.to_string();
    let port = port.local_addr().port();
    assert!(text.contains(&format!("sport = :{port}")), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn an_address_of_no_interface_is_named() {
    let addr = "192.0.2.77:0".parse().expect("an address");
    let Err(error) = UdpPort::open(&UdpConfig::new(addr)) else { panic!("TEST-NET-1 is nobody's") };
    assert!(error.to_string().contains("192.0.2.77"), "{error}");
}

#[test]
fn impossible_configurations_are_refused() {
    let config = UdpConfig::new("127.0.0.1:0".parse().expect("an address"));
    for bad in [
        UdpConfig { addr: "0.0.0.0:0".parse().expect("an address"), ..config.clone() },
        UdpConfig {
            addr: "127.0.0.1:65535".parse().expect("a"),
            socket_count: 2,
            ..config.clone()
        },
        UdpConfig { socket_count: 0, ..config.clone() },
        UdpConfig { socket_count: 65, ..config.clone() },
        UdpConfig { mtu: 28, ..config.clone() },
        UdpConfig { mtu: 65_536, ..config.clone() },
    ] {
        assert!(matches!(UdpPort::open(&bad), Err(UdpError::Config { .. })), "{bad:?}");
    }
}

#[test]
fn an_exhausted_pool_is_counted_and_recovers() {
    let config =
        UdpConfig { frame_count: 4, ..UdpConfig::new("127.0.0.1:0".parse().expect("an address")) };
    let mut port = UdpPort::open(&config).expect("a port");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for _ in 0..6 {
        sender.send_to(b"x", port.local_addr()).expect("sent");
    }
    let held = receive(&mut port, 4);
    let mut rx = Burst::new();
    assert_eq!(port.rx_burst(NOW, &mut rx), 0);
    assert!(port.stats().rx_nombuf > 0);
    drop(held);
    assert_eq!(receive(&mut port, 2).len(), 2);
}

#[test]
fn a_flooded_socket_counts_what_the_kernel_dropped() {
    let config = UdpConfig {
        socket_buffer_bytes: 1,
        ..UdpConfig::new("127.0.0.1:0".parse().expect("an address"))
    };
    let mut port = UdpPort::open(&config).expect("a port");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for _ in 0..64 {
        sender.send_to(&[0; 1000], port.local_addr()).expect("sent");
    }
    let mut rx = Burst::new();
    let received = port.rx_burst(NOW, &mut rx) as u64;
    assert!(received < 32);
    assert_eq!(port.stats().rx_missed, 64 - received);
}

/// Waits until a wait takes all its time: a port lets others run for a moment before it sleeps.
fn until_it_sleeps(port: &mut UdpPort) {
    for _ in 0..100 {
        let start = std::time::Instant::now();
        port.wait(2_000_000);
        if start.elapsed().as_nanos() >= 2_000_000 {
            return;
        }
    }
    panic!("100 waits with nothing to wait for, and none has slept");
}

#[test]
fn wait_ends_when_a_datagram_comes() {
    let mut port = open("127.0.0.1", 3);
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let start = std::time::Instant::now();
    until_it_sleeps(&mut port);
    sender.send_to(b"x", lane(&port, 2)).expect("sent");
    port.wait(10_000_000_000);
    assert!(start.elapsed().as_secs() < 5);
    assert_eq!(receive(&mut port, 1).len(), 1);
}

#[test]
fn a_waker_ends_one_wait() {
    const LONG_NS: u64 = 60_000_000_000;
    let mut port = open("127.0.0.1", 2);
    let waker = port.waker().expect("a descriptor");
    until_it_sleeps(&mut port);
    let start = std::time::Instant::now();
    waker.wake();
    waker.wake();
    port.wait(LONG_NS);
    std::thread::scope(|scope| {
        scope.spawn(|| waker.wake());
        port.wait(LONG_NS);
    });
    assert!(start.elapsed().as_secs() < 30);
    let start = std::time::Instant::now();
    port.wait(2_000_000);
    assert!(start.elapsed().as_nanos() >= 2_000_000, "a wake that was heard is over");
    waker.wake();
    port.waker().expect("the same").wake();
    port.wait(LONG_NS);
    assert!(start.elapsed().as_secs() < 30);
}

#[test]
fn what_it_carried_is_what_it_counts() {
    let (mut sender, mut receiver) = (open("127.0.0.1", 1), open("127.0.0.1", 1));
    let route = encap(sender.local_addr(), receiver.local_addr());
    let mut tx = Burst::new();
    tx.push(datagram(&mut sender, &route, &[7; 100]));
    assert_eq!(sender.tx_burst(NOW, &mut tx), 1);
    assert_eq!(receive(&mut receiver, 1).len(), 1);
    assert_eq!((sender.carried(), receiver.carried()), ((0, 142), (142, 0)));
    assert_eq!(receiver.carried().0, receiver.stats().rx_bytes);
}

#[test]
fn granted_buffers_are_reported() {
    let granted = open("127.0.0.1", 2).granted();
    assert!(granted.rx_bytes >= 4096 && granted.tx_bytes >= 4096, "{granted:?}");
}

/// A message fills most of a burst, so one socket is served in each.
#[test]
fn a_lane_with_many_runs_lets_the_others_have_their_turn() {
    let addr: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let open = |socket_count| {
        let config = UdpConfig { socket_count, offload: true, ..UdpConfig::new(addr) };
        UdpPort::open(&config).expect("a port")
    };
    let (mut worker, mut server) = (open(2), open(1));
    for index in [0, 0, 0, 0, 1] {
        let route = encap(server.local_addr(), lane(&worker, index));
        let mut tx: Burst<_> = (0..45).map(|_| datagram(&mut server, &route, &[1; 1400])).collect();
        assert_eq!(server.tx_burst(NOW, &mut tx), 45);
    }
    let lanes = (0..3).flat_map(|_| {
        let mut rx = Burst::new();
        worker.rx_burst(NOW, &mut rx);
        let ports = rx.iter().map(|frame| Udp::parse(frame.as_ref()).expect("whole").target.port());
        let ports: std::collections::BTreeSet<u16> = ports.collect();
        worker.free(&mut rx);
        ports
    });
    let seen: Vec<u16> = lanes.collect();
    assert!(seen.contains(&lane(&worker, 1).port()), "{seen:?}");
}
