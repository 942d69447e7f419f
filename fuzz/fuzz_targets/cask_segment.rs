//! See `tierce_cask::fuzzing::segment`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_cask::fuzzing::segment(data));
