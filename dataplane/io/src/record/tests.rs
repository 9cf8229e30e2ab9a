use std::borrow::Cow;

use super::*;
use crate::Frame as _;
use crate::memory::{self, MemoryPort};
use crate::pool::PoolFrame;

fn entries() -> Vec<Entry<'static>> {
    let octets = || Cow::Owned(vec![0, 0x0f, 0xf0, 0xff]);
    let breath = Breath { now: Nanos(12), rx: 3, tx: 1, ..Breath::default() };
    vec![
        Entry::Breath(breath.clone()),
        Entry::Breath(Breath { timers: 2, refused: 1, nombuf: vec![0, 7], ..breath }),
        Entry::Draw { label: "row-3 cookie_up-2", word: u64::MAX },
        Entry::Command { now: Nanos(5), octets: octets() },
        Entry::Controller { now: Nanos(6), is_there: true },
        Entry::Controller { now: Nanos(7), is_there: false },
        Entry::Settled,
        Entry::Durable { job: 255, position: 1 << 40 },
        Entry::Journal { job: 1, position: 2, len: 3, crc: 0xdead },
        Entry::JournalFull,
        Entry::Event { octets: octets() },
        Entry::End { reason: "stopped" },
    ]
}

#[test]
fn lines_are_read_as_they_were_written() {
    let mut text = Vec::new();
    entries().iter().for_each(|entry| entry.write(&mut text));
    let text = String::from_utf8(text).unwrap();
    let read: Vec<Entry<'_>> = text.lines().map(|line| Entry::parse(line).unwrap()).collect();
    assert_eq!(read, entries());
}

#[test]
fn a_line_that_is_cut_or_longer_is_refused() {
    for line in ["", "breath", "breath 1 rx", "breath 1 rx x", "breath 1 ty 2", "nonsense 1"] {
        Entry::parse(line).unwrap_err();
    }
    for line in ["draw word", "command 1 abc", "command 1 zz", "controller 1 perhaps", "durable 1"]
    {
        Entry::parse(line).unwrap_err();
    }
    for line in ["durable 1 2 3", "journal 1 2 3 xyz", "journal_full 1", "settled 1", "event 00 00"]
    {
        Entry::parse(line).unwrap_err();
    }
    let shown = Entry::parse(&"x".repeat(1000)).unwrap_err().to_string();
    assert!(shown.len() < 100, "{shown}");
}

fn recording(directory: &tempfile::TempDir, bytes_max: u64) -> Recording {
    let info = crate::PortInfo { name: "p0".into(), ..Default::default() };
    Recording::start(directory.path(), "test", &[info], Nanos(1_000), (0, bytes_max), |_| {})
        .unwrap()
}

/// Two frames come, one leaves, a copy finds no buffer.
fn breathe(port: &mut Recorded<MemoryPort>, far: &mut MemoryPort, now: Nanos) {
    let mut tx = Burst::new();
    for byte in [1, 2] {
        let mut frame = far.alloc().unwrap();
        frame.set_len(60);
        frame.as_mut().fill(byte);
        tx.push(frame);
    }
    far.tx_burst(now, &mut tx);
    let mut rx = Burst::new();
    assert_eq!(port.rx_burst(now, &mut rx), 2);
    rx[0].as_mut()[0] = 9;
    rx.truncate(1);
    port.tx_burst(now, &mut rx);
}

#[test]
fn frames_and_breaths_are_kept_in_order_with_their_direction() {
    let directory = tempfile::tempdir().unwrap();
    let (near, mut far) = memory::link(64, 1500, ["near", "far"]);
    let mut recording = recording(&directory, u64::MAX);
    let mut port = Recorded::new(near);
    port.record(recording.lane(0).unwrap());
    assert!(recording.lane(0).is_none(), "a lane has one recorder");
    port.recorder().unwrap().draws().note("lane epoch", 7);
    let mut none = Burst::new();
    port.rx_burst(Nanos(1), &mut none);
    breathe(&mut port, &mut far, Nanos(2));
    port.recorder().unwrap().note(&Entry::JournalFull);
    port.end_recording();
    let counts = recording.finish();
    assert_eq!((counts.frames, counts.ended), (3, 0));
    let log = std::fs::read_to_string(directory.path().join("lane-0.log")).unwrap();
    assert_eq!(log, "draw lane epoch 7\nbreath 2 rx 2 tx 1\njournal_full\nend stopped\n");
    let capture = crate::pcap::Capture::load(&directory.path().join("lane-0.pcapng")).unwrap();
    let seen: Vec<_> = capture
        .packets()
        .map(|packet| (packet.at.0, packet.direction.unwrap(), packet.bytes[0], packet.bytes.len()))
        .collect();
    let (inward, out) = (Direction::In, Direction::Out);
    assert_eq!(seen, [(1002, inward, 1, 60), (1002, inward, 2, 60), (1002, out, 9, 60)]);
}

#[test]
fn the_largest_size_ends_the_recording_at_a_breath_and_not_the_port() {
    let directory = tempfile::tempdir().unwrap();
    let (near, mut far) = memory::link(64, 1500, ["near", "far"]);
    let bytes_max = 100_000;
    let mut recording = recording(&directory, bytes_max);
    let mut port = Recorded::new(near);
    port.record(recording.lane(0).unwrap());
    for step in 0..10_000 {
        breathe(&mut port, &mut far, Nanos(step * 1_000_000));
        let mut back = Burst::new();
        assert_eq!(far.rx_burst(Nanos(0), &mut back), 1, "the port goes on");
        if step % 100 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    port.end_recording();
    let counts = recording.finish();
    assert_eq!(counts.ended, 1);
    let len = |name| std::fs::metadata(directory.path().join(name)).unwrap().len();
    assert!(len("lane-0.pcapng") + len("lane-0.log") <= bytes_max);
    let log = std::fs::read_to_string(directory.path().join("lane-0.log")).unwrap();
    assert!(log.ends_with("end full\n"));
    let breaths = log.lines().filter(|line| line.starts_with("breath")).count();
    let capture = crate::pcap::Capture::load(&directory.path().join("lane-0.pcapng")).unwrap();
    assert!(breaths > 0);
    assert_eq!(capture.packets().count(), breaths * 3);
}

/// A port that knows whether it was asked for runs in one piece.
struct Asked {
    port: MemoryPort,
    joins: bool,
}

impl Port for Asked {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.port.rx_burst(now, rx)
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        self.port.tx_burst(now, tx)
    }

    fn join_runs(&mut self, is_on: bool) -> bool {
        self.joins = is_on;
        true
    }

    crate::forward_port!(port: alloc, free, info, stats);
}

/// What is kept are datagrams.
#[test]
fn while_frames_are_kept_none_is_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let (port, _far) = memory::link(64, 1500, ["near", "far"]);
    let mut recording = recording(&directory, u64::MAX);
    let mut port = Recorded::new(Asked { port, joins: false });
    assert!(port.join_runs(true));
    assert!(port.port().joins);
    port.record(recording.lane(0).unwrap());
    assert!(!port.port().joins);
    for is_on in [false, true] {
        assert!(port.join_runs(is_on), "once it is over they may come");
        assert!(!port.port().joins);
    }
    port.end_recording();
    assert!(port.port().joins);
    port.join_runs(false);
    assert!(!port.port().joins);
}
