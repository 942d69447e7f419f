//! The server, without a process of its own.
//!
//! One program for all files: linking one for each would take longer than running them.

mod expired_in_a_file;
mod fuzz_smoke;
mod operations;
