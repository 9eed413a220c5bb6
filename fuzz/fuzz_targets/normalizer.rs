#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bytemill_fuzz::normalizer(data));
