//! Fuzzes a table of rows: its box and three processes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::key_frames(data));
