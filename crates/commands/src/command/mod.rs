//! Facts about commands, without their bodies.
//!
//! Each command states its facts once, in a [`Spec`] next to the function that runs it. This module does not know that
//! function; [`Defined`](crate::pipeline::Defined) has both. These facts define the dispatch ([`Table`]), the checks
//! before a command runs (arity, authentication), the shards that are locked for it ([`Scope`]), `COMMAND` with all its
//! subcommands, and the pages of `docs/commands/`.

mod access;
mod added;
pub mod category;
mod channels;
mod flags;
mod keys;
mod operation;
#[cfg(test)]
mod page;
mod renamed;
mod scope;
mod spec;
mod syntax;
mod table;

pub use self::access::Access;
pub use self::added::{ADDED_MAX, AddError};
pub use self::channels::{ChannelUse, Channels};
pub use self::flags::{Flags, Group};
pub use self::keys::{KeyFlags, KeySearch, KeySpec};
pub use self::operation::{Operation, Operations};
pub use self::renamed::RenameError;
pub use self::scope::Scope;
pub(crate) use self::spec::accepts;
pub use self::spec::{Spec, Weight};
pub use self::syntax::{Argument, ArgumentKind};
pub(crate) use self::table::Described;
pub use self::table::{Command, CommandId, Table};
