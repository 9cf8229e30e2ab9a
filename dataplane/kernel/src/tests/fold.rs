//! Sums and maxima of slots and payloads, in each number format.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

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
        check_store(kernels, wire, Kernels::store_i32_ahead, &I32, context);
        check_fold(kernels, &slot, wire, &add, &I32, context);
        check_fold(kernels, &slot, wire, &max, &I32, context);
        check_emit(kernels, &slot, offset, Kernels::emit_i32, &I32, context);
        check_emit(kernels, &slot, offset, Kernels::emit_i32_ahead, &I32, context);
    });
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
        check_store(kernels, wire, Kernels::store_f32_ahead, &F32, context);
        check_fold(kernels, &slot, wire, &add, &F32, context);
        check_emit(kernels, &slot, offset, Kernels::emit_f32, &F32, context);
        check_emit(kernels, &slot, offset, Kernels::emit_f32_ahead, &F32, context);
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
        check_store(kernels, wire, Kernels::store_bf16_ahead, &BF16, context);
        check_fold(kernels, &slot, wire, &add, &BF16, context);
        check_emit(kernels, &slot, offset, Kernels::emit_bf16, &BF16, context);
        check_emit(kernels, &slot, offset, Kernels::emit_bf16_ahead, &BF16, context);
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
