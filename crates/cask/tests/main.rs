//! The database, through its public interface: on real disks and on simulated ones.
//!
//! One program for all files: linking one for each would take longer than running them.

mod bad_directories;
mod batches_across_shards;
mod compaction;
mod concurrency;
mod crash;
mod damage;
mod database;
mod direct_io;
mod faults;
mod format_versions;
mod fuzz_smoke;
mod open_files;
mod power_cut_by_the_clock;
mod read_faults;
mod released_formats;
mod reserve;
mod scans;
mod survives_kill;
mod upkeep;
