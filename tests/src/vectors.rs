//! The golden vectors of `proto/vectors`: whole Ethernet frames and what each one says.
//!
//! `vectors.toml` is the index that the tests of every language read. What it expects comes from
//! the values that a frame was built from, never from parsing the frame again.

mod make;

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use weft_wire::ChunkIndex;
use weft_wire::frame::{FrameError, Udp};
use weft_wire::header::{ElementType, Flags, Header, HeaderError, Kind, Packet};
use weft_wire::hello::Hello;
use weft_wire::keys::{self, What};

pub use make::make;

use crate::crc32c::crc32c;

/// How many elements of a payload the index and the dissector show.
pub const ELEMENTS_SHOWN: usize = 4;

/// One frame and what it says.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    /// File name in `proto/vectors`.
    pub file: String,
    /// What the frame shows.
    pub what: String,
    /// `ok`, or the first check that refuses the frame.
    pub verdict: String,
    /// The first elements of the payload, as decimal text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elements: Vec<String>,
    /// Addresses; present when the frame is a whole UDP datagram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<FrameFields>,
    /// Present when the header is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderFields>,
    /// Present when the handshake body is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hello: Option<HelloFields>,
    /// Present when the frame is about keys, and its body valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<KeysFields>,
    /// The frame itself.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

/// Expected addresses.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FrameFields {
    /// Sender's address and UDP port.
    pub source: String,
    /// Addressee's address and UDP port.
    pub target: String,
    /// ECN CE.
    pub congestion: bool,
}

impl From<&Udp> for FrameFields {
    fn from(udp: &Udp) -> Self {
        Self {
            source: udp.source.to_string(),
            target: udp.target.to_string(),
            congestion: udp.congestion,
        }
    }
}

/// Expected header. Numbers that may exceed 2^63 are hexadecimal text, for TOML ends there.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields of SPEC's header table, by their names")]
pub struct HeaderFields {
    pub kind: String,
    pub flags: Vec<String>,
    pub outcome: String,
    pub job: u16,
    pub cookie: String,
    pub group_row: u16,
    pub group_generation: u16,
    pub chunk: u32,
    pub element_type: String,
    pub operation: String,
    pub exponent: i8,
    pub count: u16,
    pub crc: String,
    pub members: String,
}

impl HeaderFields {
    /// Names and numbers of a header, and of the CRC that goes with it.
    #[must_use]
    pub fn new(header: &Header, crc: u32) -> Self {
        let flags = Flags::ALL.iter();
        let ChunkIndex(chunk) = header.chunk;
        Self {
            kind: header.kind.to_string(),
            flags: flags
                .filter(|(flag, _)| header.flags.contains(*flag))
                .map(|(_, name)| (*name).to_owned())
                .collect(),
            outcome: header.outcome.to_string(),
            job: header.job.0,
            cookie: format!("{:#010x}", header.cookie.0),
            group_row: header.group.row(),
            group_generation: header.group.generation(),
            chunk,
            element_type: header.element_type.to_string(),
            operation: header.operation.to_string(),
            exponent: header.exponent,
            count: header.count,
            crc: format!("{crc:#010x}"),
            members: format!("{:#018x}", header.members.0),
        }
    }
}

/// Expected handshake body; numbers as in [`HeaderFields`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields of SPEC's handshake table, by their names")]
pub struct HelloFields {
    pub phase: String,
    pub reason: String,
    pub probe_len: u16,
    pub epoch: u32,
    pub life: String,
    pub token: String,
    pub session: String,
    pub cookie_up: String,
    pub cookie_down: String,
    pub window: u16,
    pub shards: u16,
    pub elements: u16,
    pub integrity: String,
    pub overflow: String,
    pub fan_in: u32,
    pub step_count: u32,
    pub low_step: u32,
    pub step_bits: u16,
    pub exponent: i8,
    pub exponent_mode: u8,
    pub mask: String,
    pub bitmap: String,
}

impl HelloFields {
    /// Names and numbers of a body and its bitmap.
    #[must_use]
    pub fn new(hello: &Hello, bitmap: &[u8]) -> Self {
        Self {
            phase: hello.phase.to_string(),
            reason: hello.reason.to_string(),
            probe_len: hello.probe_len,
            epoch: hello.epoch.0,
            life: format!("{:#018x}", hello.life),
            token: format!("{:#018x}", hello.token),
            session: format!("{:#018x}", hello.session),
            cookie_up: format!("{:#010x}", hello.cookie_up.0),
            cookie_down: format!("{:#010x}", hello.cookie_down.0),
            window: hello.window,
            shards: hello.shards,
            elements: hello.elements,
            integrity: hello.integrity.to_string(),
            overflow: hello.overflow.to_string(),
            fan_in: hello.fan_in,
            step_count: hello.step_count,
            low_step: hello.low_step,
            step_bits: hello.step_bits,
            exponent: hello.exponent,
            exponent_mode: u8::from(hello.exponent_fixed),
            mask: format!("{:#018x}", hello.mask.0),
            bitmap: bitmap.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

/// Expected head of a body about keys, and the keys of its entries; numbers as in
/// [`HeaderFields`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields of SPEC's table of keys, by their names")]
pub struct KeysFields {
    pub what: String,
    pub row_len: u16,
    pub entries: u16,
    pub floors: u16,
    pub hops: u8,
    pub peer: u8,
    pub number: String,
    pub low: String,
    pub keys: Vec<u64>,
}

impl KeysFields {
    /// Names and numbers of a body; none if it is no body about keys.
    #[must_use]
    pub fn new(header: &Header, body: &[u8]) -> Option<Self> {
        let frame = keys::Frame::parse(header, body).ok()?;
        let keys::Frame { what, head, .. } = frame;
        let of = (header.kind, header.flags.contains(Flags::DIRECT), header.outcome);
        let known = What::ALL.iter().find(|row| (row.2, row.3, row.4) == of);
        let keys = match what {
            What::Access | What::Answer => frame.accesses().map(|entry| entry.key).collect(),
            What::Localize | What::Wait | What::Stale => frame.keys().collect(),
            What::Row => frame.rows().map(|row| row.key).collect(),
            _ => frame.claims().map(|claim| claim.key).collect(),
        };
        Some(Self {
            what: known?.1.to_owned(),
            row_len: head.row_len,
            entries: head.entries,
            floors: head.floors,
            hops: head.hops,
            peer: head.peer,
            number: format!("{:#018x}", head.number.0),
            low: format!("{:#018x}", head.low),
            keys,
        })
    }
}

/// The first [`ELEMENTS_SHOWN`] elements of a payload as text.
#[must_use]
pub fn elements_of(element_type: ElementType, payload: &[u8]) -> Vec<String> {
    let words = |len: usize| payload.chunks_exact(len).take(ELEMENTS_SHOWN);
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    match element_type {
        ElementType::None => Vec::new(),
        ElementType::I32 => words(4).map(|b| word(b).cast_signed().to_string()).collect(),
        ElementType::F32 => words(4).map(|b| f32::from_bits(word(b)).to_string()).collect(),
        ElementType::Bf16 => words(2).map(|b| f32::from_bits(word(b) << 16).to_string()).collect(),
    }
}

/// The verdict that our own checks give on a frame, in the index's words.
#[must_use]
pub fn verdict(frame: &[u8]) -> &'static str {
    let udp = match Udp::parse(frame) {
        Ok(udp) => udp,
        Err(error) => {
            return match error {
                FrameError::Truncated => "frame/truncated",
                FrameError::Vlan => "frame/vlan",
                FrameError::NotIp => "frame/not_ip",
                FrameError::Fragment => "frame/fragment",
                FrameError::IpHeader => "frame/ip_header",
                FrameError::IpChecksum => "frame/ip_checksum",
                FrameError::NotUdp => "frame/not_udp",
            };
        }
    };
    let mut packet = Packet::new_unchecked(frame[udp.payload_range()].to_vec());
    match Header::parse(&packet) {
        Err(HeaderError::Length) => return "header/length",
        Err(HeaderError::Version) => return "header/version",
        Err(HeaderError::Kind) => return "header/kind",
        Err(HeaderError::Exponent) => return "header/exponent",
        Ok(header) if header.kind == Kind::Hello && Hello::parse(packet.payload()).is_err() => {
            return "hello";
        }
        Ok(_) => {}
    }
    if packet.crc() != 0 && !packet.verify_crc(crc32c) {
        return "crc";
    }
    if udp.checksum != 0 && !udp.checksum_ok(frame) { "checksum" } else { "ok" }
}

/// Where the vectors are.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/vectors")
}

#[derive(Deserialize, Serialize)]
struct Index {
    vector: Vec<Vector>,
}

/// Reads the index and the frames as they are committed.
///
/// # Errors
/// When a file is missing or the index is not what it should be.
pub fn load() -> io::Result<Vec<Vector>> {
    let index = fs::read_to_string(folder().join("vectors.toml"))?;
    let index: Index = toml::from_str(&index).map_err(io::Error::other)?;
    let mut vectors = index.vector;
    for vector in &mut vectors {
        vector.bytes = fs::read(folder().join(&vector.file))?;
    }
    Ok(vectors)
}

/// Every file of `proto/vectors`, as (name, content): the frames, the index and the README.
///
/// # Panics
/// Never: the index is plain data.
#[must_use]
pub fn files() -> Vec<(String, Vec<u8>)> {
    let vectors = make();
    let mut files: Vec<_> = vectors.iter().map(|v| (v.file.clone(), v.bytes.clone())).collect();
    files.push(("README.md".to_owned(), readme(&vectors).into_bytes()));
    let index = toml::to_string(&Index { vector: vectors }).expect("plain data serialises");
    let head = "# Made by `cargo run -p weft-tests --example make_vectors`; see README.md.\n\n";
    files.push(("vectors.toml".to_owned(), format!("{head}{index}").into_bytes()));
    files
}

const README_HEAD: &str = "\
# Golden vectors

Each `.bin` is one whole Ethernet frame. `vectors.toml` says what each must be read as; the tests
of every implementation (Rust, the Wireshark dissector) read it. The verdict is `ok`, or the first
check that refuses the frame: `frame/...` before the UDP payload, `header/...` in the 32-byte
header, `hello` in a handshake body, `crc` and `checksum` in the integrity check.

All of this is made by `cargo run -p weft-tests --example make_vectors`; a test fails when that
would change a byte. A frame changes only together with `proto/SPEC.md`. `slot.toml` alone is
written by hand: the transition table of a slot, one row a cell; its head says what columns mean.

| file | what | verdict | bytes | fields |
| --- | --- | --- | --- | --- |
";

fn readme(vectors: &[Vector]) -> String {
    let mut text = README_HEAD.to_owned();
    for vector in vectors {
        let fields = match (&vector.header, &vector.hello) {
            (Some(header), Some(hello)) => format!(
                "{} phase={} group={}.{} members={}",
                header.kind, hello.phase, header.group_row, header.group_generation, header.members
            ),
            (Some(header), None) => format!(
                "{} {} job={} group={}.{} chunk={} {} {} members={} {}",
                header.kind,
                header.outcome,
                header.job,
                header.group_row,
                header.group_generation,
                header.chunk,
                header.count,
                header.element_type,
                header.members,
                header.flags.join(",")
            ),
            (None, _) => String::new(),
        };
        let (file, what, verdict) = (&vector.file, &vector.what, &vector.verdict);
        let bytes = vector.bytes.len();
        let fields = fields.trim_end();
        text.push_str(&format!("| `{file}` | {what} | {verdict} | {bytes} | {fields} |\n"));
    }
    text
}
