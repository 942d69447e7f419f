//! The receiver of records.

/// Sizes at which logged data are split into records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Maximum bytes of a record, approximately: more changes under one lock become several records. So no more than
    /// that is copied, and no writer waits longer for another one's record. At least 1.
    pub piece_len: usize,
    /// Size above which a checkpoint writes a collection in parts, each under its own lock.
    pub large_bytes_min: usize,
    /// Approximate size of such a part: some hundred elements, each of which may cause a cache miss. So a lock lasts
    /// for some tens of microseconds.
    pub part_bytes: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { piece_len: 1 << 20, large_bytes_min: 64 << 10, part_bytes: 16 << 10 }
    }
}

/// Destination of records, in the order in which they are appended.
///
/// Called with shards locked: an implementation must be quick, must not call the keyspace, and must not fail. If it
/// can no longer store records, it must remember that: the code that replies to requests checks it before it sends a
/// reply.
pub trait LogSink: Send + Sync {
    /// Appends one record: one or more operations that belong together, all of this kind.
    fn append(&self, record: &[u8], kind: RecordKind);
}

/// Reason for a record. A log keeps all records. A reader that has the rest of the state already needs only the
/// changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecordKind {
    /// Something happened: a command, an expiry, an eviction, a flush.
    #[default]
    Change,
    /// A checkpoint restated existing data.
    Restatement,
    /// A value moved to disk, or to another location there. The key's value is unchanged.
    Move,
}
