//! See `tierce_rdb::fuzzing::rdb_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierce_rdb::fuzzing::rdb_file(data));
