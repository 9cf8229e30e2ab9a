//! Zero allocations per burst, counted.

use crate::common;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{configure, contribution, datagram, encap, inside_namespace};
use crate::counting::counted;
use weft_io::af_packet::{AfPacketConfig, AfPacketPort};
use weft_io::bands::{Banded, BandsConfig};
use weft_io::fault::{Fault, FaultConfig, FaultRates};
use weft_io::marks::JobMarks;
use weft_io::memory::{hub, link};
use weft_io::pcap::{PcapConfig, PcapPort};
use weft_io::restamp::Restamp;
use weft_io::shm::{ShmConfig, ShmHost, ShmPort};
use weft_io::trace::Trace;
use weft_io::udp::{UdpConfig, UdpPort};
use weft_io::{BURST_MAX, Burst, Frame, Port};
use weft_wire::frame::Encap;
use weft_wire::{JobId, MacAddr, Nanos};

fn allocations_of(work: impl FnOnce()) -> u64 {
    let mut allocations = 0;
    counted(&mut allocations, work);
    allocations
}

/// Frames that come back where none is lost.
const RETURNED: usize = 100 * BURST_MAX;

/// Moves 100 bursts there and back in place; returns frames that came back.
fn ping_pong<P: Port, Q: Port>(left: &mut P, right: &mut Q, there: &Encap, back: &Encap) -> usize {
    let mut returned = 0;
    let payload = contribution(1, 1);
    for round in 0..100 {
        let now = Nanos(round * 100_000);
        let mut tx = Burst::new();
        while !tx.is_full() {
            let Some(mut frame) = left.alloc() else { break };
            common::fill(&mut frame, there, &payload);
            tx.push(frame);
        }
        left.tx_burst(now, &mut tx);
        left.free(&mut tx);
        let mut echo = Burst::new();
        right.wait(2_000_000);
        right.rx_burst(now, &mut echo);
        for frame in &mut echo {
            back.emit(frame.as_mut(), payload.len());
        }
        right.tx_burst(now, &mut echo);
        right.free(&mut echo);
        left.wait(2_000_000);
        let mut rx = Burst::new();
        returned += left.rx_burst(now, &mut rx);
        left.free(&mut rx);
    }
    returned
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations_of(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

fn routes() -> (Encap, Encap) {
    let (a, b): (SocketAddr, SocketAddr) =
        ("10.0.0.1:1".parse().expect("an address"), "10.0.0.2:2".parse().expect("an address"));
    (encap(a, b), encap(b, a))
}

#[test]
fn memory_link() {
    let (mut left, mut right) = link(64, 1500, ["left", "right"]);
    let (there, back) = routes();
    let mut returned = 0;
    assert_eq!(allocations_of(|| returned = ping_pong(&mut left, &mut right, &there, &back)), 0);
    assert_eq!(returned, RETURNED);
}

#[test]
fn memory_hub_with_a_flood() {
    let mut ports = hub(64, 1500, &["a", "b", "c"]);
    let mut third = ports.pop().expect("three ports");
    let mut right = ports.pop().expect("three ports");
    let mut left = ports.pop().expect("three ports");
    let (there, back) = routes();
    let (there, back) =
        (there.with_target_mac(MacAddr::BROADCAST), back.with_target_mac(left.info().mac));
    let mut returned = 0;
    assert_eq!(allocations_of(|| returned = ping_pong(&mut left, &mut right, &there, &back)), 0);
    assert_eq!(returned, RETURNED);
    let mut rx = Burst::new();
    assert_eq!(third.rx_burst(Nanos(0), &mut rx), BURST_MAX);
    assert_eq!(third.stats().rx_missed, RETURNED as u64 - 64);
}

#[test]
fn udp_on_loopback() {
    for offload in [false, true] {
        let config =
            UdpConfig { offload, ..UdpConfig::new("127.0.0.1:0".parse().expect("an address")) };
        let mut left =
            UdpPort::open(&UdpConfig { socket_count: 2, ..config.clone() }).expect("a port");
        let mut right = UdpPort::open(&config).expect("a port");
        let there = encap(left.local_addr(), right.local_addr());
        let back = encap(right.local_addr(), left.local_addr());
        let mut returned = 0;
        let allocations = allocations_of(|| {
            returned = ping_pong(&mut left, &mut right, &there, &back);
        });
        assert_eq!(allocations, 0, "offload: {offload}");
        assert!(returned > 1600, "{returned} of 3200 came back");
    }
}

#[test]
fn udp_runs_in_one_piece() {
    let config =
        UdpConfig { offload: true, ..UdpConfig::new("127.0.0.1:0".parse().expect("an address")) };
    let open = || UdpPort::open(&config).expect("a port");
    let (mut left, mut right) = (open(), open());
    left.join_runs(true);
    right.join_runs(true);
    let there = encap(left.local_addr(), right.local_addr());
    let mut received = 0;
    let allocations = allocations_of(|| {
        for round in 0..100 {
            let now = Nanos(round * 100_000);
            let mut run = left.alloc_run().expect("it comes back");
            there.emit(run.buffer_mut(), 1000);
            run.set_len(there.header_len() + 45_000);
            run.set_datagram_len(1000);
            left.tx_burst(now, &mut Burst::from_iter([run]));
            right.wait(2_000_000);
            let mut rx = Burst::new();
            received += right.rx_burst(now, &mut rx);
            right.free(&mut rx);
        }
    });
    assert_eq!(allocations, 0);
    assert!(received > 50, "{received} of 100 came");
}

#[test]
fn faults_and_a_trace_around_a_memory_link() {
    let rates = FaultRates { loss: 0.1, duplicate: 0.1, reorder: 0.1, delay: 0.1, corrupt: 0.1 };
    for link_delay_ns in [0, 50_000] {
        let (left, mut right) = link(256, 1500, ["left", "right"]);
        let config = FaultConfig { rx: rates, tx: rates, link_delay_ns, ..FaultConfig::default() };
        let faulty = Fault::new(left, &config);
        let traced = Trace::new(faulty, std::io::sink(), Nanos(0)).expect("a sink");
        let mut left = Restamp::new(traced, |_: &mut [u8]| true);
        let (there, back) = routes();
        let mut returned = 0;
        let allocations =
            allocations_of(|| returned = ping_pong(&mut left, &mut right, &there, &back));
        assert_eq!(allocations, 0, "link delay {link_delay_ns} ns");
        assert!(returned > 2000, "{returned}");
        assert!(left.port().port().tx_counts().doubly_hit > 0);
    }
}

#[test]
fn bands_around_a_memory_link() {
    let (left, mut right) = link(256, 1500, ["left", "right"]);
    let marks = Arc::new(JobMarks::default());
    marks.set_label(JobId(3), 3);
    marks.set_band(JobId(3), 0);
    let config = BandsConfig {
        rate_bytes_per_sec: 1_250_000_000,
        queue_frames_max: 64,
        age_max_ns: 1_000_000,
    };
    let mut left = Banded::new(left, config, marks);
    let (there, back) = routes();
    let mut returned = 0;
    assert_eq!(allocations_of(|| returned = ping_pong(&mut left, &mut right, &there, &back)), 0);
    assert!(returned > 3000, "{returned}");
}

#[test]
fn captures() {
    let output = common::scratch("alloc.pcap");
    let config = PcapConfig { output: Some(output.clone()), ..PcapConfig::default() };
    let mut writer = PcapPort::open(&config).expect("a capture");
    let (there, _) = routes();
    let mut tx = Burst::new();
    let writing = allocations_of(|| {
        for _ in 0..1000 {
            tx.push(datagram(&mut writer, &there, &[1; 1000]));
            writer.tx_burst(Nanos(0), &mut tx);
        }
    });
    assert_eq!(writing, 0);
    writer.finish().expect("written");
    let input = Some(output.clone());
    let mut reader =
        PcapPort::open(&PcapConfig { input, ..PcapConfig::default() }).expect("a capture");
    let reading = allocations_of(|| {
        while reader.is_open() {
            let mut rx = Burst::new();
            reader.rx_burst(Nanos(0), &mut rx);
        }
    });
    assert_eq!(reading, 0);
    assert_eq!(reader.stats().rx_packets, 1000);
    std::fs::remove_file(output).expect("removed");
}

#[test]
fn af_packet_on_veth() {
    if !inside_namespace("alloc::af_packet_on_veth") {
        return;
    }
    assert!(configure("ip link add near type veth peer name far"));
    assert!(configure("ip link set near up") && configure("ip link set far up"));
    for offload in [false, true] {
        let open = |interface| {
            let config = AfPacketConfig { offload, ..AfPacketConfig::new(interface) };
            AfPacketPort::open(&config).expect("a port")
        };
        let (mut left, mut right) = (open("near"), open("far"));
        let (there, back) = routes();
        let there = there.with_target_mac(right.info().mac);
        let back = back.with_target_mac(left.info().mac);
        let mut returned = 0;
        let allocations = allocations_of(|| {
            returned = ping_pong(&mut left, &mut right, &there, &back);
        });
        assert_eq!(allocations, 0, "offload: {offload}");
        assert!(returned > 1000, "{returned} of 3200 came back");
    }
}

#[test]
fn shared_memory_beside_udp() {
    let udp = UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().expect("an address")));
    let udp = udp.expect("a free port");
    let addr = udp.local_addr();
    let own: SocketAddr = "127.0.0.1:20301".parse().expect("an address");
    let mut host = ShmHost::open(udp, addr).expect("nobody else is there");
    let opening = std::thread::spawn(move || ShmPort::open(&ShmConfig::new(own, addr)));
    let mut now = 0;
    while !opening.is_finished() {
        now += 5_000_000;
        host.rx_burst(Nanos(now), &mut Burst::new());
        host.wait(1_000_000);
    }
    let mut worker = opening.join().expect("no panic").expect("it is let in");
    let (there, back) = (encap(own, addr), encap(addr, own));
    let mut returned = 0;
    assert_eq!(allocations_of(|| returned = ping_pong(&mut worker, &mut host, &there, &back)), 0);
    assert_eq!(returned, RETURNED);
}
