//! Seeded random sequences for the fuzz target of the engine, on a stable compiler. Its corpus is
//! replayed with the others, see `fuzz_regressions_wire.rs`.

use weft_engine::random::SplitMix64;
use weft_tests::fuzz::aggregator_frames;

#[test]
fn random_sequences_break_nothing() {
    let mut random = SplitMix64::new(0x5745);
    for _ in 0..4_000 {
        let len = 5 * (1 + random.next_u32() % 80);
        let bytes = (0..len).map(|_| random.next_u64().to_be_bytes()[0]);
        aggregator_frames(&bytes.collect::<Vec<_>>());
    }
}
