//! Contributions cut to a limit, and whether one was.

use super::*;

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
