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
#[doc(hidden)]
pub mod fuzzing;
mod import;
mod jsonl;
mod progress;
mod store;

pub use beside_log::newer_than_log;
pub use error::TransferError;
pub use export::{ExportFormat, ExportOptions, Exported, export};
pub use first_import::{FirstImportError, find_data_of_redis, first_import};
pub use import::{ImportMode, ImportOptions, Imported, import};

pub use progress::{Progress, Stage};
pub use tierce_engine::persistence::Unfit;

use tierce_commands::{caller, clients, command, kernel, pipeline};
use tierce_config as config;
use tierce_engine::{VERSION, clock, durability, log, memory, persistence, random};
