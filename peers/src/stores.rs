//! The contestants, each behind the trait [`Store`](crate::store::Store).

mod cask;
mod fjall;
mod redb;
mod sled;

use crate::store::{Contestant, Result};

/// RocksDB is not among the contestants below: its load generator is a program of its own.
pub const NAMES: &[&str] = &[
    "cask-hash",
    "cask-ordered",
    "cask-by-key",
    "rocksdb",
    "fjall",
    "redb",
    "redb-batches",
    "sled",
];

pub fn named(name: &str) -> Result<&'static Contestant> {
    let all = [
        &cask::HASH,
        &cask::ORDERED,
        &cask::BY_KEY,
        &fjall::FJALL,
        &redb::REDB,
        &redb::BATCHES,
        &sled::SLED,
    ];
    let found = all.into_iter().find(|contestant| contestant.name == name);
    found.ok_or_else(|| format!("there is no store {name}").into())
}
