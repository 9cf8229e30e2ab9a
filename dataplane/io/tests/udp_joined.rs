//! Messages in one piece: what a port that was asked for them receives and sends as one frame is
//! the same datagrams as frame by frame.

use std::net::SocketAddr;

use crate::common::{configure, datagram, encap, inside_namespace, payload, receive, skip};
use weft_io::pool::PoolFrame;
use weft_io::shm::ShmHost;
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Frame, Port};
use weft_wire::Nanos;
use weft_wire::frame::{Encap, Udp};

const NOW: Nanos = Nanos(0);
/// Bytes of headers over IPv4.
const HEADERS: usize = 42;

fn open(joins: bool) -> UdpPort {
    let addr = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = UdpConfig { mtu: 9000, offload: true, ..UdpConfig::new(addr) };
    let mut port = UdpPort::open(&config).unwrap_or_else(|error| panic!("{error}: {error:?}"));
    port.join_runs(joins);
    port
}

/// A run in one piece: datagrams of these bytes, each `len` long but for the last.
fn run(port: &mut UdpPort, route: &Encap, len: usize, bytes: &[u8]) -> PoolFrame {
    let mut frame = port.alloc_run().expect("the kernel takes runs");
    let first = len.min(bytes.len());
    frame.buffer_mut()[HEADERS..][..bytes.len()].copy_from_slice(bytes);
    assert_eq!(route.emit(frame.buffer_mut(), first), HEADERS + first);
    frame.set_len(HEADERS + bytes.len());
    if first < bytes.len() {
        frame.set_datagram_len(len);
    }
    frame
}

/// Datagrams that tell each other apart.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).expect("small")).collect()
}

/// Every datagram that comes until there are `count`, whether alone or in one piece.
fn datagrams(port: &mut UdpPort, count: usize) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    while seen.len() < count {
        for frame in receive(port, 1) {
            let udp = Udp::parse(frame.as_ref()).expect("headers of the first");
            let all = &frame.as_ref()[udp.payload_start..];
            match frame.datagram_len() {
                None => seen.push(payload(frame.as_ref()).to_vec()),
                Some(len) => {
                    assert_eq!((udp.payload_len, all.len() > len), (len, true));
                    seen.extend(all.chunks(len).map(<[u8]>::to_vec));
                }
            }
        }
    }
    seen
}

#[test]
fn a_run_in_one_piece_is_its_datagrams_at_any_port() {
    for joins in [false, true] {
        let (mut worker, mut server) = (open(true), open(joins));
        let route = encap(worker.local_addr(), server.local_addr());
        let mut total = 0;
        for (len, all) in [(1000, 45_000), (1000, 2_500), (1408, 1408), (700, 2_100), (40, 130)] {
            let bytes = bytes(all);
            let mut tx = Burst::from_iter([run(&mut worker, &route, len, &bytes)]);
            assert_eq!(worker.tx_burst(NOW, &mut tx), 1);
            let expected: Vec<Vec<u8>> = bytes.chunks(len).map(<[u8]>::to_vec).collect();
            assert_eq!(datagrams(&mut server, expected.len()), expected, "{len}, {joins}");
            total += expected.len() as u64;
        }
        let (sent, seen) = (worker.stats(), server.stats());
        assert_eq!((sent.tx_packets, sent.tx_errors), (total, 0));
        assert_eq!((seen.rx_packets, seen.rx_errors), (total, 0));
        assert_eq!(sent.tx_bytes, seen.rx_bytes, "headers of each are counted");
    }
}

#[test]
fn frames_of_a_burst_come_in_one_piece_where_the_kernel_joins_them() {
    let (mut worker, mut server) = (open(false), open(true));
    let route = encap(worker.local_addr(), server.local_addr());
    let mut tx = Burst::new();
    for mark in 0..32 {
        tx.push(datagram(&mut worker, &route, &[mark; 1000]));
    }
    assert_eq!(worker.tx_burst(NOW, &mut tx), 32);
    let frames = receive(&mut server, 1);
    assert_eq!(frames[0].datagram_len(), Some(1000));
    assert_eq!(frames[0].as_ref().len(), HEADERS + 32 * 1000);
    assert!(frames[0].arrived_ns().is_some());
}

/// Many messages with a datagram each cost one look at the sockets, as they do frame by frame.
#[test]
fn single_datagrams_come_together() {
    let (mut worker, mut server) = (open(false), open(true));
    let route = encap(worker.local_addr(), server.local_addr());
    let mut tx = Burst::new();
    for mark in 0..12 {
        let mut frame = datagram(&mut worker, &route, &[mark; 100]);
        frame.keep_apart(true);
        tx.push(frame);
    }
    assert_eq!(worker.tx_burst(NOW, &mut tx), 12);
    let mut rx = Burst::new();
    let mut bursts = 0;
    while rx.len() < 12 {
        bursts += u32::from(server.rx_burst(NOW, &mut rx) > 0);
    }
    assert_eq!((bursts, rx.iter().all(|frame| frame.datagram_len().is_none())), (1, true));
    let marks: Vec<u8> = rx.iter().map(|frame| payload(frame.as_ref())[0]).collect();
    assert_eq!(marks, (0..12).collect::<Vec<u8>>());
}

/// A burst of them would be several caches full.
#[test]
fn messages_of_long_datagrams_come_a_few_at_a_time() {
    for joins in [false, true] {
        let (mut worker, mut server) = (open(true), open(joins));
        if server.granted().rx_bytes < 1 << 20 {
            return skip("a receive buffer of 1 MiB needs CAP_NET_ADMIN or a higher rmem_max");
        }
        let route = encap(worker.local_addr(), server.local_addr());
        let bytes = bytes(56_000);
        for _ in 0..8 {
            let mut tx = Burst::from_iter([run(&mut worker, &route, 8000, &bytes)]);
            assert_eq!(worker.tx_burst(NOW, &mut tx), 1);
        }
        let datagrams = [(); 3].map(|()| {
            let before = server.stats().rx_packets;
            server.rx_burst(NOW, &mut Burst::new());
            server.stats().rx_packets - before
        });
        assert_eq!(datagrams, [21, 21, 14], "{joins}");
    }
}

#[test]
fn only_who_asks_gets_runs_in_one_piece() {
    let addr = SocketAddr::from(([127, 0, 0, 1], 0));
    let has_room = |config: &UdpConfig| {
        let mut port = UdpPort::open(config).expect("a port");
        let before = port.alloc_run().is_some();
        port.join_runs(true);
        let asked = port.alloc_run().is_some();
        port.join_runs(false);
        (before, asked, port.alloc_run().is_some())
    };
    let config = UdpConfig { offload: true, ..UdpConfig::new(addr) };
    assert_eq!(has_room(&config), (false, true, false));
    assert_eq!(has_room(&UdpConfig { offload: false, ..config.clone() }), (false, false, false));
    let large = UdpConfig { mtu: 65_535, ..config };
    assert_eq!(has_room(&large), (false, false, false), "a datagram fills a message");
}

/// Each datagram's checksum is in its own headers.
#[test]
fn datagrams_that_need_a_checksum_come_one_by_one() {
    let (mut worker, mut server) = (open(false), open(true));
    server.set_ipv4_checksum(true);
    let route = encap(worker.local_addr(), server.local_addr());
    let mut tx = Burst::new();
    for mark in 0..8 {
        tx.push(datagram(&mut worker, &route, &[mark; 100]));
    }
    assert_eq!(worker.tx_burst(NOW, &mut tx), 8);
    for frame in receive(&mut server, 8) {
        let udp = Udp::parse(frame.as_ref()).expect("a datagram");
        assert!(udp.checksum != 0 && udp.checksum_ok(frame.as_ref()));
        assert_eq!(frame.datagram_len(), None);
    }
}

#[test]
fn a_run_of_datagrams_that_are_too_long_is_refused() {
    let config = UdpConfig {
        mtu: 128,
        offload: true,
        ..UdpConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    let mut small = UdpPort::open(&config).expect("a port");
    small.join_runs(true);
    let mut large = open(true);
    let route = encap(large.local_addr(), small.local_addr());
    for len in [101, 100] {
        let bytes = bytes(3 * len);
        let mut tx = Burst::from_iter([run(&mut large, &route, len, &bytes)]);
        assert_eq!(large.tx_burst(NOW, &mut tx), 1);
    }
    assert_eq!(datagrams(&mut small, 3).concat(), bytes(300));
    assert_eq!((small.stats().rx_packets, small.stats().rx_errors), (3, 3));
}

/// From an address that is not the port's.
#[test]
fn a_run_that_cannot_leave_is_counted_and_its_frame_kept() {
    let (mut worker, server) = (open(true), open(true));
    let route = encap(server.local_addr(), worker.local_addr());
    for _ in 0..100 {
        let mut tx = Burst::from_iter([run(&mut worker, &route, 100, &bytes(500))]);
        assert_eq!((worker.tx_burst(NOW, &mut tx), tx.len()), (1, 0));
    }
    assert_eq!((worker.stats().tx_packets, worker.stats().tx_errors), (0, 500));
}

#[test]
fn a_full_socket_leaves_the_run_with_the_caller() {
    if !inside_namespace("udp_joined::a_full_socket_leaves_the_run_with_the_caller") {
        return;
    }
    assert!(configure("ip link set lo up"));
    // What the link has not sent is the socket's.
    if !configure("tc qdisc add dev lo root tbf rate 1mbit burst 70000 limit 10000000") {
        skip("this kernel has no tbf qdisc");
        return;
    }
    let addr = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = UdpConfig { offload: true, socket_buffer_bytes: 1, ..UdpConfig::new(addr) };
    let mut worker = UdpPort::open(&config).expect("a port");
    worker.join_runs(true);
    let server = open(false);
    let route = encap(worker.local_addr(), server.local_addr());
    let mut tx = Burst::new();
    let mut count = 0;
    loop {
        tx.push(run(&mut worker, &route, 1000, &bytes(45_000)));
        if worker.tx_burst(NOW, &mut tx) == 0 {
            break;
        }
        count += 1;
        assert!(count < 100, "4.5 MB are not sent in a moment");
    }
    assert_eq!(tx[0].datagram_len(), Some(1000));
    assert_eq!(&tx[0].as_ref()[HEADERS..], bytes(45_000));
    assert_eq!((worker.stats().tx_packets, worker.stats().tx_errors), (45 * count, 0));
}

/// Beside memory that it shares a box still gets what comes over UDP in one piece.
#[test]
fn a_port_with_shared_memory_passes_the_wish_on() {
    let server = open(false);
    let addr = server.local_addr();
    let mut worker = open(true);
    let mut host = ShmHost::open(server, addr).expect("nobody else is there");
    host.join_runs(true);
    let route = encap(worker.local_addr(), addr);
    let mut tx = Burst::from_iter([run(&mut worker, &route, 1000, &bytes(9_500))]);
    assert_eq!(worker.tx_burst(NOW, &mut tx), 1);
    let frames = receive(&mut host, 1);
    assert_eq!(frames[0].datagram_len(), Some(1000));
}
