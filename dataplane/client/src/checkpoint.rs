//! A training program's checkpoint, in memory and as bytes: the model, its momentum, the optimiser,
//! and where in the data it is (docs/checkpoint.md). Pure; [`mod@file`] puts it on a disk.
//!
//! Invariants: what is read back is bit for bit what was written, or it is refused with the one
//! reason; a file that was cut short, or that differs in any bit, is never read as a checkpoint; no
//! bytes make it panic, or allocate beyond their own length.

pub mod file;

use thiserror::Error;
use weft_kernel::crc32c;

/// What a job keeps of itself at a round's boundary. The same on every worker of an allreduce.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The model.
    pub parameters: Vec<f32>,
    /// What the optimiser carries from step to step, one for each parameter; none: it carries
    /// nothing.
    pub velocity: Vec<f32>,
    /// How steps are taken.
    pub optimiser: Optimiser,
    /// Where in the data.
    pub position: Position,
}

/// How steps are taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimiser {
    /// Stochastic gradient descent: `v = momentum * v + g`, then `p = p - learning_rate * v`.
    Sgd {
        /// The step size of the rounds so far.
        learning_rate: f32,
        /// Share of the previous step that is kept.
        momentum: f32,
    },
}

/// Where in the data a job is. What a worker reads next follows from these and its rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Position {
    /// The round that comes next.
    pub round: u64,
    /// Seed of the data's order.
    pub seed: u64,
    /// Examples per worker and round.
    pub batch: u32,
    /// Workers of the rounds so far.
    pub workers: u16,
}

/// What a reader knows of the checkpoint that it wants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shape {
    /// Parameters of the model.
    pub parameters: u64,
    /// Seed of the data's order.
    pub seed: u64,
    /// Examples per worker and round.
    pub batch: u32,
}

/// Why bytes are not the checkpoint that is wanted.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CheckpointError {
    /// It begins with other bytes.
    #[error("it is no checkpoint of a training program of Weft's; name another file")]
    Magic,
    /// Another Weft wrote it.
    #[error("it is of version {found}; this Weft reads version {VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// It ends too early, or goes on too long.
    #[error(
        "it is torn: it has {found} of {expected} bytes; use a whole copy, or remove it \
             to begin anew"
    )]
    Torn {
        /// Its bytes.
        found: u64,
        /// What its header says; the header's length, if that is not whole.
        expected: u64,
    },
    /// Some bit differs.
    #[error("its checksum is wrong; it was damaged, use another one")]
    Checksum,
    /// A number of it cannot be.
    #[error("its {0} cannot be; another program wrote it")]
    Number(&'static str),
    /// It is whole, and of another job.
    #[error("its {field} is {found}, and {expected} is wanted; it is of another job")]
    Shape {
        /// What differs.
        field: &'static str,
        /// There.
        found: u64,
        /// Wanted.
        expected: u64,
    },
}

impl Checkpoint {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let floats = self.parameters.len() + self.velocity.len();
        let mut out = Vec::with_capacity(HEADER_BYTES + 4 * floats + CRC_BYTES);
        let Optimiser::Sgd { learning_rate, momentum } = self.optimiser;
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(SGD.to_le_bytes());
        out.extend(self.position.workers.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.position.batch.to_le_bytes());
        out.extend(learning_rate.to_bits().to_le_bytes());
        out.extend(momentum.to_bits().to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.position.round.to_le_bytes());
        out.extend(self.position.seed.to_le_bytes());
        out.extend((self.parameters.len() as u64).to_le_bytes());
        out.extend((self.velocity.len() as u64).to_le_bytes());
        for value in self.parameters.iter().chain(&self.velocity) {
            out.extend(value.to_bits().to_le_bytes());
        }
        let crc = crc32c(&out);
        out.extend(crc.to_le_bytes());
        out
    }

    /// Reads bytes that are to be a checkpoint of this shape.
    ///
    /// # Errors
    /// The first thing that is wrong with them, in the order of [`CheckpointError`].
    pub fn decode(bytes: &[u8], shape: &Shape) -> Result<Self, CheckpointError> {
        let found = bytes.len() as u64;
        let header_bytes = HEADER_BYTES as u64;
        let torn = |expected| CheckpointError::Torn { found, expected };
        let magic = &bytes[..bytes.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) || magic.is_empty() {
            return Err(CheckpointError::Magic);
        }
        let header: &[u8; HEADER_BYTES] =
            bytes.first_chunk().ok_or_else(|| torn(header_bytes + CRC_BYTES as u64))?;
        let version = u16_at(header, 8);
        if version != VERSION {
            return Err(CheckpointError::Version { found: version });
        }
        let (parameters, velocity) = (u64_at(header, 48), u64_at(header, 56));
        let floats = parameters.checked_add(velocity).and_then(|count| count.checked_mul(4));
        let expected = floats.and_then(|len| len.checked_add(header_bytes + CRC_BYTES as u64));
        let expected = expected.ok_or(CheckpointError::Number("length"))?;
        if found != expected {
            return Err(torn(expected));
        }
        let (content, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or_else(|| torn(expected))?;
        if u32::from_le_bytes(*crc) != crc32c(content) {
            return Err(CheckpointError::Checksum);
        }
        if u16_at(header, 10) != SGD {
            return Err(CheckpointError::Number("optimiser"));
        }
        if velocity != 0 && velocity != parameters {
            return Err(CheckpointError::Number("momentum"));
        }
        let position = Position {
            round: u64_at(header, 32),
            seed: u64_at(header, 40),
            batch: u32_at(header, 16),
            workers: u16_at(header, 12),
        };
        if position.workers == 0 {
            return Err(CheckpointError::Number("number of workers"));
        }
        for (field, found, expected) in [
            ("number of parameters", parameters, shape.parameters),
            ("seed", position.seed, shape.seed),
            ("batch", position.batch.into(), shape.batch.into()),
        ] {
            if found != expected {
                return Err(CheckpointError::Shape { field, found, expected });
            }
        }
        let words = content[HEADER_BYTES..].as_chunks::<4>().0.iter();
        let mut floats = words.map(|word| f32::from_bits(u32::from_le_bytes(*word)));
        let count = usize::try_from(parameters).unwrap_or(usize::MAX);
        let parameters: Vec<f32> = floats.by_ref().take(count).collect();
        Ok(Self {
            parameters,
            velocity: floats.collect(),
            optimiser: Optimiser::Sgd {
                learning_rate: f32::from_bits(u32_at(header, 20)),
                momentum: f32::from_bits(u32_at(header, 24)),
            },
            position,
        })
    }
}

fn array<const LEN: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; LEN] {
    std::array::from_fn(|index| header[at + index])
}

fn u16_at(header: &[u8; HEADER_BYTES], at: usize) -> u16 {
    u16::from_le_bytes(array(header, at))
}

fn u32_at(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(array(header, at))
}

fn u64_at(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(array(header, at))
}

const MAGIC: [u8; 8] = *b"WEFTTRN\n";
/// Version of the format that this Weft writes and reads.
pub const VERSION: u16 = 1;
/// The optimiser of [`Optimiser::Sgd`].
const SGD: u16 = 1;
const HEADER_BYTES: usize = 64;
const CRC_BYTES: usize = 4;

#[cfg(test)]
mod tests;
