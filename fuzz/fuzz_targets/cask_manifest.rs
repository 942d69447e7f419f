//! See `tierce_cask::fuzzing::manifest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_cask::fuzzing::manifest(data));
