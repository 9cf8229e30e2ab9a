//! The shape of a model, as its server and its replica must agree on it, and the checks that make
//! it one that the engine can trust.

use core::fmt;

use weft_control::{LearningRate, UPDATE_CHUNKS_MAX};
use weft_wire::JobId;
use weft_wire::frame::{Endpoint, IPV4_LEN, IPV6_LEN, UDP_LEN};
use weft_wire::header::{ElementType, HEADER_LEN, Header, Operation};
use weft_wire::hello::Integrity;
use weft_wire::quant::is_exponent;

use crate::drops::DropReason;
use crate::role::channel::JobTerms;

/// The shape of a job's model, as server and replica must agree on it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The job.
    pub job: JobId,
    /// Parameters of the model. The last chunk is padded with zeros.
    pub dimension: usize,
    /// Elements of every chunk.
    pub elements: u16,
    /// What protects payloads.
    pub integrity: Integrity,
    /// Scale exponent of updates that no controller gave one.
    pub exponent: i8,
    /// The momentum: h = momentum * h + sum.
    pub momentum: f32,
    /// How delays scale updates.
    pub learning_rate: LearningRate,
}

impl ModelConfig {
    /// A model of `dimension` parameters in chunks of 256, without momentum.
    #[must_use]
    pub fn new(job: JobId, dimension: usize) -> Self {
        Self {
            job,
            dimension,
            elements: 256,
            integrity: Integrity::Crc32c,
            exponent: -20,
            momentum: 0.0,
            learning_rate: LearningRate::Plain,
        }
    }

    /// Chunks of the model.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        let chunks = self.dimension.div_ceil(usize::from(self.elements.max(1)));
        u32::try_from(chunks).unwrap_or(u32::MAX)
    }

    /// Bytes that one staged update takes.
    #[must_use]
    pub fn stage_len_bytes(&self) -> u64 {
        u64::from(self.chunks()) * u64::from(self.elements) * 4
    }

    /// What peers are told.
    #[must_use]
    pub fn terms(&self) -> JobTerms {
        JobTerms {
            job: self.job,
            elements: self.elements,
            integrity: self.integrity,
            exponent: Some(self.exponent),
            chunks: self.chunks(),
        }
    }

    /// Judges whether a frame carries a chunk of an update with these elements.
    pub(crate) fn check_chunk(
        &self,
        header: &Header,
        element_type: ElementType,
        exponent: i8,
    ) -> Result<(), DropReason> {
        if header.chunk.0 >= self.chunks() {
            return Err(DropReason::ChunkOutOfRange);
        }
        if header.count != self.elements {
            return Err(DropReason::ElementCount);
        }
        if header.element_type != element_type {
            return Err(DropReason::ElementType);
        }
        if header.operation != Operation::Sum {
            return Err(DropReason::Operation);
        }
        if element_type == ElementType::I32 && header.exponent != exponent {
            return Err(DropReason::Exponent);
        }
        Ok(())
    }

    pub(crate) fn check(&self, local: &Endpoint, mtu: u16) -> Result<(), ModelConfigError> {
        let error = |field, problem| Err(ModelConfigError { field, problem });
        if self.dimension == 0 || self.chunks() > UPDATE_CHUNKS_MAX {
            return error("dimension", "must be at least 1, and at most 2^20 chunks");
        }
        let ip_len = if local.addr.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        let room = usize::from(mtu).saturating_sub(ip_len + UDP_LEN + HEADER_LEN);
        if self.elements == 0 || usize::from(self.elements) * 4 > room {
            return error("elements", "must be at least 1 and fit one packet of the MTU");
        }
        if !(0.0..=1.0).contains(&self.momentum) {
            return error("momentum", "must be from 0 to 1");
        }
        if !is_exponent(self.exponent) {
            return error("exponent", "must be from -126 to 126");
        }
        Ok(())
    }
}

/// Why a configuration is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ModelConfigError {
    /// The field.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub problem: &'static str,
}

impl fmt::Display for ModelConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.field, self.problem)
    }
}

impl core::error::Error for ModelConfigError {}
