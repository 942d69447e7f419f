//! A durable store without sessions: typed values in memory, a log on disk that makes every change durable,
//! snapshots, values that are spilled to disk, and eviction.
//!
//! [`Engine`] connects the parts. They know as little of each other as possible: each has a trait for its
//! needs from the program around it. **Invariant**: this crate does not know sessions, protocols or
//! commands.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tierce_storage::disk::OsDisk;
//! use tierce_config::{Invocation, LogLevel, Settings, parse};
//! use tierce_engine::{Engine, log::Log};
//! use tierce_keyspace::{DbIndex, Expiry};
//!
//! # let dir = tierce_harness::TempDir::new();
//! # let dir = dir.path();
//! let args = ["--dir".into(), dir.into()];
//! let Invocation::Serve(sources) = parse(args, [], &[])? else { panic!("settings were meant") };
//! let settings = sources.load(&mut std::io::empty())?.settings;
//! let open = |settings: Settings| -> Result<Arc<Engine>, Box<dyn std::error::Error>> {
//!     Ok(Engine::open(settings, Arc::new(OsDisk), Log::open(None, LogLevel::Warning)?)?)
//! };
//!
//! let engine = open(settings.clone())?;
//! let key = engine.keyspace.key(b"visits");
//! let mut locks = engine.keyspace.locks();
//! locks.db(DbIndex::ZERO, key.hash(), 0).set(key, "41", Expiry::Never)?;
//! drop(locks); // From here on, the death of the process does not lose it.
//! engine.close();
//!
//! let engine = open(settings)?;
//! assert_eq!(engine.keyspace.len(DbIndex::ZERO), 1);
//! # engine.close();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

// In reading order: shared basics; values derived from the configuration; the parts; the engine.
pub mod clock;
mod count;
pub mod latency;
pub mod loading;
pub mod log;
pub mod next_step;
pub mod random;

pub mod encoding_limits;
pub mod eviction;
pub mod library;
pub mod memory;

pub mod durability;
pub mod feed;
pub mod persistence;
pub mod spill;
pub mod utc;

mod engine;
pub mod inspection;

pub use count::count;
pub use engine::{
    Audience, AudienceMemory, Engine, News, OpenError, Opening, ReloadError, ReloadOptions,
};

/// Version of Tierce, which snapshots record.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Version of Redis of which everything is here that client libraries use. They choose features by the version in INFO
/// and HELLO: with an older one, they would not cache on their side; with a newer one, they would call what is missing.
pub const REDIS_VERSION: &str = "7.4.0";

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
