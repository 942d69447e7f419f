//! The kernel: runs commands on a store, for any caller, without sockets.
//!
//! A [`Kernel`](kernel::Kernel) is an engine with a table of commands. A call needs arguments, the
//! [`Caller`](caller::Caller) that makes it, and an output for the reply:
//!
//! ```
//! use std::sync::Arc;
//!
//! use tierce_commands::caller::Caller;
//! use tierce_commands::clients::{Client, Origin};
//! use tierce_commands::kernel::Kernel;
//! use tierce_config::{Config, LogLevel, Settings};
//! use tierce_engine::{Engine, durability::Durability, log::Log};
//! use tierce_keyspace::{Keyspace, Options};
//! use tierce_output::Output;
//! use tierce_wire::resp::OwnedArgs;
//!
//! // A store in memory only. `Engine::open` opens one that keeps its data.
//! let keyspace = Arc::new(Keyspace::new(Options::default())?);
//! let (config, log) = (Arc::new(Config::new(Settings::default())), Log::open(None, LogLevel::Nothing)?);
//! let engine = Arc::new(Engine::new(config, keyspace, Durability::without_log(), log));
//! // No workers: calls run on the threads of their callers.
//! let kernel = Kernel::new(engine, tierce_commands::table(), 0);
//! let mut caller = Caller::new(Arc::new(Client::new(Origin::default(), 0)), true);
//! let mut output = Output::new();
//!
//! let mut call = |line: &str| -> Result<String, Box<dyn std::error::Error>> {
//!     let mut args = OwnedArgs::new();
//!     for arg in line.split(' ') {
//!         args.push(arg.as_bytes())?;
//!     }
//!     kernel.execute(&mut caller, args.as_args(), &mut output);
//!     let reply = String::from_utf8(output.buffer().split_off(0))?;
//!     Ok(reply)
//! };
//! assert_eq!(call("INCRBY visits 42")?, ":42\r\n");
//! assert_eq!(call("INCRBY visits")?, "-ERR wrong number of arguments for 'incrby' command\r\n");
//! // What the caller has selected stays selected.
//! assert_eq!(call("SELECT 1")?, "+OK\r\n");
//! assert_eq!(call("GET visits")?, "$-1\r\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

// In reading order: replies; callers and the events they wait for; facts about commands; the kernel; execution; the
// commands.
pub mod error;
pub mod fault;
pub mod reply;

pub mod answer;
pub mod barrier;
pub mod bucket;
pub mod caller;
pub mod certificates;
pub mod clients;
pub mod lease;
pub mod maintenance;
pub mod message;
pub mod notifications;
pub mod pubsub;
pub mod replica_level;
pub mod transaction;
pub mod under_way;
pub mod waiting;

pub mod acl;
pub mod command;
mod commands;

pub mod command_log;
pub mod hot_keys;
pub mod kernel;
pub mod metrics;
pub mod monitors;
pub mod offload;
pub mod outgoing;
pub mod scripting;
pub mod shutdown;
pub mod stats;

pub mod pipeline;
pub mod roles;
pub mod tracking;

pub mod process;
mod redaction;
pub mod replication;

pub use commands::server::info::read_metrics;
pub use commands::{table, table_for};
pub use pipeline::{Effort, time_of_effect};

use tierce_config as config;
use tierce_engine as engine;
use tierce_engine::{
    REDIS_VERSION, VERSION, clock, durability, eviction, latency, memory, persistence, random,
};
