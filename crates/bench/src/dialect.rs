//! What the generator speaks.

use clap::ValueEnum;

/// A protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dialect {
    /// The Redis protocol.
    #[default]
    Resp,
    /// The classic text commands of memcached.
    MemcachedText,
    /// The meta commands of memcached.
    MemcachedMeta,
    /// Binary frames of memcached.
    MemcachedBinary,
    /// Frames of PedroKV.
    #[value(name = "pedrokv")]
    PedroKv,
}
