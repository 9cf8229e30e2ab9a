//! Seeded random sequences for the fuzz target of the engine, on a stable compiler. Its corpus is
//! replayed with the others, see `fuzz_regressions_wire.rs`.

use weft_engine::random::SplitMix64;
use weft_tests::fuzz::{Target, aggregator_frames, gather_frames, key_body, key_frames};

fn random_sequences(target: Target, seed: u64) {
    let mut random = SplitMix64::new(seed);
    for _ in 0..4_000 {
        let len = 5 * (1 + random.next_u32() % 80);
        let bytes = (0..len).map(|_| random.next_u64().to_be_bytes()[0]);
        target(&bytes.collect::<Vec<_>>());
    }
}

#[test]
fn random_sequences_break_no_windowed_lease() {
    random_sequences(aggregator_frames, 0x5745);
}

#[test]
fn random_sequences_break_no_whole_lease() {
    random_sequences(gather_frames, 0x5746);
}

#[test]
fn random_sequences_break_no_table_of_rows() {
    random_sequences(key_frames, 0x5747);
    random_sequences(key_body, 0x5748);
}
