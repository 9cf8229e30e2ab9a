//! Fuzzes what reads the body of a HELLO datagram.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::hello_parse(data));
