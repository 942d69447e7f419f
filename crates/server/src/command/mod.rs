//! What the server knows about its commands, apart from what they do.
//!
//! Each command states its facts once, in a [`Spec`] beside the function that runs it. From these
//! facts come the dispatch ([`Table`]), the checks before a command runs (arity, authentication), the
//! shards that are locked for it ([`Scope`]), `COMMAND` with all its subcommands, and the page `docs/commands.md`.

mod flags;
mod keys;
mod page;
mod scope;
mod spec;
mod syntax;
mod table;

pub use self::flags::{Flags, Group};
pub use self::keys::{KeyFlags, KeySearch, KeySpec};
pub use self::page::render as render_page;
pub use self::scope::Scope;
pub use self::spec::{Handler, Spec};
pub use self::syntax::{Argument, ArgumentKind};
pub use self::table::{Command, CommandId, Table};
