//! Fuzzes the body of a datagram about keys.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::key_body(data));
