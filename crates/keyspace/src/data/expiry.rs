//! When a key expires, as callers say it and are told.

/// What a SET does with the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// The key gets none and loses one it has.
    Never,
    /// The key keeps the one it has.
    Keep,
    /// The key gets this one, a Unix time in milliseconds.
    At(i64),
}

/// The time to live of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// There is no such key.
    Absent,
    /// The key stays until it is deleted.
    Persistent,
    /// The key expires at this Unix time in milliseconds, which lies in the future.
    Until(i64),
}

/// What became of a key that was given a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadlineSet {
    /// There is no such key.
    Absent,
    /// It has the deadline now.
    Done,
    /// The deadline has come already, so the key was deleted.
    Deleted,
}
