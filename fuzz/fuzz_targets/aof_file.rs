//! See `tierce_rdb::fuzzing::aof_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_rdb::fuzzing::aof_file(data));
