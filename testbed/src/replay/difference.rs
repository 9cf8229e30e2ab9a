//! Where two frames differ: in which field, by the layout tables of `weft-wire`, from the outer
//! headers to the words of the payload. Pure.

use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;
use weft_wire::frame::{ETHERNET_LEN, IPV4_LEN, IPV6_LEN, UDP_LEN, Udp};
use weft_wire::header::{Flags, HEADER_LEN, Kind, LAYOUT, Packet};
use weft_wire::hello;

/// A difference between what was expected and what came.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Difference {
    /// The lane.
    pub lane: usize,
    /// The number of the packet in the capture, from 1 as Wireshark counts; 0 for what is none.
    pub packet: u64,
    /// The engine's time, in nanoseconds.
    pub at_ns: u64,
    /// The field, or what there is too much or too little of.
    pub field: String,
    /// What was expected.
    pub expected: String,
    /// What came.
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lane, packet, at_ns, field, expected, got } = self;
        let (seconds, nanos) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        let what = if *packet == 0 { "-".to_owned() } else { format!("packet {packet}") };
        write!(f, "lane {lane} {what} at {seconds}.{nanos:09} s: {field}: ")?;
        write!(f, "expected {expected}, got {got}")
    }
}

/// Fields that may differ.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Fields(Vec<String>);

/// A name that no field has.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no field is called {name:?}; there are {}", all().join(", "))]
pub struct FieldError {
    name: String,
}

impl Fields {
    /// Fields by their names, commas between them; see [`FieldError`] for all.
    ///
    /// # Errors
    /// The first name that no field has.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let known = all();
        let field = |name: &str| match known.iter().any(|known| known == name) {
            true => Ok(name.to_owned()),
            false => Err(FieldError { name: name.to_owned() }),
        };
        Ok(Self(names.map(field).collect::<Result<_, _>>()?))
    }

    /// True when no field may differ.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These may differ too.
    pub(super) fn add(&mut self, names: &str) {
        self.0.extend(names.split(',').map(|name| name.trim().to_owned()));
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|ignored| ignored == name)
    }
}

/// Where `got` differs from `expected`, besides the fields to ignore: name, expected, got.
#[must_use]
pub(super) fn compare(
    expected: &[u8],
    got: &[u8],
    ignore: &Fields,
) -> Vec<(String, String, String)> {
    if expected == got {
        return Vec::new();
    }
    let mut found = Vec::new();
    if expected.len() != got.len() && !ignore.has(LENGTH) {
        found.push((LENGTH.to_owned(), expected.len().to_string(), got.len().to_string()));
    }
    let spans = spans(expected);
    for span in spans.iter().filter(|span| !ignore.has(&span.field)) {
        let (theirs, ours) = (span.value(expected), span.value(got));
        if theirs != ours {
            let name = match span.index {
                Some(index) => format!("{}[{index}]", span.field),
                None => span.field.clone(),
            };
            found.push((name, show(span, theirs), show(span, ours)));
        }
    }
    found
}

/// A frame's receiver and its header without flags, cookie, elements and CRC: the frames of one
/// place are about the same.
#[must_use]
pub(super) fn place(frame: &[u8]) -> Option<(SocketAddr, [u8; HEADER_LEN])> {
    let udp = Udp::parse(frame).ok()?;
    let mut head = *frame.get(udp.payload_range())?.first_chunk::<HEADER_LEN>()?;
    Packet::new_unchecked(&mut head).set_flags(Flags::NONE);
    head[4..8].fill(0);
    head[16..24].fill(0);
    Some((udp.target, head))
}

/// A field's place in a frame.
#[derive(Clone, Debug)]
struct Span {
    field: String,
    index: Option<usize>,
    /// First byte.
    start: usize,
    /// Bits from the top of it.
    bit: usize,
    bits: usize,
}

impl Span {
    fn bytes(field: impl Into<String>, start: usize, len: usize) -> Self {
        Self { field: field.into(), index: None, start, bit: 0, bits: len * 8 }
    }

    /// The field's bits, as far as the frame has them.
    fn value(&self, frame: &[u8]) -> Option<u128> {
        let len = (self.bit + self.bits).div_ceil(8);
        let bytes = frame.get(self.start..self.start + len)?;
        let word = bytes.iter().fold(0u128, |word, byte| word << 8 | u128::from(*byte));
        let below = len * 8 - self.bit - self.bits;
        let mask = if self.bits >= 128 { u128::MAX } else { (1 << self.bits) - 1 };
        Some(word >> below & mask)
    }
}

fn show(span: &Span, value: Option<u128>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    match span.bits {
        // Small numbers are easier to read in decimal.
        0..=16 => value.to_string(),
        bits => format!("0x{value:0digits$x}", digits = bits / 4),
    }
}

/// The fields of a frame, in order.
fn spans(frame: &[u8]) -> Vec<Span> {
    let mut spans = vec![
        Span::bytes("eth.target", 0, 6),
        Span::bytes("eth.source", 6, 6),
        Span::bytes("eth.type", 12, 2),
    ];
    let mut from = ETHERNET_LEN;
    if let Ok(udp) = Udp::parse(frame) {
        outer(&mut spans, udp.target.is_ipv6());
        from = udp.payload_start;
        if let Some(datagram) = frame.get(udp.payload_range()) {
            from += inner(&mut spans, datagram, udp.payload_start);
        }
    }
    for (index, start) in (from..frame.len()).step_by(4).enumerate() {
        let len = (frame.len() - start).min(4);
        let index = Some(index);
        spans.push(Span { index, ..Span::bytes(PAYLOAD, start, len) });
    }
    spans
}

fn outer(spans: &mut Vec<Span>, is_ipv6: bool) {
    let at = ETHERNET_LEN;
    let udp = if is_ipv6 {
        let fields =
            [("flow", 0, 4), ("len", 4, 2), ("next", 6, 1), ("ttl", 7, 1), ("source", 8, 16)];
        let fields = fields.into_iter().chain([("target", 24, 16)]);
        spans.extend(fields.map(|(name, start, len)| ip(name, at + start, len)));
        at + IPV6_LEN
    } else {
        let fields = IPV4.iter().copied();
        spans.extend(fields.map(|(name, start, len)| ip(name, at + start, len)));
        at + IPV4_LEN
    };
    let fields = [("source", 0), ("target", 2), ("len", 4), ("checksum", 6)];
    spans.extend(fields.map(|(name, start)| Span::bytes(format!("udp.{name}"), udp + start, 2)));
    debug_assert_eq!(UDP_LEN, 8);
}

fn ip(name: &str, start: usize, len: usize) -> Span {
    Span::bytes(format!("ip.{name}"), start, len)
}

/// Weft's own fields; returns how many bytes they take.
fn inner(spans: &mut Vec<Span>, datagram: &[u8], at: usize) -> usize {
    let Ok(packet) = Packet::new_checked(datagram) else { return 0 };
    let field = |&(name, start, bit, bits): &(&str, usize, usize, usize)| Span {
        field: name.to_owned(),
        index: None,
        start: at + start,
        bit,
        bits,
    };
    spans.extend(LAYOUT.iter().map(field));
    if packet.kind() != Some(Kind::Hello) || packet.payload().len() < hello::BODY_LEN {
        return HEADER_LEN;
    }
    let body = at + HEADER_LEN;
    let field = |&(name, start, len): &(&str, usize, usize)| {
        Span::bytes(format!("hello.{name}"), body + start, len)
    };
    spans.extend(hello::LAYOUT.iter().map(field));
    HEADER_LEN + hello::BODY_LEN
}

/// All names, for people.
fn all() -> Vec<String> {
    let mut names: Vec<String> =
        [LENGTH, "eth.target", "eth.source", "eth.type"].into_iter().map(str::to_owned).collect();
    let mut ip4 = Vec::new();
    outer(&mut ip4, false);
    let mut ip6 = Vec::new();
    outer(&mut ip6, true);
    for span in ip4.into_iter().chain(ip6) {
        if !names.contains(&span.field) {
            names.push(span.field);
        }
    }
    names.extend(LAYOUT.iter().map(|(name, ..)| (*name).to_owned()));
    names.extend(hello::LAYOUT.iter().map(|(name, ..)| format!("hello.{name}")));
    names.push(PAYLOAD.to_owned());
    names
}

const LENGTH: &str = "length";
const PAYLOAD: &str = "payload";
const IPV4: &[(&str, usize, usize)] = &[
    ("tos", 1, 1),
    ("len", 2, 2),
    ("id", 4, 2),
    ("fragment", 6, 2),
    ("ttl", 8, 1),
    ("protocol", 9, 1),
    ("checksum", 10, 2),
    ("source", 12, 4),
    ("target", 16, 4),
];

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRIB: &[u8] = include_bytes!("../../../proto/vectors/contrib-ipv4-crc.bin");
    const HELLO: &[u8] = include_bytes!("../../../proto/vectors/hello-welcome-ipv6.bin");

    fn names(expected: &[u8], got: &[u8], ignore: &str) -> Vec<String> {
        let found = compare(expected, got, &Fields::parse(ignore).unwrap());
        found.into_iter().map(|(name, ..)| name).collect()
    }

    #[test]
    fn every_octet_belongs_to_exactly_one_field() {
        for frame in [CONTRIB, HELLO] {
            for at in 0..frame.len() {
                let mut other = frame.to_vec();
                other[at] ^= 1;
                let found = names(frame, &other, "");
                // The first octet of an IPv4 header has no name: another one is no frame of ours.
                if at != 14 && !(15..18).contains(&at) || found.len() == 1 {
                    assert_eq!(found.len(), 1, "octet {at}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn fields_have_the_names_of_the_layout() {
        let mut other = CONTRIB.to_vec();
        other[42 + 15] ^= 1;
        other[42 + 1] ^= 8;
        other[42 + 32 + 5] = 7;
        assert_eq!(names(CONTRIB, &other, ""), ["flags", "chunk", "payload[1]"]);
        assert_eq!(names(CONTRIB, &other, "chunk,payload"), ["flags"]);
        assert_eq!(names(CONTRIB, &CONTRIB[..70], "")[0], "length");
        let mut other = HELLO.to_vec();
        other[62 + 32 + 4] ^= 1;
        assert_eq!(names(HELLO, &other, ""), ["hello.epoch"]);
        Fields::parse("chunk,nonsense").unwrap_err();
    }
}
