//! Fuzzes an aggregator with one open lease.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::gather_frames(data));
