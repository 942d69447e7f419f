//! The configuration: directives of redis.conf, from file, command line and environment.
//!
//! - [`table`]: what directives there are, in one table from which all the rest is made.
//! - [`parse`]: command line and environment to an [`Invocation`]; no I/O.
//! - [`Sources::load`]: reads the file and checks everything; [`Loaded`] has the [`Settings`] and
//!   what a user should hear about.
//! - [`Settings::startup`]: what the start needs, in types of its own.
//! - [`Config`]: what is in force while the server runs; CONFIG GET, SET and REWRITE.
//!
//! Not here: acting on a change. What has to act registers with [`Config::on_change`].
//!
//! ```
//! use tierce_server::config::{Config, Invocation, Peer, parse};
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

mod directive;
mod environment;
mod error;
mod events;
mod file;
mod help;
mod invocation;
mod kind;
mod limits;
mod live;
#[cfg(test)]
mod of_redis;
mod origin;
mod own_names;
#[cfg(test)]
mod reference;
mod rewrite;
mod runtime;
mod settings;
mod sources;
mod startup;
mod suggest;
mod sync_policy;
pub mod table;
mod value;

pub use directive::{
    Check, Directive, DirectiveId, Effect, Group, Mutability, Secrecy, Visibility,
};
pub use error::{ConfigError, Note, Severity};
pub use events::Events;
pub use invocation::{Invocation, Tool, parse};
pub use kind::{Invalid, Kind};
pub use limits::{ClientClass, OutputLimit, OutputLimits};
pub use live::Live;
pub use origin::{Assignment, Origin};
pub use own_names::is_own_name;
pub use rewrite::RewriteError;
pub use runtime::{Change, Config, Peer, SetError, is_secret};
pub use settings::Settings;
pub use sources::{FileSource, Loaded, Sources};
pub use startup::{BindAddress, BindHost, LogLevel, Startup};
pub use sync_policy::SyncPolicy;
pub use value::{SavePoint, Value};
