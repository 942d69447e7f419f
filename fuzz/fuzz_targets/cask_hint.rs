//! See `tierce_cask::fuzzing::hint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_cask::fuzzing::hint(data));
