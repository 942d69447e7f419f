//! Command flags and groups, with the names clients know them by.

use std::ops::BitOr;

use tierce_collections::CollectionKind;
use tierce_keyspace::ValueType;

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
    /// Is not logged as slow, because it waits by intention, or would log itself.
    pub const SKIP_SLOWLOG: Self = Self(1 << 14);
    /// Usually runs as briefly as a [`FAST`](Self::FAST) command, but Redis does not report it as such. Not reported.
    pub const BRIEF: Self = Self(1 << 15);

    /// Needs only keys, not their values. Values on disk may stay there. Not reported.
    pub const KEY_ONLY: Self = Self(1 << 16);

    /// Runs at once inside of a transaction, where other commands are queued. Not reported.
    pub const NOT_QUEUED: Self = Self(1 << 19);

    /// Is for developers of the server. Reported by `COMMAND DOCS` only.
    pub const SYSTEM: Self = Self(1 << 18);

    /// Is about channels and messages.
    pub const PUBSUB: Self = Self(1 << 20);

    /// May run while the client speaks RESP2 and has subscriptions. Not reported.
    pub const WHILE_SUBSCRIBED: Self = Self(1 << 21);

    /// Leaves a later reply to other threads while its connection continues. Not reported.
    pub const NONBLOCKING: Self = Self(1 << 23);

    /// Runs a program: a script or a function. Redis reports this flag only for such commands, as `no_mandatory_keys`.
    pub const PROGRAM: Self = Self(1 << 24);

    /// May change keys, or may not: programs, and commands that store a computed estimate. Not reported.
    pub const MAY_WRITE: Self = Self(1 << 25);

    /// Commands that begin and end subscriptions.
    pub const SUBSCRIBING: Self = Self::PUBSUB.with(Self::WHILE_SUBSCRIBED);

    /// Changes the key tracking of its client. Not reported.
    pub const TRACKING: Self = Self(1 << 22);

    /// Names, in the order in which they are reported.
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

    /// Returns the union of both sets; `const`, unlike `|`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if a command shows data. A program may do anything, so it counts.
    #[must_use]
    pub const fn reads_data(self) -> bool {
        self.contains(Self::READONLY) || self.contains(Self::PROGRAM)
    }

    /// Returns true if every property of `other` is in this set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns true if any property of `other` is in this set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the names of the properties in this set.
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

/// Defines [`Group`]. A row has the group, a sentence, its title in `docs/commands/`, its name in `COMMAND DOCS`, and
/// its access category. Commands of the server and of clusters have no category of their own, and the category of
/// pub/sub follows from a flag.
macro_rules! groups {
    ($($group:ident: $doc:literal, $title:literal, $name:literal, $category:expr;)*) => {
        /// Group of a command, in documentation and access categories.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Group { $(#[doc = $doc] $group,)* }

        impl Group {
            /// All groups in the order of the documentation.
            pub const ALL: [Self; 16] = [$(Self::$group,)*];

            /// Returns the title of the group.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$group => $title,)* }
            }

            /// Returns its name in `COMMAND DOCS`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$group => $name,)* }
            }

            /// Returns its access category, if it has one.
            pub const fn category(self) -> Option<&'static str> {
                match self { $(Self::$group => $category,)* }
            }
        }
    };
}

groups! {
    Generic: "Keys of any type.", "Keys", "generic", Some("keyspace");
    String: "Strings and counters.", "Strings", "string", Some("string");
    List: "Lists.", "Lists", "list", Some("list");
    Set: "Sets.", "Sets", "set", Some("set");
    SortedSet: "Sorted sets.", "Sorted sets", "sorted-set", Some("sortedset");
    Hash: "Hashes.", "Hashes", "hash", Some("hash");
    Stream: "Streams.", "Streams", "stream", Some("stream");
    Bitmap: "Bits of strings.", "Bitmaps", "bitmap", Some("bitmap");
    HyperLogLog: "Counters of different elements, which are strings.",
        "HyperLogLogs", "hyperloglog", Some("hyperloglog");
    Geo: "Places on earth, which are kept in sorted sets.", "Geospatial indexes", "geo", Some("geo");
    PubSub: "Channels and messages.", "Pub/sub", "pubsub", None;
    Connection: "The connection itself.", "Connection", "connection", Some("connection");
    Transactions: "Several commands as one.", "Transactions", "transactions", Some("transaction");
    Scripting: "Scripts and functions.", "Scripts and functions", "scripting", Some("scripting");
    Cluster: "The cluster that a server may be a part of.", "Cluster", "cluster", None;
    Server: "The server as a whole.", "Server", "server", None;
}

impl Group {
    /// Returns true if commands of the group may combine a value of this type with others. As in Redis, they read no
    /// key after one with a wrong type.
    pub(crate) fn combines(self, of: ValueType) -> bool {
        use CollectionKind::{Set, SortedSet};
        match (self, of) {
            (Self::Set, of) => of == ValueType::Collection(Set),
            (Self::SortedSet, ValueType::Collection(kind)) => matches!(kind, Set | SortedSet),
            (Self::SortedSet, ValueType::String) => false,
            (Self::Bitmap, of) => of == ValueType::String,
            _ => true,
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
