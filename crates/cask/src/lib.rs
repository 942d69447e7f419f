//! Embeddable log-structured storage engine: segments of checksummed records, an index in memory,
//! compaction in the background.
//!
//! ```
//! use tierce_cask::{Batch, Db, IndexKind, Options};
//! # let dir = std::env::temp_dir().join(format!("tierce-cask-doc-{}", std::process::id()));
//!
//! let options = Options { index: IndexKind::Ordered, ..Options::default() };
//! let db = Db::open(&dir, options)?;
//! db.put(b"bordeaux/1982", b"a good year")?;
//! let mut batch = Batch::new();
//! batch.put("porto/1994", "great").delete("bordeaux/1984");
//! db.write(&batch)?;
//!
//! let snapshot = db.snapshot()?;
//! db.delete(b"porto/1994")?;
//! assert_eq!(snapshot.get(b"porto/1994")?.as_deref(), Some(&b"great"[..]));
//! let keys = db.range(b"", b"")?.map(|item| Ok(item?.0));
//! assert_eq!(keys.collect::<Result<Vec<_>, _>>()?, [b"bordeaux/1982"]);
//! db.close()?;
//! # std::fs::remove_dir_all(&dir).unwrap();
//! # Ok::<(), tierce_cask::Error>(())
//! ```
//!
//! In reading order, storage first:
//! * [`disk`]: the only door to the file system, with a simulated one for tests.
//! * `segment`: records and the files they are in. `manifest`: which files count.
//! * `tail`: the end of a shard's log, in a mapped file.
//! * `log`: writes, and how they get through a tail into segments.
//! * `cold`: values without keys; the caller remembers their locations.
//!
//! The database on top of it:
//! * `hint`: what a segment's records are about, sorted. `index`: from a key, or its hash, to a place.
//! * `db`: all of these together. Recovery, reading, compaction.
//!
//! What is guaranteed when is said in the crate's README, and on [`SyncPolicy`] and [`Error`].
#![deny(unsafe_code)]

pub mod disk;
#[doc(hidden)]
pub mod fuzzing;

mod bytes;
mod checksum;
mod compression;
mod error;
mod hash;
mod location;
mod names;
mod progress;
mod reserve_file;

mod cold;
mod directory;
mod log;
mod manifest;
mod segment;
mod tail;

mod cache;
mod check;
mod db;
mod entry;
mod hint;
mod index;
mod options;
mod upkeep;
mod wal;

pub use check::{check, check_on};
pub use cold::{
    ColdBatch, ColdBuffer, ColdCheckReport, ColdFigures, ColdLimits, ColdLocation, ColdOptions,
    ColdReads, ColdRefusal, ColdStore, Durable, Origin, check_cold, check_cold_on,
};
pub use compression::Compression;
pub use db::batch::Batch;
pub use db::compaction::CompactionReport;
pub use db::handle::Db;
pub use db::iter::Iter;
pub use db::range::Range;
pub use db::recovery::RecoveryReport;
pub use db::snapshot::Snapshot;
pub use db::stats::Stats;
pub use entry::{Attributes, Entry, Value};
pub use error::{Error, Result};
pub use log::options::WalOptions;
pub use log::salvage::TornTail;
pub use manifest::IndexKind;
pub use options::{CompactionOptions, Durability, Options, Placement, SyncPolicy};
pub use progress::Progress;
pub use upkeep::check::{CheckReport, lock_store};
pub use upkeep::repair::{RepairReport, repair, repair_on};
pub use wal::recovery::WalRecovery;
pub use wal::{Wal, WalMark};

/// Longest key in bytes.
pub const KEY_LEN_MAX: usize = 64 << 10;
/// Longest value in bytes.
pub const VALUE_LEN_MAX: usize = 512 << 20;
/// Longest record of a [`Wal`] in bytes: a value of the longest kind, and what belongs to it.
pub const WAL_RECORD_LEN_MAX: usize = VALUE_LEN_MAX + (1 << 20);
/// Longest batch in bytes, as encoded.
pub const BATCH_LEN_MAX: usize = 1 << 30;

/// The examples of the documents compile, and that of the guide does what it says.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../README.md")]
    struct OfTheCrate;
    #[doc = include_str!("../../../docs/guides/embed-the-engine.md")]
    struct Guide;
}
