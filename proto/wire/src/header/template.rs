//! A header prepared once, of which each datagram has a few fields of its own.

use super::layout::field;
use super::words::{self, Words};
use super::{Flags, HEADER_LEN, Header, non_zero};
use crate::types::{ChunkIndex, GroupId, Members};

/// The words of such a header. They are written whole, so nothing is read that has just been
/// written: such a read waits for all stores before it, which behind a sum are many.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Template([u64; words::COUNT]);

impl Template {
    /// Prepares a header; its flags, chunk and exponent are each datagram's own.
    #[must_use]
    pub fn of(header: &Header) -> Self {
        let plain = Header { flags: Flags::NONE, chunk: ChunkIndex(0), exponent: 0, ..*header };
        Self(Words::of(&plain).0)
    }

    /// The header with the fields that are a datagram's own.
    #[inline(always)]
    #[must_use]
    pub fn with(&self, flags: Flags, chunk: ChunkIndex, exponent: i8, crc: u32) -> Prepared {
        let mut words = self.0;
        words[field::FLAGS / 8] |= u64::from(flags.0) << (56 - field::FLAGS % 8 * 8);
        words[field::CHUNK.start / 8] |= u64::from(chunk.0);
        words[field::EXPONENT / 8] |=
            u64::from(exponent.cast_unsigned()) << (56 - field::EXPONENT % 8 * 8);
        words[field::CRC.start / 8] |= u64::from(crc);
        Prepared(words)
    }
}

impl Template {
    /// The header of a datagram without elements, which has its group, chunk and members of its
    /// own; it was prepared with group 0 and no members. Sealed where `crc32c` is given.
    #[inline(always)]
    #[must_use]
    pub fn with_target(
        &self,
        group: GroupId,
        chunk: ChunkIndex,
        members: Members,
        crc32c: Option<fn(&[u8]) -> u32>,
    ) -> Prepared {
        let mut words = self.0;
        words[field::CHUNK.start / 8] = u64::from(group.0) << 32 | u64::from(chunk.0);
        words[field::MEMBERS.start / 8] = members.0;
        if let Some(crc32c) = crc32c {
            let mut bytes = [0; HEADER_LEN];
            Prepared(words).emit(&mut bytes);
            words[field::CRC.start / 8] |= u64::from(non_zero(crc32c(&bytes)));
        }
        Prepared(words)
    }
}

/// A header with all its fields, to be written any number of times.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Prepared([u64; words::COUNT]);

impl Prepared {
    /// Writes the header.
    #[inline(always)]
    pub fn emit(&self, bytes: &mut [u8; HEADER_LEN]) {
        Words(self.0).emit(bytes);
    }
}

// Both end a word.
const _: () = assert!(field::CHUNK.end.is_multiple_of(8) && field::CRC.end.is_multiple_of(8));
// These fill one.
const _: () =
    assert!(field::GROUP.start.is_multiple_of(8) && field::GROUP.end == field::CHUNK.start);
const _: () = assert!(field::MEMBERS.start.is_multiple_of(8) && field::MEMBERS.end == HEADER_LEN);
