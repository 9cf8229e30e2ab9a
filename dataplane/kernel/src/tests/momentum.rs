//! The step of a model, and the squares that bound its divergence.

use super::*;

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
