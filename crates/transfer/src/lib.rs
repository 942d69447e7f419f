//! Imports Redis' files or JSON lines into a data directory that no server uses, and exports such a directory:
//! `tierce import` and `tierce export`.
//!
//! Guarantees:
//! - The log of the data directory is locked, so no server runs on it.
//! - An import is all or nothing: it is loaded into memory first, then written as a new log, which replaces the
//!   present one in one step (`store.rs`).
//! - An export never overwrites a file, and a file with its final name is complete.
//!
//! `first_import.rs` imports files that are next to an unused log when a server starts.
//!
//! Like a server, both directions need memory for all the data.

mod aof;
mod commands;
mod error;
mod export;
mod first_import;
#[doc(hidden)]
pub mod fuzzing;
mod import;
mod jsonl;
mod newer_files;
mod progress;
mod store;

pub use error::TransferError;
pub use export::{ExportFormat, ExportOptions, Exported, export};
pub use first_import::{FirstImportError, find_data_of_redis, first_import, try_first_import};
pub use import::{ImportMode, ImportOptions, Imported, import};
pub use newer_files::newer_than_log;

pub use progress::{Progress, Stage};
pub use tierce_engine::persistence::Unfit;

use tierce_commands::{caller, clients, command, kernel, pipeline};
use tierce_config as config;
use tierce_engine::{VERSION, clock, durability, log, memory, persistence, random};
