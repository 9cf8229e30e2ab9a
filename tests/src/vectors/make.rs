//! Builds the golden vectors, in the order in which the index lists them.

use weft_wire::frame::{ETHERNET_LEN, Encap, Endpoint};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Integrity, Overflow, Phase, Reason};
use weft_wire::{ChunkIndex, Cookie, Epoch, GroupId, JobId, MacAddr, Members};

mod keys;
mod push;
mod refused;

use refused::{refused_frames, refused_headers};

use super::{FrameFields, HeaderFields, HelloFields, Vector, elements_of};
use crate::crc32c::{crc32c, tail_for_zero};

/// The length that an MTU probe is padded to: 1500 bytes less the IPv4 and UDP headers.
const PROBE_LEN: u16 = 1472;
const EPOCH: Epoch = Epoch(0x1234_56e1);
const COOKIE_UP: Cookie = Cookie::new(EPOCH, 0x00c0_ffee);
const COOKIE_DOWN: Cookie = Cookie::new(EPOCH, 0x00d0_0d1e);

#[derive(Clone, Copy, Eq, PartialEq)]
enum Family {
    Ipv4,
    Ipv6,
}

use Family::{Ipv4, Ipv6};

/// Makes every vector.
#[must_use]
pub fn make() -> Vec<Vector> {
    let pushed = push::push_frames();
    let keys = keys::keys_frames();
    [data_frames(), states(), pushed, keys, handshakes(), refused_frames(), refused_headers()]
        .concat()
}

fn member_to_box(family: Family) -> Encap {
    let (source, target) = match family {
        Ipv4 => ("10.0.0.3:22403", "10.0.0.100:22341"),
        Ipv6 => ("[fd00::3]:22403", "[fd00::100]:22341"),
    };
    encap([2, 0, 0, 0, 0, 3], source, [2, 0, 0, 0, 0, 0x64], target)
}

fn box_to_member(family: Family) -> Encap {
    let up = member_to_box(family);
    Encap::new(up.target(), up.source()).expect("one family")
}

fn encap(source_mac: [u8; 6], source: &str, target_mac: [u8; 6], target: &str) -> Encap {
    let end = |mac, addr: &str| Endpoint {
        mac: MacAddr(mac),
        addr: addr.parse().expect("a literal address"),
    };
    Encap::new(end(source_mac, source), end(target_mac, target)).expect("one family")
}

/// What rank 2 of group 7 sends for chunk 65,539.
fn contrib() -> Header {
    Header {
        kind: Kind::Contrib,
        flags: Flags::NONE,
        outcome: Outcome::None,
        job: JobId(0x0102),
        cookie: COOKIE_UP,
        group: GroupId::new(7, 2),
        chunk: ChunkIndex(65_539),
        element_type: ElementType::I32,
        operation: Operation::Sum,
        exponent: -8,
        count: 4,
        members: Members(0b100),
    }
}

fn answer() -> Header {
    Header { kind: Kind::Answer, cookie: COOKIE_DOWN, members: Members(0xf), ..contrib() }
}

/// A header without elements.
fn bare(kind: Kind, outcome: Outcome) -> Header {
    let cookie = if kind == Kind::Status { COOKIE_UP } else { COOKIE_DOWN };
    Header {
        kind,
        outcome,
        cookie,
        element_type: ElementType::None,
        operation: Operation::None,
        exponent: 0,
        count: 0,
        ..contrib()
    }
}

fn i32_payload() -> Vec<u8> {
    [1, -1, i32::MAX, i32::MIN].iter().flat_map(|element| element.to_be_bytes()).collect()
}

fn f32_payload() -> Vec<u8> {
    [1.5, -0.25, 3.0e38, 0.0_f32].iter().flat_map(|element| element.to_be_bytes()).collect()
}

fn bf16_payload() -> Vec<u8> {
    // bfloat16 is the upper half of binary32; these values have nothing in the lower.
    let halves = [1.5, -0.25, 256.0, 0.0_f32].map(f32::to_be_bytes);
    halves.iter().flat_map(|[high, low, ..]| [*high, *low]).collect()
}

/// A whole datagram: the header with or without CRC, then the payload.
fn datagram(header: &Header, payload: &[u8], sealed: bool) -> Vec<u8> {
    let mut octets = vec![0; HEADER_LEN];
    octets.extend_from_slice(payload);
    let mut packet = Packet::new_unchecked(octets);
    header.emit(&mut packet);
    if sealed {
        packet.seal(crc32c);
    }
    packet.into_inner()
}

/// A frame around a datagram. IPv6 always has a UDP checksum, IPv4 where there is no CRC.
fn frame(encap: &Encap, datagram: &[u8], with_checksum: bool) -> Vec<u8> {
    let mut frame = vec![0; encap.header_len()];
    frame.extend_from_slice(datagram);
    encap.emit(&mut frame, datagram.len());
    if with_checksum || encap.target().addr.is_ipv6() {
        encap.finish(&mut frame);
    }
    frame
}

fn frame_fields(encap: &Encap) -> FrameFields {
    FrameFields {
        source: encap.source().addr.to_string(),
        target: encap.target().addr.to_string(),
        congestion: false,
    }
}

fn valid(name: &str, what: &str, family: Family, header: &Header, payload: &[u8]) -> Vector {
    vector(name, what, family, header, payload, true)
}

fn vector(
    name: &str,
    what: &str,
    family: Family,
    header: &Header,
    payload: &[u8],
    sealed: bool,
) -> Vector {
    let up = header.cookie == COOKIE_UP || header.kind == Kind::Hello && is_up(payload);
    let encap = if up { member_to_box(family) } else { box_to_member(family) };
    let datagram = datagram(header, payload, sealed);
    let crc = Packet::new_unchecked(&datagram).crc();
    Vector {
        file: format!("{name}.bin"),
        what: what.to_owned(),
        verdict: "ok".to_owned(),
        elements: elements_of(header.element_type, payload),
        frame: Some(frame_fields(&encap)),
        header: Some(HeaderFields::new(header, crc)),
        hello: None,
        keys: None,
        bytes: frame(&encap, &datagram, !sealed),
    }
}

/// True for the phases that a member sends.
fn is_up(body: &[u8]) -> bool {
    let up = [Phase::Hello, Phase::Join, Phase::Close, Phase::Listen, Phase::Deaf];
    body.first().is_some_and(|phase| up.iter().any(|up| *up as u8 == *phase))
}

fn data_frames() -> Vec<Vector> {
    let flagged = |flags| Header { flags, ..contrib() };
    let full: Vec<u8> = (0..256_i32).flat_map(|e| (e * 1_000_003 - 7).to_be_bytes()).collect();
    let whole = Header { count: 256, ..contrib() };
    let max = Header { operation: Operation::Max, exponent: 0, ..contrib() };
    let f32 = Header { element_type: ElementType::F32, exponent: 0, ..contrib() };
    let bf16 = Header { element_type: ElementType::Bf16, exponent: 0, ..contrib() };
    let last = Header { outcome: Outcome::LAST, count: 3, ..contrib() };
    let clamped = Flags::CLAMPED.union(Flags::CONGESTION);
    let sum = Header { flags: clamped, ..answer() };
    let of_64 = Header { members: Members::first(64), ..answer() };
    let hand_over = Header { cookie: COOKIE_UP, ..answer() };
    let payload = i32_payload();
    let mut forged = payload[..12].to_vec();
    forged.extend(tail_for_zero(&datagram(&contrib(), &forged, false)));
    let mut padded = valid("contrib-padded", "padded to 60 bytes", Ipv4, &bare_contrib(), &[]);
    padded.bytes.resize(80, 0);
    padded.what = "no elements; Ethernet padding behind the datagram".to_owned();
    let mut marked =
        valid("contrib-ecn-ce", "a router marked it ECN CE", Ipv4, &contrib(), &payload);
    marked.bytes[ETHERNET_LEN + 1] |= 0b11;
    fix_ipv4_checksum(&mut marked.bytes);
    marked.frame.iter_mut().for_each(|frame| frame.congestion = true);
    vec![
        valid("contrib-ipv4-crc", "i32 contribution", Ipv4, &contrib(), &payload),
        vector("contrib-ipv4-checksum", "no CRC, UDP checksum", Ipv4, &contrib(), &payload, false),
        valid("contrib-ipv6-crc", "i32 contribution", Ipv6, &contrib(), &payload),
        vector("contrib-ipv6-checksum", "no CRC, UDP checksum", Ipv6, &contrib(), &payload, false),
        valid("contrib-full", "256 elements", Ipv4, &whole, &full),
        valid("contrib-crc-zero", "computed CRC 0, sent as all ones", Ipv4, &contrib(), &forged),
        valid("contrib-last", "its vector ends with three elements; padded", Ipv4, &last, &payload),
        valid("contrib-max", "block exponents under MAX", Ipv4, &max, &payload),
        valid("contrib-f32", "f32 elements", Ipv4, &f32, &f32_payload()),
        valid("contrib-bf16", "bf16 elements", Ipv4, &bf16, &bf16_payload()),
        valid("contrib-retransmit", "sent again", Ipv4, &flagged(Flags::RETRANSMIT), &payload),
        valid("contrib-direct", "without an aggregator", Ipv4, &flagged(Flags::DIRECT), &payload),
        valid("contrib-replica", "for a replica", Ipv4, &flagged(Flags::REPLICA), &payload),
        padded,
        marked,
        valid("answer-ipv4", "sum of ranks 0 to 3, clamped, congested", Ipv4, &sum, &payload),
        valid("answer-ipv6", "sum of all 64 ranks", Ipv6, &of_64, &payload),
        valid("answer-hand-over", "a member hands a kept sum up", Ipv4, &hand_over, &payload),
    ]
}

/// A contribution without elements: well-formed, though no row asks for it.
fn bare_contrib() -> Header {
    Header { count: 0, ..contrib() }
}

fn states() -> Vec<Vector> {
    use Outcome::{Committed, Dropped, Have, Staged, Stale, Void, Wait};
    let have = Header { members: Members(0b1011), ..bare(Kind::State, Have) };
    // A refusal echoes the frame that it answers: element fields without elements.
    let stale = Header { kind: Kind::State, outcome: Stale, ..contrib() };
    let ack = |outcome| bare(Kind::Ack, outcome);
    let down = Header { kind: Kind::State, cookie: COOKIE_DOWN, ..contrib() };
    let mismatch = Header { outcome: Outcome::MISMATCH, members: Members(0b1010), ..down };
    let left = Header { outcome: Outcome::LEFT, members: Members(0b1), ..down };
    vec![
        valid("ack-staged", "all chunks are at the server", Ipv4, &ack(Staged), &[]),
        valid("ack-committed", "the update entered the model", Ipv4, &ack(Committed), &[]),
        valid("ack-void", "the update will never enter", Ipv4, &ack(Void), &[]),
        valid("ack-dropped", "the controller refused", Ipv4, &ack(Dropped), &[]),
        valid("state-have", "ranks 0, 1 and 3 are in", Ipv4, &have, &[]),
        valid("state-have-ipv6", "ranks 0, 1 and 3 are in", Ipv6, &have, &[]),
        valid("state-stale", "echoes cookie and element fields", Ipv4, &stale, &[]),
        valid("state-mismatch", "ranks 1 and 3 mean others than 4", Ipv4, &mismatch, &[]),
        valid("state-left", "rank 0 has closed", Ipv4, &left, &[]),
        valid("state-wait", "ask again later", Ipv4, &bare(Kind::State, Wait), &[]),
        valid("pull", "credit for one sum", Ipv4, &bare(Kind::Pull, Outcome::None), &[]),
        valid("status", "question for a chunk", Ipv4, &bare(Kind::Status, Outcome::None), &[]),
    ]
}

fn handshake(name: &str, what: &str, family: Family, hello: &Hello, bitmap: &[u8]) -> Vector {
    handshake_under(&bare(Kind::Hello, Outcome::None), name, what, family, hello, bitmap)
}

fn handshake_under(
    header: &Header,
    name: &str,
    what: &str,
    family: Family,
    hello: &Hello,
    bitmap: &[u8],
) -> Vector {
    let mut body = vec![0; hello.body_len()];
    hello.emit(bitmap, &mut body);
    let generation = if is_up(&body) { 0 } else { 3 };
    let members = match hello.phase {
        Phase::Hello | Phase::Join | Phase::Close | Phase::Listen | Phase::Deaf => Members(0b100),
        Phase::Challenge | Phase::Welcome => Members::EMPTY,
        Phase::Waiting | Phase::Refused | Phase::Closed => Members(0b101),
    };
    let header = Header {
        cookie: Cookie(0),
        group: GroupId::new(7, generation),
        chunk: ChunkIndex(1),
        members,
        ..*header
    };
    let made = valid(name, what, family, &header, &body);
    Vector { hello: Some(HelloFields::new(hello, bitmap)), ..made }
}

fn welcome() -> Hello {
    Hello {
        epoch: EPOCH,
        life: 0xf123_4567_89ab_cdef,
        token: 0xfedc_ba98_7654_3210,
        session: 0x5e55_1017,
        cookie_up: COOKIE_UP,
        cookie_down: COOKIE_DOWN,
        window: 64,
        shards: 2,
        elements: 256,
        integrity: Integrity::Crc32c,
        overflow: Overflow::Clamp,
        fan_in: 16,
        step_count: 1_000_000,
        low_step: 5,
        step_bits: 10,
        exponent: -8,
        exponent_fixed: true,
        mask: Members(0xf),
        ..Hello::new(Phase::Welcome)
    }
}

fn handshakes() -> Vec<Vector> {
    let welcome = welcome();
    let said = |phase| Hello { life: welcome.life, ..Hello::new(phase) };
    let of = |phase| Hello { epoch: EPOCH, cookie_up: COOKIE_UP, ..said(phase) };
    let hello = Hello { probe_len: PROBE_LEN, ..said(Phase::Hello) };
    let challenge = Hello { token: welcome.token, probe_len: PROBE_LEN, ..said(Phase::Challenge) };
    let join = Hello { token: welcome.token, ..said(Phase::Join) };
    let resume = Hello { session: welcome.session, low_step: 1000, step_bits: 256, ..join };
    let held: Vec<u8> = (0..32).map(|byte| byte * 5).collect();
    let far = Hello { integrity: Integrity::Checksum16, overflow: Overflow::Wrap, ..welcome };
    let agreed = Hello { exponent_fixed: false, exponent: 0, step_bits: 0, ..far };
    let refused = |reason| Hello { reason, ..said(Phase::Refused) };
    let wanted = [0x80, 0x40];
    let last = bare(Kind::Hello, Outcome::LAST);
    let elements = Header {
        element_type: ElementType::I32,
        operation: Operation::Sum,
        ..bare(Kind::Hello, Outcome::None)
    };
    let names = Header { outcome: Outcome::LAST, ..elements };
    vec![
        handshake_under(&names, "hello-join-names", "names its elements", Ipv4, &join, &[]),
        handshake_under(&last, "hello-welcome-compares", "compares lengths", Ipv4, &agreed, &[]),
        handshake_under(
            &elements,
            "hello-refused-other-elements",
            "the row sums i32",
            Ipv4,
            &refused(Reason::OtherElements),
            &[],
        ),
        handshake("hello-hello", "padded: the MTU probe", Ipv4, &hello, &[]),
        handshake("hello-challenge", "padded alike", Ipv4, &challenge, &[]),
        handshake("hello-join", "begins a session", Ipv4, &join, &[]),
        handshake("hello-join-resume", "resumes; says which steps it holds", Ipv4, &resume, &held),
        handshake("hello-welcome", "wants two steps by hand-over", Ipv4, &welcome, &wanted),
        handshake("hello-welcome-ipv6", "checksum16, wrap, agreed exponents", Ipv6, &agreed, &[]),
        handshake("hello-waiting", "ranks 0 and 2 have joined", Ipv4, &said(Phase::Waiting), &[]),
        handshake(
            "hello-refused-unknown-group",
            "the box has no such row",
            Ipv4,
            &refused(Reason::UnknownGroup),
            &[],
        ),
        handshake(
            "hello-refused-member-lost",
            "ranks 0 and 2 began anew",
            Ipv4,
            &refused(Reason::MemberLost),
            &[],
        ),
        handshake(
            "hello-refused-other-session",
            "the others resume another session",
            Ipv6,
            &refused(Reason::OtherSession),
            &[],
        ),
        handshake("hello-close", "holds every sum", Ipv4, &said(Phase::Close), &[]),
        handshake("hello-closed", "ranks 0 and 2 have closed", Ipv4, &said(Phase::Closed), &[]),
        handshake("hello-listen", "hears the multicast address", Ipv4, &of(Phase::Listen), &[]),
        handshake("hello-deaf", "does not hear it", Ipv6, &of(Phase::Deaf), &[]),
    ]
}

fn fix_ipv4_checksum(frame: &mut [u8]) {
    let header_len = usize::from(frame[ETHERNET_LEN] & 0x0f) * 4;
    frame[ETHERNET_LEN + 10..][..2].fill(0);
    let header = &frame[ETHERNET_LEN..][..header_len];
    let sum: u32 = header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16));
    frame[ETHERNET_LEN + 10..][..2].copy_from_slice(&sum.to_be_bytes()[2..]);
}
