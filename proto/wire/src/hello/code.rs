//! The codes in a HELLO body: phase, reason, integrity, overflow. As in
//! [`crate::header`], each has an `ALL` table and a code without meaning is `None`.

use core::fmt;

use crate::words::word_of;

/// Where in the handshake a HELLO datagram stands.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Phase {
    /// Member to box: who I am; `life` is random per life.
    Hello = 1,
    /// Box to member: echoes `life`, gives a `token`.
    Challenge = 2,
    /// Member to box: `life` and `token`; `session`, `low_step` and the bitmap say what it holds.
    Join = 3,
    /// Box to member: the lease is open; cookies, geometry and the steps wanted by hand-over.
    Welcome = 4,
    /// Box to member: joined, but the header's `members` alone have; ask again.
    Waiting = 5,
    /// Box to member: `reason` says why not; the header's `members` says because of whom.
    Refused = 6,
    /// Member to box: I hold every sum I need.
    Close = 7,
    /// Box to member: the header's `members` have closed.
    Closed = 8,
    /// Member to box: it hears the row's multicast address, so answers may go there.
    Listen = 9,
    /// Member to box: it does not hear that address (any more).
    Deaf = 10,
}

impl Phase {
    /// Every phase with its name in SPEC and the dissector.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Hello, "HELLO"),
        (Self::Challenge, "CHALLENGE"),
        (Self::Join, "JOIN"),
        (Self::Welcome, "WELCOME"),
        (Self::Waiting, "WAITING"),
        (Self::Refused, "REFUSED"),
        (Self::Close, "CLOSE"),
        (Self::Closed, "CLOSED"),
        (Self::Listen, "LISTEN"),
        (Self::Deaf, "DEAF"),
    ];

    pub(super) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Hello),
            2 => Some(Self::Challenge),
            3 => Some(Self::Join),
            4 => Some(Self::Welcome),
            5 => Some(Self::Waiting),
            6 => Some(Self::Refused),
            7 => Some(Self::Close),
            8 => Some(Self::Closed),
            9 => Some(Self::Listen),
            10 => Some(Self::Deaf),
            _ => None,
        }
    }
}

impl fmt::Display for Phase {
    /// Writes the name that SPEC uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word_of(Self::ALL, self))
    }
}

/// Why a box refused.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Reason {
    /// Not refused.
    #[default]
    None = 0,
    /// The job or row is not in the box's table.
    UnknownGroup = 1,
    /// The members named in the header began a new life; the session cannot go on.
    MemberLost = 2,
    /// The member's session is not the one that the others resume.
    OtherSession = 3,
    /// The row's elements are of another type or operation than the JOIN's header names; this
    /// header has the row's.
    OtherElements = 4,
}

impl Reason {
    /// Every reason with its name in SPEC and the dissector.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::None, "NONE"),
        (Self::UnknownGroup, "UNKNOWN_GROUP"),
        (Self::MemberLost, "MEMBER_LOST"),
        (Self::OtherSession, "OTHER_SESSION"),
        (Self::OtherElements, "OTHER_ELEMENTS"),
    ];

    pub(super) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::None),
            1 => Some(Self::UnknownGroup),
            2 => Some(Self::MemberLost),
            3 => Some(Self::OtherSession),
            4 => Some(Self::OtherElements),
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    /// Writes the name that SPEC uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word_of(Self::ALL, self))
    }
}

/// What protects the payload.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Integrity {
    /// Nothing beyond the link's own check.
    None = 0,
    /// CRC32C over header and payload: the default in software.
    #[default]
    Crc32c = 1,
    /// The UDP checksum: what a P4 peer can do.
    Checksum16 = 2,
}

impl Integrity {
    pub(super) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::None),
            1 => Some(Self::Crc32c),
            2 => Some(Self::Checksum16),
            _ => None,
        }
    }
}

crate::words!(Integrity, "integrity", { None = "none", Crc32c = "crc32c", Checksum16 = "checksum16" });

/// What happens when a sum does not fit its type (PROTOCOL section 9).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Overflow {
    /// Sums wrap modulo 2^32: exact, order-free.
    Wrap = 0,
    /// Each contribution is clamped to floor((2^31 - 1) / fan-in) first, so no sum can overflow.
    #[default]
    Clamp = 1,
}

impl Overflow {
    pub(super) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Wrap),
            1 => Some(Self::Clamp),
            _ => None,
        }
    }
}

crate::words!(Overflow, "overflow", { Wrap = "wrap", Clamp = "clamp" });
