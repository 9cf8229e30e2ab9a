//! Fuzzes what reads an Ethernet frame.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::frame_parse(data));
