//! Runs of datagrams that cross the kernel as one message: they are the same frames at the end, and
//! the same datagrams on a wire.

use crate::common;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use crate::common::{
    configure, datagram, encap, inside_namespace, payload, payloads, receive, skip,
};
use weft_io::af_packet::{AfPacketConfig, AfPacketPort};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Frame, Port};
use weft_wire::Nanos;
use weft_wire::frame::Udp;

const NOW: Nanos = Nanos(0);

fn open(ip: &str, offload: bool) -> UdpPort {
    let addr = SocketAddr::new(ip.parse().expect("an address"), 0);
    let config = UdpConfig { mtu: 9000, offload, ..UdpConfig::new(addr) };
    UdpPort::open(&config).unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

fn arrive_as_sent(ip: &str, sends: bool, receives: bool) {
    let (mut worker, mut server) = (open(ip, sends), open(ip, receives));
    for _ in 0..20 {
        let route = encap(worker.local_addr(), server.local_addr());
        let mut tx = Burst::new();
        for payload in payloads() {
            tx.push(datagram(&mut worker, &route, &payload));
        }
        assert_eq!(worker.tx_burst(NOW, &mut tx), 32);
        let seen = receive(&mut server, 32);
        assert_eq!(seen.len(), 32);
        for (frame, payload) in seen.iter().zip(payloads()) {
            let mut sent = worker.alloc().expect("a frame");
            common::fill(&mut sent, &route, &payload);
            assert_eq!(frame.as_ref(), sent.as_ref());
            assert!(frame.arrived_ns().is_some());
        }
    }
    let stats = [worker.stats(), server.stats()];
    assert_eq!((stats[0].tx_packets, stats[0].tx_errors), (640, 0));
    assert_eq!((stats[1].rx_packets, stats[1].rx_errors), (640, 0));
    assert_eq!(stats[0].tx_bytes, stats[1].rx_bytes);
}

#[test]
fn runs_arrive_as_they_were_sent() {
    for (sends, receives) in [(true, true), (true, false), (false, true), (false, false)] {
        arrive_as_sent("127.0.0.1", sends, receives);
    }
    if UdpSocket::bind("[::1]:0").is_err() {
        skip("this host has no IPv6 loopback address ::1");
        return;
    }
    arrive_as_sent("::1", true, true);
}

#[test]
fn runs_of_changing_lengths_are_cut_where_they_were_joined() {
    let mut worker = open("127.0.0.1", true);
    let mut server = open("127.0.0.1", true);
    let route = encap(worker.local_addr(), server.local_addr());
    let mut mark = 0u8;
    // As long as the last, shorter, longer, too short to learn from, and a shorter end.
    for lens in [
        vec![1000; 20],
        vec![1000; 20],
        vec![700; 20],
        vec![1100; 20],
        vec![40; 20],
        vec![1100; 3],
        vec![1100, 1100, 900],
        vec![40],
        vec![2000; 9],
    ] {
        let first = mark;
        let mut tx = Burst::new();
        for len in &lens {
            tx.push(datagram(&mut worker, &route, &vec![mark; *len]));
            mark += 1;
        }
        assert_eq!(worker.tx_burst(NOW, &mut tx), lens.len());
        let frames = receive(&mut server, lens.len());
        for (index, (frame, len)) in frames.iter().zip(&lens).enumerate() {
            let expected = vec![first + u8::try_from(index).expect("few"); *len];
            assert_eq!(payload(frame.as_ref()), expected, "{index} of {lens:?}");
        }
    }
    assert_eq!(server.stats().rx_errors, 0);
}

#[test]
fn what_a_burst_has_no_room_for_comes_with_the_next() {
    let addr = "127.0.0.1:0".parse().expect("an address");
    let mut worker = open("127.0.0.1", true);
    let config = UdpConfig { frame_count: 20, mtu: 9000, offload: true, ..UdpConfig::new(addr) };
    let mut server = UdpPort::open(&config).expect("a port");
    let route = encap(worker.local_addr(), server.local_addr());
    let mut tx = Burst::new();
    for index in 0..32 {
        tx.push(datagram(&mut worker, &route, &[index; 100]));
    }
    assert_eq!(worker.tx_burst(NOW, &mut tx), 32);
    let mut rx = Burst::new();
    while rx.len() < 20 {
        server.rx_burst(NOW, &mut rx);
    }
    assert_eq!(server.rx_burst(NOW, &mut rx), 0);
    assert!(server.stats().rx_nombuf > 0);
    let mut seen: Vec<u8> = rx.iter().map(|frame| payload(frame.as_ref())[0]).collect();
    drop(rx);
    // The socket is empty: only what the port holds can end this wait.
    let begun = Instant::now();
    server.wait(60_000_000_000);
    assert!(begun.elapsed().as_secs() < 30);
    seen.extend(receive(&mut server, 12).iter().map(|frame| payload(frame.as_ref())[0]));
    assert_eq!(seen, (0..32).collect::<Vec<u8>>());
}

/// A burst takes a message of which it has room for as many datagrams as the last had.
#[test]
fn a_message_longer_than_the_last_goes_on_in_the_next_burst() {
    let (mut worker, mut server) = (open("127.0.0.1", true), open("127.0.0.1", true));
    let route = encap(worker.local_addr(), server.local_addr());
    let mut mark = 0;
    // The first alone, so that the length of its datagrams is known.
    for run in [2, 28, 45] {
        let mut tx = Burst::new();
        for _ in 0..run {
            tx.push(datagram(&mut worker, &route, &[mark; 1000]));
            mark += 1;
        }
        assert_eq!(worker.tx_burst(NOW, &mut tx), run);
        if run == 2 {
            assert_eq!(receive(&mut server, 2).len(), 2);
        }
    }
    let frames = receive(&mut server, 73);
    let marks: Vec<u8> = frames.iter().map(|frame| payload(frame.as_ref())[0]).collect();
    assert_eq!(marks, (2..75).collect::<Vec<u8>>());
    assert_eq!((server.stats().rx_packets, server.stats().rx_errors), (75, 0));
}

#[test]
fn datagrams_of_a_run_that_are_too_long_are_refused_and_the_last_is_not() {
    let addr = "127.0.0.1:0".parse().expect("an address");
    let config = UdpConfig { mtu: 128, offload: true, ..UdpConfig::new(addr) };
    let mut small = UdpPort::open(&config).expect("a port");
    let mut large = open("127.0.0.1", true);
    let route = encap(large.local_addr(), small.local_addr());
    let mut tx = Burst::new();
    for len in [101, 101, 101, 100, 100] {
        tx.push(datagram(&mut large, &route, &vec![7; len]));
    }
    assert_eq!(large.tx_burst(NOW, &mut tx), 5);
    let seen = receive(&mut small, 2);
    assert!(seen.iter().all(|frame| payload(frame.as_ref()) == [7; 100]));
    assert_eq!((small.stats().rx_packets, small.stats().rx_errors), (2, 3));
}

#[test]
fn a_mark_on_a_run_is_on_each_of_its_frames() {
    let mut port = open("127.0.0.1", true);
    // What a queueing discipline does to a merged packet: the mark is in its one header.
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let router = socket.local_addr().expect("an address");
    let socket = socket2::Socket::from(socket);
    socket.set_tos_v4(0xbb).expect("DSCP 46 and CE");
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::UdpGsoSegment, &50)
        .expect("this kernel can segment");
    socket.send_to(&[5; 130], &port.local_addr().into()).expect("sent");
    let seen = receive(&mut port, 3);
    assert_eq!(seen.iter().map(|frame| payload(frame.as_ref()).len()).sum::<usize>(), 130);
    for frame in &seen {
        let udp = Udp::parse(frame.as_ref()).expect("a datagram with a right checksum");
        assert!(udp.congestion);
        assert_eq!((frame.as_ref()[15], udp.source), (0xbb, router));
    }
}

#[test]
fn on_a_wire_runs_are_plain_datagrams_and_frames_apart_stay_so() {
    let name = "udp_offload::on_a_wire_runs_are_plain_datagrams_and_frames_apart_stay_so";
    if !inside_namespace(name) {
        return;
    }
    assert!(configure("ip link add near type veth peer name far"), "veth in a fresh namespace");
    for end in ["near", "far"] {
        let path = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
        std::fs::write(path, "1").expect("this namespace is ours");
        assert!(configure(&format!("ip link set {end} mtu 9000 up")));
    }
    assert!(configure("ip address add 10.9.0.1/24 dev near"));
    let mut far = AfPacketPort::open(&AfPacketConfig::new("far")).expect("an interface");
    let mac = far.info().mac.to_string();
    assert!(configure(&format!("ip neighbour add 10.9.0.2 lladdr {mac} dev near")));
    let mut near = open("10.9.0.1", true);
    let route = encap(near.local_addr(), "10.9.0.2:7000".parse().expect("an address"));
    let mut offer = |apart: bool| {
        let mut tx = Burst::new();
        for payload in payloads() {
            let mut frame = datagram(&mut near, &route, &payload);
            frame.keep_apart(apart);
            tx.push(frame);
        }
        assert_eq!(near.tx_burst(NOW, &mut tx), 32);
    };
    // Frames that stay apart are no run even where nothing cuts one.
    offer(true);
    assert_plain(&receive(&mut far, 32));
    // A card without segmentation: the kernel cuts runs before they reach the wire.
    if !configure("ip link set near gso_max_segs 1") {
        skip("this iproute2 cannot set gso_max_segs");
        return;
    }
    offer(false);
    assert_plain(&receive(&mut far, 32));
}

fn assert_plain<F: Frame>(seen: &[F]) {
    let seen: Vec<&[u8]> = seen.iter().map(|frame| payload(frame.as_ref())).collect();
    assert_eq!(seen, payloads());
}

#[test]
fn frames_too_long_for_the_path_are_counted_one_by_one_and_runs_go_on() {
    if !inside_namespace(
        "udp_offload::frames_too_long_for_the_path_are_counted_one_by_one_and_runs_go_on",
    ) {
        return;
    }
    assert!(configure("ip link set lo mtu 1500 up"));
    let (mut worker, mut server) = (open("127.0.0.1", true), open("127.0.0.1", true));
    let route = encap(worker.local_addr(), server.local_addr());
    for _ in 0..2 {
        let mut tx = Burst::new();
        for len in [3000, 3000, 3000, 800, 800, 800] {
            tx.push(datagram(&mut worker, &route, &vec![3; len]));
        }
        worker.tx_burst(NOW, &mut tx);
        assert!(tx.is_empty());
        assert_eq!(receive(&mut server, 3).len(), 3);
    }
    assert_eq!((worker.stats().tx_packets, worker.stats().tx_errors), (6, 6));
}
