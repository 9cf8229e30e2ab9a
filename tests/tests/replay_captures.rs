//! Captures of somebody else against a configuration, and what is said of input that is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use weft_io::pcap::{Capture, PcapWriter};
use weft_testbed::replay::{Fields, Options, Outcome, ReplayError, replay, replay_captures};
use weft_wire::header::Kind;
use weft_wire::{Nanos, Rank};

/// A box with other addresses, another job and another row than those of the corpus.
const OTHER: &str = r#"
[port]
io = "udp"
ip = "10.9.0.100/24"
udp_port = 22341
[[job]]
id = 5
[[row]]
row = 3
job = 5
window = 8
exponent = -20
overflow = "clamp"
members = [ { addr = "10.9.0.1:7000" }, { addr = "10.9.0.2:7000" } ]
"#;

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("replay").join(name)
}

struct Ground {
    directory: TempDir,
}

impl Ground {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A copy of a recording of the corpus, to be broken.
    fn recording(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir(&path).unwrap();
        for entry in fs::read_dir(corpus(name)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), path.join(entry.file_name())).unwrap();
        }
        path
    }

    fn against(&self, input: &Path, config: &str) -> Result<Outcome, ReplayError> {
        self.with(input, config, &Options::default())
    }

    fn with(&self, input: &Path, config: &str, options: &Options) -> Result<Outcome, ReplayError> {
        let config = self.file("other.toml", config);
        replay_captures(&[input.to_owned()], &config, &BTreeMap::new(), options)
    }
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn refusal(path: &Path) -> String {
    let error = replay(path, &Options::default()).unwrap_err();
    error.to_string()
}

/// A classic capture of the frames of a recording: microseconds, this link type, frames cut at so
/// many octets.
fn classic(name: &str, link: u32, snaplen: usize) -> Vec<u8> {
    classic_of(name, link, snaplen, <[u8]>::to_vec)
}

/// The same, with another link's frames; the lengths on the wire stay.
fn classic_of(name: &str, link: u32, snaplen: usize, frame: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let capture = Capture::load(&corpus(name).join("lane-0.pcapng")).unwrap();
    let mut out = Vec::new();
    out.extend(0xa1b2_c3d4_u32.to_le_bytes());
    out.extend([2, 0, 4, 0]);
    out.extend([0; 8]);
    out.extend(u32::try_from(snaplen).unwrap().to_le_bytes());
    out.extend(link.to_le_bytes());
    for packet in capture.packets() {
        let frame = frame(packet.bytes);
        let kept = &frame[..frame.len().min(snaplen)];
        let micros = packet.at.0 / 1000;
        let words = [
            u32::try_from(micros / 1_000_000).unwrap(),
            u32::try_from(micros % 1_000_000).unwrap(),
            u32::try_from(kept.len()).unwrap(),
            u32::try_from(packet.bytes.len()).unwrap(),
        ];
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        out.extend_from_slice(kept);
    }
    out
}

#[test]
fn a_capture_replays_against_other_addresses_jobs_and_rows() {
    let ground = Ground::new();
    for name in ["digits", "digits-loss", "root-restart"] {
        let input = corpus(name).join("lane-0.pcapng");
        let outcome = ground.against(&input, OTHER).unwrap();
        assert!(outcome.packets_in > 20, "{name}: {outcome:?}");
        assert_eq!(outcome.first_differences, [], "{name}");
        assert_eq!(outcome.verdict, "pass", "{name}");
    }
}

/// What a box sends once for all, it sends so again if it is told again that all hear it.
#[test]
fn a_capture_with_sums_for_all_members_at_once_replays() {
    let ground = Ground::new();
    let other = OTHER.replace("window = 8", "elements = 8\nwindow = 4").replace("-20", "-8");
    let multicast = other.replace("udp_port", "multicast = \"239.1.2.0\"\nudp_port");
    let shm = other.replace("udp_port", "shm = true\nudp_port");
    for (name, config) in [("hearing", &multicast), ("memory", &shm)] {
        let input = corpus(name).join("lane-0.pcapng");
        let outcome = ground.against(&input, config).unwrap();
        assert_eq!(outcome.first_differences, [], "{name}");
        assert!(outcome.packets_out > 0 && outcome.unmapped == 0, "{name}: {outcome:?}");
        // One that begins later: without what members say before the first sum.
        let late = ground.file("late.pcap", after_the_handshakes(&input));
        let outcome = ground.against(&late, config).unwrap();
        assert_eq!(outcome.first_differences, [], "{name}, late");
        assert_eq!(outcome.verdict, "pass");
        // A box that has no such address, or no memory, cannot do it, and is told so.
        let outcome = ground.against(&input, &other).unwrap();
        assert!(outcome.differences > 0, "{name}");
        let notes = outcome.notes.join("\n");
        assert!(notes.contains("neither port.multicast nor port.shm"), "{name}: {notes}");
        assert_eq!(notes.contains("has no port.shm"), name == "memory", "{notes}");
    }
}

/// What came after the last handshake of a capture.
fn after_the_handshakes(input: &Path) -> Vec<u8> {
    let capture = Capture::load(input).unwrap();
    let is_hello = |bytes: &[u8]| bytes[42] & 0xf == Kind::Hello as u8;
    let packets: Vec<_> = capture.packets().collect();
    let last = packets.iter().rposition(|packet| is_hello(packet.bytes)).unwrap();
    let mut out = PcapWriter::new(Vec::new()).unwrap();
    for packet in &packets[last + 1..] {
        out.write(packet.at, packet.bytes).unwrap();
    }
    out.finish().unwrap()
}

#[test]
fn microseconds_and_link_type_null_with_ethernet_inside_are_read() {
    let ground = Ground::new();
    for link in [1, 0] {
        let input = ground.file("classic.pcap", classic("digits", link, 65_535));
        let outcome = ground.against(&input, OTHER).unwrap();
        assert_eq!((outcome.differences, outcome.unmapped), (0, 0));
    }
}

/// Offloads of the interface that was captured on; provenance in tests/captures.
#[test]
fn what_a_card_has_still_to_do_is_no_difference() {
    let ground = Ground::new();
    for (name, row, frames, joined) in [
        ("gso-crc", r#"exponent = -16, overflow = "clamp""#, 29, 8),
        ("gso-bf16", r#"element_type = "bf16""#, 28, 8),
        ("txcsum-crc", r#"exponent = -16, overflow = "clamp""#, 28, 0),
        (
            "txcsum-checksum16",
            r#"exponent = -16, overflow = "clamp", integrity = "checksum16""#,
            28,
            0,
        ),
    ] {
        let input = corpus("../captures").join(name).with_extension("pcap");
        let config = format!(
            "row = [{{ row = 0, job = 0, window = 16, elements = 64, {row}, \
             members = [\"10.99.0.2:23000\", \"10.99.0.2:23100\"] }}]\njob = [{{ id = 0 }}]\n\
             [port]\nio = \"udp\"\nip = \"10.99.0.1/24\"\n"
        );
        let outcome = ground.against(&input, &config).unwrap();
        assert_eq!(outcome.first_differences, [], "{name}");
        assert_eq!((outcome.packets_in, outcome.packets_out), (frames, frames), "{name}");
        let note = format!("{joined} packets hold several datagrams");
        assert_eq!(outcome.notes.join("\n").contains(&note), joined > 0, "{:?}", outcome.notes);
    }
    // Another sum is a damaged frame's.
    let capture = Capture::load(&corpus("../captures/txcsum-checksum16.pcap")).unwrap();
    let mut damaged = PcapWriter::new(Vec::new()).unwrap();
    for packet in capture.packets() {
        let mut frame = packet.bytes.to_vec();
        frame[41] ^= u8::from(frame[42] & 0xf == Kind::Contrib as u8);
        damaged.write(packet.at, &frame).unwrap();
    }
    let input = ground.file("damaged.pcap", damaged.finish().unwrap());
    let config = OTHER.replace("exponent = -20", "integrity = \"checksum16\"\nelements = 64");
    let config = config.replace("window = 8", "window = 16\nexponent = -16");
    assert!(ground.against(&input, &config).unwrap().differences > 0);
}

#[test]
fn what_the_link_puts_behind_a_packet_is_no_difference() {
    let ground = Ground::new();
    let with_fcs = |frame: &[u8]| [frame, &[0xde, 0xad, 0xbe, 0xef]].concat();
    // Without a word, and with the length of the FCS in the link type.
    for link in [1, 0x2400_0001] {
        let input = ground.file("fcs.pcap", classic_of("digits", link, 65_535, with_fcs));
        let outcome = ground.against(&input, OTHER).unwrap();
        assert_eq!((outcome.differences, outcome.unmapped), (0, 0), "{link:x}");
        assert!(outcome.packets_out > 20);
    }
}

#[test]
fn one_frame_more_or_fewer_is_one_difference() {
    let ground = Ground::new();
    let capture = Capture::load(&corpus("digits").join("lane-0.pcapng")).unwrap();
    let is_sum = |frame: &[u8]| frame.len() > 500 && frame[42] & 0xf == Kind::Answer as u8;
    let packets: Vec<_> = capture.packets().collect();
    let at = packets.iter().position(|packet| is_sum(packet.bytes)).unwrap();
    // The box's first sum in the capture twice, and never.
    for (count, note) in [(2, "1 frame fewer than expected"), (0, "1 frame more than expected")] {
        let mut changed = PcapWriter::new(Vec::new()).unwrap();
        for (index, packet) in packets.iter().enumerate() {
            for _ in 0..if index == at { count } else { 1 } {
                changed.write(packet.at, packet.bytes).unwrap();
            }
        }
        let input = ground.file("changed.pcap", changed.finish().unwrap());
        let outcome = ground.against(&input, OTHER).unwrap();
        assert_eq!(outcome.differences, 1, "{:?}", outcome.first_differences);
        assert!(outcome.notes.iter().any(|said| said == note), "{:?}", outcome.notes);
        // The same of a recording, against a capture.
        let expect = Some(input);
        let sent = Capture::load(expect.as_ref().unwrap()).unwrap();
        let mut out = PcapWriter::new(Vec::new()).unwrap();
        let is_out = |frame: &[u8]| frame[34..36] == packets[at].bytes[34..36];
        for packet in sent.packets().filter(|packet| is_out(packet.bytes)) {
            out.write(packet.at, packet.bytes).unwrap();
        }
        let expect = Some(ground.file("expect.pcap", out.finish().unwrap()));
        let options = Options { expect, ..Options::default() };
        let outcome = replay(&corpus("digits"), &options).unwrap();
        assert_eq!(outcome.differences, 1, "{:?}", outcome.first_differences);
    }
}

#[test]
fn a_frame_that_says_something_else_is_shown_by_its_field() {
    let ground = Ground::new();
    let capture = Capture::load(&corpus("digits").join("lane-0.pcapng")).unwrap();
    // What the box should have sent, with another word in one sum.
    let mut expected = PcapWriter::new(Vec::new()).unwrap();
    let mut changed = 0;
    for packet in capture.packets() {
        let mut frame = packet.bytes.to_vec();
        let is_out = packet.direction == Some(weft_io::record::Direction::Out);
        let is_sum = is_out && frame.len() > 500 && frame[42] & 0xf == Kind::Answer as u8;
        if is_sum && changed == 0 {
            frame[42 + 32 + 9] ^= 1;
            changed += 1;
        }
        expected.write(packet.at, &frame).unwrap();
    }
    let input = ground.file("changed.pcap", expected.finish().unwrap());
    let outcome = ground.against(&input, OTHER).unwrap();
    assert_eq!((outcome.differences, outcome.verdict), (1, "fail"));
    assert_eq!(outcome.first_differences[0].field, "payload[2]");
    let ignore = Fields::parse("payload").unwrap();
    let options = Options { ignore, ..Options::default() };
    assert_eq!(ground.with(&input, OTHER, &options).unwrap().differences, 0);
}

#[test]
fn frames_without_a_place_are_counted() {
    let ground = Ground::new();
    let input = corpus("digits").join("lane-0.pcapng");
    let alone = OTHER.replace(", { addr = \"10.9.0.2:7000\" }", "");
    let outcome = ground.against(&input, &alone).unwrap();
    assert!(outcome.unmapped > 10, "rank 1 has none: {outcome:?}");
    assert_eq!(outcome.skipped, [("bad_members", outcome.unmapped)].into());
    let all = Capture::load(&input).unwrap().len();
    // The contributions are gone, so no member is known.
    let refused = |reason: &str, bytes: Vec<u8>| {
        let error = ground.against(&ground.file("bad.pcap", bytes), OTHER).unwrap_err().to_string();
        assert!(error.contains("nobody contributes") && error.contains(reason), "{error}");
    };
    refused(&format!(": {all} cut"), classic("digits", 1, 90));
    refused(" cut", classic("digits", 1, 1090));
    let with_tag = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    refused(&format!(": {all} vlan"), classic_of("digits", 1, 65_535, with_tag));
    let with_tags =
        |frame: &[u8]| [&frame[..12], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 7], &frame[12..]].concat();
    refused(&format!(": {all} vlan"), classic_of("digits", 1, 65_535, with_tags));
}

#[test]
fn ranks_come_from_addresses_where_the_frames_do_not_say_them() {
    let ground = Ground::new();
    let capture = Capture::load(&corpus("hostile").join("lane-0.pcapng")).unwrap();
    assert!(!capture.is_empty());
    let config = ground.file("other.toml", OTHER.replace("window", "elements = 8\nwindow"));
    let map = [("10.0.0.1", 1), ("10.0.0.2", 0)];
    let map = map.map(|(addr, rank)| (addr.parse().unwrap(), Rank::new(rank).unwrap())).into();
    let input = [corpus("late-join").join("lane-0.pcapng")];
    let outcome = replay_captures(&input, &config, &map, &Options::default()).unwrap();
    assert_eq!(outcome.unmapped, 0, "{outcome:?}");
    assert!(outcome.packets_in > 0);
    assert!(!outcome.notes.join("").contains("--map"), "{:?}", outcome.notes);
    let map = [("10.9.9.9".parse().unwrap(), Rank::new(1).unwrap())].into();
    let outcome = replay_captures(&input, &config, &map, &Options::default()).unwrap();
    assert!(outcome.notes.join("").contains("no contribution of 10.9.9.9 (--map)"));
}

#[test]
fn captures_that_make_no_sense_are_one_error() {
    let ground = Ground::new();
    let good = classic("digits", 1, 65_535);
    let refused = |bytes: Vec<u8>| {
        let input = ground.file("bad.pcap", bytes);
        ground.against(&input, OTHER).unwrap_err().to_string()
    };
    let mut bytes = good.clone();
    bytes.truncate(good.len() - 10);
    assert!(refused(bytes).contains("ends within the record"));
    let mut bytes = good.clone();
    bytes[20] = 113;
    assert!(refused(bytes).contains("link type"));
    let mut bytes = good.clone();
    bytes[16..20].copy_from_slice(&100_u32.to_le_bytes());
    assert!(refused(bytes).contains("snaplen"));
    // The second record is before the first.
    let mut bytes = good.clone();
    let seconds = u32::from_le_bytes(bytes[24..28].try_into().unwrap());
    bytes[24..28].copy_from_slice(&(seconds + 1000).to_le_bytes());
    assert!(refused(bytes).contains("packet 2 is before"));
    // A record claims more than a file has, or memory.
    let mut bytes = good.clone();
    bytes[32..36].copy_from_slice(&0xffff_fff0_u32.to_le_bytes());
    refused(bytes);
    assert!(refused(b"nonsense".to_vec()).contains("not the start"));
    // A loopback interface's.
    let mut bytes = classic("digits", 0, 65_535);
    bytes[40..44].copy_from_slice(&2_u32.to_le_bytes());
    bytes[52..54].copy_from_slice(&[0x45, 0]);
    assert!(refused(bytes).contains("link type null"));
    let input = ground.file("good.pcap", good);
    let error = ground.against(&input, "[port]\nio = 3\n").unwrap_err().to_string();
    assert!(error.contains("other.toml:2"), "{error}");
    let push = "[port]\nio = \"udp\"\nip = \"10.0.0.1/24\"\n";
    assert!(ground.against(&input, push).unwrap_err().to_string().contains("no [[row]]"));
}

#[test]
fn recordings_that_are_broken_are_one_error() {
    let ground = Ground::new();
    let broken = |change: &dyn Fn(&Path)| {
        let path = ground.recording("digits");
        change(&path);
        let text = refusal(&path);
        fs::remove_dir_all(&path).unwrap();
        text
    };
    let frames = "lane-0.pcapng";
    let text = broken(&|path| edit(&path.join(frames), |bytes| bytes.truncate(bytes.len() - 7)));
    assert!(text.contains("ends within the record"), "{text}");
    let text = broken(&|path| fs::remove_file(path.join("lane-0.log")).unwrap());
    assert!(text.contains("lane-0.log"), "{text}");
    let text = broken(&|path| fs::remove_file(path.join("recording.json")).unwrap());
    assert!(text.contains("is no recording"), "{text}");
    let newer = |path: &Path| {
        let text = fs::read_to_string(path.join("recording.json")).unwrap();
        let text = text.replace("\"format\": 1", "\"format\": 2").replace("\"lanes\"", "\"new\"");
        fs::write(path.join("recording.json"), text).unwrap();
    };
    let text = broken(&newer);
    assert!(text.contains("is of format 2"), "{text}");
    let text = broken(&|path| edit(&path.join("node.toml"), |bytes| bytes.extend(b"\nnonsense")));
    assert!(text.contains("node.toml:"), "{text}");
    // The length of the first packet's block: corrupted, then huge.
    for len in [[13, 0, 0, 0], [0xfc, 0xff, 0xff, 0xff]] {
        let first = |bytes: &mut Vec<u8>| {
            let section = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
            let interface = u32::from_le_bytes(bytes[section + 4..section + 8].try_into().unwrap());
            let at = section + interface as usize + 4;
            bytes[at..at + 4].copy_from_slice(&len);
        };
        let text = broken(&|path| edit(&path.join(frames), first));
        assert!(text.contains(frames), "{text}");
    }
    let log = |change: fn(String) -> String| {
        broken(&|path| {
            let path = path.join("lane-0.log");
            fs::write(&path, change(fs::read_to_string(&path).unwrap())).unwrap();
        })
    };
    let text = log(|text| text.replace("end stopped\n", ""));
    assert!(text.contains("--partial"), "{text}");
    let text = log(|text| text.replacen("breath ", "breadth ", 1));
    assert!(text.contains("lane-0.log: line"), "{text}");
    let text = log(|text| text.replacen("rx 1", "rx 2", 1));
    assert!(text.contains("not those that the log says"), "{text}");
    let text = log(|text| {
        let mut lines: Vec<&str> = text.lines().collect();
        let last = lines.len() - 2;
        lines.swap(last, last - 1);
        lines.join("\n") + "\n"
    });
    assert!(text.contains("backwards") || text.contains("not those"), "{text}");
}

#[test]
fn what_is_whole_of_a_recording_without_an_end_replays() {
    let ground = Ground::new();
    let path = ground.recording("digits");
    edit(&path.join("lane-0.pcapng"), |bytes| bytes.truncate(bytes.len() - 3000));
    edit(&path.join("lane-0.log"), |bytes| bytes.truncate(bytes.len() - 30));
    let options = Options { partial: true, ..Options::default() };
    let outcome = replay(&path, &options).unwrap();
    assert_eq!(outcome.differences, 0, "{outcome:?}");
    assert!(outcome.packets_in > 10 && !outcome.notes.is_empty());
}

/// The recording of a replay is the recording: that is what blessing keeps.
#[test]
fn a_replay_that_is_recorded_gives_the_same_log_and_frames() {
    for name in ["digits-loss", "push-aggregator", "push-server", "promotion", "server-restart"] {
        let anew = tempfile::tempdir().unwrap();
        let bless = Some(anew.path().to_owned());
        let options = Options { bless, ..Options::default() };
        assert_eq!(replay(&corpus(name), &options).unwrap().differences, 0);
        let log = |path: &Path| fs::read_to_string(path.join("lane-0.log")).unwrap();
        assert_eq!(log(anew.path()), log(&corpus(name)), "{name}");
        let frames = |path: &Path| {
            let capture = Capture::load(&path.join("lane-0.pcapng")).unwrap();
            let all = capture.packets().map(|it| (it.at, it.direction, it.bytes.to_vec()));
            all.collect::<Vec<(Nanos, _, _)>>()
        };
        assert_eq!(frames(anew.path()), frames(&corpus(name)), "{name}");
    }
}

#[test]
fn frames_that_came_out_otherwise_are_differences_with_packet_and_field() {
    let ground = Ground::new();
    let path = ground.recording("digits");
    let capture = Capture::load(&path.join("lane-0.pcapng")).unwrap();
    let (last, packet) = capture.packets().enumerate().last().unwrap();
    assert_eq!(packet.direction, Some(weft_io::record::Direction::Out));
    let len = packet.bytes.len();
    let padding = len.next_multiple_of(4) - len;
    // The last octet of the last frame, before the options of its block.
    edit(&path.join("lane-0.pcapng"), |bytes| {
        let at = bytes.len() - 16 - padding - 1;
        bytes[at] ^= 0x40;
    });
    let outcome = replay(&path, &Options::default()).unwrap();
    assert_eq!((outcome.differences, outcome.verdict), (1, "fail"));
    assert_eq!(outcome.first_differences[0].packet, last as u64 + 1);
    let expected = capture
        .packets()
        .filter(|packet| packet.direction == Some(weft_io::record::Direction::Out));
    let mut out = PcapWriter::new(Vec::new()).unwrap();
    expected.for_each(|packet| out.write(packet.at, packet.bytes).unwrap());
    let expect = Some(ground.file("expect.pcap", out.finish().unwrap()));
    let outcome = replay(&path, &Options { expect, ..Options::default() }).unwrap();
    assert_eq!(outcome.differences, 0, "the capture is the right one");
}
