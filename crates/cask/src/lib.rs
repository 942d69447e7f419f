//! Embeddable log-structured storage engine.
#![forbid(unsafe_code)]

mod bytes;
mod checksum;
mod compression;
mod db;
pub mod disk;
mod error;
mod hash;
mod hint;
mod index;
mod location;
mod log;
mod manifest;
mod names;
mod options;
mod segment;

pub use compression::Compression;
pub use db::batch::Batch;
pub use db::compaction::CompactionReport;
pub use db::handle::Db;
pub use db::iter::Iter;
pub use db::range::Range;
pub use db::read::{Entry, Value};
pub use db::recovery::{RecoveryReport, TornTail};
pub use db::snapshot::Snapshot;
pub use db::stats::Stats;
pub use error::{Error, Result};
pub use log::write::Attributes;
pub use options::{CompactionOptions, Durability, IndexKind, Options, SyncPolicy};

/// Longest key in bytes.
pub const KEY_LEN_MAX: usize = 64 << 10;
/// Longest value in bytes.
pub const VALUE_LEN_MAX: usize = 512 << 20;
/// Longest batch in bytes, as encoded.
pub const BATCH_LEN_MAX: usize = 1 << 30;
