//! Data of Redis into a data directory that no server uses, and back: `tierce import` and
//! `tierce export`.
//!
//! What they guarantee:
//! - The log of the data directory is locked meanwhile, so that no server runs on it.
//! - An import is there as a whole or not at all: it is loaded into memory first, then written as a
//!   log of its own, which takes the place of the present one in one step (`store.rs`).
//! - An export never overwrites anything, and what has its true name is complete.
//!
//! Like a server, both need memory for all the data.

mod aof;
mod commands;
mod error;
mod export;
pub(super) mod import;
mod store;

pub(crate) use commands::Executor;
pub use error::TransferError;
pub use export::{ExportFormat, ExportOptions, Exported, export};
pub use import::{ImportMode, ImportOptions, Imported, Unfit, import};
pub(super) use store::unfinished;

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The present log is loaded. Counted in bytes.
    LoadingLog,
    /// The file of Redis is read. Counted in bytes.
    Reading,
    /// The new log is written. Counted in bytes, of which the total is a guess.
    WritingLog,
    /// The file for Redis is written. Counted in keys.
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
