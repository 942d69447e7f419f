//! The log in a bucket, through the public interface and the stores.
//!
//! One program for all files: linking one for each would take longer than running them.

mod follow;
mod stores;
