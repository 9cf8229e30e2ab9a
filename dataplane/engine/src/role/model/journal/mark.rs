//! Marks: what of a journal the disk has, and which journal comes after it.
//!
//! A mark is written when all before it is durable. It needs not be durable itself before anybody
//! is told: while the machine stands, a process that dies leaves it behind; and what the machine
//! loses with its power, and what an error of the disk changes, seldom meet.

use alloc::vec::Vec;

use weft_kernel::crc32c;

use super::header::Fields;
use super::{HEAD_BYTES, write_entry};

/// Says that all before it is durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mark {
    /// Where it stands in its journal.
    pub offset: u64,
    /// The journal that follows, if this one is finished.
    pub next: Option<u64>,
}

impl Mark {
    /// Appends the mark to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_entry(out, |out| {
            out.push(KIND_MARK);
            out.extend(self.offset.to_le_bytes());
            out.extend(self.next.unwrap_or(0).to_le_bytes());
        });
    }

    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let mut fields = Fields { bytes: body };
        if body.len() != BODY_BYTES || fields.byte()? != KIND_MARK {
            return None;
        }
        let (offset, next) = (fields.u64()?, fields.u64()?);
        Some(Self { offset, next: Some(next).filter(|next| *next != 0) })
    }
}

/// True if a mark stands at or behind this offset, in its place.
pub(super) fn follows(bytes: &[u8], from: usize) -> bool {
    let tail = bytes.get(from..).unwrap_or_default();
    tail.windows(HEAD_BYTES + BODY_BYTES).zip(from as u64..).any(|(entry, offset)| {
        let (head, body) = entry.split_at(HEAD_BYTES);
        head[..4] == BODY_LEN.to_le_bytes()
            && head[8..] == crc32c(&head[..8]).to_le_bytes()
            && head[4..8] == crc32c(body).to_le_bytes()
            && Mark::read(body).is_some_and(|mark| mark.offset == offset)
    })
}

const KIND_MARK: u8 = 3;
const BODY_LEN: u32 = 17;
const BODY_BYTES: usize = BODY_LEN as usize;
