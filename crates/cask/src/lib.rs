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
//! Segments, the log and the disk are those of `tierce-storage`. On top of them, in reading order:
//! * `hint`: sorted summaries of a segment's records. `index`: maps a key, or its hash, to a location.
//! * `db`: all of these together. Recovery, reading, compaction.
//!
//! The guarantees are in the crate's README, and on [`SyncPolicy`] and [`Error`].
#![deny(unsafe_code)]

#[doc(hidden)]
pub mod fuzzing;

mod cache;
mod check;
mod db;
mod entry;
mod hint;
mod index;
mod options;

pub use check::{check, check_on};
pub use db::batch::Batch;
pub use db::compaction::CompactionReport;
pub use db::handle::Db;
pub use db::iter::Iter;
pub use db::range::Range;
pub use db::recovery::RecoveryReport;
pub use db::snapshot::Snapshot;
pub use db::stats::Stats;
pub use entry::{Attributes, Entry, Value};
pub use options::{CompactionOptions, Durability, Options, Placement, SyncPolicy};
pub use tierce_storage::{
    BATCH_LEN_MAX, CheckReport, Compression, Error, IndexKind, KEY_LEN_MAX, Progress, RepairReport,
    Result, TornTail, VALUE_LEN_MAX, disk, repair, repair_on,
};

/// Compiles the examples of the documents, and runs that of the guide.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../README.md")]
    struct OfTheCrate;
    #[doc = include_str!("../../../docs/guides/embed-the-engine.md")]
    struct Guide;
}
