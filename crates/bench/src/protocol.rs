//! The protocols of the generator.

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
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
