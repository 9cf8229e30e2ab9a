//! Sums on their way into a model (PROTOCOL section 4): per group and chunk, the bytes as they
//! came and who is in them.
//!
//! A stage holds one whole update. Stages are taken from a pool of fixed size when a group is
//! installed, so that a chunk that arrives always has its place; a committed group's stage passes
//! into the decision log as it is. Bytes stay big-endian: most chunks arrive as one whole sum and
//! are only copied. Invariant: each contributor of a chunk is in its sum exactly once (I1).

use alloc::vec;
use alloc::vec::Vec;

use weft_kernel::Kernels;
use weft_wire::Members;
use weft_wire::header::ElementType;

/// One stage of the pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct StageIndex(u32);

impl StageIndex {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// What became of a chunk that arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Staged {
    /// It is in. True when the chunk now holds the whole mask.
    Added(bool),
    /// All its contributors were in already.
    Duplicate,
    /// Some of its contributors were in already, some were not: it cannot be added.
    Overlap,
    /// It holds somebody outside the mask.
    Outside,
}

/// All stages of a job.
#[derive(Debug)]
pub(crate) struct StagePool {
    kernels: &'static Kernels,
    bytes: Vec<u8>,
    holders: Vec<Members>,
    free: Vec<StageIndex>,
    chunks: usize,
    chunk_len: usize,
    scratch_i32: Vec<i32>,
    scratch_f32: Vec<f32>,
}

impl StagePool {
    /// Takes the memory of `stages` stages.
    pub(crate) fn new(
        kernels: &'static Kernels,
        stages: u32,
        chunks: usize,
        elements: usize,
    ) -> Self {
        let chunk_len = elements * WORD;
        let count = stages as usize;
        Self {
            kernels,
            bytes: vec![0; count * chunks * chunk_len],
            holders: vec![Members::EMPTY; count * chunks],
            free: (0..stages).rev().map(StageIndex).collect(),
            chunks,
            chunk_len,
            scratch_i32: vec![0; elements],
            scratch_f32: vec![0.0; elements],
        }
    }

    /// Stages that nobody has.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Takes an empty stage.
    pub(crate) fn take(&mut self) -> Option<StageIndex> {
        let stage = self.free.pop()?;
        let start = stage.index() * self.chunks;
        self.holders[start..start + self.chunks].fill(Members::EMPTY);
        Some(stage)
    }

    /// Gives a stage back.
    pub(crate) fn give_back(&mut self, stage: StageIndex) {
        debug_assert!(!self.free.contains(&stage), "a stage is given back once");
        self.free.push(stage);
    }

    /// Who is in a chunk's sum.
    pub(crate) fn holders(&self, stage: StageIndex, chunk: u32) -> Members {
        self.holders[stage.index() * self.chunks + chunk as usize]
    }

    /// A chunk's sum, as it goes on the wire.
    pub(crate) fn data(&self, stage: StageIndex, chunk: u32) -> &[u8] {
        let start = (stage.index() * self.chunks + chunk as usize) * self.chunk_len;
        &self.bytes[start..start + self.chunk_len]
    }

    /// All sums of a stage, chunk by chunk.
    pub(crate) fn sums(&self, stage: StageIndex) -> &[u8] {
        let len = self.chunks * self.chunk_len;
        &self.bytes[stage.index() * len..][..len]
    }

    /// Takes what arrived for a chunk: the sum of `from`, of a group whose members are `mask`.
    /// `wire` is scratch afterwards.
    pub(crate) fn add(
        &mut self,
        stage: StageIndex,
        chunk: u32,
        element_type: ElementType,
        mask: Members,
        from: Members,
        wire: &mut [u8],
    ) -> Staged {
        if from.is_empty() || !mask.contains(from) {
            return Staged::Outside;
        }
        let place = stage.index() * self.chunks + chunk as usize;
        let held = self.holders[place];
        let is_disjoint = from.without(held) == from;
        if !is_disjoint && held.contains(from) {
            return Staged::Duplicate;
        }
        // A sum that holds all that is staged, and more, takes its place.
        if !is_disjoint && !from.contains(held) {
            return Staged::Overlap;
        }
        let data = &mut self.bytes[place * self.chunk_len..][..self.chunk_len];
        let now_held = if is_disjoint { held.union(from) } else { from };
        if is_disjoint && !held.is_empty() {
            match element_type {
                ElementType::F32 => {
                    self.kernels.store_f32(&mut self.scratch_f32, data);
                    self.kernels.add_f32_emit(&mut self.scratch_f32, wire);
                }
                _ => {
                    self.kernels.store_i32(&mut self.scratch_i32, data);
                    self.kernels.add_i32_emit(&mut self.scratch_i32, wire);
                }
            }
        }
        data.copy_from_slice(wire);
        self.holders[place] = now_held;
        Staged::Added(now_held == mask)
    }

    /// Copies those chunks of `from` that hold exactly `members` into the empty stage `to`.
    pub(crate) fn adopt(&mut self, to: StageIndex, from: StageIndex, members: Members) {
        for chunk in 0..self.chunks {
            let (source, target) =
                (from.index() * self.chunks + chunk, to.index() * self.chunks + chunk);
            if self.holders[source] == members {
                let start = source * self.chunk_len;
                self.bytes.copy_within(start..start + self.chunk_len, target * self.chunk_len);
                self.holders[target] = members;
            }
        }
    }

    /// Empties the chunks that hold one of `gone`, to be staged afresh without them, and counts
    /// the chunks that then hold all of `mask`.
    pub(crate) fn restage(&mut self, stage: StageIndex, gone: Members, mask: Members) -> u32 {
        let start = stage.index() * self.chunks;
        let mut complete = 0;
        for held in &mut self.holders[start..start + self.chunks] {
            if held.without(gone) != *held {
                *held = Members::EMPTY;
            }
            complete += u32::from(!mask.is_empty() && *held == mask);
        }
        complete
    }
}

/// Bytes of an element; bf16 is not pushed.
const WORD: usize = 4;
