//! Memory that a worker shares with each lane of a box.

use crate::common;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::common::payload;
use crate::common::shm::{Host, LONG, clock, host, host_at, local, receive_until, send};
use weft_io::shm::{ShmConfig, ShmError, ShmHost, ShmLanes};
use weft_io::udp::{UdpConfig, UdpPort, pseudo_mac};
use weft_io::{Burst, Port};
use weft_wire::frame::multicast::{group_of, mac_of, memory_base};
use weft_wire::frame::{Encap, Endpoint, Udp};

/// A box of two lanes, each with a rendezvous of its own.
fn hosts() -> (Vec<Host>, SocketAddr) {
    let config = UdpConfig { socket_count: 2, ..UdpConfig::new("127.0.0.1:0".parse().unwrap()) };
    let ports = UdpPort::open_lanes(&config).expect("free ports");
    let addr = ports[0].local_addr();
    (open_each(ports), addr)
}

/// Such a box there.
fn hosts_at(addr: SocketAddr) -> Vec<Host> {
    let config = UdpConfig { socket_count: 2, ..UdpConfig::new(addr) };
    open_each(UdpPort::open_lanes(&config).expect("free ports"))
}

/// The first lane last, so that whoever finds that finds all.
fn open_each(ports: Vec<UdpPort>) -> Vec<Host> {
    let open = |port: UdpPort| {
        let own = port.local_addr();
        ShmHost::open(port, own).expect("nobody else is there")
    };
    let mut hosts: Vec<_> = ports.into_iter().rev().map(open).collect();
    hosts.reverse();
    hosts
}

/// Opens a worker's end while the lanes breathe.
fn join(hosts: &mut [Host], config: &ShmConfig) -> Result<ShmLanes, ShmError> {
    let config = config.clone();
    let opening = std::thread::spawn(move || ShmLanes::open(&config));
    let begun = Instant::now();
    while !opening.is_finished() && begun.elapsed() < LONG {
        for host in &mut *hosts {
            host.rx_burst(clock(), &mut Burst::new());
            host.wait(100_000);
        }
    }
    opening.join().expect("it does not panic")
}

fn config(port: u16, addr: SocketAddr) -> ShmConfig {
    ShmConfig { lanes: 2, rows: vec![3], ..ShmConfig::new(local(port), addr) }
}

fn lane(addr: SocketAddr, lane: u16) -> SocketAddr {
    SocketAddr::new(addr.ip(), addr.port() + lane)
}

/// Sends a sum for all from a lane of the box.
fn cast(host: &mut Host, from: SocketAddr, group: IpAddr, payload: &[u8]) {
    let source = Endpoint { mac: pseudo_mac(from.ip()), addr: from };
    let target = Endpoint { mac: mac_of(group), addr: SocketAddr::new(group, from.port()) };
    let encap = Encap::new(source, target).expect("one family");
    let mut frame = host.alloc().expect("a frame");
    common::fill(&mut frame, &encap, payload);
    assert_eq!(host.tx_burst(clock(), &mut [frame].into_iter().collect()), 1);
}

/// The first bytes of what comes at once.
fn taken<P: Port>(port: &mut P) -> Vec<u8> {
    let mut rx = Burst::new();
    port.rx_burst(clock(), &mut rx);
    rx.iter().map(|frame| payload(frame.as_ref())[0]).collect()
}

#[test]
fn each_lane_reads_and_writes_rings_of_its_own() {
    let (mut hosts, addr) = hosts();
    let mut worker = join(&mut hosts, &config(21_200, addr)).expect("it is let in");
    let group = group_of(memory_base(addr.ip()), 3).unwrap();
    assert!(worker.hears(group));
    for index in [0, 1, 1, 0] {
        let own = lane(local(21_200), index);
        send(&mut worker, own, addr, &[u8::try_from(index).unwrap(), 1]);
        let host = &mut hosts[usize::from(index)];
        receive_until(host, |_, rx| {
            let Some(frame) = rx.pop() else { return false };
            let source = Udp::parse(frame.as_ref()).unwrap().source;
            assert_eq!(source, own, "it came to the lane that it is of");
            true
        });
        // An answer, and a sum for all from the lane's own port.
        send(host, lane(addr, index), own, &[10 + u8::try_from(index).unwrap()]);
        cast(host, lane(addr, index), group, &[20 + u8::try_from(index).unwrap()]);
    }
    let mut heard = taken(&mut worker);
    heard.sort_unstable();
    assert_eq!(heard, [10, 10, 11, 11, 20, 20, 21, 21], "each once");
    for host in &hosts {
        assert_eq!((host.counts().links(), host.stats().rx_packets), (1, 2));
        assert_eq!(host.inner().stats().tx_packets, 0, "nothing left the memory");
    }
}

#[test]
fn a_lane_that_a_worker_does_not_hear_sends_it_nothing() {
    let (mut hosts, addr) = hosts();
    let mut worker = join(&mut hosts, &config(21_204, addr)).expect("it is let in");
    let group = group_of(memory_base(addr.ip()), 3).unwrap();
    // A frame for all of lane 1 that lane 0 were to send would come twice.
    cast(&mut hosts[0], lane(addr, 1), group, &[1]);
    assert_eq!(taken(&mut worker), []);
}

#[test]
fn a_worker_that_sleeps_is_woken_by_any_lane() {
    let (mut hosts, addr) = hosts();
    let mut worker = join(&mut hosts, &config(21_208, addr)).expect("it is let in");
    for index in [1, 0, 1] {
        let host = &mut hosts[usize::from(index)];
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let begun = Instant::now();
                while taken(&mut worker).is_empty() {
                    assert!(begun.elapsed() < LONG, "it slept on");
                    worker.wait(20_000_000_000);
                }
                begun.elapsed()
            });
            std::thread::sleep(Duration::from_millis(50));
            send(host, lane(addr, index), lane(local(21_208), index), &[1]);
            host.wait(0);
            assert!(waiting.join().unwrap() < LONG);
        });
    }
}

#[test]
fn a_box_whose_first_lane_reads_for_all_has_one_rendezvous() {
    let (host, addr) = host();
    let mut hosts = vec![host];
    let mut worker = join(&mut hosts, &config(21_212, addr)).expect("it is let in");
    let host = &mut hosts[0];
    send(&mut worker, lane(local(21_212), 1), addr, &[5]);
    receive_until(host, |_, rx| rx.pop().is_some());
    send(host, lane(addr, 1), lane(local(21_212), 1), &[6]);
    let group = group_of(memory_base(addr.ip()), 3).unwrap();
    cast(host, lane(addr, 1), group, &[7]);
    cast(host, lane(addr, 2), group, &[8]);
    assert_eq!(taken(&mut worker), [6, 7], "of two lanes");
}

#[test]
fn nobody_is_there() {
    let error = ShmLanes::open(&config(21_216, local(21_219))).map(drop);
    assert!(matches!(error, Err(ShmError::NoBox { .. })), "{error:?}");
}

/// Sends from both lanes until the box has heard each: by the lane that it is of where each reads,
/// else by the first.
fn exchange(worker: &mut ShmLanes, hosts: &mut [Host], addr: SocketAddr, own: SocketAddr) {
    let begun = Instant::now();
    let mut heard = [false; 2];
    while heard != [true; 2] {
        assert!(begun.elapsed() < LONG, "{heard:?}");
        for index in [0, 1] {
            let encap = common::encap(lane(own, index), addr);
            let Some(frame) = worker.alloc() else { continue };
            let mut tx: Burst<_> = [frame].into_iter().collect();
            common::fill(&mut tx[0], &encap, &[u8::try_from(index).unwrap()]);
            worker.tx_burst(clock(), &mut tx);
            worker.free(&mut tx);
        }
        let mut rx = Burst::new();
        worker.rx_burst(clock(), &mut rx);
        worker.free(&mut rx);
        worker.wait(1_000_000);
        let are_apart = hosts.len() > 1;
        for (reader, host) in hosts.iter_mut().enumerate() {
            for read in taken(host) {
                let sender = usize::from(read);
                assert!(!are_apart || reader == sender, "a lane cannot use another's");
                heard[sender] = true;
            }
        }
    }
}

/// As a box does whose file comes to have a capture, or no longer has one.
#[test]
fn a_box_that_begins_anew_may_have_other_lanes_read() {
    let (hosts, addr) = hosts();
    let own = local(21_220);
    let mut hosts = hosts;
    let mut worker = join(&mut hosts, &config(own.port(), addr)).expect("it is let in");
    exchange(&mut worker, &mut hosts, addr, own);
    for are_apart in [false, true, true, false, false, true] {
        let sent = worker.stats().tx_packets;
        drop(hosts);
        hosts = if are_apart { hosts_at(addr) } else { vec![host_at(addr, 1500).0] };
        exchange(&mut worker, &mut hosts, addr, own);
        assert!(worker.stats().tx_packets > sent + 1, "what was counted before stays");
        let group = group_of(memory_base(addr.ip()), 3).unwrap();
        assert!(worker.hears(group));
        let caster = usize::from(are_apart);
        cast(&mut hosts[caster], lane(addr, 1), group, &[7]);
        assert_eq!(taken(&mut worker), [7]);
    }
}
