//! See `tierce_cask::fuzzing::store`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_cask::fuzzing::store(data));
