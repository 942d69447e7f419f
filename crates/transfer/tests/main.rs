//! Imports of files from other servers.
//!
//! One program for all files: linking one for each would take longer than running them.

mod expired_in_a_file;
mod fuzz_smoke;
