//! The log and the values on disk, through their public interfaces.
//!
//! One program for all files: linking one for each would take longer than running them.

mod cold;
mod cold_reads;
mod full_disk;
mod publish_model;
mod wal;
