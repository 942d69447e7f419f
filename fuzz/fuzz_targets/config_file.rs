//! See `tierce_config::fuzzing::config_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_config::fuzzing::config_file(data));
