//! Between floating and fixed point, and the largest magnitude that decides the exponent.

use super::*;

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
