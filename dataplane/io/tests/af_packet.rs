//! The AF_PACKET port on a veth pair in a network namespace of its own.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::common::{
    configure, ethernet, fill, inside_namespace, payload, receive, run_inner, skip,
};
use weft_io::af_packet::{AfPacketConfig, AfPacketError, AfPacketPort, Listens, Steering};
use weft_io::{BURST_MAX, Burst, Port};
use weft_wire::frame::{Encap, Endpoint, FrameError, Udp};
use weft_wire::{MacAddr, Nanos};

const NOW: Nanos = Nanos(0);
const MARK: &[u8] = b"weft test payload";

/// Makes the pair near-far, both up, silent but for what the test sends.
fn veth() {
    assert!(configure("ip link add near type veth peer name far"), "veth in a fresh namespace");
    for end in ["near", "far"] {
        let path = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
        std::fs::write(path, "1").expect("this namespace is ours");
        assert!(configure(&format!("ip link set {end} up")));
    }
}

fn open(interface: &str) -> AfPacketPort {
    AfPacketPort::open(&AfPacketConfig::new(interface))
        .unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

fn encap(source: &AfPacketPort, target: &AfPacketPort, source_port: u16, ipv6: bool) -> Encap {
    let ip = |last: u16| -> SocketAddr {
        let text = if ipv6 { format!("[fd00::{last}]:0") } else { format!("10.9.0.{last}:0") };
        text.parse().expect("an address")
    };
    let end = |port: &AfPacketPort, mut addr: SocketAddr, udp_port| {
        addr.set_port(udp_port);
        Endpoint { mac: port.info().mac, addr }
    };
    Encap::new(end(source, ip(1), source_port), end(target, ip(2), 22341)).expect("one family")
}

fn datagram(
    port: &mut AfPacketPort,
    encap: &Encap,
    payload: &[u8],
) -> <AfPacketPort as Port>::Frame {
    let mut frame = port.alloc().expect("a frame");
    fill(&mut frame, encap, payload);
    frame
}

/// Sends all of `tx`, offering the rest again.
fn send_all(port: &mut AfPacketPort, tx: &mut Burst<<AfPacketPort as Port>::Frame>) {
    let start = Instant::now();
    while !tx.is_empty() {
        port.tx_burst(NOW, tx);
        assert!(start.elapsed().as_secs() < 5, "frames do not leave");
    }
}

/// Waits for what the kernel does in its own time.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed().as_secs() < 10, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What has come by now.
fn receive_now(port: &mut AfPacketPort) -> Burst<<AfPacketPort as Port>::Frame> {
    let mut rx = Burst::new();
    port.rx_burst(NOW, &mut rx);
    rx
}

#[test]
fn bursts_cross_both_ways_unchanged() {
    if !inside_namespace("af_packet::bursts_cross_both_ways_unchanged") {
        return;
    }
    veth();
    let (mut near, mut far) = (open("near"), open("far"));
    assert_eq!(near.info().mtu, 1500);
    for round in 0..100_u8 {
        let ipv6 = round % 2 == 1;
        let there = encap(&near, &far, 1000, ipv6);
        let back = encap(&far, &near, 2000, ipv6);
        let mut tx = Burst::new();
        let mut expected = Vec::new();
        for index in 0..BURST_MAX {
            let frame = datagram(&mut near, &there, &vec![round; index * 20]);
            expected.push(frame.as_ref().to_vec());
            tx.push(frame);
        }
        send_all(&mut near, &mut tx);
        let mut seen = receive(&mut far, BURST_MAX);
        let bytes: Vec<_> = seen.iter().map(|frame| frame.as_ref().to_vec()).collect();
        assert_eq!(bytes, expected);
        // Back in the frames that came.
        for frame in &mut seen {
            let len = payload(frame.as_ref()).len();
            back.emit(frame.as_mut(), len);
            back.finish(frame.as_mut());
        }
        send_all(&mut far, &mut seen.into_iter().collect());
        assert_eq!(receive(&mut near, BURST_MAX).len(), BURST_MAX);
    }
    assert_eq!(near.stats().tx_packets, 100 * BURST_MAX as u64);
    assert_eq!(near.stats().rx_packets, 100 * BURST_MAX as u64);
    assert_eq!(near.stats().rx_missed + near.stats().rx_errors + near.stats().tx_errors, 0);
}

#[test]
fn a_full_mtu_passes_and_more_is_an_error() {
    if !inside_namespace("af_packet::a_full_mtu_passes_and_more_is_an_error") {
        return;
    }
    veth();
    let (mut near, mut far) = (open("near"), open("far"));
    let there = encap(&near, &far, 1000, false);
    let mut tx = Burst::new();
    tx.push(datagram(&mut near, &there, &[1; 1500 - 28]));
    tx.push(datagram(&mut near, &there, &[2; 1500 - 28 + 1]));
    tx.push(near.alloc().expect("an empty frame"));
    tx.push(datagram(&mut near, &there, &[3; 10]));
    assert_eq!(near.tx_burst(NOW, &mut tx), 4);
    let seen = receive(&mut far, 2);
    assert_eq!(payload(seen[0].as_ref()), [1; 1472]);
    assert_eq!(payload(seen[1].as_ref()), [3; 10]);
    assert_eq!((near.stats().tx_packets, near.stats().tx_errors), (2, 2));
}

/// A port whose configuration says less than its interface allows has that little both ways.
#[test]
fn a_smaller_mtu_than_the_interfaces_is_kept_to() {
    if !inside_namespace("af_packet::a_smaller_mtu_than_the_interfaces_is_kept_to") {
        return;
    }
    veth();
    for offload in [false, true] {
        let told = |interface, mtu| {
            let config = AfPacketConfig { mtu, offload, ..AfPacketConfig::new(interface) };
            AfPacketPort::open(&config).unwrap_or_else(|error| panic!("{error}: {error:?}"))
        };
        let (mut near, mut far) = (told("near", Some(1000)), told("far", None));
        assert_eq!((near.info().mtu, far.info().mtu), (1000, 1500));
        assert_eq!(told("near", Some(9000)).info().mtu, 1500, "an interface gives what it has");
        let mut tx = Burst::new();
        let here = encap(&far, &near, 1000, false);
        tx.push(datagram(&mut far, &here, &[1; 1500 - 28]));
        tx.push(datagram(&mut far, &here, &[2; 1000 - 28]));
        send_all(&mut far, &mut tx);
        let seen = receive(&mut near, 1);
        assert_eq!(payload(seen[0].as_ref()), [2; 972], "what is longer does not come in");
        until("the longer one is counted", || {
            assert_eq!(receive_now(&mut near).len(), 0);
            near.stats().rx_errors == 1
        });
        let said = near.complaint().expect("a frame was too long");
        assert!(said.contains("this port's MTU of 1000, less than the interface's 1500"), "{said}");
        let there = encap(&near, &far, 1000, false);
        let mut frame = near.alloc().expect("a frame");
        fill(&mut frame, &there, &[3; 1000 - 28]);
        tx.push(frame);
        send_all(&mut near, &mut tx);
        assert_eq!(payload(receive(&mut far, 1)[0].as_ref()), [3; 972]);
        assert_eq!(near.stats().tx_errors, 0);
    }
}

#[test]
fn a_vlan_tag_is_put_back() {
    if !inside_namespace("af_packet::a_vlan_tag_is_put_back") {
        return;
    }
    veth();
    let (mut near, mut far) = (open("near"), open("far"));
    let target = far.info().mac;
    for tpid in [[0x81, 0x00], [0x88, 0xa8]] {
        let mut frame = ethernet(&mut near, target, MacAddr([2, 0, 0, 0, 0, 9]), 7);
        frame.as_mut()[12..18].copy_from_slice(&[tpid[0], tpid[1], 0x60, 0x2a, 0x08, 0x00]);
        let expected = frame.as_ref().to_vec();
        let mut tx = Burst::new();
        tx.push(frame);
        send_all(&mut near, &mut tx);
        let seen = receive(&mut far, 1);
        assert_eq!(seen[0].as_ref(), expected);
        assert_eq!(Udp::parse(seen[0].as_ref()), Err(FrameError::Vlan));
    }
}

#[test]
fn what_this_host_sends_is_not_received() {
    if !inside_namespace("af_packet::what_this_host_sends_is_not_received") {
        return;
    }
    veth();
    let (mut near, mut twin, mut far) = (open("near"), open("near"), open("far"));
    let there = encap(&near, &far, 1000, false);
    let mut tx = Burst::new();
    tx.push(datagram(&mut near, &there, MARK));
    send_all(&mut near, &mut tx);
    assert_eq!(receive(&mut far, 1).len(), 1);
    std::thread::sleep(Duration::from_millis(20));
    let mut rx = Burst::new();
    assert_eq!(near.rx_burst(NOW, &mut rx) + twin.rx_burst(NOW, &mut rx), 0);
}

#[test]
fn a_checksum_left_to_hardware_is_completed() {
    if !inside_namespace("af_packet::a_checksum_left_to_hardware_is_completed") {
        return;
    }
    veth();
    let mut far = open("far");
    let mac = far.info().mac;
    assert!(configure("ip address add 10.9.0.1/24 dev near"));
    assert!(configure(&format!("ip neighbour add 10.9.0.2 lladdr {mac} dev near")));
    let sender = UdpSocket::bind("10.9.0.1:5000").expect("a socket");
    sender.send_to(MARK, "10.9.0.2:22341").expect("sent");
    let seen = receive(&mut far, 1);
    assert_eq!(payload(seen[0].as_ref()), MARK);
    let udp = Udp::parse(seen[0].as_ref()).expect("a datagram");
    assert!(udp.checksum_ok(seen[0].as_ref()), "checksum {:#06x}", udp.checksum);
}

#[test]
fn lcores_share_an_interface_by_source_port() {
    if !inside_namespace("af_packet::lcores_share_an_interface_by_source_port") {
        return;
    }
    veth();
    let mut near = open("near");
    for first_port in [0, 22341] {
        let steering = Steering { group: 77, shard_count: 4, first_port };
        let config = AfPacketConfig { steering: Some(steering), ..AfPacketConfig::new("far") };
        let open_share = |_| AfPacketPort::open(&config).expect("one share of four");
        let mut shares: Vec<AfPacketPort> = (0..4).map(open_share).collect();
        for ipv6 in [false, true] {
            let mut tx = Burst::new();
            for lane in 0..16 {
                let there = encap(&near, &shares[0], 22341 + lane, ipv6);
                tx.push(datagram(&mut near, &there, MARK));
            }
            send_all(&mut near, &mut tx);
            for (number, share) in (0_u16..).zip(&mut shares) {
                let seen = receive(share, 4);
                assert_eq!(seen.len(), 4);
                for frame in seen {
                    let port = Udp::parse(frame.as_ref()).expect("a datagram").source.port();
                    assert_eq!((port - first_port) % 4, number, "port {port}");
                }
            }
        }
        // Other protocols belong to the first.
        let mut tx = Burst::new();
        tx.push(ethernet(&mut near, shares[0].info().mac, MacAddr::default(), 1));
        send_all(&mut near, &mut tx);
        assert_eq!(receive(&mut shares[0], 1).len(), 1);
    }
}

#[test]
fn a_full_ring_is_counted_and_a_full_pool_loses_nothing() {
    if !inside_namespace("af_packet::a_full_ring_is_counted_and_a_full_pool_loses_nothing") {
        return;
    }
    veth();
    let mut near = open("near");
    let config = AfPacketConfig {
        frame_count: 8,
        ring_bytes: 1,
        block_bytes: 4096,
        ..AfPacketConfig::new("far")
    };
    let mut far = AfPacketPort::open(&config).expect("a port");
    let there = encap(&near, &far, 1000, false);
    for _ in 0..5 {
        let mut tx = Burst::new();
        for _ in 0..BURST_MAX {
            tx.push(datagram(&mut near, &there, &[1; 1000]));
        }
        send_all(&mut near, &mut tx);
    }
    // The kernel delivers when it gets to it. Two blocks of 4096 bytes hold three frames each.
    until("the ring is full", || far.stats().rx_missed >= 320 - 6);
    // Each frame is either in the ring or counted, also when the kernel's counter was read before,
    // which resets it.
    let mut in_ring = 0;
    until("320 frames are accounted for", || {
        in_ring += receive_now(&mut far).len() as u64;
        in_ring + far.stats().rx_missed == 320
    });
    assert!(in_ring >= 2, "{in_ring} frames in the ring");

    let config = AfPacketConfig { ring_bytes: 1 << 20, ..config };
    let mut far = AfPacketPort::open(&config).expect("a port");
    let mut tx = Burst::new();
    for _ in 0..20 {
        tx.push(datagram(&mut near, &there, MARK));
    }
    send_all(&mut near, &mut tx);
    let held = receive(&mut far, 8);
    // The kernel may hand the rest over in a later block.
    until("a frame found no buffer", || {
        assert_eq!(receive_now(&mut far).len(), 0);
        far.stats().rx_nombuf > 0
    });
    drop(held);
    // What found no buffer waited in the ring.
    let mut rest = 0;
    until("the rest has come", || {
        rest += receive_now(&mut far).len();
        rest >= 12
    });
    assert_eq!((rest, far.stats().rx_missed), (12, 0));
}

#[test]
fn a_port_that_listens_gets_its_datagrams_and_no_stream() {
    if !inside_namespace("af_packet::a_port_that_listens_gets_its_datagrams_and_no_stream") {
        return;
    }
    veth();
    let listens = Some(Listens { first_port: 22341, count: 2 });
    let config = AfPacketConfig { listens, ..AfPacketConfig::new("far") };
    let (mut near, mut far) = (open("near"), AfPacketPort::open(&config).expect("a port"));
    let macs = (far.info().mac, near.info().mac);
    for ipv6 in [false, true] {
        let mut tx = Burst::new();
        for (mark, target) in [22340_u16, 22341, 22342, 22343, 0].into_iter().enumerate() {
            let there = encap(&near, &far, 1000, ipv6);
            let mut frame = datagram(&mut near, &there, &[u8::try_from(mark).expect("few")]);
            let at = if ipv6 { 14 + 40 } else { 14 + 20 };
            frame.as_mut()[at + 2..][..2].copy_from_slice(&target.to_be_bytes());
            tx.push(frame);
        }
        // TCP to a port of its own is a stream's all the same; ICMP and what is not IP come.
        for protocol in [6, 1] {
            let there = encap(&near, &far, 1000, ipv6);
            let mut frame = datagram(&mut near, &there, &[protocol]);
            frame.as_mut()[if ipv6 { 14 + 6 } else { 14 + 9 }] = protocol;
            tx.push(frame);
        }
        tx.push(ethernet(&mut near, macs.0, macs.1, 9));
        send_all(&mut near, &mut tx);
        let marks: Vec<u8> = receive(&mut far, 4)
            .iter()
            .map(|frame| frame.as_ref()[if ipv6 { 62 } else { 42 }.min(frame.as_ref().len() - 1)])
            .collect();
        assert_eq!(marks, [1, 2, 1, 9], "ipv6: {ipv6}");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(receive_now(&mut far).len(), 0);
    }
}

#[test]
fn frames_that_are_longer_than_the_interface_allows_are_complained_of() {
    if !inside_namespace(
        "af_packet::frames_that_are_longer_than_the_interface_allows_are_complained_of",
    ) {
        return;
    }
    veth();
    assert!(configure("ip link set near mtu 9000"));
    let (mut near, mut far) = (open("near"), open("far"));
    assert_eq!(far.complaint(), None);
    let there = encap(&near, &far, 1000, false);
    let mut tx = Burst::new();
    tx.push(datagram(&mut near, &there, &[1; 1472]));
    send_all(&mut near, &mut tx);
    assert_eq!(receive(&mut far, 1).len(), 1);
    assert_eq!(far.complaint(), None, "it is as long as may be");
    // The veth takes no longer frame than its peer's MTU: the peer's is made smaller afterwards.
    drop(far);
    assert!(configure("ip link set far mtu 1400"));
    let mut far = open("far");
    assert!(configure("ip link set far mtu 1500"));
    tx.push(datagram(&mut near, &there, &[1; 1472]));
    send_all(&mut near, &mut tx);
    until("the frame is counted", || {
        assert_eq!(receive_now(&mut far).len(), 0);
        far.stats().rx_errors == 1
    });
    let said = far.complaint().expect("a frame was too long");
    assert!(said.contains("1 frames on far were longer than its MTU of 1400"), "{said}");
}

#[test]
fn wait_ends_when_a_frame_comes() {
    if !inside_namespace("af_packet::wait_ends_when_a_frame_comes") {
        return;
    }
    veth();
    let (mut near, mut far) = (open("near"), open("far"));
    let start = Instant::now();
    far.wait(5_000_000);
    assert!(start.elapsed() >= Duration::from_millis(5));
    let there = encap(&near, &far, 1000, false);
    let mut tx = Burst::new();
    tx.push(datagram(&mut near, &there, MARK));
    send_all(&mut near, &mut tx);
    far.wait(20_000_000_000);
    assert!(start.elapsed().as_secs() < 10);
    let mut rx = Burst::new();
    assert_eq!(far.rx_burst(NOW, &mut rx), 1);
}

#[test]
fn frames_for_others_come_only_when_asked_for() {
    if !inside_namespace("af_packet::frames_for_others_come_only_when_asked_for") {
        return;
    }
    veth();
    let promiscuity = || {
        let output = std::process::Command::new("ip").args(["-d", "link", "show", "far"]).output();
        String::from_utf8(output.expect("ip runs").stdout).expect("text").contains("promiscuity 1")
    };
    let plain = open("far");
    assert!(!promiscuity());
    let config = AfPacketConfig { promiscuous: true, ..AfPacketConfig::new("far") };
    let all = AfPacketPort::open(&config).expect("a port");
    assert!(promiscuity());
    drop((plain, all));
    assert!(!promiscuity());
}

#[test]
fn errors_say_what_to_do() {
    if !inside_namespace("af_packet::errors_say_what_to_do") {
        return;
    }
    veth();
    let error = |config: &AfPacketConfig| {
        let error = AfPacketPort::open(config).err().unwrap_or_else(|| panic!("{config:?} works"));
        assert_eq!(error.to_string().lines().count(), 1);
        error
    };
    let unknown = error(&AfPacketConfig::new("nowhere"));
    assert!(matches!(unknown, AfPacketError::UnknownInterface { .. }), "{unknown:?}");
    assert!(unknown.to_string().contains("nowhere"));
    let too_long = error(&AfPacketConfig::new("a-name-longer-than-interfaces-have"));
    assert!(matches!(too_long, AfPacketError::UnknownInterface { .. }), "{too_long:?}");
    assert!(configure("ip link set far down"));
    let down = error(&AfPacketConfig::new("far"));
    assert_eq!(down.to_string(), "interface far is down: `ip link set far up`");
    for bad in [
        AfPacketConfig { block_bytes: 5000, ..AfPacketConfig::new("near") },
        AfPacketConfig { block_bytes: 2048, ..AfPacketConfig::new("near") },
        AfPacketConfig { ring_bytes: 0, ..AfPacketConfig::new("near") },
        AfPacketConfig {
            steering: Some(Steering { group: 1, shard_count: 3, first_port: 0 }),
            ..AfPacketConfig::new("near")
        },
    ] {
        assert!(matches!(error(&bad), AfPacketError::Config { .. }), "{bad:?}");
    }
}

#[test]
fn a_missing_right_is_named() {
    // Inside, this process has given up CAP_NET_RAW.
    const INSIDE: &str = "WEFT_TEST_WITHOUT_RIGHTS";
    if std::env::var_os(INSIDE).is_some() {
        let error = AfPacketPort::open(&AfPacketConfig::new("lo")).expect_err("no right");
        assert!(matches!(error, AfPacketError::NotPermitted { .. }), "{error:?}");
        assert!(error.to_string().contains("cap_net_raw"), "{error}");
        return;
    }
    let drop_rights = ["--bounding-set", "-net_raw", "--inh-caps", "-net_raw"];
    let mut command = std::process::Command::new("setpriv");
    if !command.args(drop_rights).arg("true").status().is_ok_and(|status| status.success()) {
        skip("`setpriv` cannot drop CAP_NET_RAW here");
        return;
    }
    let text = run_inner(
        std::process::Command::new("setpriv")
            .args(drop_rights)
            .arg(std::env::current_exe().expect("this test's file"))
            .args(["--exact", "af_packet::a_missing_right_is_named"])
            .env(INSIDE, "1"),
    );
    assert!(text.contains("1 passed"), "not run without the right");
}
