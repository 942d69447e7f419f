//! Tests of the engine: histories, crashes and the life of a log.
//!
//! One program for all files: linking one for each would take longer than running them.

mod log_crashes;
mod open_and_close;
mod together;
mod wal_manager;
