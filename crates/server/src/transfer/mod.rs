//! Imports Redis' files or JSON lines into a data directory that no server uses, and exports them: `tierce
//! import` and `tierce export`.
//!
//! Guarantees:
//! - The log of the data directory is locked, so that no server runs on it.
//! - An import is all or nothing: it is loaded into memory first, then written as a new log, which
//!   replaces the present one in one step (`store.rs`).
//! - An export never overwrites anything, and a file with its final name is complete.
//!
//! `first_import.rs` is the import at a server's start, of files beside an unused log.
//!
//! Like a server, both need memory for all the data.

mod aof;
mod beside_log;
mod commands;
mod error;
mod export;
mod first_import;
mod import;
pub(crate) mod jsonl;
mod store;

pub(crate) use beside_log::newer_than_log;
pub(crate) use commands::Executor;
pub use error::TransferError;
pub use export::{ExportFormat, ExportOptions, Exported, export};
pub(crate) use first_import::{FirstImportError, find_data_of_redis, first_import};
pub use import::{ImportMode, ImportOptions, Imported, import};

pub use crate::persistence::Unfit;

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The present log is loaded. Counted in bytes.
    LoadingLog,
    /// The file is read. Counted in bytes.
    Reading,
    /// The new log is written. Counted in bytes, of which the total is a guess.
    WritingLog,
    /// The file is written. Counted in keys.
    Writing,
}

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// With what.
    pub stage: Stage,
    /// What is done.
    pub done: u64,
    /// Of so much.
    pub total: u64,
}
