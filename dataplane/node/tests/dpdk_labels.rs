//! What leaves a DPDK port: a real process on net_af_packet sums for jobs of their own labels, and
//! every frame that comes out of its port is read where the cable ends, by a parser that shares no
//! code with Weft: its DSCP is the label of its job, and the checksums of IP and UDP are those of
//! what it carries. Needs root; without it the test says so and passes.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use crate::capture::Capture;
use crate::common::{ConfigFile, Running};
use crate::lab::{Lab, ip};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::Signal;
use weft_client::{Config, Session};
use weft_config::node::{DpdkSection, Io, JobSection, NodeConfig, PortSection, RowSection};

/// The jobs by index, and the labels of their frames: of the third the file says none.
const LABELS: [u8; 3] = [19, 47, 0];
const WORKERS: u8 = 2;
const VALUES: usize = 20_000;
const ELEMENTS: usize = 250;

/// The port of a worker, which says whose a frame to it is.
fn port(job: usize, rank: u8) -> u16 {
    4000 + 1000 * u16::try_from(job).expect("few jobs") + 100 * u16::from(rank)
}

/// An address of the peer's, or of the node's.
fn addr(is_v6: bool, host: u8, port: u16) -> SocketAddr {
    match is_v6 {
        false => SocketAddr::from(([10, 77, 0, host], port)),
        true => SocketAddr::from(([0xfd77, 0, 0, 0, 0, 0, 0, u16::from(host)], port)),
    }
}

fn config(is_v6: bool) -> ConfigFile {
    let dpdk = DpdkSection {
        vdev: vec!["net_af_packet0,iface=vn0".to_owned()],
        memory_mib: 64,
        rx_descriptors: 256,
        tx_descriptors: 256,
        mbuf_count: 1024,
        ..DpdkSection::default()
    };
    let node_ip: IpAddr = addr(is_v6, 1, 0).ip();
    let mut config = NodeConfig { dpdk, ..NodeConfig::new(PortSection::new(Io::Dpdk, node_ip)) };
    for (job, label) in (0u16..).zip(LABELS) {
        config.job.push(JobSection { dscp: label, ..JobSection::new(job) });
        let members = (0..WORKERS).map(|rank| addr(is_v6, 2, port(job.into(), rank)).into());
        config.row.push(RowSection {
            elements: u16::try_from(ELEMENTS).expect("a chunk").into(),
            window: 16,
            exponent: Some(0),
            ..RowSection::new(job, job, members.collect())
        });
    }
    ConfigFile::new(if is_v6 { "dpdk-labels-6" } else { "dpdk-labels-4" }, &config)
}

fn namespace(lab: &Lab) -> File {
    File::open(format!("/run/netns/{}", lab.peer)).expect("it is there")
}

/// Real sessions of each job sum over the node.
fn sum(lab: &Lab, is_v6: bool) {
    let worker = |job: usize, rank: u8| {
        let namespace = namespace(lab);
        std::thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("root may enter");
            let index = u16::try_from(job).expect("few jobs");
            let config = Config::new(addr(is_v6, 2, port(job, rank)), addr(is_v6, 1, 0x5745))
                .job(index)
                .row(index)
                .rank(rank);
            let mut session = Session::connect(&config).expect("it joins");
            let mut values: Vec<i32> = (0i32..).take(VALUES).collect();
            session.allreduce_i32(&mut values).expect("a sum");
            let twice = (0i32..).map(|value| i32::from(WORKERS) * value);
            assert!(values.iter().copied().eq(twice.take(VALUES)), "job {job}: a wrong sum");
            session.close().expect("the port is open");
        })
    };
    let all = (0..LABELS.len()).flat_map(|job| (0..WORKERS).map(move |rank| (job, rank)));
    let workers: Vec<_> = all.map(|(job, rank)| worker(job, rank)).collect();
    workers.into_iter().for_each(|worker| worker.join().expect("it has its sums"));
}

/// What a frame of the node says, if it is one of a job: the job, its DSCP, and the bytes behind
/// UDP's header. Panics for a checksum that is none.
fn read(frame: &[u8], from: IpAddr) -> Option<(usize, u8, usize)> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(TransportSlice::Udp(udp)) = &packet.transport else { return None };
    let (dscp, checksum) = match packet.net.as_ref()? {
        NetSlice::Ipv4(ip) if IpAddr::from(ip.header().source_addr()) == from => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum(), "IPv4's checksum");
            let udp = udp.to_header();
            let of = udp.calc_checksum_ipv4(&header, payload(&packet)).expect("it is short");
            (header.dscp.value(), of)
        }
        NetSlice::Ipv6(ip) if IpAddr::from(ip.header().source_addr()) == from => {
            let header = ip.header().to_header();
            let udp = udp.to_header();
            let of = udp.calc_checksum_ipv6(&header, payload(&packet)).expect("it is short");
            (header.traffic_class >> 2, of)
        }
        _ => return None,
    };
    // Over IPv4 a sender may leave it out.
    let is_absent = udp.checksum() == 0 && from.is_ipv4();
    assert!(is_absent || udp.checksum() == checksum, "UDP's checksum: {frame:02x?}");
    let job = usize::from(udp.destination_port().checked_sub(4000)? / 1000);
    (job < LABELS.len()).then(|| (job, dscp, payload(&packet).len()))
}

fn payload<'a>(packet: &SlicedPacket<'a>) -> &'a [u8] {
    match &packet.transport {
        Some(TransportSlice::Udp(udp)) => udp.payload(),
        _ => &[],
    }
}

#[test]
fn each_frame_that_leaves_a_dpdk_port_carries_the_label_of_its_job() {
    let Some(lab) = Lab::up() else { return };
    let add = ["-n", &lab.peer, "-6", "addr", "add", "fd77::2/64", "dev", "vp0", "nodad"];
    assert!(ip(&add).status.success());
    for is_v6 in [false, true] {
        let node = Running::start(&mut lab.weft_node(&config(is_v6), &["--format", "json"]));
        let capture = Capture::start(namespace(&lab));
        let begun = Instant::now();
        sum(&lab, is_v6);
        let frames = capture.end();
        let mut seen = [(0u32, 0u32); LABELS.len()];
        let from = addr(is_v6, 1, 0).ip();
        for (job, dscp, len) in frames.iter().filter_map(|(_, frame)| read(frame, from)) {
            assert_eq!(dscp, LABELS[job], "a frame of job {job}, {len} bytes");
            let (all, whole) = &mut seen[job];
            *all += 1;
            *whole += u32::from(len >= 4 * ELEMENTS);
        }
        println!(
            "{from}: frames, and those with elements, by job: {seen:?} in {:?}",
            begun.elapsed()
        );
        for (all, whole) in seen {
            // An answer to each of two workers for every chunk, and the handshake.
            let least = u32::try_from(VALUES / ELEMENTS).expect("few") * u32::from(WORKERS);
            assert!(whole >= least && all > whole, "{seen:?}");
        }
        assert_eq!(node.end(Signal::SIGINT).code, Some(0));
    }
}
