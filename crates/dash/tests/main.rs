//! The table, through its public interface.
//!
//! One program for all files: linking one for each would take longer than running them.

mod growth;
mod memory;
mod model;
mod sample;
mod scan;
mod skew;
mod snapshot;

mod support;
