//! The commands that the readers of a stream understand.

/// Commands that all readers understand: those of the oldest server among them. Commands that another server cannot
/// know are left out. If a reader is older than configured, an unknown command fails there and is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// No functions, and no counters of streams: added entries, and entries that a group has read.
    Redis6_2,
    /// No deadlines of hash fields: a field shows none, and is deleted when its deadline passes on the primary.
    Redis7_0,
    /// No named scripts, and no memcached flags and marks.
    Redis7_4,
    /// Everything. This is the default; readers may still be older.
    #[default]
    Tierce,
}

impl Dialect {
    /// Parses its name in the configuration.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "redis-6.2" => Self::Redis6_2,
            "redis-7.0" => Self::Redis7_0,
            "redis-7.4" => Self::Redis7_4,
            _ => Self::Tierce,
        }
    }
}
