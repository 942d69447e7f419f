//! The link between a primary and its replicas.
//!
//! One program for all files: linking one for each would take longer than running them.

mod fleet;
mod translation;
