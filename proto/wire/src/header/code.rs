//! The codes in the header's bit fields: kind, flags, outcome, element type, operation.
//!
//! Each has an `ALL` table with the names of `proto/SPEC.md`; a test holds SPEC, these tables and
//! the dissector against each other. A code without meaning is `None`, never a guess.

use core::fmt;

use crate::words::word_of;

/// The kind of a datagram.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// A member's contribution to a chunk, or a leaf's sum going up.
    Contrib = 1,
    /// The sum coming down; going up, the hand-over of a sum after a restart.
    Answer = 2,
    /// The server's acknowledgement of a pushed update.
    Ack = 3,
    /// What a box knows of a chunk: the outcome field says HAVE, STALE or WAIT.
    State = 4,
    /// The server's credit for one sum.
    Pull = 5,
    /// The handshake: a body of [`crate::hello::Hello`] follows.
    Hello = 6,
    /// Header-only question for the state of a chunk.
    Status = 7,
}

impl Kind {
    /// Every kind with its name in SPEC and the dissector.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Contrib, "CONTRIB"),
        (Self::Answer, "ANSWER"),
        (Self::Ack, "ACK"),
        (Self::State, "STATE"),
        (Self::Pull, "PULL"),
        (Self::Hello, "HELLO"),
        (Self::Status, "STATUS"),
    ];

    pub(super) const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            1 => Some(Self::Contrib),
            2 => Some(Self::Answer),
            3 => Some(Self::Ack),
            4 => Some(Self::State),
            5 => Some(Self::Pull),
            6 => Some(Self::Hello),
            7 => Some(Self::Status),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    /// Writes the name that SPEC uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word_of(Self::ALL, self))
    }
}

/// The five flag bits; OR-able.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Flags(pub u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Not the first transmission of this datagram.
    pub const RETRANSMIT: Self = Self(0x80);
    /// Sent to the destination without an aggregator.
    pub const DIRECT: Self = Self(0x40);
    /// The copy for a replica.
    pub const REPLICA: Self = Self(0x20);
    /// At least one element of at least one contribution was clamped (PROTOCOL section 9).
    pub const CLAMPED: Self = Self(0x10);
    /// A contribution met congestion on its way up (ECN, OR-ed into the sum).
    pub const CONGESTION: Self = Self(0x08);

    /// Every flag with its name in SPEC and the dissector.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::RETRANSMIT, "RETRANSMIT"),
        (Self::DIRECT, "DIRECT"),
        (Self::REPLICA, "REPLICA"),
        (Self::CLAMPED, "CLAMPED"),
        (Self::CONGESTION, "CONGESTION"),
    ];

    /// True when every flag of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Flags of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `self` with only the flags of `other`.
    #[must_use]
    pub const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Display for Flags {
    /// Writes the names of the flags set, joined by commas; nothing when none is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (_, name) in Self::ALL.iter().filter(|(flag, _)| self.contains(*flag)) {
            write!(f, "{comma}{name}")?;
            comma = ",";
        }
        Ok(())
    }
}

/// The three outcome bits: what became of an update, or what a STATE says.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Outcome {
    /// Nothing to say.
    #[default]
    None = 0,
    /// All chunks of the update are at the server.
    Staged = 1,
    /// The update entered the model.
    Committed = 2,
    /// The update will never enter.
    Void = 3,
    /// The controller refused the update.
    Dropped = 4,
    /// STATE: the slot holds this chunk; `members` has come in.
    Have = 5,
    /// STATE: the tag is not current; ask the final destination or rejoin.
    Stale = 6,
    /// STATE: not yet; ask again later.
    Wait = 7,
}

impl Outcome {
    /// In a CONTRIB: the vector ends with this chunk. In JOIN and WELCOME: contributions mark that
    /// (SPEC#lengths).
    pub const LAST: Self = Self::Staged;
    /// In an allreduce's STATE: the chunk will have no sum, for `members` have closed.
    pub const LEFT: Self = Self::Void;
    /// In an allreduce's STATE: the chunk will have no sum, for contributions to it differ in
    /// length; `members` agree with the first.
    pub const MISMATCH: Self = Self::Dropped;

    /// Outcomes of an allreduce, by the kind of the datagram, with their names in SPEC and the
    /// dissector.
    pub const OF_KINDS: &'static [(Kind, Self, &'static str)] = &[
        (Kind::Contrib, Self::LAST, "LAST"),
        (Kind::Hello, Self::LAST, "LAST"),
        (Kind::State, Self::LEFT, "LEFT"),
        (Kind::State, Self::MISMATCH, "MISMATCH"),
    ];

    /// Its name in a datagram of this kind.
    pub(super) fn name_in(self, kind: Kind) -> &'static str {
        let is_it = |(of, outcome, _): &&(Kind, Self, _)| (*of, *outcome) == (kind, self);
        let own = Self::OF_KINDS.iter().find(is_it);
        own.map_or_else(|| word_of(Self::ALL, &self), |(.., name)| name)
    }

    /// Every outcome with its name in SPEC and the dissector.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::None, "NONE"),
        (Self::Staged, "STAGED"),
        (Self::Committed, "COMMITTED"),
        (Self::Void, "VOID"),
        (Self::Dropped, "DROPPED"),
        (Self::Have, "HAVE"),
        (Self::Stale, "STALE"),
        (Self::Wait, "WAIT"),
    ];

    pub(super) const fn from_bits(bits: u8) -> Self {
        match bits & 7 {
            0 => Self::None,
            1 => Self::Staged,
            2 => Self::Committed,
            3 => Self::Void,
            4 => Self::Dropped,
            5 => Self::Have,
            6 => Self::Stale,
            _ => Self::Wait,
        }
    }
}

impl fmt::Display for Outcome {
    /// Writes the name that SPEC uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word_of(Self::ALL, self))
    }
}

/// What an element is on the wire. All are big-endian.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum ElementType {
    /// No elements (header-only kinds, HELLO).
    #[default]
    None = 0,
    /// Two's complement fixed point, 4 bytes; `exponent` scales it.
    I32 = 1,
    /// IEEE 754 binary32, 4 bytes.
    F32 = 2,
    /// bfloat16, 2 bytes; summed in f32.
    Bf16 = 3,
}

impl ElementType {
    /// Bytes of one element on the wire.
    #[must_use]
    pub const fn len_bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::I32 | Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    pub(super) const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::None),
            1 => Some(Self::I32),
            2 => Some(Self::F32),
            3 => Some(Self::Bf16),
            _ => None,
        }
    }
}

crate::words!(ElementType, "element type", { I32 = "i32", F32 = "f32", Bf16 = "bf16" }, besides { None = "none" });

/// How contributions become one.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Operation {
    /// Nothing to combine.
    #[default]
    None = 0,
    /// Element-wise sum.
    Sum = 1,
    /// Element-wise maximum (block exponents).
    Max = 2,
}

impl Operation {
    pub(super) const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::None),
            1 => Some(Self::Sum),
            2 => Some(Self::Max),
            _ => None,
        }
    }
}

crate::words!(Operation, "operation", { Sum = "sum", Max = "max" }, besides { None = "none" });
