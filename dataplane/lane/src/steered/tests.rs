//! Steering on memory ports: every frame reaches the lane of its source port, and full is counted.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use weft_control::SumOrder;
use weft_engine::table::{BoxConfig, MemberConfig, RowConfig};
use weft_io::memory::{MemoryPort, link};
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{BURST_MAX, Frame};
use weft_wire::JobId;
use weft_wire::MacAddr;
use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::{Integrity, Overflow};

use super::*;

const NOW: Nanos = Nanos(0);
const MEMBER_PORT: u16 = 4001;

fn endpoint(host: u8, port: u16) -> Endpoint {
    let addr = SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), port));
    Endpoint { mac: MacAddr([2, 0, 0, 0, 0, host]), addr }
}

fn map(shards: u16) -> LaneMap {
    map_from(MEMBER_PORT, shards)
}

/// Of a member whose lane 0 has this port.
fn map_from(port: u16, shards: u16) -> LaneMap {
    let member = MemberConfig { addr: endpoint(2, port).addr, weight: 1, is_box: false };
    let row = RowConfig {
        row: 0,
        job: JobId(0),
        members: vec![member],
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        elements: 8,
        window: 16,
        chunks_max: 16,
        exponent: None,
        fan_in: 1,
        parent: None,
    };
    let local = endpoint(1, 5000);
    let config =
        BoxConfig { local, shards, mtu: 1500, jobs: vec![], rows: vec![row], pushes: vec![] };
    LaneMap::new(&config)
}

/// A frame from UDP source port `port`, with `mark` as its payload.
fn send(peer: &mut MemoryPort, port: u16, mark: u8) {
    let mut frame = peer.alloc().expect("the pool has a frame");
    let encap = Encap::new(endpoint(2, port), endpoint(1, 5000)).expect("one family");
    let start = encap.header_len();
    frame.buffer_mut()[start] = mark;
    let len = encap.emit(frame.buffer_mut(), 1);
    frame.set_len(len);
    let mut burst = Burst::from_iter([frame]);
    assert_eq!(peer.tx_burst(NOW, &mut burst), 1);
}

fn marks(port: &mut impl Port) -> Vec<u8> {
    let mut rx = Burst::new();
    while port.rx_burst(NOW, &mut rx) > 0 {}
    rx.iter().map(|frame| frame.as_ref()[42]).collect()
}

fn four_lanes(
    ring_frames: usize,
) -> (MemoryPort, SteeredPort<MemoryPort>, Vec<SteeredPort<RelayPort<Pool>>>) {
    let (peer, inner) = link(64, 1500, ["peer", "box"]);
    let relay = Arc::new(Ring::new(ring_frames));
    let info = inner.info();
    let pool = || Pool::new(4, 1514);
    let sender = |_| RelayPort::new(pool(), Arc::clone(&relay), info.clone());
    let senders = (1..4).map(sender).collect();
    let (front, sides) = steer(inner, senders, false, &map(4), ring_frames, Some(relay));
    (peer, front, sides)
}

#[test]
fn each_frame_reaches_the_lane_of_its_source_port() {
    let (mut peer, mut front, mut sides) = four_lanes(32);
    for (port, mark) in [(4004, 3), (4001, 0), (4002, 1), (4003, 2), (4002, 11), (9999, 99)] {
        send(&mut peer, port, mark);
    }
    assert_eq!(marks(&mut front), [0, 99], "an unknown port is lane 0's to count");
    let others: Vec<_> = sides.iter_mut().map(marks).collect();
    assert_eq!(others, [vec![1, 11], vec![2], vec![3]]);
    assert_eq!(front.steer_counts(), SteerStats { handed_over: 4, ring_full: 0 });
}

#[test]
fn a_full_ring_costs_the_frame_and_is_counted() {
    let (mut peer, mut front, mut sides) = four_lanes(2);
    for mark in 0..5 {
        send(&mut peer, 4002, mark);
    }
    assert!(marks(&mut front).is_empty());
    assert_eq!(marks(&mut sides[0]), [0, 1]);
    assert_eq!(front.steer_counts(), SteerStats { handed_over: 2, ring_full: 3 });
    assert_eq!(peer.free_count(), 2 * 64 + 4 * BURST_MAX, "lost frames went back to their pool");
}

#[test]
fn frames_of_other_lanes_leave_through_lane_0() {
    let (mut peer, mut front, mut sides) = four_lanes(2);
    let mut tx: Burst<PoolFrame> = (0..4u8)
        .map(|mark| {
            let mut frame = sides[1].alloc().expect("four frames");
            frame.set_len(60);
            frame.as_mut().fill(0);
            frame.as_mut()[42] = mark;
            frame
        })
        .collect();
    assert!(sides[1].alloc().is_none());
    assert_eq!(sides[1].stats().rx_nombuf, 1);
    assert_eq!(sides[1].tx_burst(NOW, &mut tx), 2, "the relay holds two");
    assert_eq!(tx.iter().map(|frame| frame.as_ref()[42]).collect::<Vec<_>>(), [2, 3]);
    assert!(marks(&mut front).is_empty());
    assert_eq!(marks(&mut peer), [0, 1]);
    assert_eq!(front.stats().tx_packets, 2, "counted where they left");
}

#[test]
fn a_waiting_lane_is_woken_by_a_frame() {
    let (mut peer, mut front, mut sides) = four_lanes(8);
    let mut side = sides.remove(0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let start = std::time::Instant::now();
            side.wait(10_000_000_000);
            (marks(&mut side), start.elapsed())
        });
        // It should sleep by then; if it does not yet, it will find the token that waking leaves.
        std::thread::sleep(Duration::from_millis(20));
        send(&mut peer, 4002, 1);
        assert!(marks(&mut front).is_empty());
        let (seen, waited) = waiter.join().expect("no panic");
        assert_eq!(seen, [1]);
        assert!(waited < Duration::from_secs(5), "slept {waited:?}");
    });
}

#[test]
fn lanes_that_all_receive_hand_each_other_what_is_not_theirs() {
    let cables: Vec<_> = (0..4).map(|_| link(64, 1500, ["peer", "box"])).collect();
    let (mut peers, mut ports): (Vec<_>, Vec<_>) = cables.into_iter().unzip();
    let (mut front, mut sides) = steer(ports.remove(0), ports, true, &map(4), 32, None);
    // The device hashes as it likes: every lane gets a frame of every lane.
    for (queue, peer) in (0..4u8).zip(&mut peers) {
        for (lane, port) in (0..4u8).zip(4001..) {
            send(peer, port, lane * 10 + queue);
        }
    }
    let mut seen: Vec<Vec<u8>> = vec![Vec::new(); 4];
    for _ in 0..2 {
        seen[0].extend(marks(&mut front));
        for (side, seen) in sides.iter_mut().zip(&mut seen[1..]) {
            seen.extend(marks(side));
        }
    }
    for (lane, mut seen) in (0..4u8).zip(seen) {
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3].map(|queue| lane * 10 + queue));
    }
    let handed_over: u64 = sides.iter().map(|side| side.steer_counts().handed_over).sum();
    assert_eq!(handed_over + front.steer_counts().handed_over, 12);
}

#[test]
fn a_lane_takes_no_more_than_a_burst_and_loses_nothing() {
    let (mut one, first) = link(64, 1500, ["peer", "box"]);
    let (mut other, second) = link(64, 1500, ["peer", "box"]);
    let (mut front, mut sides) = steer(first, vec![second], true, &map(2), 64, None);
    for mark in 0..50 {
        send(&mut one, 4002, mark);
        send(&mut other, 4002, 100 + mark);
    }
    let mut rx = Burst::new();
    assert_eq!(front.rx_burst(NOW, &mut rx), 0, "all of them are lane 1's");
    let side = &mut sides[0];
    assert_eq!(side.rx_burst(NOW, &mut rx), 64, "50 from the ring, 14 from the port");
    rx.clear();
    assert_eq!(side.rx_burst(NOW, &mut rx), 36);
    assert_eq!(side.steer_counts().ring_full, 0);
}

#[test]
fn a_lane_that_waits_for_its_port_is_woken_by_who_hands_it_a_frame() {
    let config = UdpConfig { socket_count: 2, ..UdpConfig::new("127.0.0.1:0".parse().unwrap()) };
    let mut ports = UdpPort::open_lanes(&config).expect("two free ports");
    let addr = ports[0].local_addr();
    // The kernel takes a member of an even port for lane 0's, whatever the table says.
    let sockets = (0..).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let port = |socket: &UdpSocket| socket.local_addr().expect("bound").port();
    let member = sockets.into_iter().find(|socket| port(socket) % 2 == 0).expect("a port");
    let map = map_from(port(&member) - 1, 2);
    let (mut front, mut sides) = steer(ports.remove(0), ports, true, &map, 64, None);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let begun = std::time::Instant::now();
            let mut rx = Burst::new();
            while sides[0].rx_burst(NOW, &mut rx) == 0 && begun.elapsed().as_secs() < 30 {
                sides[0].wait(20_000_000_000);
            }
            (rx.len(), begun.elapsed())
        });
        std::thread::sleep(Duration::from_millis(50));
        member.send_to(&[1], addr).expect("it is sent");
        while front.steer_counts().handed_over == 0 {
            assert_eq!(front.rx_burst(NOW, &mut Burst::new()), 0, "it is lane 1's");
        }
        let (seen, waited) = waiter.join().expect("no panic");
        assert_eq!(seen, 1);
        assert!(waited < Duration::from_secs(10), "slept {waited:?}");
    });
}

/// What is sorted by its source are datagrams, so only a lane by itself gets runs in one piece.
#[test]
fn only_a_lane_that_sorts_nothing_joins_runs() {
    let open = || {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = UdpConfig { offload: true, ..UdpConfig::new(addr) };
        UdpPort::open(&config).expect("a port")
    };
    for others in [0, 1] {
        let sides: Vec<UdpPort> = (0..others).map(|_| open()).collect();
        let lanes = 1 + u16::try_from(others).expect("few");
        let (mut front, _sides) = steer(open(), sides, true, &map(lanes), 4, None);
        front.join_runs(true);
        assert_eq!(front.inner.alloc_run().is_some(), others == 0, "{others} others");
        front.join_runs(false);
        assert!(front.inner.alloc_run().is_none());
    }
}
