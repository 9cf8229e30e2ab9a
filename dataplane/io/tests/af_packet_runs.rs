//! Runs of frames that cross a veth pair as one packet between packet sockets: they are the same
//! frames at the end, and the same datagrams for a kernel.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::common::{
    configure, ethernet, fill, inside_namespace, payload, payloads, receive, skip,
};
use nix::sys::socket::{setsockopt, sockopt};
use weft_io::af_packet::{AfPacketConfig, AfPacketPort, Listens, Steering};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{Burst, Frame, Port};
use weft_wire::frame::{Encap, Endpoint, FrameError, Udp};
use weft_wire::{MacAddr, Nanos};

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

#[test]
fn runs_arrive_as_they_were_sent() {
    if !inside_namespace("af_packet_runs::runs_arrive_as_they_were_sent") {
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

/// Numbers that look like chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }
}

#[test]
fn bursts_of_all_kinds_are_what_single_frames_would_be() {
    if !inside_namespace("af_packet_runs::bursts_of_all_kinds_are_what_single_frames_would_be") {
        return;
    }
    veth();
    let (mut near, mut far) = (open("near", true), open("far", true));
    let mut dice = Dice(7);
    let mut count = 0;
    let before = packets("far");
    for round in 0..400 {
        let has_checksums = round % 3 == 0;
        far.set_ipv4_checksum(has_checksums);
        let mut tx = Burst::new();
        let mut expected = Vec::new();
        while !tx.is_full() {
            let mut way = route(&near, &far, dice.below(3) == 0);
            if dice.below(4) == 0 {
                let target = way.target();
                let addr = SocketAddr::new(target.addr.ip(), 22342);
                way = Encap::new(way.source(), Endpoint { addr, ..target }).expect("one family");
            }
            let len = [dice.below(8900) + 1, 1000, 40, 1400][dice.below(4)];
            for _ in 0..=dice.below(12).min(tx.remaining_capacity() - 1) {
                let mark = u8::try_from(dice.below(256)).expect("a byte");
                let mut frame = datagram(&mut near, &way, &vec![mark; len]);
                frame.keep_apart(dice.below(10) == 0);
                match dice.below(20) {
                    0 => way.finish(frame.as_mut()),
                    1 => frame.as_mut()[15] |= 0b11,
                    2 => frame.as_mut()[12..14].copy_from_slice(&[0x88, 0xb5]),
                    _ => {}
                }
                expected.push(frame.as_ref().to_vec());
                tx.push(frame);
            }
        }
        let sent = near.tx_burst(NOW, &mut tx);
        assert_eq!(sent, expected.len());
        count += sent as u64;
        let seen = receive(&mut far, sent);
        assert_eq!(seen.len(), sent, "round {round}");
        for (frame, mut expected) in seen.iter().zip(expected) {
            // Those that were in a run have a checksum, if somebody wants it.
            let is_bare = Udp::parse(frame.as_ref()).is_ok_and(|udp| udp.checksum == 0);
            if has_checksums && !is_bare && Udp::parse(&expected).is_ok_and(|u| u.checksum == 0) {
                let udp = Udp::parse(frame.as_ref()).expect("a datagram");
                assert!(udp.checksum_ok(frame.as_ref()));
                expected[40..42].copy_from_slice(&udp.checksum.to_be_bytes());
            }
            assert_eq!(frame.as_ref(), expected, "round {round}");
        }
    }
    let merged = packets("far") - before;
    assert!(merged < count * 3 / 4, "{merged} packets for {count} frames");
    assert_eq!((near.stats().tx_errors, far.stats().rx_errors, far.stats().rx_missed), (0, 0, 0));
}

/// Gives `near` an address, and tells its kernel who 10.9.0.2 is: `far`.
fn near_is_a_host(far: &AfPacketPort) {
    let mac = far.info().mac;
    assert!(configure("ip address add 10.9.0.1/24 dev near"));
    assert!(configure(&format!("ip neighbour add 10.9.0.2 lladdr {mac} dev near")));
}

#[test]
fn a_kernel_cuts_runs_whether_its_sockets_take_them_whole_or_not() {
    let name = "af_packet_runs::a_kernel_cuts_runs_whether_its_sockets_take_them_whole_or_not";
    if !inside_namespace(name) {
        return;
    }
    veth();
    let mut far = open("far", true);
    near_is_a_host(&far);
    let mac: MacAddr = open("near", true).info().mac;
    let before = packets("near");
    for (offload, port) in [(false, 6000), (true, 6001)] {
        let addr = SocketAddr::from(([10, 9, 0, 1], port));
        let config = UdpConfig { mtu: 9000, offload, ..UdpConfig::new(addr) };
        let mut kernel = UdpPort::open(&config).expect("a socket");
        let source = Endpoint { mac: far.info().mac, addr: "10.9.0.2:22341".parse().expect("it") };
        let route = Encap::new(source, Endpoint { mac, addr }).expect("one family");
        let mut tx = Burst::new();
        for payload in payloads() {
            tx.push(datagram(&mut far, &route, &payload));
        }
        assert_eq!(far.tx_burst(NOW, &mut tx), 32);
        let seen = receive(&mut kernel, 32);
        let seen: Vec<&[u8]> = seen.iter().map(|frame| payload(frame.as_ref())).collect();
        assert_eq!(seen, payloads(), "offload {offload}");
    }
    assert_eq!(packets("near") - before, 10, "five packets each time");
}

#[test]
fn runs_of_a_kernels_socket_are_cut_and_tagged() {
    if !inside_namespace("af_packet_runs::runs_of_a_kernels_socket_are_cut_and_tagged") {
        return;
    }
    veth();
    let mut far = open("far", true);
    near_is_a_host(&far);
    let mac = far.info().mac;
    let has_vlans = configure("ip link add link near name near.5 type vlan id 5");
    if has_vlans {
        assert!(configure("ip address add 10.8.0.1/24 dev near.5"));
        assert!(configure("ip link set near.5 up"));
        assert!(configure(&format!("ip neighbour add 10.8.0.2 lladdr {mac} dev near.5")));
    } else {
        skip("this kernel has no VLAN devices");
    }
    let to = |source: &str, target: &str| {
        let socket = UdpSocket::bind(source).expect("a socket");
        setsockopt(&socket, sockopt::UdpGsoSegment, &500).expect("this kernel can segment");
        let bytes = [[1; 500], [2; 500], [3; 500], [4; 500], [5; 500]].concat();
        socket.send_to(&bytes[..2300], target).expect("sent");
    };
    let before = packets("far");
    for wants in [true, false] {
        far.set_ipv4_checksum(wants);
        to("10.9.0.1:5000", "10.9.0.2:22341");
        let seen = receive(&mut far, 5);
        for (index, frame) in (0_u8..).zip(&seen) {
            let udp = Udp::parse(frame.as_ref()).expect("a datagram with a right header");
            assert_eq!(udp.checksum_ok(frame.as_ref()), wants);
            assert_eq!(udp.checksum == 0, !wants);
            let len = if index == 4 { 300 } else { 500 };
            assert_eq!(payload(frame.as_ref()), vec![index + 1; len]);
        }
        if has_vlans {
            to("10.8.0.1:5000", "10.8.0.2:22341");
            let seen = receive(&mut far, 5);
            assert_eq!(seen.len(), 5);
            for (index, frame) in (0_u8..).zip(&seen) {
                let frame = frame.as_ref();
                assert_eq!(Udp::parse(frame), Err(FrameError::Vlan));
                assert_eq!(frame[12..16], [0x81, 0x00, 0x00, 0x05]);
                let bare = [&frame[..12], &frame[16..]].concat();
                assert_eq!(payload(&bare)[0], index + 1);
            }
        }
    }
    let each = if has_vlans { 2 } else { 1 };
    assert_eq!(packets("far") - before, 2 * each, "one packet each");
    assert_eq!(far.stats().rx_errors, 0);
}

#[test]
fn a_vlan_tag_is_put_back_before_and_after_runs() {
    if !inside_namespace("af_packet_runs::a_vlan_tag_is_put_back_before_and_after_runs") {
        return;
    }
    veth();
    let (mut near, mut far) = (open("near", true), open("far", true));
    let route = route(&near, &far, false);
    for runs in [0, 1] {
        let mut tx = Burst::new();
        for _ in 0..2 * runs {
            tx.push(datagram(&mut near, &route, &[4; 700]));
        }
        for tpid in [[0x81, 0x00], [0x88, 0xa8]] {
            let mut frame = ethernet(&mut near, route.target().mac, route.source().mac, 7);
            frame.as_mut()[12..18].copy_from_slice(&[tpid[0], tpid[1], 0x60, 0x2a, 0x08, 0x00]);
            tx.push(frame);
        }
        let expected: Vec<Vec<u8>> = tx.iter().map(|frame| frame.as_ref().to_vec()).collect();
        near.tx_burst(NOW, &mut tx);
        far.set_ipv4_checksum(false);
        let seen = receive(&mut far, expected.len());
        let seen: Vec<Vec<u8>> = seen.iter().map(|frame| frame.as_ref().to_vec()).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_device_that_takes_no_runs_gets_plain_datagrams() {
    if !inside_namespace("af_packet_runs::a_device_that_takes_no_runs_gets_plain_datagrams") {
        return;
    }
    veth();
    if !configure("ip link set near gso_max_size 1600") {
        skip("this iproute2 cannot set gso_max_size");
        return;
    }
    // What is longer than the device takes at once.
    let payloads: Vec<Vec<u8>> = payloads().into_iter().filter(|own| own.len() != 32).collect();
    let count = payloads.len();
    let mut far = open("far", false);
    let mut complete = far.alloc().expect("a frame");
    for qdisc_bypass in [false, true] {
        let config = AfPacketConfig { offload: true, qdisc_bypass, ..AfPacketConfig::new("near") };
        let mut near = AfPacketPort::open(&config).expect("a port");
        let route = route(&near, &far, false);
        for round in 0..10 {
            let mut tx = Burst::new();
            for payload in &payloads {
                tx.push(datagram(&mut near, &route, payload));
            }
            let begun = Instant::now();
            while !tx.is_empty() {
                near.tx_burst(NOW, &mut tx);
                assert!(begun.elapsed().as_secs() < 5, "frames do not leave");
            }
            let seen = receive(&mut far, count);
            assert_eq!(seen.len(), count, "round {round}, bypass {qdisc_bypass}");
            for (frame, payload) in seen.iter().zip(&payloads) {
                fill(&mut complete, &route, payload);
                let has_checksum = Udp::parse(frame.as_ref()).expect("a datagram").checksum != 0;
                if has_checksum {
                    route.finish(complete.as_mut());
                }
                // The kernel numbers the datagrams that it cuts.
                complete.as_mut()[18..20].copy_from_slice(&frame.as_ref()[18..20]);
                complete.as_mut()[24..26].copy_from_slice(&frame.as_ref()[24..26]);
                assert_eq!(frame.as_ref(), complete.as_ref());
            }
        }
        assert_eq!(near.stats().tx_packets, 10 * count as u64);
        assert_eq!(near.stats().tx_errors, 0);
        // The kernel cuts runs on their way through a queueing discipline, and else drops them.
        assert_eq!(near.merges(), !qdisc_bypass);
    }
    assert_eq!(far.stats().rx_errors, 0);
}

#[test]
fn a_kernel_that_makes_the_checksums_makes_them_right() {
    if !inside_namespace("af_packet_runs::a_kernel_that_makes_the_checksums_makes_them_right") {
        return;
    }
    veth();
    if !configure("ethtool -K near tx off gso off") {
        skip("`ethtool -K` cannot switch offloads off here");
        return;
    }
    let config =
        AfPacketConfig { offload: true, qdisc_bypass: false, ..AfPacketConfig::new("near") };
    let mut near = AfPacketPort::open(&config).expect("a port");
    let mut far = open("far", false);
    for ipv6 in [false, true] {
        let route = route(&near, &far, ipv6);
        let mut tx: Burst<_> =
            payloads().iter().map(|payload| datagram(&mut near, &route, payload)).collect();
        assert_eq!(near.tx_burst(NOW, &mut tx), 32);
        let seen = receive(&mut far, 32);
        let mut singles = 0;
        for frame in &seen {
            let udp = Udp::parse(frame.as_ref()).expect("a datagram");
            singles += usize::from(udp.checksum == 0);
            assert!(udp.checksum == 0 || udp.checksum_ok(frame.as_ref()), "ipv6 {ipv6}");
        }
        let seen: Vec<&[u8]> = seen.iter().map(|frame| payload(frame.as_ref())).collect();
        assert_eq!(seen, payloads());
        assert_eq!(singles, usize::from(!ipv6), "one frame is in no run");
    }
}

#[test]
fn a_queueing_discipline_counts_a_run_as_its_frames() {
    if !inside_namespace("af_packet_runs::a_queueing_discipline_counts_a_run_as_its_frames") {
        return;
    }
    veth();
    if !configure("tc qdisc add dev near root pfifo limit 1000") {
        skip("this kernel has no pfifo");
        return;
    }
    let config =
        AfPacketConfig { offload: true, qdisc_bypass: false, ..AfPacketConfig::new("near") };
    let mut near = AfPacketPort::open(&config).expect("a port");
    let mut far = open("far", true);
    for ipv6 in [false, true] {
        let route = route(&near, &far, ipv6);
        let mut tx: Burst<_> =
            payloads().iter().map(|payload| datagram(&mut near, &route, payload)).collect();
        assert_eq!(near.tx_burst(NOW, &mut tx), 32);
        assert_eq!(receive(&mut far, 32).len(), 32);
    }
    let arguments = ["-s", "-j", "qdisc", "show", "dev", "near"];
    let output = std::process::Command::new("tc").args(arguments).output().expect("tc runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let bytes = text.split("\"bytes\":").nth(1).expect("a count");
    let bytes: u64 = bytes.split(',').next().expect("a number").parse().expect("a number");
    assert_eq!(bytes, near.stats().tx_bytes, "{text}");
}

#[test]
fn who_does_without_is_given_runs_whole_and_says_so() {
    if !inside_namespace("af_packet_runs::who_does_without_is_given_runs_whole_and_says_so") {
        return;
    }
    veth();
    let (mut near, mut far) = (open("near", true), open("far", false));
    let route = route(&near, &far, false);
    let mut offer = |is_apart| {
        let mut tx = Burst::new();
        for _ in 0..20 {
            let mut frame = datagram(&mut near, &route, &[1; 1000]);
            frame.keep_apart(is_apart);
            tx.push(frame);
        }
        assert_eq!(near.tx_burst(NOW, &mut tx), 20);
    };
    offer(true);
    assert_eq!(receive(&mut far, 20).len(), 20);
    assert_eq!(far.complaint(), None);
    offer(false);
    let begun = Instant::now();
    while far.stats().rx_errors == 0 {
        assert!(begun.elapsed().as_secs() < 10, "the run is counted");
        assert_eq!(far.rx_burst(NOW, &mut Burst::new()), 0);
        std::thread::sleep(Duration::from_millis(1));
    }
    let said = far.complaint().expect("a run came whole");
    assert!(said.contains("1 frames on far were longer than its MTU of 9000"), "{said}");
}

#[test]
fn what_a_burst_has_no_room_for_comes_with_the_next() {
    if !inside_namespace("af_packet_runs::what_a_burst_has_no_room_for_comes_with_the_next") {
        return;
    }
    veth();
    let mut near = open("near", true);
    let config = AfPacketConfig { frame_count: 20, offload: true, ..AfPacketConfig::new("far") };
    let mut far = AfPacketPort::open(&config).expect("a port");
    let route = route(&near, &far, false);
    for _ in 0..3 {
        let mut tx = Burst::new();
        for index in 0..32 {
            tx.push(datagram(&mut near, &route, &[index; 600]));
        }
        assert_eq!(near.tx_burst(NOW, &mut tx), 32);
        far.wait(5_000_000_000);
        let missing = far.stats().rx_nombuf;
        let mut rx = Burst::new();
        let begun = Instant::now();
        while rx.len() < 20 {
            far.rx_burst(NOW, &mut rx);
            assert!(begun.elapsed().as_secs() < 5, "{} came", rx.len());
        }
        assert_eq!(far.rx_burst(NOW, &mut rx), 0);
        assert!(far.stats().rx_nombuf > missing);
        let mut seen: Vec<u8> = rx.iter().map(|frame| payload(frame.as_ref())[0]).collect();
        drop(rx);
        // The socket is empty: only what the port holds can end this wait.
        let begun = Instant::now();
        far.wait(60_000_000_000);
        assert!(begun.elapsed().as_secs() < 30);
        seen.extend(receive(&mut far, 12).iter().map(|frame| payload(frame.as_ref())[0]));
        assert_eq!(seen, (0..32).collect::<Vec<u8>>());
    }
    assert_eq!(far.stats().rx_missed, 0);
}

#[test]
fn a_full_socket_is_counted() {
    if !inside_namespace("af_packet_runs::a_full_socket_is_counted") {
        return;
    }
    veth();
    let mut near = open("near", true);
    let config = AfPacketConfig { ring_bytes: 1, offload: true, ..AfPacketConfig::new("far") };
    let mut far = AfPacketPort::open(&config).expect("a port");
    let route = route(&near, &far, false);
    for _ in 0..10 {
        let mut tx = Burst::new();
        for index in 0..32 {
            let mut frame = datagram(&mut near, &route, &[index; 1000]);
            frame.keep_apart(true);
            tx.push(frame);
        }
        assert_eq!(near.tx_burst(NOW, &mut tx), 32);
    }
    let begun = Instant::now();
    let mut seen = 0;
    while seen + far.stats().rx_missed < 320 {
        seen += receive(&mut far, 1).len() as u64;
        assert!(begun.elapsed().as_secs() < 10, "{seen} frames came");
    }
    assert!(seen > 0 && far.stats().rx_missed > 100, "{seen} frames came");
}

#[test]
fn shares_and_filters_apply_to_runs_as_to_frames() {
    if !inside_namespace("af_packet_runs::shares_and_filters_apply_to_runs_as_to_frames") {
        return;
    }
    veth();
    let mut near = open("near", true);
    let steering = Some(Steering { group: 78, shard_count: 2, first_port: 0 });
    let listens = Some(Listens { first_port: 22341, count: 2 });
    let base = AfPacketConfig { offload: true, ..AfPacketConfig::new("far") };
    let share = AfPacketConfig { steering, listens, ..base };
    let mut shares: Vec<AfPacketPort> =
        (0..2).map(|_| AfPacketPort::open(&share).expect("a share")).collect();
    for ipv6 in [false, true] {
        let mut tx = Burst::new();
        for index in 0..30_u16 {
            let way = route(&near, &shares[0], ipv6);
            let (mut source, mut target) = (way.source(), way.target());
            source.addr.set_port(1000 + index / 6);
            target.addr.set_port(22341 + index / 12);
            let way = Encap::new(source, target).expect("one family");
            tx.push(datagram(&mut near, &way, &[index.to_le_bytes()[0]; 700]));
        }
        assert_eq!(near.tx_burst(NOW, &mut tx), 30);
        for (number, share) in shares.iter_mut().enumerate() {
            // Ports 1000 to 1004; the last goes to a port that nobody listens at.
            let seen = receive(share, 12);
            let marks = seen.iter().map(|frame| usize::from(payload(frame.as_ref())[0]));
            let expected = (0..24).filter(|mark| mark / 6 % 2 == number);
            assert!(marks.eq(expected), "share {number}, ipv6 {ipv6}");
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(share.rx_burst(NOW, &mut Burst::new()), 0);
        }
    }
}
