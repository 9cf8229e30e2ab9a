//! Runs of contributions against the same contributions one by one.

use super::*;
use crate::RUN_MAX;

/// The two operations on runs of one element type, and their meaning.
struct Runs<T> {
    add: fn(&Kernels, &mut [T], bool, &[&[u8]]),
    emit: fn(&Kernels, &mut [T], bool, &mut [&mut [u8]]),
    combine: fn(T, T) -> T,
    read: fn(&[u8]) -> Vec<T>,
    write: fn(&[T]) -> Vec<u8>,
}

const I32: Runs<i32> = Runs {
    add: Kernels::add_run_i32,
    emit: Kernels::add_run_i32_emit,
    combine: reference::add_i32,
    read: reference::read_i32,
    write: reference::write_i32,
};
const F32: Runs<f32> = Runs {
    add: Kernels::add_run_f32,
    emit: Kernels::add_run_f32_emit,
    combine: reference::add_f32,
    read: reference::read_f32,
    write: reference::write_f32,
};

#[track_caller]
fn check_run<T: Copy>(
    kernels: &Kernels,
    slot: &[T],
    stores: bool,
    payloads: &[(usize, Vec<u8>)],
    runs: &Runs<T>,
    context: &str,
) where
    [T]: Bits,
{
    let mut expected = slot.to_vec();
    for (index, (_, payload)) in payloads.iter().enumerate() {
        for (sum, element) in expected.iter_mut().zip((runs.read)(payload)) {
            *sum = if stores && index == 0 { element } else { (runs.combine)(*sum, element) };
        }
    }
    let context = format!("{context}: {} payloads, stores {stores}", payloads.len());
    let mut frames: Vec<Frame> =
        payloads.iter().map(|(offset, payload)| Frame::new(*offset, payload)).collect();

    let mut result = slot.to_vec();
    let wires: Vec<&[u8]> = frames.iter().map(Frame::payload).collect();
    (runs.add)(kernels, &mut result, stores, &wires);
    assert_eq!(result.bits(), expected.bits(), "{context}");

    let mut result = slot.to_vec();
    let mut wires: Vec<&mut [u8]> = frames.iter_mut().map(Frame::payload_mut).collect();
    (runs.emit)(kernels, &mut result, stores, &mut wires);
    assert_eq!(result.bits(), expected.bits(), "{context}: slot after emit");
    for frame in &frames {
        frame.assert_payload(&(runs.write)(&expected), &context);
    }
}

#[test]
fn a_run_gives_the_bits_of_its_contributions_one_by_one() {
    for_every_shape(|kernels, len, offset, inputs, context| {
        for count in 2..=RUN_MAX {
            for stores in [false, true] {
                // Each payload lies at an alignment of its own.
                let offsets = (0..count).map(|index| (offset + 3 * index) % OFFSETS.end);
                let integers: Vec<_> = offsets
                    .clone()
                    .map(|at| (at, reference::write_i32(&inputs.i32s(len))))
                    .collect();
                check_run(kernels, &inputs.i32s(len), stores, &integers, &I32, context);
                let floats: Vec<_> =
                    offsets.map(|at| (at, reference::write_f32(&inputs.f32s(len)))).collect();
                check_run(kernels, &inputs.f32s(len), stores, &floats, &F32, context);
            }
        }
    });
}

/// -0 stays -0 where a run stores, and a NaN becomes the one NaN, as if it had been added.
#[test]
fn a_run_of_zeros_and_nans_stores_their_sum() {
    let (zero, nan) = (reference::write_f32(&[-0.0]), 0xffc1_2345_u32.to_be_bytes());
    for kernels in every_isa() {
        let mut slot = [7.0];
        kernels.add_run_f32(&mut slot, true, &[&zero, &zero]);
        assert_eq!(slot.bits(), [0x8000_0000]);
        kernels.add_run_f32(&mut slot, true, &[&nan, &zero]);
        assert_eq!(slot.bits(), [0x7fc0_0000]);
    }
}

#[test]
#[should_panic(expected = "two to four contributions")]
fn one_contribution_is_no_run() {
    Kernels::detect().add_run_i32(&mut [0; 4], true, &[&[0; 16]]);
}

#[test]
#[should_panic(expected = "payload and slot differ in length")]
fn a_run_with_a_payload_of_the_wrong_length_is_a_bug() {
    Kernels::detect().add_run_i32_emit(&mut [0; 4], true, &mut [&mut [0; 16], &mut [0; 15]]);
}
