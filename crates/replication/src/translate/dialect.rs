//! The commands that their readers understand.

/// The commands that all readers understand: those of the oldest server among them. What another cannot know is left
/// out. One that a reader does not know, because it is older than was said, fails there with an error that it logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// Without functions, and without what streams count: entries that were added, and that a group has read.
    Redis6_2,
    /// Without deadlines of hash fields: a field goes when its deadline comes here, and shows none before.
    Redis7_0,
    /// Without scripts by name, and without memcached's flags and marks.
    Redis7_4,
    /// Everything. It is the default, so that a reader may be older all the same.
    #[default]
    Tierce,
}

impl Dialect {
    /// From its name in the configuration.
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
