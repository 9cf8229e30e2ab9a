//! The 32-byte header of every Weft datagram (`proto/SPEC.md`, section "Header").
//!
//! [`Packet`] is a view over octets without judgement of content; [`Header`] is the parsed, valid
//! form. Accessors of `Packet` cannot panic once [`Packet::check_len`] has succeeded. When
//! emitting into a dirty, reused buffer use [`Packet::new_unchecked`] and [`Header::emit`], which
//! writes every byte of the header: `new_checked` would judge what the buffer held before.

use core::fmt;

use crate::hello::Hello;
use crate::quant;
use crate::rows;
use crate::types::{ChunkIndex, Cookie, GroupId, JobId, Members};

mod code;
mod layout;
mod template;
#[cfg(test)]
mod tests;
mod words;

pub use code::{ElementType, Flags, Kind, Operation, Outcome};
pub use layout::LAYOUT;
use layout::field;
pub use template::{Prepared, Template};
use words::Words;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = field::MEMBERS.end;

/// The protocol version this crate speaks.
pub const VERSION: u8 = 1;

/// What the UDP port base spells: "WE".
pub const PORT_BASE: u16 = 0x5745;

/// Why octets are not a Weft datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HeaderError {
    /// Shorter than the header, or than the header and `count` elements.
    Length,
    /// Another protocol version.
    Version,
    /// A kind, element type or operation without meaning.
    Kind,
    /// A scale exponent without meaning ([`quant::is_exponent`]).
    Exponent,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "datagram shorter than its header says",
            Self::Version => "unknown protocol version",
            Self::Kind => "unknown kind, element type or operation",
            Self::Exponent => "scale exponent outside -126 to 126",
        })
    }
}

impl core::error::Error for HeaderError {}

/// A view over a Weft datagram (the UDP payload).
///
/// ```
/// use weft_wire::header::{Header, HeaderError, Packet};
///
/// // A STATUS of rank 0 of job 3 for chunk 9.
/// let mut octets = [0; 32];
/// octets[..4].copy_from_slice(&[0x17, 0, 0, 3]);
/// octets[15] = 9;
/// octets[31] = 1;
/// let packet = Packet::new_checked(&octets)?;
/// assert_eq!(packet.to_string(), "WEFT STATUS job=3 group=0.0 chunk=9 members=0x1");
/// assert_eq!(Header::parse(&packet)?.chunk.0, 9);
/// # Ok::<(), HeaderError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Packet<T: AsRef<[u8]>> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Wraps octets without looking at them.
    pub const fn new_unchecked(buffer: T) -> Self {
        Self { buffer }
    }

    /// Wraps octets and checks their length.
    ///
    /// # Errors
    /// [`HeaderError::Length`] as [`Packet::check_len`].
    pub fn new_checked(buffer: T) -> Result<Self, HeaderError> {
        let packet = Self::new_unchecked(buffer);
        packet.check_len()?;
        Ok(packet)
    }

    /// Checks that the buffer holds a header.
    ///
    /// # Errors
    /// [`HeaderError::Length`] when it does not; accessors would panic.
    pub fn check_len(&self) -> Result<(), HeaderError> {
        if self.buffer.as_ref().len() < HEADER_LEN { Err(HeaderError::Length) } else { Ok(()) }
    }

    /// Returns the wrapped buffer.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// The protocol version.
    pub fn version(&self) -> u8 {
        self.buffer.as_ref()[field::VERSION_KIND] >> 4
    }

    /// The kind, if it has a meaning.
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_bits(self.buffer.as_ref()[field::VERSION_KIND] & 0x0f)
    }

    /// The flag bits.
    pub fn flags(&self) -> Flags {
        Flags(self.buffer.as_ref()[field::FLAGS] & 0xf8)
    }

    /// The outcome bits.
    pub fn outcome(&self) -> Outcome {
        Outcome::from_bits(self.buffer.as_ref()[field::FLAGS])
    }

    /// The job.
    pub fn job(&self) -> JobId {
        JobId(u16::from_be_bytes(self.array(field::JOB.start)))
    }

    /// The cookie.
    pub fn cookie(&self) -> Cookie {
        Cookie(u32::from_be_bytes(self.array(field::COOKIE.start)))
    }

    /// The group, row and generation.
    pub fn group(&self) -> GroupId {
        GroupId(u32::from_be_bytes(self.array(field::GROUP.start)))
    }

    /// The chunk.
    pub fn chunk(&self) -> ChunkIndex {
        ChunkIndex(u32::from_be_bytes(self.array(field::CHUNK.start)))
    }

    /// The element type, if it has a meaning.
    pub fn element_type(&self) -> Option<ElementType> {
        ElementType::from_bits(self.buffer.as_ref()[field::ELEMENT] >> 4)
    }

    /// The operation, if it has a meaning.
    pub fn operation(&self) -> Option<Operation> {
        Operation::from_bits(self.buffer.as_ref()[field::ELEMENT] & 0x0f)
    }

    /// The scale exponent: value = element x 2^exponent.
    pub fn exponent(&self) -> i8 {
        i8::from_be_bytes(self.array(field::EXPONENT))
    }

    /// How many elements the payload has.
    pub fn count(&self) -> u16 {
        u16::from_be_bytes(self.array(field::COUNT.start))
    }

    /// The CRC32C; 0 when not used.
    pub fn crc(&self) -> u32 {
        u32::from_be_bytes(self.array(field::CRC.start))
    }

    /// The contributors.
    pub fn members(&self) -> Members {
        Members(u64::from_be_bytes(self.array(field::MEMBERS.start)))
    }

    /// What follows the header.
    pub fn payload(&self) -> &[u8] {
        &self.buffer.as_ref()[HEADER_LEN..]
    }

    fn array<const N: usize>(&self, start: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.buffer.as_ref()[start..start + N]);
        bytes
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// What follows the header, writable.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.as_mut()[HEADER_LEN..]
    }

    /// Sets the flag bits, leaving the outcome.
    pub fn set_flags(&mut self, flags: Flags) {
        let byte = &mut self.buffer.as_mut()[field::FLAGS];
        *byte = (flags.0 & 0xf8) | (*byte & 7);
    }

    /// Sets the chunk.
    pub fn set_chunk(&mut self, chunk: ChunkIndex) {
        self.buffer.as_mut()[field::CHUNK].copy_from_slice(&chunk.0.to_be_bytes());
    }

    /// Sets the scale exponent.
    pub fn set_exponent(&mut self, exponent: i8) {
        self.buffer.as_mut()[field::EXPONENT] = exponent.to_be_bytes()[0];
    }

    /// Sets the cookie.
    pub fn set_cookie(&mut self, cookie: Cookie) {
        self.buffer.as_mut()[field::COOKIE].copy_from_slice(&cookie.0.to_be_bytes());
    }

    /// Sets the CRC field.
    pub fn set_crc(&mut self, crc: u32) {
        self.buffer.as_mut()[field::CRC].copy_from_slice(&crc.to_be_bytes());
    }

    /// Computes the CRC over the whole buffer with the CRC field as 0 and stores it. A computed 0
    /// is sent as all ones, as UDP does, for 0 means "not used".
    pub fn seal(&mut self, crc32c: impl FnOnce(&[u8]) -> u32) {
        self.set_crc(0);
        let crc = non_zero(crc32c(self.buffer.as_ref()));
        self.set_crc(crc);
    }

    /// Stores the CRC of the buffer, computed with the four bytes at [`CRC_AT`] as 0. For those who
    /// can compute it so, [`Packet::seal`] without writing first.
    #[inline]
    pub fn store_crc(&mut self, computed: u32) {
        self.set_crc(non_zero(computed));
    }

    /// True when the CRC field is the CRC of the buffer. Zeroes the field while it computes and
    /// puts it back.
    pub fn verify_crc(&mut self, crc32c: impl FnOnce(&[u8]) -> u32) -> bool {
        let carried = self.crc();
        self.set_crc(0);
        let computed = non_zero(crc32c(self.buffer.as_ref()));
        self.set_crc(carried);
        carried == computed
    }
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// True when the CRC field says this, the CRC of the buffer with the four bytes at [`CRC_AT`]
    /// as 0. For those who can compute it so, [`Packet::verify_crc`] without writing.
    #[inline]
    pub fn has_crc(&self, computed: u32) -> bool {
        self.crc() == non_zero(computed)
    }
}

/// Where the CRC field starts.
pub const CRC_AT: usize = field::CRC.start;

const fn non_zero(crc: u32) -> u32 {
    if crc == 0 { u32::MAX } else { crc }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    /// Writes one line, as tcpdump would.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = match Header::parse(self) {
            Ok(header) => header,
            Err(error) => return write!(f, "WEFT ({error})"),
        };
        fmt::Display::fmt(&header, f)?;
        if header.kind != Kind::Hello {
            return Ok(());
        }
        match Hello::parse(self.payload()) {
            Ok((hello, _)) => write!(f, " {hello}"),
            Err(error) => write!(f, " ({error})"),
        }
    }
}

/// A valid header, CRC aside.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// What the datagram is.
    pub kind: Kind,
    /// Flag bits.
    pub flags: Flags,
    /// Outcome bits.
    pub outcome: Outcome,
    /// The job.
    pub job: JobId,
    /// The sender's proof of membership.
    pub cookie: Cookie,
    /// The group.
    pub group: GroupId,
    /// The chunk.
    pub chunk: ChunkIndex,
    /// What an element is.
    pub element_type: ElementType,
    /// How elements combine.
    pub operation: Operation,
    /// Scale exponent of fixed-point elements.
    pub exponent: i8,
    /// Elements in the payload.
    pub count: u16,
    /// Contributors.
    pub members: Members,
}

impl Header {
    /// As [`Header::parse`], for receivers that would take padding for elements.
    ///
    /// # Errors
    /// As [`Header::parse`].
    #[inline]
    pub fn parse_exact<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, HeaderError> {
        let header = Self::parse(packet)?;
        let is_padded = header.kind == Kind::Contrib
            && packet.buffer.as_ref().len() - HEADER_LEN != header.payload_len();
        if is_padded { Err(HeaderError::Length) } else { Ok(header) }
    }

    /// Parses a header and checks that `count` elements follow, or nothing at all: header-only
    /// answers to a data frame keep its element fields. Behind those of a vector's last
    /// contribution padding may follow, of which its receiver checks how much (SPEC#lengths). About
    /// keys, `count` words follow in a datagram of any kind but HELLO.
    ///
    /// # Errors
    /// [`HeaderError`] in the order of SPEC's "Checks": length, version, kind, exponent.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self, HeaderError> {
        let octets = packet.buffer.as_ref();
        // The fixed length spares every field below a check of its bounds.
        let fixed: &[u8; HEADER_LEN] = octets.first_chunk().ok_or(HeaderError::Length)?;
        let payload_len = octets.len() - HEADER_LEN;
        let packet = Packet::new_unchecked(fixed);
        if packet.version() != VERSION {
            return Err(HeaderError::Version);
        }
        let kind = packet.kind().ok_or(HeaderError::Kind)?;
        let element_type = packet.element_type().ok_or(HeaderError::Kind)?;
        let operation = packet.operation().ok_or(HeaderError::Kind)?;
        if !quant::is_exponent(packet.exponent()) {
            return Err(HeaderError::Exponent);
        }
        let header = Self {
            kind,
            flags: packet.flags(),
            outcome: packet.outcome(),
            job: packet.job(),
            cookie: packet.cookie(),
            group: packet.group(),
            chunk: packet.chunk(),
            element_type,
            operation,
            exponent: packet.exponent(),
            count: packet.count(),
            members: packet.members(),
        };
        let is_of_keys = rows::is_of_keys(header.group.row());
        let fits = match kind {
            Kind::Contrib if header.outcome == Outcome::LAST && !is_of_keys => {
                payload_len >= header.payload_len()
            }
            Kind::Contrib | Kind::Answer => payload_len == header.payload_len(),
            Kind::Hello => payload_len >= crate::hello::BODY_LEN,
            _ if is_of_keys => payload_len == header.payload_len(),
            // Padding, of which its receiver says how much there may be (SPEC#push).
            Kind::Pull => true,
            Kind::Ack | Kind::State | Kind::Status => payload_len == 0,
        };
        if fits { Ok(header) } else { Err(HeaderError::Length) }
    }

    /// Bytes that `count` elements take.
    #[must_use]
    pub const fn payload_len(&self) -> usize {
        self.count as usize * self.element_type.len_bytes()
    }

    /// Writes every byte of the header, the CRC field as 0.
    ///
    /// # Panics
    /// If the packet's buffer is shorter than [`HEADER_LEN`].
    #[inline]
    pub fn emit<T: AsRef<[u8]> + AsMut<[u8]>>(&self, packet: &mut Packet<T>) {
        let bytes = packet.buffer.as_mut().first_chunk_mut().expect("the buffer holds a header");
        Words::of(self).emit(bytes);
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WEFT {}", self.kind)?;
        if self.outcome != Outcome::None {
            let is_of_keys = rows::is_of_keys(self.group.row());
            let name = self.outcome.name_in(self.kind);
            if is_of_keys { write!(f, " {}", self.outcome)? } else { write!(f, " {name}")? }
        }
        write!(
            f,
            " job={} group={}.{} chunk={} members={}",
            self.job.0,
            self.group.row(),
            self.group.generation(),
            self.chunk.0,
            self.members
        )?;
        if self.count > 0 {
            write!(f, " count={} {} {}", self.count, self.element_type, self.operation)?;
        }
        if self.flags != Flags::NONE {
            write!(f, " [{}]", self.flags)?;
        }
        Ok(())
    }
}
