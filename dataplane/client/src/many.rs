//! Several vectors as the chunks of one round: which part of which vector a chunk carries.
//!
//! Decides only. Packed, vectors follow each other without a gap, so that small ones share chunks;
//! apart, each begins a chunk of its own, as it would in a call of its own. Elements are summed
//! one by one, so either way gives the bits of separate calls, as long as what goes for a chunk as
//! a whole, a block exponent, is not shared: vectors with block exponents stay apart.

use std::ops::Range;

use weft_engine::role::worker::{ChunkMeta, Part, Payload};
use weft_kernel::Kernels;
use weft_wire::header::Flags;
use weft_wire::quant;

use crate::payload::{Exponents, part};

/// Where vectors lie among the chunks of a round.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Layout {
    /// Elements in front of each vector, and of all at the end.
    starts: Vec<usize>,
    lens: Vec<usize>,
    elements: usize,
    is_packed: bool,
}

/// A part of a vector that lies in one chunk.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Piece {
    vector: usize,
    range: Range<usize>,
    /// Where in the chunk, in elements.
    at: usize,
}

impl Layout {
    /// Without gaps.
    pub(crate) fn packed(lens: impl Iterator<Item = usize>, elements: usize) -> Self {
        Self::new(lens, elements, 1)
    }

    /// Each vector from the beginning of a chunk on.
    pub(crate) fn apart(lens: impl Iterator<Item = usize>, elements: usize) -> Self {
        Self::new(lens, elements, elements)
    }

    fn new(lens: impl Iterator<Item = usize>, elements: usize, align: usize) -> Self {
        let lens: Vec<usize> = lens.collect();
        let mut starts = vec![0];
        let mut end = 0_usize;
        for len in &lens {
            // An empty vector that is apart has a chunk of its own.
            let room = if align > 1 { (*len).max(1) } else { *len };
            end = end.saturating_add(room).next_multiple_of(align);
            starts.push(end);
        }
        Self { starts, lens, elements, is_packed: align == 1 }
    }

    /// The part of its vector that a chunk is; packed ones are one vector.
    fn part(&self, chunk: u32) -> Part {
        let begin = chunk as usize * self.elements;
        let vector = self.starts.partition_point(|start| *start <= begin).saturating_sub(1);
        match self.lens.get(vector) {
            Some(len) if !self.is_packed => {
                let index = (begin - self.starts[vector]) / self.elements;
                part(u32::try_from(index).expect("fewer than all"), self.elements, *len)
            }
            _ => part(chunk, self.elements, self.element_count()),
        }
    }

    /// Elements of all chunks, gaps counted.
    pub(crate) fn element_count(&self) -> usize {
        *self.starts.last().expect("there is an end")
    }

    /// The pieces of a chunk, in order.
    fn pieces(&self, chunk: u32) -> impl Iterator<Item = Piece> {
        let begin = chunk as usize * self.elements;
        let end = begin + self.elements;
        // The last vector that begins at or before the chunk; empty ones at one place are passed.
        let first = self.starts.partition_point(|start| *start <= begin).saturating_sub(1);
        let piece = move |vector: usize| {
            let start = *self.starts.get(vector)?;
            let len = *self.lens.get(vector)?;
            (start < end).then(|| {
                let from = begin.saturating_sub(start).min(len);
                let to = (end - start).min(len);
                Piece { vector, range: from..to, at: start.max(begin) - begin }
            })
        };
        (first..).map_while(piece).filter(|piece| !piece.range.is_empty())
    }
}

/// What the numbers of vectors become on the wire.
#[derive(Debug)]
pub(crate) enum Code<'a> {
    /// i32 fixed point, each element within ± this limit.
    Fixed(i32, Exponents<'a>),
    F32,
    Bf16,
}

/// Vectors of one round.
#[derive(Debug)]
pub(crate) struct Many<'a, 'v> {
    pub(crate) kernels: &'static Kernels,
    pub(crate) layout: &'a Layout,
    pub(crate) data: &'a mut [&'v mut [f32]],
    pub(crate) code: Code<'a>,
    /// Sums in which an element of some contribution was clamped.
    pub(crate) clamped: u64,
}

impl Many<'_, '_> {
    /// Bytes of an element.
    fn width(&self) -> usize {
        if matches!(self.code, Code::Bf16) { 2 } else { 4 }
    }
}

impl Payload for Many<'_, '_> {
    fn write_chunk(&self, chunk: u32, out: &mut [u8]) -> ChunkMeta {
        let width = self.width();
        let mut meta = ChunkMeta { last: self.part(chunk).last, ..ChunkMeta::default() };
        if let Code::Fixed(_, exponents) = &self.code {
            meta.exponent = exponents.of(chunk);
        }
        let mut filled = 0;
        for Piece { vector, range, at } in self.layout.pieces(chunk) {
            let values = &self.data[vector][range];
            let wire = &mut out[at * width..(at + values.len()) * width];
            filled = (at + values.len()) * width;
            match &self.code {
                Code::Fixed(limit, _) => {
                    let inverse = quant::inverse_quantum(meta.exponent);
                    meta.clamped |= self.kernels.quantise_f32(values, inverse, *limit, wire) > 0;
                }
                Code::F32 => self.kernels.emit_f32_ahead(values, wire),
                Code::Bf16 => self.kernels.emit_bf16_ahead(values, wire),
            }
        }
        out[filled..].fill(0);
        meta
    }

    fn part(&self, chunk: u32) -> Part {
        self.layout.part(chunk)
    }

    fn read_chunk(&mut self, chunk: u32, exponent: i8, flags: Flags, sum: &[u8]) {
        let width = self.width();
        if matches!(self.code, Code::Fixed(..)) {
            self.clamped += u64::from(flags.contains(Flags::CLAMPED));
        }
        for Piece { vector, range, at } in self.layout.pieces(chunk) {
            let values = &mut self.data[vector][range];
            let wire = &sum[at * width..(at + values.len()) * width];
            match self.code {
                Code::Fixed(..) => {
                    self.kernels.dequantise_i32(wire, quant::quantum(exponent), values);
                }
                Code::F32 => self.kernels.store_f32_ahead(values, wire),
                Code::Bf16 => self.kernels.store_bf16_ahead(values, wire),
            }
        }
    }

    fn keeps_sum(&self, chunk: u32) -> bool {
        let filled = || self.layout.pieces(chunk).map(|piece| piece.range.len()).sum::<usize>();
        matches!(self.code, Code::F32) && filled() == self.layout.elements
    }

    fn write_sum(&self, chunk: u32, out: &mut [u8]) {
        for Piece { vector, range, at } in self.layout.pieces(chunk) {
            let values = &self.data[vector][range];
            self.kernels.emit_f32(values, &mut out[at * 4..(at + values.len()) * 4]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All places of all chunks, as (vector, index) or a gap.
    fn places(layout: &Layout, chunks: u32) -> Vec<Option<(usize, usize)>> {
        let mut places = vec![None; chunks as usize * layout.elements];
        for chunk in 0..chunks {
            let mut last = 0;
            for Piece { vector, range, at } in layout.pieces(chunk) {
                assert!(at >= last, "in order");
                last = at + range.len();
                assert!(last <= layout.elements, "within the chunk");
                for (offset, index) in range.enumerate() {
                    places[chunk as usize * layout.elements + at + offset] = Some((vector, index));
                }
            }
        }
        places
    }

    #[test]
    fn packed_vectors_follow_each_other() {
        for lens in [vec![3, 0, 5, 0, 0, 9, 1], vec![0, 0, 4], vec![4, 4], vec![], vec![17]] {
            let layout = Layout::packed(lens.iter().copied(), 4);
            let total: usize = lens.iter().sum();
            assert_eq!(layout.element_count(), total);
            let chunks = u32::try_from(total.div_ceil(4)).unwrap();
            let expected = lens
                .iter()
                .enumerate()
                .flat_map(|(vector, len)| (0..*len).map(move |index| Some((vector, index))));
            let mut seen = places(&layout, chunks);
            assert!(seen.split_off(total).iter().all(Option::is_none));
            assert_eq!(seen, expected.collect::<Vec<_>>(), "{lens:?}");
        }
    }

    #[test]
    fn vectors_apart_begin_chunks_of_their_own() {
        let layout = Layout::apart([3, 0, 5].into_iter(), 4);
        assert_eq!(layout.element_count(), 16);
        let expected = [
            Some((0, 0)),
            Some((0, 1)),
            Some((0, 2)),
            None,
            // The empty one's.
            None,
            None,
            None,
            None,
            Some((2, 0)),
            Some((2, 1)),
            Some((2, 2)),
            Some((2, 3)),
            Some((2, 4)),
            None,
            None,
            None,
        ];
        assert_eq!(places(&layout, 4), expected);
    }
}
