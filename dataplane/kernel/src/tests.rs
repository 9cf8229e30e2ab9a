//! Every operation on every instruction set of this machine against the scalar reference.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

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

/// How a payload is read and written, by the reference.
struct Codec<T> {
    read: fn(&[u8]) -> Vec<T>,
    write: fn(&[T]) -> Vec<u8>,
}

const I32: Codec<i32> = Codec { read: reference::read_i32, write: reference::write_i32 };
const F32: Codec<f32> = Codec { read: reference::read_f32, write: reference::write_f32 };
const BF16: Codec<f32> = Codec { read: reference::read_bf16, write: reference::write_bf16 };

/// An operation that folds a contribution into a slot, its completing form, and their meaning.
struct Fold<T> {
    fold: fn(&Kernels, &mut [T], &[u8]),
    fold_emit: fn(&Kernels, &mut [T], &mut [u8]),
    combine: fn(T, T) -> T,
}

/// A payload and where it starts in its frame.
#[derive(Clone, Copy)]
struct Wire<'a> {
    payload: &'a [u8],
    offset: usize,
}

#[track_caller]
fn check_fold<T: Copy>(
    kernels: &Kernels,
    slot: &[T],
    wire: Wire<'_>,
    operation: &Fold<T>,
    codec: &Codec<T>,
    context: &str,
) where
    [T]: Bits,
{
    let contribution = (codec.read)(wire.payload);
    let expected: Vec<T> =
        slot.iter().zip(contribution).map(|(s, w)| (operation.combine)(*s, w)).collect();

    let mut frame = Frame::new(wire.offset, wire.payload);
    let mut result = slot.to_vec();
    (operation.fold)(kernels, &mut result, frame.payload());
    assert_eq!(result.bits(), expected.bits(), "{context}");

    let mut result = slot.to_vec();
    (operation.fold_emit)(kernels, &mut result, frame.payload_mut());
    assert_eq!(result.bits(), expected.bits(), "{context}: slot after emit");
    frame.assert_payload(&(codec.write)(&expected), context);
}

#[track_caller]
fn check_store<T: Copy + Default>(
    kernels: &Kernels,
    wire: Wire<'_>,
    store: fn(&Kernels, &mut [T], &[u8]),
    codec: &Codec<T>,
    context: &str,
) where
    [T]: Bits,
{
    let expected = (codec.read)(wire.payload);
    let frame = Frame::new(wire.offset, wire.payload);
    let mut slot = vec![T::default(); expected.len()];
    store(kernels, &mut slot, frame.payload());
    assert_eq!(slot.bits(), expected.bits(), "{context}");
}

#[track_caller]
fn check_emit<T>(
    kernels: &Kernels,
    slot: &[T],
    offset: usize,
    emit: fn(&Kernels, &[T], &mut [u8]),
    codec: &Codec<T>,
    context: &str,
) {
    let expected = (codec.write)(slot);
    let mut frame = Frame::new(offset, &vec![0; expected.len()]);
    emit(kernels, slot, frame.payload_mut());
    frame.assert_payload(&expected, context);
}

#[test]
fn i32_operations_equal_the_reference() {
    let add = Fold {
        fold: Kernels::add_i32,
        fold_emit: Kernels::add_i32_emit,
        combine: reference::add_i32,
    };
    let max = Fold { fold: Kernels::max_i32, fold_emit: Kernels::max_i32_emit, combine: i32::max };
    for_every_shape(|kernels, len, offset, inputs, context| {
        let slot = inputs.i32s(len);
        let payload = reference::write_i32(&inputs.i32s(len));
        let wire = Wire { payload: &payload, offset };
        check_store(kernels, wire, Kernels::store_i32, &I32, context);
        check_fold(kernels, &slot, wire, &add, &I32, context);
        check_fold(kernels, &slot, wire, &max, &I32, context);
        check_emit(kernels, &slot, offset, Kernels::emit_i32, &I32, context);
    });
}

#[test]
fn clamped_operations_equal_the_reference() {
    for_every_shape(|kernels, len, offset, inputs, context| {
        for limit in [0, 1, 1000, i32::MAX / 3, i32::MAX] {
            let context = format!("{context} limit {limit}");
            let slot = inputs.i32s(len);
            let mut contribution = inputs.i32s(len);
            if inputs.next() % 2 == 0 {
                for value in &mut contribution {
                    *value = reference::clamp_i32(*value, limit);
                }
            }
            let clamped: Vec<i32> =
                contribution.iter().map(|v| reference::clamp_i32(*v, limit)).collect();
            let sums: Vec<i32> =
                slot.iter().zip(&clamped).map(|(s, c)| reference::add_i32(*s, *c)).collect();
            let any_clamped = clamped != contribution;
            let mut frame = Frame::new(offset, &reference::write_i32(&contribution));

            let mut result = slot.clone();
            let flag = kernels.store_i32_clamped(&mut result, frame.payload(), limit);
            assert_eq!((result, flag), (clamped, any_clamped), "{context}");

            let mut result = slot.clone();
            let flag = kernels.add_i32_clamped(&mut result, frame.payload(), limit);
            assert_eq!((&result, flag), (&sums, any_clamped), "{context}");

            let mut result = slot.clone();
            let flag = kernels.add_i32_clamped_emit(&mut result, frame.payload_mut(), limit);
            assert_eq!((&result, flag), (&sums, any_clamped), "{context}");
            frame.assert_payload(&reference::write_i32(&sums), &context);
        }
    });
}

#[test]
fn one_clamped_element_anywhere_is_reported() {
    for kernels in every_isa() {
        for position in 0..256 {
            for value in [11, -11] {
                let mut contribution = vec![10; 256];
                contribution[position] = value;
                let wire = reference::write_i32(&contribution);
                let mut slot = vec![0; 256];
                assert!(kernels.store_i32_clamped(&mut slot, &wire, 10), "{position}");
                assert!(kernels.add_i32_clamped(&mut slot, &wire, 10), "{position}");
                assert!(kernels.add_i32_clamped_emit(&mut slot, &mut wire.clone(), 10));
                assert!(!kernels.add_i32_clamped(&mut slot, &wire, 11), "{position}");
            }
        }
    }
}

#[test]
fn f32_operations_equal_the_reference() {
    let add = Fold {
        fold: Kernels::add_f32,
        fold_emit: Kernels::add_f32_emit,
        combine: reference::add_f32,
    };
    for_every_shape(|kernels, len, offset, inputs, context| {
        let slot = inputs.f32s(len);
        let payload = reference::write_f32(&inputs.f32s(len));
        let wire = Wire { payload: &payload, offset };
        check_store(kernels, wire, Kernels::store_f32, &F32, context);
        check_fold(kernels, &slot, wire, &add, &F32, context);
        check_emit(kernels, &slot, offset, Kernels::emit_f32, &F32, context);
    });
}

#[test]
fn bf16_operations_equal_the_reference() {
    let add = Fold {
        fold: Kernels::add_bf16,
        fold_emit: Kernels::add_bf16_emit,
        combine: reference::add_f32,
    };
    for_every_shape(|kernels, len, offset, inputs, context| {
        let slot = inputs.f32s(len);
        // Cut, not rounded, so that signalling NaN arrive too.
        let cut = |v: &f32| [v.to_be_bytes()[0], v.to_be_bytes()[1]];
        let payload: Vec<u8> = inputs.f32s(len).iter().flat_map(cut).collect();
        let wire = Wire { payload: &payload, offset };
        check_store(kernels, wire, Kernels::store_bf16, &BF16, context);
        check_fold(kernels, &slot, wire, &add, &BF16, context);
        check_emit(kernels, &slot, offset, Kernels::emit_bf16, &BF16, context);
    });
}

#[test]
fn a_kept_bf16_answer_is_emitted_as_it_was_sent() {
    for_every_shape(|kernels, len, offset, inputs, context| {
        let mut slot = inputs.f32s(len);
        let mut sent = Frame::new(offset, &reference::write_bf16(&inputs.f32s(len)));
        kernels.add_bf16_emit(&mut slot, sent.payload_mut());
        let mut again = Frame::new(offset, &vec![0; len * 2]);
        kernels.emit_bf16(&slot, again.payload_mut());
        again.assert_payload(sent.payload(), context);
    });
}

#[test]
fn bf16_rounds_every_upper_half_to_nearest_even() {
    for kernels in every_isa() {
        for upper in 0..=u16::MAX {
            let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
            let values = lower.map(|l: u32| f32::from_bits(u32::from(upper) << 16 | l));
            let mut wire = [0; 12];
            kernels.emit_bf16(&values, &mut wire);
            assert_eq!(
                wire[..],
                reference::write_bf16(&values)[..],
                "{} {upper:#x}",
                kernels.isa()
            );
        }
    }
}

#[test]
fn rank_order_sums_from_left_to_right() {
    for_every_shape(|kernels, len, offset, inputs, context| {
        for (row_count, padding) in [(1, 0), (2, 0), (3, 16), (8, 1)] {
            let stride = (len + padding).max(1);
            let rows = inputs.f32s(stride * row_count);
            let mut expected = rows[..len].to_vec();
            for row in 1..row_count {
                for (sum, value) in expected.iter_mut().zip(&rows[row * stride..]) {
                    *sum = reference::add_f32(*sum, *value);
                }
            }
            let mut slot = inputs.f32s(len);
            let mut frame = Frame::new(offset, &vec![0; len * 4]);
            kernels.sum_rows_f32_emit(&rows, stride, &mut slot, frame.payload_mut());
            assert_eq!(slot.bits(), expected.bits(), "{context} rows {row_count}");
            frame.assert_payload(&reference::write_f32(&expected), context);
        }
    });
}

#[test]
fn quantising_equals_the_reference() {
    for_every_shape(|kernels, len, offset, inputs, context| {
        for (scale, limit) in
            [(1.0, i32::MAX), (1.0, 0), (1024.0, 1 << 20), (2f32.powi(31), i32::MAX), (0.25, 77)]
        {
            let context = format!("{context} scale {scale} limit {limit}");
            let values = inputs.f32s(len);
            let expected: Vec<_> =
                values.iter().map(|v| reference::quantise(*v, scale, limit)).collect();
            let integers: Vec<_> = expected.iter().map(|(q, _)| *q).collect();
            let clamped = expected.iter().filter(|(_, clamped)| *clamped).count();
            let mut frame = Frame::new(offset, &vec![0; len * 4]);
            let count = kernels.quantise_f32(&values, scale, limit, frame.payload_mut());
            assert_eq!(count as usize, clamped, "{context}");
            frame.assert_payload(&reference::write_i32(&integers), &context);
        }
    });
}

#[test]
fn quantising_rounds_ties_to_even_and_has_an_answer_for_everything() {
    let values = [0.5, 1.5, 2.5, -0.5, -1.5, 8_388_607.5, f32::NAN, f32::INFINITY, -1e38, -100.0];
    let expected = [0, 2, 2, 0, -2, 8_388_608, 0, 1 << 24, -(1 << 24), -100];
    for kernels in every_isa() {
        let mut wire = [0; 40];
        assert_eq!(kernels.quantise_f32(&values, 1.0, 1 << 24, &mut wire), 3);
        assert_eq!(reference::read_i32(&wire), expected, "{}", kernels.isa());
    }
}

#[test]
fn dequantising_equals_the_reference() {
    for_every_shape(|kernels, len, offset, inputs, context| {
        let integers = inputs.i32s(len);
        for scale in [1.0, 0.5, 2f32.powi(-126), 2f32.powi(96)] {
            #[expect(clippy::cast_precision_loss, reason = "the rounding that is specified")]
            let expected: Vec<f32> = integers.iter().map(|q| *q as f32 * scale).collect();
            let frame = Frame::new(offset, &reference::write_i32(&integers));
            let mut values = vec![f32::NAN; len];
            kernels.dequantise_i32(frame.payload(), scale, &mut values);
            assert_eq!(values.bits(), expected.bits(), "{context} scale {scale}");
        }
    });
}

#[test]
fn max_abs_looks_at_every_finite_element() {
    for_every_shape(|kernels, len, _, inputs, context| {
        let values = inputs.f32s(len);
        let max = kernels.max_abs_f32(&values);
        assert_eq!(max.to_bits(), reference::max_abs(&values).to_bits(), "{context}");
    });
    for kernels in every_isa() {
        for position in 0..256 {
            let mut values = vec![0.5; 256];
            values[position] = -7.0;
            assert_eq!(kernels.max_abs_f32(&values).to_bits(), 7f32.to_bits());
        }
    }
}

/// Integer sums do not depend on arrival order; float sums in rank order do not either.
#[test]
fn sums_do_not_depend_on_arrival_order() {
    let strategy = (
        proptest::collection::vec(proptest::collection::vec(any::<i32>(), 33), 2..6),
        any::<prop::sample::Index>(),
        1..8u32,
    );
    let check = |(rows, turn, fan_in): (Vec<Vec<i32>>, prop::sample::Index, u32)| {
        let limit = i32::MAX / fan_in.max(6).cast_signed();
        let mut turned = rows.clone();
        turned.rotate_left(turn.index(rows.len()));
        turned.swap(0, rows.len() - 1);
        for kernels in every_isa() {
            let sum = |rows: &[Vec<i32>]| {
                let mut wrapped = vec![0; 33];
                let mut clamped = vec![0; 33];
                for row in rows {
                    let wire = reference::write_i32(row);
                    kernels.add_i32(&mut wrapped, &wire);
                    kernels.add_i32_clamped(&mut clamped, &wire, limit);
                }
                (wrapped, clamped)
            };
            prop_assert_eq!(sum(&rows), sum(&turned));
            let exact: Vec<i64> = (0..33)
                .map(|i| rows.iter().map(|r| i64::from(reference::clamp_i32(r[i], limit))).sum())
                .collect();
            let (_, clamped) = sum(&rows);
            prop_assert_eq!(clamped.into_iter().map(i64::from).collect::<Vec<_>>(), exact);
        }
        Ok(())
    };
    TestRunner::new(Config::default()).run(&strategy, check).unwrap();
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

#[test]
#[expect(clippy::cast_precision_loss, reason = "a model is f32")]
fn momentum_steps_equal_the_reference() {
    for_every_shape(|kernels, len, offset, inputs, context| {
        for (scale, momentum) in [(1.0, 0.0), (0.125, 0.9), (1e-3, 1.0)] {
            let (h, w) = (inputs.f32s(len), inputs.f32s(len));
            let integers = inputs.i32s(len);
            let floats = inputs.f32s(len);
            let cases = [
                (reference::write_i32(&integers), integers.iter().map(|v| *v as f32).collect()),
                (reference::write_f32(&floats), floats),
            ];
            for (is_f32, (payload, values)) in [false, true].into_iter().zip(cases) {
                let values: Vec<f32> = values;
                let frame = Frame::new(offset, &payload);
                let (mut new_h, mut new_w) = (h.clone(), w.clone());
                let step =
                    if is_f32 { Kernels::momentum_step_f32 } else { Kernels::momentum_step_i32 };
                let [_, squares] =
                    step(kernels, frame.payload(), scale, momentum, &mut new_h, &mut new_w);
                assert_eq!(squares.to_bits(), crate::squares(&new_h).to_bits(), "{context}");
                let expected: Vec<_> = (0..len)
                    .map(|i| reference::momentum_step(values[i], scale, momentum, h[i], w[i]))
                    .collect();
                let expected_h: Vec<f32> = expected.iter().map(|e| e.0).collect();
                let expected_w: Vec<f32> = expected.iter().map(|e| e.1).collect();
                assert_eq!(new_h.bits(), expected_h.bits(), "{context} h {scale} {is_f32}");
                assert_eq!(new_w.bits(), expected_w.bits(), "{context} w {scale} {is_f32}");
            }
        }
    });
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "small integers")]
fn squares_are_summed_exactly_where_they_can_be() {
    for_every_shape(|kernels, len, offset, inputs, context| {
        let integers: Vec<i32> = inputs.i32s(len).iter().map(|v| v >> 16).collect();
        let floats: Vec<f32> = integers.iter().map(|v| *v as f32).collect();
        let mut h = vec![0.0; len];
        let mut w = vec![0.0; len];
        let frame = Frame::new(offset, &reference::write_i32(&integers));
        let expected = reference::sum_squares(floats.iter().map(|v| v * 0.5));
        let squares = kernels.momentum_step_i32(frame.payload(), 0.5, 0.0, &mut h, &mut w);
        assert_eq!(squares, [expected; 2], "{context}");
        assert_eq!(kernels.sum_squares_i32(frame.payload(), 0.5), expected, "{context}");
        let frame = Frame::new(offset, &reference::write_f32(&floats));
        assert_eq!(kernels.sum_squares_f32(frame.payload(), 0.5), expected, "{context}");
        let squares = kernels.momentum_step_f32(frame.payload(), 0.5, 1.0, &mut h, &mut w);
        let doubled = reference::sum_squares(floats.iter().copied());
        assert_eq!(squares, [expected, doubled], "{context}");
    });
}

#[test]
fn squares_are_the_same_bits_on_every_instruction_set() {
    let mut inputs = Inputs(7);
    for len in lengths() {
        let values: Vec<f32> =
            inputs.f32s(len).iter().map(|v| if v.is_finite() { *v } else { 1.0 }).collect();
        let payload = reference::write_f32(&values);
        let expected = Kernels::portable().sum_squares_f32(&payload, 0.3);
        for kernels in every_isa() {
            let squares = kernels.sum_squares_f32(&payload, 0.3);
            assert_eq!(squares.to_bits(), expected.to_bits(), "{} len {len}", kernels.isa());
        }
    }
}
