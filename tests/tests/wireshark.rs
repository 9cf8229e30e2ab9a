//! The Wireshark dissector, run by tshark over the golden vectors and compared with their index.
//!
//! Without tshark these tests say so on the terminal and pass; with `WEFT_REQUIRE_TSHARK` set
//! they fail instead.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io, process};

use weft_tests::crc32c::crc32c;
use weft_tests::vectors::{self, HeaderFields, HelloFields, KeysFields, Vector};
use weft_wire::ChunkIndex;
use weft_wire::frame::run;
use weft_wire::header::{ElementType, Flags, HeaderError, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{HelloError, Integrity, Overflow, Phase, Reason};

/// Separates fields in tshark's output; appears in no value.
const SEPARATOR: char = '\t';
const HEADER_FIELDS: &[&str] = &[
    "weft.kind",
    "weft.flags",
    "weft.outcome",
    "weft.job",
    "weft.cookie",
    "weft.group",
    "weft.group.row",
    "weft.group.generation",
    "weft.chunk",
    "weft.element_type",
    "weft.operation",
    "weft.exponent",
    "weft.count",
    "weft.crc",
    "weft.members",
    "weft.members.count",
    "weft.members.rank",
];
const HELLO_FIELDS: &[&str] = &[
    "weft.hello.phase",
    "weft.hello.reason",
    "weft.hello.probe_len",
    "weft.hello.epoch",
    "weft.hello.life",
    "weft.hello.token",
    "weft.hello.session",
    "weft.hello.cookie_up",
    "weft.hello.cookie_down",
    "weft.hello.window",
    "weft.hello.shards",
    "weft.hello.elements",
    "weft.hello.integrity",
    "weft.hello.overflow",
    "weft.hello.fan_in",
    "weft.hello.step_count",
    "weft.hello.low_step",
    "weft.hello.step_bits",
    "weft.hello.exponent",
    "weft.hello.exponent_mode",
    "weft.hello.mask",
    "weft.hello.bitmap",
];
const KEYS_FIELDS: &[&str] = &[
    "weft.keys.row_len",
    "weft.keys.entries",
    "weft.keys.floors",
    "weft.keys.hops",
    "weft.keys.peer",
    "weft.keys.number",
    "weft.keys.low",
    "weft.keys.key",
];
const OTHER_FIELDS: &[&str] = &[
    "weft.crc.status",
    "weft.element.i32",
    "weft.element.f32",
    "weft.element.bf16",
    "_ws.col.Protocol",
    "_ws.col.Info",
    "_ws.expert.message",
];

type Row = HashMap<&'static str, String>;

/// A frame as captured: at most `captured` of its bytes.
struct Captured<'a> {
    frame: &'a [u8],
    captured: usize,
}

fn whole(frame: &[u8]) -> Captured<'_> {
    Captured { frame, captured: frame.len() }
}

fn pcap(frames: &[Captured<'_>]) -> Vec<u8> {
    // Magic number, version 2.4, UTC, no accuracy, snap length, Ethernet.
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 1] {
        file.extend(word.to_be_bytes());
    }
    for (second, Captured { frame, captured }) in frames.iter().enumerate() {
        for word in [second, 0, *captured, frame.len()] {
            file.extend(u32::try_from(word).expect("small").to_be_bytes());
        }
        file.extend(&frame[..*captured]);
    }
    file
}

/// A file that disappears with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = env::temp_dir().join(format!("weft-{}-{name}.pcap", process::id()));
        fs::write(&path, content).expect("the temporary folder is writable");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn has_tshark() -> bool {
    let run = Command::new("tshark").arg("--version").stdout(Stdio::null()).status();
    if run.is_ok_and(|status| status.success()) {
        return true;
    }
    assert!(env::var_os("WEFT_REQUIRE_TSHARK").is_none(), "tshark is required and not there");
    // Straight to stderr: the harness captures the print macros.
    let skipped = b"\nSKIPPED: tshark is not installed, the dissector is not tested. \
                    `apt install tshark` brings it.\n";
    let _ = io::stderr().write_all(skipped);
    false
}

fn dissector() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/wireshark/weft.lua")
}

/// Runs tshark over the frames; standard output, after checking that Lua did not fail.
fn tshark(name: &str, frames: &[Captured<'_>], arguments: &[&str]) -> String {
    tshark_of(&Scratch::new(name, &pcap(frames)).0, arguments)
}

fn tshark_of(capture: &Path, arguments: &[&str]) -> String {
    let output = Command::new("tshark")
        .arg("-X")
        .arg(format!("lua_script:{}", dissector().display()))
        .arg("-r")
        .arg(capture)
        .args(arguments)
        .output()
        .expect("tshark starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark failed: {errors}");
    assert!(!errors.contains("Lua"), "{errors}");
    String::from_utf8(output.stdout).expect("tshark writes UTF-8")
}

/// The named fields of every frame.
fn rows(name: &str, frames: &[Captured<'_>], options: &[&str]) -> Vec<Row> {
    let separator = format!("separator={SEPARATOR}");
    let mut arguments = vec!["-T", "fields", "-E", &separator, "-E", "occurrence=a"];
    arguments.extend(options);
    let names =
        || [HEADER_FIELDS, HELLO_FIELDS, KEYS_FIELDS, OTHER_FIELDS].into_iter().flatten().copied();
    names().for_each(|field| arguments.extend(["-e", field]));
    let rows: Vec<Row> = tshark(name, frames, &arguments)
        .lines()
        .map(|line| names().zip(line.split(SEPARATOR).map(str::to_owned)).collect())
        .collect();
    assert_eq!(rows.len(), frames.len());
    assert!(rows.iter().all(|row| row.len() == names().count()));
    rows
}

fn code<T: Copy>(all: &[(T, &str)], name: &str, value: fn(T) -> u8) -> String {
    let row = all.iter().find(|(_, known)| *known == name).expect("the index uses known names");
    value(row.0).to_string()
}

/// What tshark must print for a header, in the order of [`HEADER_FIELDS`].
fn expected_header(header: &HeaderFields) -> Vec<String> {
    let flags = Flags::ALL.iter().filter(|(_, name)| header.flags.iter().any(|f| f == name));
    let flags = flags.fold(0, |flags, (flag, _)| flags | flag.0);
    let group = u32::from(header.group_row) << 16 | u32::from(header.group_generation);
    let members = u64::from_str_radix(header.members.trim_start_matches("0x"), 16).expect("hex");
    let ranks: Vec<_> =
        (0..64).filter(|rank| members >> rank & 1 == 1).map(|rank| rank.to_string()).collect();
    vec![
        code(Kind::ALL, &header.kind, |kind| kind as u8),
        format!("{flags:#04x}"),
        code(Outcome::ALL, &header.outcome, |outcome| outcome as u8),
        header.job.to_string(),
        header.cookie.clone(),
        format!("{group:#010x}"),
        header.group_row.to_string(),
        header.group_generation.to_string(),
        header.chunk.to_string(),
        code(ElementType::ALL, &header.element_type, |element| element as u8),
        code(Operation::ALL, &header.operation, |operation| operation as u8),
        header.exponent.to_string(),
        header.count.to_string(),
        header.crc.clone(),
        header.members.clone(),
        ranks.len().to_string(),
        ranks.join(","),
    ]
}

/// What tshark must print for a handshake body, in the order of [`HELLO_FIELDS`].
fn expected_hello(hello: &HelloFields) -> Vec<String> {
    vec![
        code(Phase::ALL, &hello.phase, |phase| phase as u8),
        code(Reason::ALL, &hello.reason, |reason| reason as u8),
        hello.probe_len.to_string(),
        hello.epoch.to_string(),
        hello.life.clone(),
        hello.token.clone(),
        hello.session.clone(),
        hello.cookie_up.clone(),
        hello.cookie_down.clone(),
        hello.window.to_string(),
        hello.shards.to_string(),
        hello.elements.to_string(),
        code(Integrity::ALL, &hello.integrity, |integrity| integrity as u8),
        code(Overflow::ALL, &hello.overflow, |overflow| overflow as u8),
        hello.fan_in.to_string(),
        hello.step_count.to_string(),
        hello.low_step.to_string(),
        hello.step_bits.to_string(),
        hello.exponent.to_string(),
        hello.exponent_mode.to_string(),
        hello.mask.clone(),
        hello.bitmap.clone(),
    ]
}

/// What tshark must print for a body about keys, in the order of [`KEYS_FIELDS`].
fn expected_keys(keys: &KeysFields) -> Vec<String> {
    let all: Vec<_> = keys.keys.iter().map(u64::to_string).collect();
    vec![
        keys.row_len.to_string(),
        keys.entries.to_string(),
        keys.floors.to_string(),
        keys.hops.to_string(),
        keys.peer.to_string(),
        keys.number.clone(),
        keys.low.clone(),
        all.join(","),
    ]
}

fn check_valid(vector: &Vector, row: &Row) {
    let name = &vector.file;
    let header = vector.header.as_ref().expect("a valid datagram has a header");
    for (field, expected) in HEADER_FIELDS.iter().zip(expected_header(header)) {
        assert_eq!(row[field], expected, "{name}: {field}");
    }
    let hello = vector.hello.as_ref().map(expected_hello);
    let hello = hello.unwrap_or_else(|| vec![String::new(); HELLO_FIELDS.len()]);
    for (field, expected) in HELLO_FIELDS.iter().zip(hello) {
        assert_eq!(row[field], expected, "{name}: {field}");
    }
    let keys = vector.keys.as_ref().map(expected_keys);
    let keys = keys.unwrap_or_else(|| vec![String::new(); KEYS_FIELDS.len()]);
    for (field, expected) in KEYS_FIELDS.iter().zip(keys) {
        assert_eq!(row[field], expected, "{name}: {field}");
    }
    let element = format!("weft.element.{}", header.element_type);
    let shown = row.get(element.as_str()).map_or("", String::as_str);
    let shown: Vec<f64> =
        shown.split(',').filter(|e| !e.is_empty()).map(|e| e.parse().expect(name)).collect();
    let mut expected: Vec<f64> =
        vector.elements.iter().map(|element| element.parse().expect("decimal")).collect();
    match (&*header.kind, &*header.outcome) {
        // LAST, by its value: the others are padding.
        ("CONTRIB", "STAGED") => expected.truncate(header.count.into()),
        // The body of a handshake, read as elements.
        ("HELLO", _) => expected.clear(),
        _ => {}
    }
    assert_eq!(shown.len(), expected.len(), "{name}");
    for (shown, expected) in shown.iter().zip(expected) {
        assert!((shown - expected).abs() <= expected.abs() * 1e-6, "{name}: {shown} {expected}");
    }
    let crc_status = match (vector.verdict.as_str(), header.crc.as_str()) {
        (_, "0x00000000") => "3",
        ("crc", _) => "0",
        _ => "1",
    };
    assert_eq!(row["weft.crc.status"], crc_status, "{name}");
    assert_eq!(row["_ws.col.Protocol"], "WEFT", "{name}");
    let line = Packet::new_unchecked(udp_payload(&vector.bytes)).to_string();
    let bad = if vector.verdict == "crc" { " (bad CRC)" } else { "" };
    assert_eq!(format!("WEFT {}", row["_ws.col.Info"]), format!("{line}{bad}"), "{name}");
}

fn udp_payload(frame: &[u8]) -> &[u8] {
    let udp = weft_wire::frame::Udp::parse(frame).expect("a whole datagram");
    &frame[udp.payload_range()]
}

/// The expert info that a verdict must give, in the words of the Rust crate.
fn expected_expert(verdict: &str) -> String {
    match verdict {
        "header/length" => HeaderError::Length.to_string(),
        "header/version" => HeaderError::Version.to_string(),
        "header/kind" => HeaderError::Kind.to_string(),
        "header/exponent" => HeaderError::Exponent.to_string(),
        "hello" => HelloError.to_string(),
        "crc" => "Bad CRC32C".to_owned(),
        _ => String::new(),
    }
}

#[test]
fn every_field_of_every_vector_is_shown() {
    if !has_tshark() {
        return;
    }
    let vectors = vectors::load().expect("the vectors load");
    let frames: Vec<_> = vectors.iter().map(|vector| whole(&vector.bytes)).collect();
    for (vector, row) in vectors.iter().zip(rows("vectors", &frames, &[])) {
        let name = &vector.file;
        if vector.header.is_some() {
            check_valid(vector, &row);
        }
        let expected = expected_expert(&vector.verdict);
        let empty = vector.frame.is_some() && udp_payload(&vector.bytes).is_empty();
        // Without a UDP payload there is nothing that Wireshark could give to a dissector.
        if vector.verdict.starts_with("frame/") || empty {
            continue;
        }
        assert_eq!(row["_ws.col.Protocol"], "WEFT", "{name}");
        let message = &row["_ws.expert.message"];
        assert!(message.contains(&expected), "{name}: {message}");
        let malformed = [HeaderError::Length.to_string(), HelloError.to_string()];
        let said = malformed.iter().any(|text| message.contains(text));
        assert!(!said || malformed.contains(&expected), "{name}: {message}");
    }
}

#[test]
fn a_row_is_shown_by_its_number_and_its_meaning_if_it_has_one() {
    if !has_tshark() {
        return;
    }
    let vectors = vectors::load().expect("the vectors load");
    for (file, shown) in [
        ("contrib-ipv4-crc.bin", "row: 7"),
        ("keys-access.bin", "row: 36867 (keys of table 3)"),
        ("status-log.bin", "row: 65532 (decision log)"),
    ] {
        let vector = vectors.iter().find(|vector| vector.file == file).expect("a vector's name");
        let tree = tshark("row", &[whole(&vector.bytes)], &["-V"]);
        assert!(tree.lines().any(|line| line.trim() == shown), "{file}: {tree}");
    }
}

#[test]
fn notes_tell_retransmissions_refusals_and_congestion() {
    if !has_tshark() {
        return;
    }
    let vectors = vectors::load().expect("the vectors load");
    let frames: Vec<_> = vectors.iter().map(|vector| whole(&vector.bytes)).collect();
    let rows = rows("notes", &frames, &[]);
    let message = |file: &str| {
        let index = vectors.iter().position(|vector| vector.file == file).expect(file);
        rows[index]["_ws.expert.message"].as_str()
    };
    assert_eq!(message("contrib-ipv4-crc.bin"), "");
    assert_eq!(message("contrib-retransmit.bin"), "Sent again");
    assert_eq!(message("answer-ipv4.bin"), "Congestion on the way up");
    assert_eq!(message("state-stale.bin"), "Chunk or cookie is not current");
    assert_eq!(message("hello-refused-member-lost.bin"), "Refused: MEMBER_LOST");
}

/// Packets before the card that cuts them, and ICMP errors; provenance in tests/captures.
#[test]
fn joined_datagrams_are_each_shown_and_quoted_ones_are_not_all_there() {
    if !has_tshark() {
        return;
    }
    let fields = |name: &str, only: &str| -> Vec<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures").join(name);
        let arguments = ["-T", "fields", "-e", "weft.crc.status", "-e", "_ws.expert.message"];
        tshark_of(&path, &[&arguments[..], &["-Y", only]].concat())
            .lines()
            .map(str::to_owned)
            .collect()
    };
    let shown = fields("gso-crc.pcap", "weft");
    assert_eq!(shown.len(), 26);
    let [good, bad] = ["1", "0"]
        .map(|status| shown.iter().map(|line| line.matches(status).count()).sum::<usize>());
    assert_eq!((good, bad), (74, 0), "{shown:?}");
    let all = shown.concat();
    assert!(!all.contains("shorter") && !all.contains("Bad"), "{all}");
    assert!(fields("gso-bf16.pcap", "weft.crc.status == 0 || weft.malformed").is_empty());
    // The ends of two vectors: padding is no header.
    let vectors = vectors::load().expect("the vectors load");
    let last = &vectors.iter().find(|vector| vector.file == "contrib-last.bin").expect("it").bytes;
    let mut joined = [&last[..], &last[42..]].concat();
    run::set_payload_len(&mut joined[..42], 2 * (last.len() - 42));
    assert_eq!(rows("padded", &[whole(&joined)], &[])[0]["weft.crc.status"], "1,1");
    let quoted = fields("icmp-quoted.pcap", "icmp");
    let status = |line: &String| line.split('\t').next().unwrap().to_owned();
    assert_eq!(quoted.iter().map(status).collect::<Vec<_>>(), ["2", "1"], "{quoted:?}");
}

/// The frame between two UDP ports of its own, so that no conversation gives it away.
fn on_other_ports(frame: &[u8], index: usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let udp = if frame[12] == 0x08 { 34 } else { 54 };
    let port = u16::try_from(index).expect("few vectors");
    frame[udp..udp + 2].copy_from_slice(&(40_000 + port).to_be_bytes());
    frame[udp + 2..udp + 4].copy_from_slice(&(50_000 + port).to_be_bytes());
    frame
}

#[test]
fn other_ports_are_recognised_by_content_alone() {
    if !has_tshark() {
        return;
    }
    let vectors: Vec<_> = vectors::load()
        .expect("the vectors load")
        .into_iter()
        .filter(|vector| vector.frame.is_some())
        .collect();
    let moved: Vec<_> = vectors
        .iter()
        .enumerate()
        .map(|(index, vector)| on_other_ports(&vector.bytes, index))
        .collect();
    let frames: Vec<_> = moved.iter().map(|frame| whole(frame)).collect();
    for (vector, row) in vectors.iter().zip(rows("heuristic", &frames, &[])) {
        // The UDP checksum is Wireshark's to judge. Of handshake bodies only the length is looked
        // at: a wrong phase under a right CRC is Weft, and malformed.
        let weft = ["ok", "hello", "checksum"].contains(&vector.verdict.as_str());
        assert_eq!(row["_ws.col.Protocol"] == "WEFT", weft, "{}", vector.file);
    }
}

/// The frame between these UDP ports, over IPv4.
fn between(frame: &[u8], ports: [u16; 2]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for (port, start) in ports.iter().zip([34, 36]) {
        frame[start..start + 2].copy_from_slice(&port.to_be_bytes());
    }
    frame
}

/// The frame with another chunk, so that its CRC begins with a byte that AFS knows.
fn looks_like_afs(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for chunk in 0..10_000 {
        let mut packet = Packet::new_unchecked(&mut frame[42..]);
        packet.set_chunk(ChunkIndex(chunk));
        packet.seal(crc32c);
        if frame[42 + 20] == 1 {
            return frame;
        }
    }
    panic!("one in 256 chunks has such a CRC");
}

#[test]
fn a_conversation_is_claimed_by_its_first_frame() {
    if !has_tshark() {
        return;
    }
    let vectors = vectors::load().expect("the vectors load");
    let bytes = |file: &str| {
        &vectors.iter().find(|vector| vector.file == file).expect("a vector's name").bytes
    };
    let (good, bad) = (bytes("contrib-ipv4-crc.bin"), bytes("crc-wrong.bin"));
    let protocols = |ports: [u16; 2], options: &[&str]| -> Vec<String> {
        let frames = [between(bad, ports), between(good, ports), between(bad, ports)];
        let frames: Vec<_> = frames.iter().map(|frame| whole(frame)).collect();
        let rows = rows("claimed", &frames, options);
        rows.iter().map(|row| row["_ws.col.Protocol"].clone()).collect()
    };
    // A wrong CRC shows nothing by itself; it belongs to what a right one has claimed.
    assert_eq!(protocols([40_000, 50_000], &[]), ["UDP", "WEFT", "WEFT"]);
    // The examples' ports: a member's above the box's.
    assert_eq!(protocols([22_500, 22_341], &[]), ["WEFT", "WEFT", "WEFT"]);
    // Port 7000 is AFS's, which takes what has a packet type of its own where our CRC begins.
    let ports = [7000, 22_341];
    let taken = looks_like_afs(&between(good, ports));
    let frames = [between(good, ports), taken];
    let frames: Vec<_> = frames.iter().map(|frame| whole(frame)).collect();
    for row in rows("afs", &frames, &[]) {
        assert_eq!(row["_ws.col.Protocol"], "WEFT");
    }
}

#[test]
fn the_port_is_a_preference() {
    if !has_tshark() {
        return;
    }
    let vectors = vectors::load().expect("the vectors load");
    let bad = vectors.iter().find(|vector| vector.verdict == "header/version").expect("one");
    let moved = on_other_ports(&bad.bytes, 0);
    // The heuristic refuses another version, so only the port can bring the dissector in.
    let frames = [whole(&bad.bytes), whole(&moved)];
    let protocols = |options: &[&str]| -> Vec<String> {
        let rows = rows("preference", &frames, options);
        rows.iter().map(|row| row["_ws.col.Protocol"].clone()).collect()
    };
    assert_eq!(protocols(&[]), ["WEFT", "UDP"]);
    assert_eq!(protocols(&["-o", "weft.port:50000"]), ["UDP", "WEFT"]);
    assert_eq!(protocols(&["-o", "weft.port:0"]), ["UDP", "UDP"]);
}

#[test]
fn spoilt_and_cut_off_captures_never_fail_in_lua() {
    if !has_tshark() {
        return;
    }
    let vectors = vectors::load().expect("the vectors load");
    let small =
        || vectors.iter().filter(|vector| vector.frame.is_some() && vector.bytes.len() < 200);
    let cut = small().flat_map(|vector| {
        (14..vector.bytes.len()).map(|captured| Captured { frame: &vector.bytes, captured })
    });
    // Every byte of the payload once as 0x00 and once as 0xff.
    let spoilt: Vec<_> = small()
        .flat_map(|vector| {
            let start = if vector.bytes[12] == 0x08 { 42 } else { 62 };
            (start..vector.bytes.len()).flat_map(move |byte| {
                [0x00, 0xff].map(|value| {
                    let mut frame = vector.bytes.clone();
                    frame[byte] = value;
                    frame
                })
            })
        })
        .collect();
    let frames: Vec<_> = cut.chain(spoilt.iter().map(|frame| whole(frame))).collect();
    assert!(frames.len() > 5000, "{} frames", frames.len());
    let tree = tshark("spoilt-tree", &frames, &["-O", "weft", "-Y", "weft"]);
    assert!(tree.contains("Bad CRC32C") && tree.contains("CRC status: Unverified"));
    // An exception in the dissector ends in one of these two, whatever its cause.
    assert!(!tree.contains("Lua Error") && !tree.contains("Malformed Packet"));
}
