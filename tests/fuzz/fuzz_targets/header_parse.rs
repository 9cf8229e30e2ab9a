//! Fuzzes what reads a UDP payload.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::header_parse(data));
