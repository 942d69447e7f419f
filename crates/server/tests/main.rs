//! The server, without a process of its own.
//!
//! One program for all files: linking one for each would take longer than running them.

mod operations;
