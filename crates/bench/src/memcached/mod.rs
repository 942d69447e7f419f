//! Loading servers that speak the protocols of memcached: their requests and their replies.

mod replies;
mod request;

use clap::ValueEnum;

pub(crate) use replies::Scanner;
pub(crate) use request::Operation;

/// What the generator speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dialect {
    /// The Redis protocol.
    #[default]
    Resp,
    /// The classic text commands.
    MemcachedText,
    /// The meta commands.
    MemcachedMeta,
    /// Binary frames.
    MemcachedBinary,
}
