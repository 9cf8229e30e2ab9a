//! Words of memory from a cache line on.

use alloc::vec;
use alloc::vec::Vec;

const LINE_BYTES: usize = 64;
pub(super) const LINE_WORDS: usize = LINE_BYTES / 4;
const PAGE_WORDS: usize = 4096 / 4;

/// A vector whose used part starts on a cache line, without unsafe: it is a little longer than
/// asked for and remembers where the line starts.
#[derive(Debug)]
pub(super) struct Aligned {
    data: Vec<i32>,
    start: usize,
    /// Words that are used.
    len: usize,
}

impl Aligned {
    pub(super) fn new(len: usize) -> Self {
        let data = vec![0_i32; len + LINE_WORDS];
        let misaligned = data.as_ptr().addr() % LINE_BYTES;
        let start = (LINE_BYTES - misaligned) % LINE_BYTES / 4;
        Self { data, start, len }
    }

    /// Words that may be used.
    pub(super) fn capacity(&self) -> usize {
        self.data.len() - LINE_WORDS
    }

    /// Words that are used.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Uses so many of them, at most as many as there are.
    pub(super) const fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    /// Writes to every page.
    pub(super) fn touch(&mut self) {
        // Anything but zero, which a compiler may know to be there already.
        self.data.iter_mut().step_by(PAGE_WORDS).for_each(|word| *word = 1);
    }

    /// Nothing where the part does not lie inside.
    #[inline]
    pub(super) fn part(&self, start: usize, len: usize) -> &[i32] {
        let start = self.start + start;
        self.data.get(start..start + len).unwrap_or_default()
    }

    pub(super) fn whole_part(&self, start: usize, len: usize) -> &[i32] {
        &self.data[self.start + start..][..len]
    }

    #[inline]
    pub(super) fn part_mut(&mut self, start: usize, len: usize) -> &mut [i32] {
        &mut self.data[self.start + start..][..len]
    }
}
