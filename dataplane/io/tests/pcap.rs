//! Captures as ports, and captures of ports.

use crate::common;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::common::{chunk_of, contribution, datagram, route, scratch, skip};
use etherparse::PacketBuilder;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError as ParserError};
use weft_io::memory::link;
use weft_io::pcap::{Capture, Pace, PcapConfig, PcapError, PcapPort, PcapWriter};
use weft_io::trace::Trace;
use weft_io::{Burst, Frame, Port};
use weft_wire::frame::Udp;
use weft_wire::{MacAddr, Nanos};

/// Frames that another library made.
fn etherparse_frames() -> Vec<Vec<u8>> {
    (0..50_u16)
        .map(|index| {
            let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
            let payload = vec![index.to_be_bytes()[1]; usize::from(index) * 20];
            let mut frame = Vec::new();
            let written = if index % 2 == 0 {
                ethernet
                    .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
                    .udp(index, 22341)
                    .write(&mut frame, &payload)
            } else {
                ethernet.ipv6([1; 16], [2; 16], 64).udp(index, 22341).write(&mut frame, &payload)
            };
            written.expect("written to memory");
            frame
        })
        .collect()
}

const BASE_NS: u64 = 1_700_000_000_123_456_789;

/// A capture in every dialect: (big-endian, nanoseconds, pcapng).
fn capture(frames: &[Vec<u8>], big: bool, nanos: bool, ng: bool) -> Vec<u8> {
    let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut file = Vec::new();
    if ng {
        file.extend([word(0x0a0d_0d0a), word(28), word(0x1a2b_3c4d)].concat());
        file.extend([half(1), half(0), [0xff; 2], [0xff; 2], [0xff; 2], [0xff; 2]].concat());
        file.extend(word(28));
        let resolution = if nanos { 9 } else { 6 };
        file.extend(
            [word(1), word(32), [half(1), half(0)].concat().try_into().expect("4"), word(0)]
                .concat(),
        );
        file.extend([half(9), half(1)].concat());
        file.extend([resolution, 0, 0, 0, 0, 0, 0, 0]);
        file.extend(word(32));
    } else {
        file.extend(word(if nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }));
        file.extend([half(2), half(4)].concat());
        file.extend([word(0), word(0), word(65535), word(1)].concat());
    }
    for (index, frame) in (0_u64..).zip(frames) {
        let at = BASE_NS + index * 1_000_000;
        let len = u32::try_from(frame.len()).expect("short");
        let low = |value: u64| word(u32::try_from(value & 0xffff_ffff).expect("masked"));
        if ng {
            let ticks = if nanos { at } else { at / 1000 };
            let padded = frame.len().next_multiple_of(4);
            let total = word(u32::try_from(32 + padded).expect("short"));
            file.extend(
                [word(6), total, word(0), low(ticks >> 32), low(ticks), word(len), word(len)]
                    .concat(),
            );
            file.extend(frame);
            file.resize(file.len() + padded - frame.len(), 0);
            file.extend(total);
        } else {
            let fraction = if nanos { at % 1_000_000_000 } else { at % 1_000_000_000 / 1000 };
            file.extend([low(at / 1_000_000_000), low(fraction), word(len), word(len)].concat());
            file.extend(frame);
        }
    }
    file
}

fn save(name: &str, bytes: &[u8]) -> PathBuf {
    let path = scratch(name);
    std::fs::write(&path, bytes).expect("written");
    path
}

fn open(path: &Path, pace: Pace) -> Result<PcapPort, PcapError> {
    PcapPort::open(&PcapConfig {
        input: Some(path.to_owned()),
        pace,
        frame_count: 64,
        ..PcapConfig::default()
    })
}

/// Frames and the times at which they came, in steps of 0.1 ms.
fn replay(port: &mut PcapPort) -> Vec<(u64, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut now = Nanos(5_000_000);
    while port.is_open() && now.0 < 10_000_000_000 {
        let mut rx = Burst::new();
        port.rx_burst(now, &mut rx);
        frames.extend(rx.iter().map(|frame| (now.0 - 5_000_000, frame.as_ref().to_vec())));
        now = now.saturating_add(Nanos(100_000));
    }
    frames
}

#[test]
fn every_dialect_gives_the_same_frames_at_the_same_times() {
    let frames = etherparse_frames();
    for dialect in 0..8_u8 {
        let (big, nanos, ng) = (dialect & 1 != 0, dialect & 2 != 0, dialect & 4 != 0);
        let path = save(&format!("dialect{dialect}"), &capture(&frames, big, nanos, ng));
        let mut port = open(&path, Pace::Percent(100)).expect("a capture");
        let seen = replay(&mut port);
        assert!(!port.is_open());
        assert_eq!(seen.len(), frames.len(), "dialect {dialect}");
        for (index, ((at, seen), frame)) in (0_u64..).zip(seen.iter().zip(&frames)) {
            assert_eq!(seen, frame);
            assert_eq!(*at, index * 1_000_000, "dialect {dialect}");
            Udp::parse(seen).expect("a datagram of another library");
        }
        std::fs::remove_file(path).expect("removed");
    }
}

/// Packet blocks of pcapng's first drafts, and ticks of a power of two.
#[test]
fn old_packet_blocks_and_binary_resolutions_are_read() {
    let frames = etherparse_frames();
    for big in [false, true] {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut file = capture(&frames, big, false, true);
        // Behind the section's block of 28 bytes and 20 of the interface's: 2^-20 s.
        assert_eq!(std::mem::replace(&mut file[48], 0x94), 6);
        let mut block = 60;
        for frame in &frames {
            assert_eq!(file[block..block + 4], word(6));
            file[block..block + 4].copy_from_slice(&word(2));
            // A word for the interface and lost packets, where the interface had one.
            let lost = if big { 11 } else { 10 };
            file[block + lost] = 7;
            block += 32 + frame.len().next_multiple_of(4);
        }
        let path = save(if big { "drafts-big" } else { "drafts" }, &file);
        let capture = Capture::load(&path).expect("a capture");
        let ticks = |index: u64| u128::from((BASE_NS + index * 1_000_000) / 1000);
        for (index, (packet, frame)) in (0..).zip(capture.packets().zip(&frames)) {
            assert_eq!((packet.bytes, packet.interface), (&frame[..], 0));
            assert_eq!(u128::from(packet.at.0), (ticks(index) * 1_000_000_000) >> 20);
        }
        assert_eq!(capture.len(), frames.len());
        std::fs::remove_file(path).expect("removed");
    }
}

#[test]
fn a_replay_can_be_scaled_or_unpaced() {
    let frames = [etherparse_frames(), etherparse_frames()].concat();
    let path = save("paced", &capture(&frames, false, true, false));
    let last = |pace| replay(&mut open(&path, pace).expect("a capture"))[99].0;
    assert_eq!(last(Pace::Percent(100)), 99_000_000);
    assert_eq!(last(Pace::Percent(1000)), 9_900_000);
    assert_eq!(last(Pace::Percent(50)), 198_000_000);
    // Two bursts, one per call.
    assert_eq!(last(Pace::Unpaced), 100_000);
    std::fs::remove_file(path).expect("removed");
}

#[test]
fn what_is_sent_can_be_received_again() {
    let frames = [etherparse_frames(), etherparse_frames()].concat();
    let (input, output) = (save("in", &capture(&frames, true, true, true)), scratch("out"));
    let config = PcapConfig {
        input: Some(input.clone()),
        output: Some(output.clone()),
        clock_origin: Nanos(BASE_NS),
        ..PcapConfig::default()
    };
    let mut port = PcapPort::open(&config).expect("captures");
    for step in 0..2 {
        let mut burst = Burst::new();
        port.rx_burst(Nanos(step), &mut burst);
        port.tx_burst(Nanos(step * 1_000_000), &mut burst);
        assert!(burst.is_empty());
    }
    assert_eq!(port.stats().tx_packets, 100);
    port.finish().expect("written");
    let seen = replay(&mut open(&output, Pace::Percent(100)).expect("a capture"));
    assert_eq!(
        seen.iter().map(|(_, frame)| frame).collect::<Vec<_>>(),
        frames.iter().collect::<Vec<_>>()
    );
    assert_eq!((seen[63].0, seen[64].0), (0, 1_000_000));
    // The format: magic, version 2.4, Ethernet.
    let bytes = std::fs::read(&output).expect("a file");
    assert_eq!(bytes[..8], [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0]);
    assert_eq!(bytes[20..24], [1, 0, 0, 0]);
    assert_eq!(
        bytes[24..32],
        [1_700_000_000_u32.to_le_bytes(), 123_456_789_u32.to_le_bytes()].concat()
    );
    std::fs::remove_file(input).expect("removed");
    std::fs::remove_file(output).expect("removed");
}

#[test]
fn a_damaged_capture_is_refused_with_file_and_offset() {
    let frames = etherparse_frames();
    let good = capture(&frames, false, true, false);
    // The third record starts after the header and two records.
    let third = 24 + 16 + frames[0].len() + 16 + frames[1].len();
    let mut cut = good.clone();
    cut.truncate(third + 10);
    let mut wild = good.clone();
    wild[third + 8..third + 12].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    let mut link_type = good.clone();
    link_type[20] = 101;
    let mut no_interface = capture(&frames, false, true, true);
    no_interface.drain(28..60);
    for (bytes, offset, name) in [
        (&cut[..], third, "cut"),
        (&wild[..], third, "wild"),
        (&link_type[..], 0, "link"),
        (&no_interface[..], 28, "interface"),
        (&b"no capture at all, but long enough for one"[..], 0, "text"),
        (&[][..], 0, "empty"),
    ] {
        let path = save(name, bytes);
        let error = open(&path, Pace::Unpaced).err().unwrap_or_else(|| panic!("{name} is damaged"));
        assert!(
            matches!(error, PcapError::Malformed { offset: at, .. } if at == offset),
            "{name}: {error:?}"
        );
        let text = error.to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(text.ends_with(&format!("at byte {offset}")), "{text}");
        std::fs::remove_file(path).expect("removed");
    }
}

#[test]
fn no_damage_panics() {
    let good = capture(&etherparse_frames()[..4], false, false, true);
    let path = scratch("damage");
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] = !bytes[at];
        std::fs::write(&path, &bytes).expect("written");
        let _ = open(&path, Pace::Unpaced).map(|mut port| replay(&mut port));
    }
    std::fs::remove_file(path).expect("removed");
}

#[test]
fn a_missing_file_is_named() {
    let error = open(Path::new("/nonexistent/x.pcap"), Pace::Unpaced).expect_err("no such file");
    assert_eq!(error.to_string(), "could not open the capture /nonexistent/x.pcap");
}

#[test]
fn a_full_disk_is_counted() {
    if !Path::new("/dev/full").exists() {
        skip("this host has no /dev/full");
        return;
    }
    let output = Some(PathBuf::from("/dev/full"));
    let mut port = PcapPort::open(&PcapConfig { output, ..PcapConfig::default() }).expect("opens");
    let mut tx = Burst::new();
    for _ in 0..300 {
        let mut frame = port.alloc().expect("a frame");
        frame.set_len(1500);
        tx.push(frame);
        port.tx_burst(Nanos(0), &mut tx);
        assert!(tx.is_empty());
    }
    assert!(port.stats().tx_errors > 0);
    assert!(port.finish().is_err());
}

#[test]
fn a_trace_shows_what_left_and_what_came_once_each() {
    let (left, mut right) = link(4, 1500, ["left", "right"]);
    let mut traced = Trace::new(left, Vec::new(), Nanos(BASE_NS)).expect("memory");
    let mut tx = Burst::new();
    for chunk in 0..6 {
        tx.push(datagram(&mut traced, &route(), &contribution(chunk, 1)));
    }
    // The ring takes four; two are offered again, and again.
    assert_eq!(traced.tx_burst(Nanos(1), &mut tx), 4);
    assert_eq!(traced.tx_burst(Nanos(2), &mut tx), 0);
    assert_eq!(traced.counts().frames, 4);
    let mut rx = Burst::new();
    right.rx_burst(Nanos(2), &mut rx);
    right.tx_burst(Nanos(2), &mut rx);
    assert_eq!(traced.tx_burst(Nanos(3), &mut tx), 2);
    let mut rx = Burst::new();
    assert_eq!(traced.rx_burst(Nanos(4), &mut rx), 4);
    let counts = traced.counts();
    assert_eq!((counts.frames, counts.errors, counts.cut), (10, 0, 0));

    let (_, file) = traced.finish().expect("memory");
    assert_eq!(counts.bytes, file.len() as u64);
    let mut reader = LegacyPcapReader::new(65536, &file[..]).expect("a capture");
    let mut seen = Vec::new();
    loop {
        match reader.next() {
            Ok((len, block)) => {
                if let PcapBlockOwned::Legacy(record) = block {
                    let at = u64::from(record.ts_sec) * 1_000_000_000 + u64::from(record.ts_usec);
                    seen.push((at - BASE_NS, chunk_of(record.data)));
                }
                reader.consume(len);
            }
            Err(ParserError::Eof) => break,
            Err(ParserError::Incomplete(_)) => reader.refill().expect("memory"),
            Err(error) => panic!("{error:?}"),
        }
    }
    let expected = [(1, 0), (1, 1), (1, 2), (1, 3), (3, 4), (3, 5), (4, 0), (4, 1), (4, 2), (4, 3)];
    assert_eq!(seen, expected);
}

/// A disk with so much room, which is read by who holds the other end.
#[derive(Clone)]
struct Disk {
    content: Arc<Mutex<Vec<u8>>>,
    room: Arc<AtomicUsize>,
}

impl Disk {
    fn new(room: usize) -> Self {
        Self { content: Arc::default(), room: Arc::new(room.into()) }
    }
}

impl std::io::Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut content = self.content.lock().expect("nobody panicked");
        let room = self.room.load(Ordering::Relaxed).saturating_sub(content.len());
        let len = bytes.len().min(room);
        content.extend_from_slice(&bytes[..len]);
        if len == 0 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(len) }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_said_once_and_counted_and_does_not_disturb_the_port() {
    let (left, mut right) = link(64, 1500, ["left", "right"]);
    let disk = Disk::new(1000);
    let (said, heard) = mpsc::channel();
    let traced = Trace::new(left, disk.clone(), Nanos(0)).expect("room for the header");
    let mut traced = traced.with_warning(move |error, bytes| {
        said.send((error.kind(), bytes)).expect("the test is there");
    });
    let mut sent = 0;
    let mut send = |traced: &mut Trace<_, Disk>| {
        let mut tx = Burst::new();
        for chunk in sent..sent + 10 {
            tx.push(datagram(traced, &route(), &contribution(chunk, 1)));
        }
        sent += 10;
        assert_eq!(traced.tx_burst(Nanos(0), &mut tx), 10);
        let mut rx = Burst::new();
        assert_eq!(right.rx_burst(Nanos(0), &mut rx), 10);
        traced.counts()
    };
    let counts = send(&mut traced);
    let content = disk.content.lock().expect("nobody panicked").clone();
    assert_eq!(content.len(), 1000, "what has room is written");
    // What is whole counts, and nothing else does.
    let record = u64::from(u32::from_le_bytes(content[32..36].try_into().expect("four"))) + 16;
    assert_eq!(counts.frames, (1000 - 24) / record);
    assert_eq!(counts.bytes, 24 + counts.frames * record);
    assert_eq!((counts.errors, counts.cut), (10 - counts.frames, 0));
    assert_eq!(heard.try_recv(), Ok((std::io::ErrorKind::StorageFull, counts.bytes)));
    // Whatever becomes free, there is no gap in a capture.
    disk.room.store(1 << 20, Ordering::Relaxed);
    let later = send(&mut traced);
    assert_eq!((later.frames, later.bytes), (counts.frames, counts.bytes));
    assert_eq!((later.errors, later.cut), (20 - counts.frames, 0));
    assert_eq!(disk.content.lock().expect("nobody panicked").len(), 1000);
    assert!(heard.try_recv().is_err(), "it was said once");
}

#[test]
fn a_trace_that_is_full_stays_whole_and_counts_what_it_leaves_out() {
    let (left, mut right) = link(64, 1500, ["left", "right"]);
    let len = {
        let mut probe = link(1, 1500, ["a", "b"]).0;
        datagram(&mut probe, &route(), &contribution(0, 1)).as_ref().len() as u64
    };
    // A byte is missing for the fourth.
    let bytes_max = 24 + 4 * (16 + len) - 1;
    let traced = Trace::new(left, Vec::new(), Nanos(0)).expect("memory");
    let mut traced = traced.with_bytes_max(bytes_max);
    let mut tx = Burst::new();
    for chunk in 0..5 {
        tx.push(datagram(&mut traced, &route(), &contribution(chunk, 1)));
    }
    // A short one would still fit, and must not follow a gap.
    tx.push(common::ethernet(&mut traced, MacAddr::BROADCAST, MacAddr::default(), 1));
    assert_eq!(traced.tx_burst(Nanos(0), &mut tx), 6);
    let mut rx = Burst::new();
    assert_eq!(right.rx_burst(Nanos(0), &mut rx), 6, "the port does not feel it");
    let counts = traced.counts();
    assert_eq!((counts.frames, counts.cut, counts.errors), (3, 3, 0));
    let (_, file) = traced.finish().expect("memory");
    assert_eq!((file.len() as u64, counts.bytes), (24 + 3 * (16 + len), 24 + 3 * (16 + len)));
}

#[test]
fn the_end_of_time_saturates() {
    let mut file = Vec::new();
    PcapWriter::new(&mut file).and_then(|mut w| w.write(Nanos::MAX, &[1])).expect("memory");
    assert_eq!(file[24..28], u32::MAX.to_le_bytes());
}
