//! Commands, through the public interface of the crate.
//!
//! One program for all files: linking one for each would take longer than running them.

mod events;
mod library;
mod replicated;
