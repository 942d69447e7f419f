//! Command flags and groups, with the names clients know them by.

use std::ops::BitOr;

/// A set of properties of a command, as `COMMAND INFO` reports them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(u32);

impl Flags {
    /// No property at all.
    pub const NONE: Self = Self(0);
    /// May change the data set.
    pub const WRITE: Self = Self(1);
    /// Only reads the data set.
    pub const READONLY: Self = Self(1 << 1);
    /// Is refused when memory is over its limit.
    pub const DENYOOM: Self = Self(1 << 2);
    /// Is for operators.
    pub const ADMIN: Self = Self(1 << 3);
    /// May not be called from a script.
    pub const NOSCRIPT: Self = Self(1 << 4);
    /// May run while data is being loaded.
    pub const LOADING: Self = Self(1 << 5);
    /// May run on a replica that lost its primary.
    pub const STALE: Self = Self(1 << 6);
    /// Is not shown to monitors.
    pub const SKIP_MONITOR: Self = Self(1 << 7);
    /// Runs in constant or logarithmic time.
    pub const FAST: Self = Self(1 << 8);
    /// May run before authentication.
    pub const NO_AUTH: Self = Self(1 << 9);
    /// May wait for something to happen.
    pub const BLOCKING: Self = Self(1 << 10);
    /// May run while a script keeps the server busy.
    pub const ALLOW_BUSY: Self = Self(1 << 11);
    /// May not run inside a transaction.
    pub const NO_MULTI: Self = Self(1 << 12);
    /// May not run while data is being loaded in the background.
    pub const NO_ASYNC_LOADING: Self = Self(1 << 13);
    /// Is not logged as slow (it waits by intention, or would log itself).
    pub const SKIP_SLOWLOG: Self = Self(1 << 14);
    /// Usually runs as briefly as a [`FAST`](Self::FAST) one, though Redis does not call it that.
    /// Not reported.
    pub const BRIEF: Self = Self(1 << 15);

    /// Does its work without the values of its keys, so that those on disk may stay there. Not reported.
    pub const KEY_ONLY: Self = Self(1 << 16);

    /// Acts at once inside of a transaction, where other commands are queued. Not reported.
    pub const NOT_QUEUED: Self = Self(1 << 19);

    /// Is for developers of the server. Reported by `COMMAND DOCS` only.
    pub const SYSTEM: Self = Self(1 << 18);

    /// Is about channels and messages.
    pub const PUBSUB: Self = Self(1 << 20);

    /// May run while the client speaks RESP2 and has subscriptions. Not reported.
    pub const WHILE_SUBSCRIBED: Self = Self(1 << 21);

    /// Leaves a reply that comes later to others while its connection goes on. Not reported.
    pub const NONBLOCKING: Self = Self(1 << 23);

    /// Runs a program: a script or a function. Redis reports it of these commands alone, by the name
    /// `no_mandatory_keys`.
    pub const PROGRAM: Self = Self(1 << 24);

    /// May change keys, or may not: programs, and what writes down an estimate that it has made. Not reported.
    pub const MAY_WRITE: Self = Self(1 << 25);

    /// Commands that begin and end subscriptions.
    pub const SUBSCRIBING: Self = Self::PUBSUB.with(Self::WHILE_SUBSCRIBED);

    /// Changes how its client tracks keys. Not reported.
    pub const TRACKING: Self = Self(1 << 22);

    /// The names in the order in which they are reported.
    const NAMES: [(Self, &'static str); 17] = [
        (Self::WRITE, "write"),
        (Self::READONLY, "readonly"),
        (Self::DENYOOM, "denyoom"),
        (Self::ADMIN, "admin"),
        (Self::PUBSUB, "pubsub"),
        (Self::NOSCRIPT, "noscript"),
        (Self::BLOCKING, "blocking"),
        (Self::LOADING, "loading"),
        (Self::STALE, "stale"),
        (Self::SKIP_MONITOR, "skip_monitor"),
        (Self::SKIP_SLOWLOG, "skip_slowlog"),
        (Self::FAST, "fast"),
        (Self::NO_AUTH, "no_auth"),
        (Self::PROGRAM, "no_mandatory_keys"),
        (Self::NO_MULTI, "no_multi"),
        (Self::NO_ASYNC_LOADING, "no_async_loading"),
        (Self::ALLOW_BUSY, "allow_busy"),
    ];

    /// Both sets together; `const`, unlike `|`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a command shows data: what a program does is not known, and counts as that.
    #[must_use]
    pub const fn reads_data(self) -> bool {
        self.contains(Self::READONLY) || self.contains(Self::PROGRAM)
    }

    /// Whether every property of `other` is in this set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any property of `other` is in this set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The names of the properties in this set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

/// The chapter a command belongs to, in documentation and access categories.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Group {
    /// Keys of any type.
    Generic,
    /// Strings and counters.
    String,
    /// Lists.
    List,
    /// Sets.
    Set,
    /// Sorted sets.
    SortedSet,
    /// Hashes.
    Hash,
    /// Streams.
    Stream,
    /// Bits of strings.
    Bitmap,
    /// Counters of different elements, which are strings.
    HyperLogLog,
    /// Places on earth, which are kept in sorted sets.
    Geo,
    /// Channels and messages.
    PubSub,
    /// The connection itself.
    Connection,
    /// Several commands as one.
    Transactions,
    /// Scripts and functions.
    Scripting,
    /// The cluster that a server may be a part of.
    Cluster,
    /// The server as a whole.
    Server,
}

impl Group {
    /// All groups in the order of the documentation.
    pub const ALL: [Self; 16] = [
        Self::Generic,
        Self::String,
        Self::List,
        Self::Set,
        Self::SortedSet,
        Self::Hash,
        Self::Stream,
        Self::Bitmap,
        Self::HyperLogLog,
        Self::Geo,
        Self::PubSub,
        Self::Connection,
        Self::Transactions,
        Self::Scripting,
        Self::Cluster,
        Self::Server,
    ];

    /// The name that `COMMAND DOCS` reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::String => "string",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Hash => "hash",
            Self::Stream => "stream",
            Self::Bitmap => "bitmap",
            Self::HyperLogLog => "hyperloglog",
            Self::Geo => "geo",
            Self::PubSub => "pubsub",
            Self::Connection => "connection",
            Self::Transactions => "transactions",
            Self::Scripting => "scripting",
            Self::Cluster => "cluster",
            Self::Server => "server",
        }
    }

    /// The access category of the group; commands of the server and of clusters have none of their own, and that
    /// of pub/sub follows from a flag.
    pub const fn category(self) -> Option<&'static str> {
        match self {
            Self::Generic => Some("keyspace"),
            Self::String => Some("string"),
            Self::List => Some("list"),
            Self::Set => Some("set"),
            Self::SortedSet => Some("sortedset"),
            Self::Hash => Some("hash"),
            Self::Stream => Some("stream"),
            Self::Bitmap => Some("bitmap"),
            Self::HyperLogLog => Some("hyperloglog"),
            Self::Geo => Some("geo"),
            Self::Connection => Some("connection"),
            Self::Transactions => Some("transaction"),
            Self::Scripting => Some("scripting"),
            Self::PubSub | Self::Cluster | Self::Server => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_count_as_reads() {
        assert!(Flags::READONLY.reads_data() && Flags::PROGRAM.with(Flags::NOSCRIPT).reads_data());
        assert!(!Flags::FAST.with(Flags::PUBSUB).reads_data() && !Flags::WRITE.reads_data());
    }
}
