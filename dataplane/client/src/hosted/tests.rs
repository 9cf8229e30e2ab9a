//! Two hosts on a link of memory: nothing but their own words tells each where the other is.

use weft_io::memory::{MemoryPort, hub, link};
use weft_io::pool::PoolFrame;
use weft_wire::frame::{Encap, Endpoint};

use super::*;

const HERE: &str = "10.0.0.1";
const THERE: &str = "10.0.0.2";

fn host(port: MemoryPort, ip: &str, next_hop: &str, answers: bool) -> HostedPort<MemoryPort> {
    let (ip, next_hop) = (ip.parse().unwrap(), next_hop.parse().unwrap());
    HostedPort::new(port, &HostConfig { ip, next_hop, mtu: 1500, answers }).unwrap()
}

fn datagram(port: &mut HostedPort<MemoryPort>) -> PoolFrame {
    datagram_to(port, THERE)
}

fn datagram_to(port: &mut HostedPort<MemoryPort>, to: &str) -> PoolFrame {
    let end = |ip: &str| Endpoint {
        mac: MacAddr::BROADCAST,
        addr: (ip.parse::<IpAddr>().unwrap(), 7000).into(),
    };
    let mut frame = port.alloc().unwrap();
    let len = Encap::new(end(HERE), end(to)).unwrap().emit(frame.buffer_mut(), 4);
    frame.set_len(len);
    frame
}

/// What of `frames` datagrams has come to `far` after a few turns of both.
fn exchange(
    now: Nanos,
    near: &mut HostedPort<MemoryPort>,
    far: &mut HostedPort<MemoryPort>,
    tx: &mut Burst<PoolFrame>,
) -> Vec<MacAddr> {
    let mut come = Vec::new();
    for _ in 0..4 {
        let mut rx = Burst::new();
        near.tx_burst(now, tx);
        far.rx_burst(now, &mut rx);
        come.extend(rx.iter().map(|frame| MacAddr(frame.as_ref()[..6].try_into().unwrap())));
        rx.clear();
        assert_eq!(near.rx_burst(now, &mut rx), 0, "only ARP comes back");
    }
    come
}

#[test]
fn frames_wait_for_the_next_hop_and_then_all_go_there() {
    let (a, b) = link(16, 1500, ["here", "there"]);
    let there = b.info().mac;
    let (mut near, mut far) = (host(a, HERE, THERE, true), host(b, THERE, HERE, true));
    assert_eq!(near.complaint(), None, "nothing was asked");
    let mut tx: Burst<PoolFrame> = (0..3).map(|_| datagram(&mut near)).collect();
    assert_eq!(near.tx_burst(Nanos(0), &mut tx), 0);
    let complaint = near.complaint().expect("nobody has answered");
    assert!(complaint.contains("here") && complaint.contains("10.0.0.2 (ARP)"), "{complaint}");
    assert_eq!(exchange(Nanos(0), &mut near, &mut far, &mut tx), [there; 3]);
    assert_eq!(near.complaint(), None);
}

#[test]
fn a_question_that_was_lost_is_asked_again_in_time_and_not_before() {
    let (a, mut b) = link(16, 1500, ["here", "there"]);
    let mut near = host(a, HERE, THERE, true);
    let mut tx: Burst<PoolFrame> = [datagram(&mut near)].into_iter().collect();
    let mut asked = |now| {
        near.tx_burst(Nanos(now), &mut tx);
        let mut rx = Burst::new();
        b.rx_burst(Nanos(now), &mut rx)
    };
    assert_eq!([0, 1, ASK_AGAIN.0 - 1, ASK_AGAIN.0].map(&mut asked), [1, 0, 0, 1]);
}

#[test]
fn a_next_hop_that_has_moved_is_found_after_a_silence() {
    let (a, b) = link(16, 1500, ["here", "there"]);
    let (mut near, mut far) = (host(a, HERE, THERE, true), host(b, THERE, HERE, true));
    let moved = MacAddr([2, 9, 9, 9, 9, 9]);
    let mut tx: Burst<PoolFrame> = [datagram(&mut near)].into_iter().collect();
    exchange(Nanos(0), &mut near, &mut far, &mut tx);
    far.stack = Some((
        HostStack::new(THERE.parse().unwrap(), 0, moved, 1500, 1),
        TokenBucket::new(FRAMES_PER_SEC_MAX, FRAMES_BURST_MAX),
    ));
    let mut send = |now, near: &mut _| {
        let mut tx: Burst<PoolFrame> = [datagram(near)].into_iter().collect();
        exchange(Nanos(now), near, &mut far, &mut tx);
        near.ways[0].mac
    };
    let old = near.ways[0].mac;
    assert_eq!(send(SILENCE.0 - 1, &mut near), old, "nobody was asked yet");
    assert_eq!(send(SILENCE.0, &mut near), Some(moved));
}

#[test]
fn beside_a_kernel_nothing_is_answered() {
    for (answers, expected) in [(true, 1), (false, 0)] {
        let (a, b) = link(16, 1500, ["here", "there"]);
        let (mut near, mut far) = (host(a, HERE, THERE, true), host(b, THERE, HERE, answers));
        let mut tx: Burst<PoolFrame> = [datagram(&mut near)].into_iter().collect();
        let come = exchange(Nanos(0), &mut near, &mut far, &mut tx);
        assert_eq!(come.len(), expected, "answers: {answers}");
    }
}

#[test]
fn two_families_are_no_link() {
    let (a, _) = link(16, 1500, ["here", "there"]);
    let (ip, next_hop) = (HERE.parse().unwrap(), "fd00::1".parse().unwrap());
    let config = HostConfig { ip, next_hop, mtu: 1500, answers: true };
    assert!(matches!(HostedPort::new(a, &config), Err(Error::Config { .. })));
}

/// A host that sends to many, each of whom is on the link.
fn host_of_many(port: MemoryPort) -> HostedPort<MemoryPort> {
    let (ip, next_hop) = (HERE.parse().unwrap(), THERE.parse().unwrap());
    let config = HostConfig { ip, next_hop, mtu: 1500, answers: true };
    HostedPort::to_many(port, &config, Box::new(|to| to))
}

#[test]
fn of_many_each_has_its_own_next_hop_and_an_absent_one_holds_up_nobody() {
    const ABSENT: &str = "10.0.0.9";
    const SECOND: &str = "10.0.0.3";
    let mut ports = hub(64, 1500, &["here", "there", "second"]).into_iter();
    let mut near = host_of_many(ports.next().unwrap());
    let (there, second) = (ports.next().unwrap(), ports.next().unwrap());
    let macs = [there.info().mac, second.info().mac];
    let mut others = [host(there, THERE, HERE, true), host(second, SECOND, HERE, true)];
    let mut come = [0; 2];
    let mut send = |now: u64, near: &mut HostedPort<MemoryPort>| {
        let to = [ABSENT, THERE, ABSENT, SECOND, THERE];
        let mut tx: Burst<PoolFrame> = to.iter().map(|to| datagram_to(near, to)).collect();
        assert_eq!(near.tx_burst(Nanos(now), &mut tx), 5, "sent or lost");
        for (other, (mac, come)) in others.iter_mut().zip(macs.iter().zip(&mut come)) {
            let mut rx = Burst::new();
            other.rx_burst(Nanos(now), &mut rx);
            assert!(rx.iter().all(|frame| frame.as_ref()[..6] == mac.0), "each has its own");
            *come += rx.len();
        }
        near.rx_burst(Nanos(now), &mut Burst::new());
        come
    };
    // What is sent before the answer of ARP is lost, and counted.
    assert_eq!(send(0, &mut near), [0, 0]);
    assert_eq!(near.stats().tx_errors, 5);
    assert_eq!(send(1, &mut near), [2, 1]);
    assert_eq!(near.stats().tx_errors, 7, "those to an absent host");
    let complaint = near.complaint().expect("one has not answered");
    assert!(complaint.contains(ABSENT), "{complaint}");
}

#[test]
fn ways_to_many_are_bounded() {
    let (a, _b) = link(1024, 1500, ["here", "there"]);
    let mut near = host_of_many(a);
    for last in 0..=u8::MAX {
        for net in 1..3 {
            let to = format!("10.0.{net}.{last}");
            let mut tx: Burst<PoolFrame> = [datagram_to(&mut near, &to)].into_iter().collect();
            assert_eq!(near.tx_burst(Nanos(0), &mut tx), 1);
        }
    }
    assert_eq!((near.ways.len(), near.stats().tx_errors), (WAYS_MAX, 512));
}
