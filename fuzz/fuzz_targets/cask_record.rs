//! See `tierce_cask::fuzzing::record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_cask::fuzzing::record(data));
