//! net_pcap: frames from one capture file, unchanged into another.

#[expect(dead_code, reason = "each test binary uses its part")]
mod common;

use common::{TempDir, eal_args, pattern};
use etherparse::PacketBuilder;
use std::time::{Duration, Instant};
use weft_dpdk::{DpdkPort, Eal, PortConfig};
use weft_io::{Burst, Port};
use weft_wire::Nanos;

const FRAMES: usize = 1000;
const NOW: Nanos = Nanos(0);

#[test]
fn frames_pass_from_file_to_file() {
    let folder = TempDir::new("pcap");
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    let frames: Vec<_> = (0..FRAMES).map(frame).collect();
    std::fs::write(&input, capture(&frames)).expect("the capture is written");

    let devargs = format!("net_pcap0,rx_pcap={},tx_pcap={}", input.display(), output.display());
    let eal = Eal::init(&eal_args(&folder).vdev(devargs)).expect("EAL starts");
    let config = PortConfig { mtu: 2000, ..PortConfig::named("net_pcap0") };
    let mut port = DpdkPort::open(&eal, &config).expect("the port opens").remove(0);
    let pool = port.pool().clone();

    let deadline = Instant::now() + Duration::from_secs(20);
    let mut burst = Burst::new();
    let mut sent = 0;
    while sent < FRAMES && Instant::now() < deadline {
        port.rx_burst(NOW, &mut burst);
        sent += port.tx_burst(NOW, &mut burst);
    }
    assert_eq!(sent, FRAMES);
    assert_eq!(port.rx_burst(NOW, &mut burst), 0, "the file has ended");
    let stats = port.stats();
    let bytes: u64 = frames.iter().map(|frame| frame.len() as u64).sum();
    assert_eq!((stats.rx_packets, stats.rx_bytes, stats.rx_errors), (FRAMES as u64, bytes, 0));
    assert_eq!((stats.tx_packets, stats.tx_bytes, stats.tx_errors), (FRAMES as u64, bytes, 0));
    assert_eq!(pool.available(), pool.count());

    drop(port);
    drop(pool);
    drop(eal);
    let written = std::fs::read(&output).expect("the driver wrote a capture");
    assert_eq!(records(&written), frames);
}

/// A UDP frame; payloads from 0 to 1900 bytes.
fn frame(index: usize) -> Vec<u8> {
    let seed = u32::try_from(index).expect("few frames");
    let payload = pattern(seed, index * 19 % 1901);
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(0x5745, 0x5745)
        .write(&mut bytes, &payload)
        .expect("the frame is built");
    bytes
}

/// A classic capture: microseconds, little-endian, Ethernet.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let word = |file: &mut Vec<u8>, value: u32| file.extend(value.to_le_bytes());
    for value in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1] {
        word(&mut file, value);
    }
    for (second, frame) in (0..).zip(frames) {
        let len = u32::try_from(frame.len()).expect("frames are short");
        for value in [second, 0, len, len] {
            word(&mut file, value);
        }
        file.extend(frame);
    }
    file
}

fn records(file: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while let Some((header, behind)) = rest.split_at_checked(16) {
        let len = u32::from_ne_bytes(header[8..12].try_into().expect("four bytes")) as usize;
        let (frame, behind) = behind.split_at(len);
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}
