//! The configuration: directives of redis.conf, from file, command line and environment.
//!
//! - [`table`]: all directives, in one table from which everything else is generated.
//! - [`parse`]: command line and environment to an [`Invocation`]; no I/O.
//! - [`Sources::load`]: reads the file and checks everything; returns [`Loaded`]: [`Settings`] and notes.
//! - [`Settings::startup`]: the settings for the start, in types of its own.
//! - [`Config`]: the settings in force while the server runs; CONFIG GET, SET and REWRITE.
//!
//! This crate does not act on changes; see [`Config::on_change`].
//!
//! ```
//! use tierce_config::{Config, Invocation, Peer, parse};
//!
//! let args = ["--port", "7000", "--save", ""].map(Into::into);
//! let env = [("TIERCE_MAXCLIENTS".into(), "50".into())];
//! let Invocation::Serve(sources) = parse(args, env, &[])? else { panic!("a server was meant") };
//! let loaded = sources.load(&mut std::io::empty())?;
//! assert_eq!(loaded.settings.port(), 7000);
//!
//! let config = Config::new(loaded.settings);
//! config.set(&[(b"timeout", b"30")], Peer::Local)?;
//! assert_eq!((config.live().maxclients(), config.live().timeout_seconds()), (50, 30));
//! assert_eq!(config.get(&[b"time*"]), [(b"timeout".to_vec(), b"30".to_vec())]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

// In reading order: directives and their kinds; the table of all directives; the sources of assignments; the values
// in force at the start and at run time; texts for people.
mod directive;
mod kind;
mod limits;
mod log_format;
mod sync_policy;
mod value;

mod own_names;
pub mod table;

mod environment;
mod error;
mod file;
mod invocation;
mod origin;
mod public;
mod sources;
mod suggest;

mod settings;
mod startup;

mod http;

mod events;
mod live;
mod rewrite;
mod runtime;

#[doc(hidden)]
pub mod fuzzing;
mod help;
#[cfg(test)]
mod of_redis;
#[cfg(test)]
mod reference;

pub use directive::{Check, Directive, Effect, Group, Mutability, Secrecy, Visibility};
pub use error::{ConfigError, Note, Severity, os_reason};
pub use events::Events;
pub use help::Tool;
pub use invocation::{Invocation, parse};
pub use kind::{Invalid, Kind};
pub use limits::{ClientClass, OutputLimit, OutputLimits};
pub use live::Live;
pub use log_format::LogFormat;
pub use origin::{Assignment, Origin};
pub use own_names::is_own_name;
pub use public::Public;
pub use rewrite::{RewriteError, replace_file};
pub use runtime::{Change, Config, Peer, SetError, is_secret};
pub use settings::{RenamedCommand, Settings, UserLine};
pub use sources::{FileSource, Loaded, Sources};
pub use startup::{BindAddress, BindHost, LogLevel, Startup};
pub use sync_policy::SyncPolicy;
pub use table::DirectiveId;
pub use value::{SavePoint, Value};

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
