//! How a frame that came differs from the line that expects it. Whatever a line does not name is as
//! a box must have it: addresses, lengths, checksums, cookie, flags, and the element fields.

use weft_wire::frame::{Datagram, Endpoint, Udp};
use weft_wire::header::{HEADER_LEN, Header, Kind, Outcome, Packet};
use weft_wire::hello::{Hello, Integrity};
use weft_wire::{Cookie, GroupId, JobId, Members};

use super::frame::{Elements, flag_names, member_names, ones_sum, payload};
use super::member::Member;
use super::parse::box_endpoint;
use super::script::{Checksum, Fields, Word};

/// A datagram that left the box.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) udp: Udp,
    pub(super) header: Header,
    pub(super) crc: u32,
    pub(super) is_sealed: bool,
    pub(super) has_good_checksum: bool,
    pub(super) payload: Vec<u8>,
    pub(super) hello: Option<(Hello, Vec<u8>)>,
    pub(super) target_mac: [u8; 6],
    pub(super) bytes_behind: usize,
}

impl Arrived {
    /// Takes a frame apart.
    pub(super) fn read(frame: &[u8]) -> Result<Self, String> {
        let udp = Udp::parse(frame).map_err(|error| error.to_string())?;
        let range = udp.payload_range();
        let mut bytes = frame[range.clone()].to_vec();
        let mut packet = Packet::new_checked(&mut bytes[..]).map_err(|error| error.to_string())?;
        let is_sealed = packet.verify_crc(weft_kernel::crc32c);
        let crc = packet.crc();
        let header = Header::parse(&packet).map_err(|error| error.to_string())?;
        let payload = bytes[HEADER_LEN..].to_vec();
        let hello = (header.kind == Kind::Hello).then(|| Hello::parse(&payload).ok()).flatten();
        let hello = hello.map(|(body, bitmap)| (body, bitmap.to_vec()));
        Ok(Self {
            header,
            crc,
            is_sealed,
            has_good_checksum: udp.checksum != 0 && udp.checksum_ok(frame),
            hello,
            payload,
            target_mac: frame[..6].try_into().expect("it was parsed"),
            bytes_behind: frame.len() - range.end,
            udp,
        })
    }

    /// What the low half of the first element has to be, all others 0, so that the same frame of
    /// another chunk comes to a checksum of 0.
    pub(super) fn balance(&self, chunk: u32) -> u16 {
        let (checksum, own) = (self.udp.checksum.to_be_bytes(), self.header.chunk.0.to_be_bytes());
        ones_sum(&[&checksum, &self.payload, &own, &(!chunk).to_be_bytes()])
    }

    pub(super) fn word(&self) -> Word {
        match &self.hello {
            Some((body, _)) => Word::Hello(body.phase),
            None => Word::Data(self.header.kind, self.header.outcome),
        }
    }

    /// The frame in a line, as a script would spell it.
    pub(super) fn text(&self) -> String {
        let header = &self.header;
        let mut text = format!("{} chunk {}", name_of(self.word()), header.chunk.0);
        text += &format!(" members {}", member_names(header.members));
        if !self.payload.is_empty() && self.hello.is_none() {
            text += &format!(" values {}", values_text(&self.payload));
        }
        text
    }
}

/// What a line wants.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) word: Word,
    pub(super) fields: &'a Fields,
    pub(super) to: Endpoint,
    pub(super) job: JobId,
    pub(super) group: GroupId,
    /// `None`: judged elsewhere.
    pub(super) cookie: Option<Cookie>,
    pub(super) elements: Elements,
    /// Of a chunk with elements.
    pub(super) count: u16,
    pub(super) integrity: Integrity,
    pub(super) mask: Members,
    pub(super) member: Option<&'a Member>,
}

/// A field that is not as the line says: its name, what was expected, what came.
pub(super) type Differs = (&'static str, String, String);

/// Every field that differs.
pub(super) fn compare(wanted: &Wanted<'_>, got: &Arrived) -> Vec<Differs> {
    let mut list = List(Vec::new());
    let header = &got.header;
    list.check("frame", name_of(wanted.word), name_of(got.word()));
    if !list.0.is_empty() {
        return vec![("frame", name_of(wanted.word), got.text())];
    }
    list.check("source", box_endpoint().addr, got.udp.source);
    list.check("target", wanted.to.addr, got.udp.target);
    list.check("target MAC", mac(wanted.to.mac.0), mac(got.target_mac));
    list.check("source MAC", mac(box_endpoint().mac.0), mac(got.udp.source_mac.0));
    list.check("bytes behind", 0, got.bytes_behind);
    seal(&mut list, wanted, got);
    list.check("job", wanted.job.0, header.job.0);
    list.check("row", wanted.group.row(), header.group.row());
    if !matches!(wanted.word, Word::Hello(_)) || wanted.fields.generation.is_some() {
        list.check("generation", wanted.group.generation(), header.group.generation());
    }
    list.check("flags", flag_names(wanted.fields.flags), flag_names(header.flags));
    if let Some(chunk) = wanted.fields.chunk {
        list.check("chunk", chunk, header.chunk.0);
    }
    if let Some(members) = wanted.members() {
        list.check("members", member_names(members), member_names(header.members));
    }
    if let Some((body, bitmap)) = &got.hello {
        hello(&mut list, wanted, body, bitmap);
        return list.0;
    }
    if let Some(cookie) = wanted.cookie {
        list.check("cookie", hex(cookie), hex(header.cookie));
    }
    list.check("type", wanted.elements.element_type, header.element_type);
    list.check("operation", wanted.elements.operation, header.operation);
    list.check("exponent", wanted.elements.exponent, header.exponent);
    list.check("count", wanted.elements.count, header.count);
    let has_elements = matches!(header.kind, Kind::Contrib | Kind::Answer);
    let len = if has_elements { 4 * usize::from(wanted.count) } else { 0 };
    list.check("payload bytes", len, got.payload.len());
    if let Some(values) = &wanted.fields.values {
        let expected = payload(values, wanted.count);
        if expected != got.payload {
            let got = values_text(&got.payload);
            list.0.push(("values", values_text(&expected), got));
        }
    }
    list.0
}

fn seal(list: &mut List, wanted: &Wanted<'_>, got: &Arrived) {
    if wanted.integrity == Integrity::Crc32c || got.hello.is_some() {
        list.check("CRC32C", "right", if got.is_sealed { "right" } else { "wrong" });
    } else {
        list.check("CRC32C", 0, got.crc);
        let checksum = if got.has_good_checksum { "right" } else { "wrong or missing" };
        list.check("UDP checksum", "right", checksum);
        if wanted.fields.checksum == Checksum::Zero {
            list.check("UDP checksum", 0xffff, got.udp.checksum);
        }
    }
}

fn hello(list: &mut List, wanted: &Wanted<'_>, body: &Hello, bitmap: &[u8]) {
    if let Some(member) = wanted.member {
        list.check("life", wanted.fields.life.unwrap_or(member.life), body.life);
    }
    if let Some(reason) = wanted.fields.reason {
        list.check("reason", reason, body.reason as u8);
    }
    if let Some(steps) = &wanted.fields.wants {
        let bits = (0..bitmap.len() * 8).filter(|bit| bitmap[bit / 8] & 0x80 >> (bit % 8) != 0);
        let named: Vec<String> =
            bits.map(|bit| (body.low_step as usize + bit).to_string()).collect();
        let expected: Vec<String> = steps.iter().map(u32::to_string).collect();
        list.check("wants", expected.join(","), named.join(","));
    }
}

impl Wanted<'_> {
    /// What `members` has to be: as named, or what only one thing can be.
    fn members(&self) -> Option<Members> {
        match self.word {
            _ if self.fields.members.is_some() => self.fields.members,
            Word::Data(Kind::Answer, _) => Some(self.mask),
            Word::Data(Kind::State, Outcome::Stale) => Some(Members::EMPTY),
            _ => None,
        }
    }
}

struct List(Vec<Differs>);

impl List {
    fn check<T: PartialEq + ToString>(&mut self, name: &'static str, wanted: T, got: T) {
        if wanted != got {
            self.0.push((name, wanted.to_string(), got.to_string()));
        }
    }
}

/// A kind as a script spells it.
pub(super) fn name_of(word: Word) -> String {
    match word {
        Word::Hello(phase) => phase.to_string(),
        Word::Data(Kind::State, outcome) => outcome.to_string(),
        Word::Data(kind, _) => kind.to_string(),
    }
}

/// Whether a datagram is of the handshake.
pub(super) fn is_hello(frame: &[u8]) -> bool {
    let found = Datagram::find(frame).ok();
    found.is_some_and(|udp| {
        let packet = Packet::new_checked(&frame[udp.payload_range()]);
        packet.is_ok_and(|packet| packet.kind() == Some(Kind::Hello))
    })
}

fn values_text(payload: &[u8]) -> String {
    let words = payload.chunks_exact(4);
    let values: Vec<i32> =
        words.map(|word| i32::from_be_bytes(word.try_into().expect("four bytes"))).collect();
    let tail = values.iter().rev().take_while(|value| Some(*value) == values.last()).count();
    let shown = values.len() + 1 - tail.max(1);
    let texts: Vec<String> = values[..shown].iter().map(i32::to_string).collect();
    texts.join(" ")
}

fn mac(bytes: [u8; 6]) -> String {
    weft_wire::MacAddr(bytes).to_string()
}

fn hex(cookie: Cookie) -> String {
    format!("{:#010x}", cookie.0)
}
