//! Access categories of commands.

/// All of them, in the order of Redis.
pub const ALL: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Returns the category of this name, in any case.
#[must_use]
pub fn find(name: &[u8]) -> Option<&'static str> {
    ALL.into_iter().find(|category| category.as_bytes().eq_ignore_ascii_case(name))
}
