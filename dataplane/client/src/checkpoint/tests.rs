use super::*;

pub(super) fn checkpoint() -> Checkpoint {
    Checkpoint {
        // NaN's payload, a denormal and the sign of zero come back too.
        parameters: vec![1.5, -0.0, f32::from_bits(1), f32::from_bits(0x7fc0_1234), -3.25e-20],
        velocity: vec![0.0, 1.0, -1.0, f32::MIN_POSITIVE, f32::INFINITY],
        optimiser: Optimiser::Sgd { learning_rate: 0.1, momentum: 0.9 },
        position: Position { round: 40, seed: 7, batch: 32, workers: 2 },
    }
}

pub(super) fn shape() -> Shape {
    Shape { parameters: 5, seed: 7, batch: 32 }
}

fn bits(checkpoint: &Checkpoint) -> Vec<u32> {
    checkpoint.parameters.iter().chain(&checkpoint.velocity).map(|value| value.to_bits()).collect()
}

#[test]
fn every_bit_comes_back() {
    let written = checkpoint();
    let read = Checkpoint::decode(&written.encode(), &shape()).unwrap();
    assert_eq!(bits(&read), bits(&written));
    assert_eq!((read.optimiser, read.position), (written.optimiser, written.position));
    let still = Checkpoint { velocity: Vec::new(), ..written };
    let read = Checkpoint::decode(&still.encode(), &shape()).unwrap();
    assert!(read.velocity.is_empty());
}

#[test]
fn a_checkpoint_that_was_cut_anywhere_is_torn() {
    let bytes = checkpoint().encode();
    for len in 0..bytes.len() {
        let refused = Checkpoint::decode(&bytes[..len], &shape()).unwrap_err();
        match len {
            0 => assert_eq!(refused, CheckpointError::Magic),
            _ => assert!(matches!(refused, CheckpointError::Torn { .. }), "{len}: {refused}"),
        }
    }
    let mut longer = bytes;
    longer.push(0);
    let refused = Checkpoint::decode(&longer, &shape()).unwrap_err();
    assert!(matches!(refused, CheckpointError::Torn { .. }), "{refused}");
}

#[test]
fn a_bit_that_differs_is_noticed_wherever_it_is() {
    let bytes = checkpoint().encode();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Checkpoint::decode(&damaged, &shape()).is_err(), "bit {bit}");
    }
}

#[test]
fn one_of_another_shape_is_refused_by_name() {
    let bytes = checkpoint().encode();
    for (wanted, name) in [
        (Shape { parameters: 6, ..shape() }, "number of parameters is 5, and 6"),
        (Shape { seed: 8, ..shape() }, "seed is 7, and 8"),
        (Shape { batch: 16, ..shape() }, "batch is 32, and 16"),
    ] {
        let refused = Checkpoint::decode(&bytes, &wanted).unwrap_err().to_string();
        assert!(refused.contains(name), "{refused}");
    }
}

/// Whoever makes a file with a right checksum.
#[test]
fn numbers_that_cannot_be_are_refused() {
    let sealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = checkpoint().encode();
        bytes.truncate(bytes.len() - CRC_BYTES);
        change(&mut bytes);
        let crc = crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        Checkpoint::decode(&bytes, &shape()).unwrap_err()
    };
    assert_eq!(sealed(&|bytes| bytes[0] = b'X'), CheckpointError::Magic);
    assert_eq!(sealed(&|bytes| bytes[8] = 2), CheckpointError::Version { found: 2 });
    assert_eq!(sealed(&|bytes| bytes[10] = 9), CheckpointError::Number("optimiser"));
    assert_eq!(sealed(&|bytes| bytes[12] = 0), CheckpointError::Number("number of workers"));
    assert_eq!(sealed(&|bytes| bytes[48..64].fill(0xff)), CheckpointError::Number("length"));
    // As many floats in all, and not as many of each.
    let uneven = sealed(&|bytes| {
        bytes[48..56].copy_from_slice(&6u64.to_le_bytes());
        bytes[56..64].copy_from_slice(&4u64.to_le_bytes());
    });
    assert_eq!(uneven, CheckpointError::Number("momentum"));
}

/// The format is documented, so it does not change by accident.
#[test]
fn the_bytes_are_those_of_the_document() {
    let bytes = checkpoint().encode();
    assert_eq!(&bytes[..8], b"WEFTTRN\n");
    assert_eq!(bytes.len(), 64 + 4 * 10 + 4);
    assert_eq!(&bytes[8..20], &[1, 0, 1, 0, 2, 0, 0, 0, 32, 0, 0, 0]);
    assert_eq!(&bytes[20..24], &0.1f32.to_bits().to_le_bytes());
    assert_eq!(&bytes[32..40], &40u64.to_le_bytes());
    assert_eq!(&bytes[64..68], &1.5f32.to_bits().to_le_bytes());
    let crc = crc32c(&bytes[..bytes.len() - 4]);
    assert_eq!(bytes.last_chunk::<4>().unwrap(), &crc.to_le_bytes());
}
