//! What worker and box say to each other before they share memory, byte by byte, and what the
//! header of the memory says.
//!
//! Decides only. The messages pass a Unix socket, once each, at a fixed length; both sides run on
//! one machine, so integers are little-endian. Whatever they bring is judged here: a version,
//! lengths and an address are checked before anything is done with them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;

use super::LINKS_MAX;
use super::ring::Geometry;
use crate::udp::SOCKETS_MAX;

/// Version of messages and memory.
pub(super) const VERSION: u32 = 3;
const MAGIC: [u8; 8] = *b"weft-shm";
/// Bytes of each message.
pub(super) const MESSAGE_LEN: usize = 64;

/// A message as it passes the socket.
pub(super) type Message = [u8; MESSAGE_LEN];

/// A worker asks to be let in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Hello {
    /// Its configured address, that of lane 0.
    pub(super) local: SocketAddr,
    /// How many UDP ports from there on are its own.
    pub(super) lanes: u16,
    /// Longest IP packet that it sends.
    pub(super) mtu: u32,
    /// The rows whose sums for all it hears.
    pub(super) rows: Rows,
}

/// Rows of one worker.
pub(super) type Rows = ArrayVec<u16, ROWS_MAX>;

/// Why a box lets nobody in. The numbers are on the wire.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u32)]
pub enum Refusal {
    /// The worker speaks another version of this rendezvous.
    Version = 1,
    /// The worker's message makes no sense.
    Malformed = 2,
    /// The worker belongs to a user that the box does not serve.
    Owner = 3,
    /// The worker claims an address that this host does not have.
    NotHere = 4,
    /// Another process has this address, in memory or as a socket, and lives.
    InUse = 5,
    /// The box has as many workers over shared memory as it can have.
    Full = 6,
    /// The box's MTU is below the worker's.
    Mtu = 7,
    /// The box got no memory.
    Memory = 8,
    /// The worker passed descriptors.
    Rights = 9,
}

impl Refusal {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Version,
        Self::Malformed,
        Self::Owner,
        Self::NotHere,
        Self::InUse,
        Self::Full,
        Self::Mtu,
        Self::Memory,
        Self::Rights,
    ];

    fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| *refusal as u32 == number)
    }

    /// What it means and what to do, for a message.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Version => "it speaks another version: run worker and box of one release",
            Self::Malformed => "it could not read the greeting: run worker and box of one release",
            Self::Owner => {
                "it is not for this user: name it in the box's `port.shm_users`, or use udp"
            }
            Self::NotHere => "the worker's address is none of this host's: correct `local`",
            Self::InUse => "another process has this worker's address: stop it, or choose another",
            Self::Full => "programs of this user hold its 64 places: end one of them, or use udp",
            Self::Mtu => "its MTU is smaller: raise `port.mtu` there, or lower `mtu` here",
            Self::Memory => "it got no memory to share: see its limits of memory and descriptors",
            Self::Rights => "it takes no descriptors: run worker and box of one release",
        }
    }
}

impl Hello {
    pub(super) fn emit(&self) -> Message {
        let mut message = begin(VERSION);
        message[12..14].copy_from_slice(&self.lanes.to_le_bytes());
        message[14..16].copy_from_slice(&self.local.port().to_le_bytes());
        message[16..32].copy_from_slice(&octets(self.local.ip()));
        message[32..36].copy_from_slice(&self.mtu.to_le_bytes());
        message[36] = u8::try_from(self.rows.len()).unwrap_or(0);
        for (bytes, row) in message[ROWS_AT..].chunks_exact_mut(2).zip(&self.rows) {
            bytes.copy_from_slice(&row.to_le_bytes());
        }
        message
    }

    /// Reads what a worker has sent.
    pub(super) fn parse(message: &Message) -> Result<Self, Refusal> {
        match version(message) {
            Some(VERSION) => {}
            Some(_) => return Err(Refusal::Version),
            None => return Err(Refusal::Malformed),
        }
        let (lanes, port) = (word16(message, 12), word16(message, 14));
        let ip = ip(message, 16);
        let row_count = usize::from(message[36]);
        let is_sound = port > 0
            && row_count <= ROWS_MAX
            && (1..=SOCKETS_MAX).contains(&usize::from(lanes))
            && usize::from(port) + usize::from(lanes) <= 1 << 16
            && !ip.is_unspecified();
        if !is_sound {
            return Err(Refusal::Malformed);
        }
        let rows = (0..row_count).map(|at| word16(message, ROWS_AT + 2 * at)).collect();
        Ok(Self { local: SocketAddr::new(ip, port), lanes, mtu: word32(message, 32), rows })
    }
}

/// The box's answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// Come in; the memory comes with this message. Sums for all members of a row go to addresses
    /// that begin there.
    Welcome(Geometry, IpAddr),
    /// No.
    Refused(Refusal),
    /// The box speaks this other version.
    Version(u32),
    /// It makes no sense.
    Malformed,
}

impl Answer {
    pub(super) fn emit(self) -> Message {
        let mut message = begin(VERSION);
        match self {
            Self::Welcome(geometry, base) => {
                let word = |value: usize| u32::try_from(value).unwrap_or(0).to_le_bytes();
                message[16..20].copy_from_slice(&word(geometry.frame_len_max));
                message[20..24].copy_from_slice(&word(geometry.slot_count));
                message[24..40].copy_from_slice(&octets(base));
            }
            Self::Refused(refusal) => {
                message[12..16].copy_from_slice(&(refusal as u32).to_le_bytes());
            }
            Self::Version(version) => message = begin(version),
            Self::Malformed => message = [0; MESSAGE_LEN],
        }
        message
    }

    pub(super) fn parse(message: &Message) -> Self {
        match version(message) {
            Some(VERSION) => {}
            Some(other) => return Self::Version(other),
            None => return Self::Malformed,
        }
        let status = word32(message, 12);
        if status != 0 {
            return Refusal::of(status).map_or(Self::Malformed, Self::Refused);
        }
        let size = |at| usize::try_from(word32(message, at)).unwrap_or(usize::MAX);
        let geometry = Geometry { frame_len_max: size(16), slot_count: size(20) };
        let base = ip(message, 24);
        if geometry.is_sound() { Self::Welcome(geometry, base) } else { Self::Malformed }
    }
}

/// Writes what the memory is into its first words.
pub(super) fn write_header(words: &[AtomicU64], geometry: Geometry, owner: u32) {
    for (place, word) in words.iter().zip(header(geometry, owner)) {
        place.store(word, Ordering::Relaxed);
    }
}

/// What is wrong with the first words of memory that should be like this, and this user's.
pub(super) fn header_problem(
    words: &[AtomicU64],
    geometry: Geometry,
    owner: u32,
) -> Option<&'static str> {
    const PROBLEMS: [&str; 5] = [
        "it is no memory of Weft's",
        "it is of another version",
        "its frames have another length",
        "its rings have another size",
        "it is another user's",
    ];
    let seen = words.iter().map(|word| word.load(Ordering::Relaxed));
    let mut compared = seen.zip(header(geometry, owner)).zip(PROBLEMS);
    compared.find(|((seen, expected), _)| seen != expected).map(|(_, problem)| problem)
}

fn header(geometry: Geometry, owner: u32) -> [u64; 5] {
    [
        u64::from_le_bytes(MAGIC),
        VERSION.into(),
        geometry.frame_len_max as u64,
        geometry.slot_count as u64,
        owner.into(),
    ]
}

fn begin(version: u32) -> Message {
    let mut message = [0; MESSAGE_LEN];
    message[..8].copy_from_slice(&MAGIC);
    message[8..12].copy_from_slice(&version.to_le_bytes());
    message
}

/// The version of a message of Weft's.
fn version(message: &Message) -> Option<u32> {
    (message[..8] == MAGIC).then(|| word32(message, 8))
}

/// An address as 16 bytes, and back.
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn ip(message: &Message, at: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&message[at..at + 16]);
    Ipv6Addr::from(octets).to_canonical()
}

fn word16(message: &Message, at: usize) -> u16 {
    u16::from_le_bytes([message[at], message[at + 1]])
}

fn word32(message: &Message, at: usize) -> u32 {
    u32::from_le_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]])
}

/// Most rows of one worker whose sums for all it hears.
pub(super) const ROWS_MAX: usize = 8;
/// Where they begin.
const ROWS_AT: usize = 38;

const _: () = assert!(ROWS_AT + 2 * ROWS_MAX <= MESSAGE_LEN, "a message has room for them");
const _: () = assert!(LINKS_MAX == 64, "the text of a refusal says how many places there are");

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry { frame_len_max: 1514, slot_count: 256 };

    fn hello(local: &str) -> Hello {
        let rows = [3, 1023].into_iter().collect();
        Hello { local: local.parse().unwrap(), lanes: 4, mtu: 9000, rows }
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        for local in ["10.0.0.1:7000", "[fd00::1]:65532"] {
            let hello = hello(local);
            assert_eq!(Hello::parse(&hello.emit()), Ok(hello));
        }
        let refusals = Refusal::ALL.into_iter().map(Answer::Refused);
        let bases = ["239.1.0.0", "ff12::1:0"];
        let welcomes = bases.map(|base| Answer::Welcome(GEOMETRY, base.parse().unwrap()));
        for answer in refusals.chain(welcomes).chain([Answer::Version(7)]) {
            assert_eq!(Answer::parse(&answer.emit()), answer);
        }
    }

    #[test]
    fn another_version_and_nonsense_are_told_apart() {
        let mut message = hello("10.0.0.1:7000").emit();
        message[8] = 1;
        assert_eq!(Hello::parse(&message), Err(Refusal::Version));
        message[0] = 0;
        assert_eq!(Hello::parse(&message), Err(Refusal::Malformed));
        for (at, value) in [(12, 0), (12, 65), (14, 0xff)] {
            let mut message = Hello { lanes: 1, ..hello("10.0.0.1:255") }.emit();
            message[at] = value;
            message[15] = if at == 14 { 0xff } else { message[15] };
            if at == 14 {
                message[12] = 2;
            }
            assert_eq!(Hello::parse(&message), Err(Refusal::Malformed), "{at}");
        }
        let mut message = hello("10.0.0.1:7000").emit();
        message[36] = u8::try_from(ROWS_MAX + 1).unwrap();
        assert_eq!(Hello::parse(&message), Err(Refusal::Malformed), "more rows than there is room");
        assert_eq!(Answer::parse(&[0; MESSAGE_LEN]), Answer::Malformed);
    }

    #[test]
    fn sizes_that_cannot_be_are_no_welcome() {
        for (frame_len_max, slot_count) in
            [(13, 256), (65_550, 256), (1514, 0), (1514, 100), (1514, 32), (1514, 2048)]
        {
            let answer = Answer::Welcome(
                Geometry { frame_len_max, slot_count },
                "239.1.0.0".parse().unwrap(),
            );
            assert_eq!(Answer::parse(&answer.emit()), Answer::Malformed, "{answer:?}");
        }
    }

    #[test]
    fn memory_that_is_another_is_named() {
        let words: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        assert_eq!(header_problem(&words, GEOMETRY, 0), Some("it is no memory of Weft's"));
        write_header(&words, GEOMETRY, 1000);
        assert_eq!(header_problem(&words, GEOMETRY, 1000), None);
        assert_eq!(header_problem(&words, GEOMETRY, 0), Some("it is another user's"));
        let longer = Geometry { frame_len_max: 9014, ..GEOMETRY };
        assert_eq!(header_problem(&words, longer, 1000), Some("its frames have another length"));
        words[1].store(9, Ordering::Relaxed);
        assert_eq!(header_problem(&words, GEOMETRY, 1000), Some("it is of another version"));
    }
}
