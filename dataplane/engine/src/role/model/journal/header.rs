//! Whose a file is, and how its fields are read.

use alloc::vec::Vec;

use weft_kernel::crc32c;
use weft_wire::JobId;

use super::Damage;
use crate::role::server::ModelConfig;

/// What both files begin with: whose they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct JournalHeader {
    /// The job.
    pub job: JobId,
    /// Parameters of the model.
    pub dimension: u64,
    /// Elements of a chunk.
    pub elements: u16,
    /// Workers of the job.
    pub workers: u16,
    /// The momentum, as its bits.
    pub momentum_bits: u32,
}

impl JournalHeader {
    /// The header of a job's files.
    #[must_use]
    pub fn new(model: &ModelConfig, workers: usize) -> Self {
        Self {
            job: model.job,
            dimension: model.dimension as u64,
            elements: model.elements,
            workers: u16::try_from(workers).unwrap_or(u16::MAX),
            momentum_bits: model.momentum.to_bits(),
        }
    }

    pub(super) fn write(&self, magic: [u8; 8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(magic);
        out.extend(self.job.0.to_le_bytes());
        out.extend(self.elements.to_le_bytes());
        out.extend(self.workers.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.momentum_bits.to_le_bytes());
        out.extend(self.dimension.to_le_bytes());
        let crc = crc32c(&out[start..]);
        out.extend(crc.to_le_bytes());
    }

    pub(super) fn read(magic: [u8; 8], bytes: &[u8]) -> Result<Self, Damage> {
        let damage = |problem| Damage { offset: 0, problem };
        let header = bytes.get(..HEADER_BYTES).ok_or_else(|| damage("it has no whole header"))?;
        let (head, crc) = header.split_at(HEADER_BYTES - 4);
        if head[..8] != magic {
            return Err(damage("it is no such file of this version of Weft"));
        }
        let mut fields = Fields { bytes: &head[8..] };
        let header = fields.take().zip(fields.take()).zip(fields.take());
        let rest = fields.take::<2>().and_then(|_| fields.take().zip(fields.take()));
        let (Some(((job, elements), workers)), Some((momentum, dimension))) = (header, rest) else {
            return Err(damage("it has no whole header"));
        };
        if crc != crc32c(head).to_le_bytes() {
            return Err(damage("its header is damaged"));
        }
        Ok(Self {
            job: JobId(u16::from_le_bytes(job)),
            elements: u16::from_le_bytes(elements),
            workers: u16::from_le_bytes(workers),
            momentum_bits: u32::from_le_bytes(momentum),
            dimension: u64::from_le_bytes(dimension),
        })
    }

    /// Begins a journal.
    pub fn begin_journal(&self, out: &mut Vec<u8>) {
        self.write(JOURNAL_MAGIC, out);
    }
}

/// What is left to read.
pub(super) struct Fields<'a> {
    pub(super) bytes: &'a [u8],
}

impl Fields<'_> {
    pub(super) fn take<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (taken, rest) = self.bytes.split_first_chunk::<LEN>()?;
        self.bytes = rest;
        Some(*taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn floats(&mut self, count: u64) -> Option<Vec<f32>> {
        let len = usize::try_from(count).ok()?.checked_mul(4)?;
        let (taken, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        let word = |word: &[u8; 4]| f32::from_bits(u32::from_le_bytes(*word));
        Some(taken.as_chunks::<4>().0.iter().map(word).collect())
    }
}

pub(super) const JOURNAL_MAGIC: [u8; 8] = *b"WEFTJNL1";
/// Octets of a header.
pub(super) const HEADER_BYTES: usize = 32;
