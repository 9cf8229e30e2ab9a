//! A set of chunks of one update. Memory is taken when the update is handed over.

use alloc::vec;
use alloc::vec::Vec;

/// Chunks by their bits.
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkSet {
    words: Vec<u64>,
    len: u32,
}

impl ChunkSet {
    /// An empty set with room for `chunks` chunks.
    pub(super) fn new(chunks: u32) -> Self {
        Self { words: vec![0; chunks.div_ceil(64) as usize], len: 0 }
    }

    /// Adds a chunk below the set's size; true when it was not there.
    pub(super) fn insert(&mut self, chunk: u32) -> bool {
        let (word, bit) = (&mut self.words[chunk as usize / 64], 1 << (chunk % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        self.len += u32::from(is_new);
        is_new
    }

    /// Takes a chunk away; true when it was there.
    pub(super) fn remove(&mut self, chunk: u32) -> bool {
        let (word, bit) = (&mut self.words[chunk as usize / 64], 1 << (chunk % 64));
        let was_there = *word & bit != 0;
        *word &= !bit;
        self.len -= u32::from(was_there);
        was_there
    }

    pub(super) fn contains(&self, chunk: u32) -> bool {
        self.words[chunk as usize / 64] & (1 << (chunk % 64)) != 0
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.len = 0;
    }
}
