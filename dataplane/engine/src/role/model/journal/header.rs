//! Whose a file is, and how its fields are read.

use alloc::vec::Vec;

use weft_kernel::crc32c;
use weft_wire::JobId;

use super::Damage;
use crate::role::model::ModelConfig;

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

    /// Begins a file: `number` is the journal's own, or that of the journal behind a checkpoint.
    pub(super) fn write(&self, kind: Kind, number: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(kind.word());
        out.push(VERSION);
        out.extend(self.job.0.to_le_bytes());
        out.extend(self.elements.to_le_bytes());
        out.extend(self.workers.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.momentum_bits.to_le_bytes());
        out.extend(self.dimension.to_le_bytes());
        out.extend(number.to_le_bytes());
        let crc = crc32c(&out[start..]);
        out.extend(crc.to_le_bytes());
    }

    /// Whose a file is, its number unless it is of version 1, and where its content begins.
    pub(super) fn read(kind: Kind, bytes: &[u8]) -> Result<(Self, Option<u64>, usize), Damage> {
        let damage = |problem| Damage { offset: 0, problem };
        let short = || damage("it has no whole header");
        let version = match bytes.split_at_checked(7) {
            Some((word, [version, ..])) if *word == kind.word() => *version,
            Some(_) => return Err(damage("it is no such file of Weft's")),
            None => return Err(short()),
        };
        let len = match version {
            b'1' => HEADER_BYTES_1,
            VERSION => HEADER_BYTES,
            _ => return Err(damage("it is of another version of Weft")),
        };
        let (head, crc) =
            bytes.get(..len).and_then(|header| header.split_last_chunk::<4>()).ok_or_else(short)?;
        if *crc != crc32c(head).to_le_bytes() {
            return Err(damage("its header is damaged"));
        }
        let mut fields = Fields { bytes: &head[8..] };
        let mut header = || {
            let [job, elements, workers, _] =
                [fields.take()?, fields.take()?, fields.take()?, fields.take()?]
                    .map(u16::from_le_bytes);
            let momentum_bits = u32::from_le_bytes(fields.take()?);
            let dimension = fields.u64()?;
            Some(Self { job: JobId(job), dimension, elements, workers, momentum_bits })
        };
        let header = header().ok_or_else(short)?;
        Ok((header, fields.u64(), len))
    }

    /// Begins a journal.
    pub fn begin_journal(&self, number: u64, out: &mut Vec<u8>) {
        self.write(Kind::Journal, number, out);
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Journal,
    Checkpoint,
}

impl Kind {
    const fn word(self) -> [u8; 7] {
        match self {
            Self::Journal => *b"WEFTJNL",
            Self::Checkpoint => *b"WEFTCKP",
        }
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

const VERSION: u8 = b'2';
/// Octets of a header.
const HEADER_BYTES: usize = 40;
/// Octets of one without a number.
const HEADER_BYTES_1: usize = 32;
