//! The caller's vectors, chunk by chunk, in place.
//!
//! A chunk's place holds the contribution until its sum arrives, then the sum. Repeats of a
//! contribution give the same bytes, because the place does not change in between; so does a sum
//! that others still need, where the place has all of its bits: i32 and f32, and no padding.

use std::ops::Range;

use weft_engine::role::worker::{ChunkMeta, Part, Payload};
use weft_kernel::Kernels;
use weft_wire::header::Flags;
use weft_wire::quant;

/// Where chunk `chunk` lies in a vector of `len` elements.
fn place(chunk: u32, elements: usize, len: usize) -> Range<usize> {
    let start = chunk as usize * elements;
    start.min(len)..(start + elements).min(len)
}

/// The part of a vector of `len` elements that chunk `chunk` is.
pub(crate) fn part(chunk: u32, elements: usize, len: usize) -> Part {
    let before = chunk as usize * elements;
    let last = len.saturating_sub(before);
    let ends = last <= elements;
    Part { before: before as u64, last: if ends { u16::try_from(last).ok() } else { None } }
}

/// i32 as they are: for integers, and for block exponents.
#[derive(Debug)]
pub struct Integers<'a> {
    /// The arithmetic.
    pub kernels: &'static Kernels,
    /// Elements of a chunk.
    pub elements: usize,
    /// The vector.
    pub data: &'a mut [i32],
    /// Padding of the last chunk: the operation's neutral element.
    pub padding: i32,
    /// The row's exponent.
    pub exponent: i8,
    /// Sums in which an element of some contribution was clamped.
    pub clamped: u64,
}

impl Payload for Integers<'_> {
    fn write_chunk(&self, chunk: u32, out: &mut [u8]) -> ChunkMeta {
        let place = place(chunk, self.elements, self.data.len());
        let (filled, rest) = out.split_at_mut(place.len() * 4);
        self.kernels.emit_i32_ahead(&self.data[place], filled);
        for word in rest.chunks_exact_mut(4) {
            word.copy_from_slice(&self.padding.to_be_bytes());
        }
        let last = self.part(chunk).last;
        ChunkMeta { exponent: self.exponent, clamped: false, last }
    }

    fn part(&self, chunk: u32) -> Part {
        part(chunk, self.elements, self.data.len())
    }

    fn read_chunk(&mut self, chunk: u32, _: i8, flags: Flags, sum: &[u8]) {
        let place = place(chunk, self.elements, self.data.len());
        self.clamped += u64::from(flags.contains(Flags::CLAMPED));
        let len = place.len() * 4;
        self.kernels.store_i32_ahead(&mut self.data[place], &sum[..len]);
    }

    fn keeps_sum(&self, chunk: u32) -> bool {
        place(chunk, self.elements, self.data.len()).len() == self.elements
    }

    fn write_sum(&self, chunk: u32, out: &mut [u8]) {
        self.kernels.emit_i32(&self.data[place(chunk, self.elements, self.data.len())], out);
    }
}

/// f32 as i32 fixed point: one exponent for all chunks, or one per chunk.
#[derive(Debug)]
pub struct FixedPoint<'a> {
    /// The arithmetic.
    pub kernels: &'static Kernels,
    /// Elements of a chunk.
    pub elements: usize,
    /// The vector.
    pub data: &'a mut [f32],
    /// Largest magnitude that a contribution keeps.
    pub limit: i32,
    /// The exponents of its chunks.
    pub exponents: Exponents<'a>,
    /// Sums in which an element of some contribution was clamped.
    pub clamped: u64,
}

/// Where the exponents come from.
#[derive(Debug)]
pub enum Exponents<'a> {
    /// The lease's.
    Job(i8),
    /// Encoded ones, agreed by MAX; one per chunk.
    Agreed(&'a [i32]),
}

impl Exponents<'_> {
    pub(crate) fn of(&self, chunk: u32) -> i8 {
        match self {
            Self::Job(exponent) => *exponent,
            // A sum of encodings cannot come from this row; MIN then scales to the least harm.
            Self::Agreed(encoded) => {
                quant::decode_exponent(encoded[chunk as usize]).unwrap_or(quant::EXPONENT_MIN)
            }
        }
    }
}

impl Payload for FixedPoint<'_> {
    fn write_chunk(&self, chunk: u32, out: &mut [u8]) -> ChunkMeta {
        let place = place(chunk, self.elements, self.data.len());
        let exponent = self.exponents.of(chunk);
        let (filled, rest) = out.split_at_mut(place.len() * 4);
        let inverse = quant::inverse_quantum(exponent);
        let clamped = self.kernels.quantise_f32(&self.data[place], inverse, self.limit, filled);
        rest.fill(0);
        ChunkMeta { exponent, clamped: clamped > 0, last: self.part(chunk).last }
    }

    fn part(&self, chunk: u32) -> Part {
        part(chunk, self.elements, self.data.len())
    }

    fn read_chunk(&mut self, chunk: u32, exponent: i8, flags: Flags, sum: &[u8]) {
        let place = place(chunk, self.elements, self.data.len());
        self.clamped += u64::from(flags.contains(Flags::CLAMPED));
        let len = place.len() * 4;
        self.kernels.dequantise_i32(&sum[..len], quant::quantum(exponent), &mut self.data[place]);
    }
}

/// f32 or bf16 on the wire.
#[derive(Debug)]
pub struct Floats<'a> {
    /// The arithmetic.
    pub kernels: &'static Kernels,
    /// Elements of a chunk.
    pub elements: usize,
    /// The vector.
    pub data: &'a mut [f32],
    /// bf16, not f32.
    pub bf16: bool,
}

impl Payload for Floats<'_> {
    fn write_chunk(&self, chunk: u32, out: &mut [u8]) -> ChunkMeta {
        let here = place(chunk, self.elements, self.data.len());
        let (filled, rest) = out.split_at_mut(here.len() * if self.bf16 { 2 } else { 4 });
        if self.bf16 {
            self.kernels.emit_bf16_ahead(&self.data[here], filled);
        } else {
            self.kernels.emit_f32_ahead(&self.data[here], filled);
        }
        rest.fill(0);
        ChunkMeta { last: self.part(chunk).last, ..ChunkMeta::default() }
    }

    fn part(&self, chunk: u32) -> Part {
        part(chunk, self.elements, self.data.len())
    }

    fn read_chunk(&mut self, chunk: u32, _: i8, _: Flags, sum: &[u8]) {
        let place = place(chunk, self.elements, self.data.len());
        if self.bf16 {
            let len = place.len() * 2;
            self.kernels.store_bf16_ahead(&mut self.data[place], &sum[..len]);
        } else {
            let len = place.len() * 4;
            self.kernels.store_f32_ahead(&mut self.data[place], &sum[..len]);
        }
    }

    fn keeps_sum(&self, chunk: u32) -> bool {
        !self.bf16 && place(chunk, self.elements, self.data.len()).len() == self.elements
    }

    fn write_sum(&self, chunk: u32, out: &mut [u8]) {
        self.kernels.emit_f32(&self.data[place(chunk, self.elements, self.data.len())], out);
    }
}

/// What a member that has no round under way gives and takes: nothing.
#[derive(Debug)]
pub struct Nothing;

impl Payload for Nothing {
    fn write_chunk(&self, _: u32, _: &mut [u8]) -> ChunkMeta {
        unreachable!("no chunk is asked for outside a round")
    }

    fn read_chunk(&mut self, _: u32, _: i8, _: Flags, _: &[u8]) {
        unreachable!("no sum is taken outside a round")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(data: &mut [f32], bf16: bool) -> Floats<'_> {
        Floats { kernels: Kernels::detect(), elements: 4, data, bf16 }
    }

    /// Others must get the sum as it came, bit for bit, also what is beyond this vector.
    #[test]
    fn places_keep_a_sum_where_they_have_all_of_its_bits() {
        let mut data = [0f32; 6];
        let sum: Vec<u8> = (1..=16).chain([0x7f, 0x80, 0, 1]).collect();
        let mut payload = floats(&mut data, false);
        assert_eq!(
            [0, 1, 2, u32::MAX].map(|chunk| payload.keeps_sum(chunk)),
            [true, false, false, false]
        );
        payload.read_chunk(0, 0, Flags::NONE, &sum[4..]);
        let mut out = [0; 16];
        payload.write_sum(0, &mut out);
        assert_eq!(out, sum[4..], "a signalling NaN as well");
        assert!(!floats(&mut data, true).keeps_sum(0), "a bf16 was widened");
    }

    #[test]
    fn places_of_integers_keep_them() {
        let mut data = [0; 6];
        let kernels = Kernels::detect();
        let mut payload =
            Integers { kernels, elements: 4, data: &mut data, padding: 0, exponent: 0, clamped: 0 };
        assert_eq!([0, 1].map(|chunk| payload.keeps_sum(chunk)), [true, false]);
        let sum: Vec<u8> = (1..=16).collect();
        payload.read_chunk(0, 0, Flags::NONE, &sum);
        let mut out = [0; 16];
        payload.write_sum(0, &mut out);
        assert_eq!(out, sum[..]);
    }
}
