//! A durable store without sessions: typed values in memory, a log on disk that makes every change
//! durable, snapshots, values that are spilled to disk, and eviction.
//!
//! [`Engine`] puts the parts together. They know as little of each other as possible: each states in a trait
//! what it needs from the program around it. **Invariant**: nothing here knows sessions, protocols or
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

// In reading order: what all parts need; what follows from the configuration; the parts; the whole.
pub mod clock;
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

pub use engine::{
    Audience, AudienceMemory, Engine, News, OpenError, Opening, ReloadError, ReloadOptions,
};

/// The version of Tierce. Snapshots name it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of Redis whose commands, replies and files these are. Client libraries choose features by
/// what INFO and HELLO report, so it must be one they know.
pub const REDIS_VERSION: &str = "7.2.0";

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
