//! The header as words of eight bytes, in which it is written.
//!
//! Whoever reads a header again at once, as a CRC does, reads it in such words: a read of what was
//! written in smaller pieces waits until all stores before it have reached the cache.

use core::ops::Range;

use super::layout::field;
use super::{HEADER_LEN, Header, VERSION};

/// The words of a header, by the value of its bytes in network order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Words(pub(super) [u64; COUNT]);

impl Words {
    /// The CRC field is 0.
    #[inline]
    pub(super) fn of(header: &Header) -> Self {
        let mut words = Self::default();
        let element = (header.element_type as u8) << 4 | header.operation as u8;
        words.put_octet(field::VERSION_KIND, VERSION << 4 | header.kind as u8);
        words.put_octet(field::FLAGS, header.flags.0 & 0xf8 | header.outcome as u8);
        words.put(field::JOB, header.job.0.into());
        words.put(field::COOKIE, header.cookie.0.into());
        words.put(field::GROUP, header.group.0.into());
        words.put(field::CHUNK, header.chunk.0.into());
        words.put_octet(field::ELEMENT, element);
        words.put_octet(field::EXPONENT, header.exponent.cast_unsigned());
        words.put(field::COUNT, header.count.into());
        words.put(field::MEMBERS, header.members.0);
        words
    }

    #[inline(always)]
    fn put_octet(&mut self, at: usize, value: u8) {
        self.put(at..at + 1, value.into());
    }

    /// Puts a value into a field of zeros, which lies in one word.
    #[inline(always)]
    fn put(&mut self, field: Range<usize>, value: u64) {
        let word = field.start / 8;
        self.0[word] |= value << (8 * (8 * (word + 1) - field.end));
    }

    #[inline(always)]
    pub(super) fn emit(&self, bytes: &mut [u8; HEADER_LEN]) {
        let (to, _) = bytes.as_chunks_mut();
        for (to, word) in to.iter_mut().zip(self.0) {
            *to = word.to_be_bytes();
        }
    }
}

pub(super) const COUNT: usize = HEADER_LEN / 8;
