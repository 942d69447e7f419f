//! Files and values of Redis.
//!
//! One program for all files: linking one for each would take longer than running them.

mod damage_is_an_error;
mod fuzz_smoke;
mod reads_what_redis_wrote;
mod values_come_back;
