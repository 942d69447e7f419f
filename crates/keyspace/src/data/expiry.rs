//! Expiry times of keys, as parameters and results.

/// Effect of a SET on the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// The key has no deadline afterwards.
    Never,
    /// The key keeps its deadline.
    Keep,
    /// The key gets this deadline, a Unix time in milliseconds.
    At(i64),
}

/// The time to live of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// There is no such key.
    Absent,
    /// The key stays until it is deleted.
    Persistent,
    /// The key expires at this Unix time in milliseconds, which is in the future.
    Until(i64),
}

/// Result of giving a key a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadlineSet {
    /// There is no such key.
    Absent,
    /// The key has the deadline now.
    Done,
    /// The deadline has already passed, so the key was deleted.
    Deleted,
}
