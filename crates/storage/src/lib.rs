//! Files of checksummed records: the storage of the server's log, its values on disk and the database
//! `tierce-cask`.
//!
//! In reading order:
//! * [`disk`]: the only access to the file system, with a simulated one for tests.
//! * [`segment`]: records and their files. [`manifest`]: the list of valid files.
//! * [`tail`]: the end of a shard's log, in a mapped file.
//! * [`log`]: writes, and their way through a tail into segments. [`Wal`]: a log on its own.
//! * [`ColdStore`]: values without keys; the caller keeps their locations.
//!
//! Modules hidden from the documentation are for `tierce-cask`, and change with it.
#![deny(unsafe_code)]

pub mod disk;

mod cold;
mod progress;
mod upkeep;
mod wal;

#[doc(hidden)]
pub mod bytes;
#[doc(hidden)]
pub mod cache_line;
#[doc(hidden)]
pub mod checksum;
#[doc(hidden)]
pub mod compression;
#[doc(hidden)]
pub mod directory;
mod error;
#[doc(hidden)]
pub mod hash;
#[doc(hidden)]
pub mod location;
#[doc(hidden)]
pub mod log;
#[doc(hidden)]
pub mod manifest;
#[doc(hidden)]
pub mod names;
#[doc(hidden)]
pub mod reserve_file;
#[doc(hidden)]
pub mod segment;
#[doc(hidden)]
pub mod tail;

pub use cold::{
    ColdBatch, ColdBuffer, ColdCheckReport, ColdFigures, ColdLimits, ColdLocation, ColdOptions,
    ColdReads, ColdRefusal, ColdStore, Durable, Origin, check_cold, check_cold_on,
};
pub use compression::Compression;
pub use error::{Error, Result};
pub use log::options::WalOptions;
pub use log::salvage::TornTail;
pub use manifest::IndexKind;
pub use progress::Progress;
#[doc(hidden)]
pub use upkeep::check::check_files;
pub use upkeep::check::{CheckReport, is_in_use, lock_store};
pub use upkeep::repair::{RepairReport, repair, repair_on};
pub use wal::recovery::WalRecovery;
pub use wal::{Wal, WalMark};

/// Longest key in bytes.
pub const KEY_LEN_MAX: usize = 64 << 10;
/// Longest value in bytes.
pub const VALUE_LEN_MAX: usize = 512 << 20;
/// Longest record of a [`Wal`] in bytes: the longest value with its metadata.
pub const WAL_RECORD_LEN_MAX: usize = VALUE_LEN_MAX + (1 << 20);
/// Longest batch in bytes, as encoded.
pub const BATCH_LEN_MAX: usize = 1 << 30;

/// Compiles the example of the README.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct OfTheCrate;
}
