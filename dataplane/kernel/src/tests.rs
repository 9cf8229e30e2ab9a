//! Every operation on every instruction set of this machine against the scalar reference: inputs,
//! shapes and what all sets share; the operations by family in the files below.

mod clamped;
mod fold;
mod momentum;
mod quantise;
mod run;

use proptest::prelude::*;

use crate::{Isa, Kernels, reference};

/// Lengths around every vector width and its unrolling, and those of real packets.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=67).chain([256, 512])
}

const OFFSETS: std::ops::Range<usize> = 0..8;

fn every_isa() -> Vec<&'static Kernels> {
    Isa::ALL.into_iter().filter_map(Kernels::for_isa).collect()
}

/// xorshift64*: the inputs are the same in every run, and cover the special values often.
struct Inputs(u64);

impl Inputs {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let [a, b, c, d, ..] = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    fn i32(&mut self) -> i32 {
        const SPECIAL: [i32; 6] = [0, 1, -1, i32::MAX, i32::MIN, i32::MIN + 1];
        let bits = self.next().cast_signed();
        match self.next() % 8 {
            0 => SPECIAL[self.next() as usize % SPECIAL.len()],
            1 | 2 => bits >> 16,
            _ => bits,
        }
    }

    /// Any bit pattern at times, numbers that add up at others.
    fn f32(&mut self) -> f32 {
        const SPECIAL: [u32; 14] = [
            0,
            0x8000_0000,
            1,
            0x807f_ffff,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            0xffc1_2345,
            0x7f80_0001,
            0x7f7f_ffff,
            0x4f00_0000,
            0xcf00_0000,
            0x3f80_8000,
            0x3f81_8000,
        ];
        let bits = self.next();
        match self.next() % 8 {
            0 => f32::from_bits(SPECIAL[bits as usize % SPECIAL.len()]),
            1 => f32::from_bits(bits),
            2 => {
                f32::from(i16::from_be_bytes([bits.to_be_bytes()[0], bits.to_be_bytes()[1]])) / 2.0
            }
            _ => f32::from_bits(0x3f00_0000 | bits & 0x83ff_ffff),
        }
    }

    fn i32s(&mut self, len: usize) -> Vec<i32> {
        (0..len).map(|_| self.i32()).collect()
    }

    fn f32s(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.f32()).collect()
    }
}

/// Floats compare by their bits: -0 is not 0 here, and a NaN is itself.
trait Bits {
    type Output: PartialEq + std::fmt::Debug;
    fn bits(&self) -> Self::Output;
}

impl Bits for [f32] {
    type Output = Vec<u32>;
    fn bits(&self) -> Vec<u32> {
        self.iter().map(|v| v.to_bits()).collect()
    }
}

impl Bits for [i32] {
    type Output = Vec<i32>;
    fn bits(&self) -> Vec<i32> {
        self.to_vec()
    }
}

/// A payload inside a larger buffer, whose other bytes no operation may change.
struct Frame {
    bytes: Vec<u8>,
    offset: usize,
    len: usize,
}

impl Frame {
    const GUARD: u8 = 0xa5;
    const TAIL_BYTES: usize = 64;

    fn new(offset: usize, payload: &[u8]) -> Self {
        let mut bytes = vec![Self::GUARD; offset + payload.len() + Self::TAIL_BYTES];
        bytes[offset..][..payload.len()].copy_from_slice(payload);
        Self { bytes, offset, len: payload.len() }
    }

    fn payload(&self) -> &[u8] {
        &self.bytes[self.offset..][..self.len]
    }

    fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.offset..][..self.len]
    }

    #[track_caller]
    fn assert_payload(&self, expected: &[u8], context: &str) {
        assert_eq!(self.payload(), expected, "{context}");
        let (head, rest) = self.bytes.split_at(self.offset);
        let around = head.iter().chain(&rest[self.len..]);
        assert!(around.into_iter().all(|b| *b == Self::GUARD), "{context}: wrote outside");
    }
}

/// Runs `check` for every instruction set, length and alignment of the payload.
fn for_every_shape(check: impl Fn(&Kernels, usize, usize, &mut Inputs, &str)) {
    let mut inputs = Inputs(0x9e37_79b9_7f4a_7c15);
    for kernels in every_isa() {
        for len in lengths() {
            for offset in OFFSETS {
                let context = format!("{} len {len} offset {offset}", kernels.isa());
                check(kernels, len, offset, &mut inputs, &context);
            }
        }
    }
}

proptest! {
    /// All instruction sets give the same bits for the same packets, NaN included.
    #[test]
    fn instruction_sets_agree(
        wire in proptest::collection::vec(any::<u8>(), 0..600),
        slot_bits in proptest::collection::vec(any::<u32>(), 300),
        scale_bits in any::<u32>(),
        limit in 0..=i32::MAX,
    ) {
        let outcomes: Vec<_> = every_isa().into_iter().map(|k| {
            let words = &wire[..wire.len() / 4 * 4];
            let halves = &wire[..wire.len() / 2 * 2];
            let floats: Vec<f32> = slot_bits.iter().map(|b| f32::from_bits(*b)).collect();
            let mut a = floats[..words.len() / 4].to_vec();
            let mut b = floats[..halves.len() / 2].to_vec();
            let (mut words_out, mut halves_out) = (words.to_vec(), halves.to_vec());
            k.add_f32_emit(&mut a, &mut words_out);
            k.add_bf16_emit(&mut b, &mut halves_out);
            let mut quantised = words.to_vec();
            let scale = f32::from_bits(scale_bits);
            let count = k.quantise_f32(&a, scale, limit, &mut quantised);
            (a.bits(), b.bits(), words_out, halves_out, quantised, count)
        }).collect();
        for other in &outcomes[1..] {
            prop_assert_eq!(other, &outcomes[0]);
        }
    }
}

#[test]
#[should_panic(expected = "payload and slot differ in length")]
fn a_payload_of_the_wrong_length_is_a_bug() {
    Kernels::detect().add_i32(&mut [0; 4], &[0; 15]);
}

#[test]
#[should_panic(expected = "a part of a row")]
fn a_part_of_a_row_is_a_bug() {
    Kernels::detect().sum_rows_f32_emit(&[0.0; 7], 4, &mut [0.0; 4], &mut [0; 16]);
}

#[test]
fn detection_takes_the_best_set_and_portable_is_always_there() {
    assert_eq!(Kernels::portable().isa(), Isa::Portable);
    let available = every_isa();
    assert_eq!(Some(Kernels::detect().isa()), available.iter().map(|k| k.isa()).max());
    for kernels in available {
        assert_eq!(Kernels::for_isa(kernels.isa()).map(Kernels::isa), Some(kernels.isa()));
    }
}
