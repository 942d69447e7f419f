//! The keyspace, through its public interface.
//!
//! One program for all files: linking one for each would take longer than running them.

mod busy;
mod busy_model;
mod cached;
mod copies;
mod counting;
mod events;
mod eviction;
mod expiry;
mod fuzz_smoke;
mod growth;
mod hashes_and_sets;
mod items;
mod lists;
mod log;
mod log_histories;
mod model;
mod reaper;
mod scan;
mod snapshot;
mod snapshot_of_collections;
mod sorted_sets;
mod spill;
mod streams;
mod threads;
mod undo_memory;
mod waiters;
mod waiters_model;
mod watch;
mod watch_memory;
