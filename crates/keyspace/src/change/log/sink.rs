//! The receiver of records.

/// How what is logged is cut into records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// What happened under one lock is several records if it is more bytes than this, each with about as
    /// many at most. So neither is more than that copied, nor does a writer wait longer for another one's
    /// record. At least 1.
    pub piece_len: usize,
    /// A checkpoint writes a collection of more bytes than this in parts, under a lock each.
    pub large_bytes_min: usize,
    /// About as many bytes are such a part: some hundred elements, each of which may have to be waited
    /// for, in memory of its own. So a lock is held for some tens of microseconds.
    pub part_bytes: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { piece_len: 1 << 20, large_bytes_min: 64 << 10, part_bytes: 16 << 10 }
    }
}

/// Where records go, in the order in which they are appended.
///
/// Called with shards locked: an implementation must be quick, must not call the keyspace, and must
/// not fail. One that can no longer keep records remembers that, and the code that replies to requests asks
/// it before a reply is sent.
pub trait LogSink: Send + Sync {
    /// Appends one record: one or more operations that belong together, all of this kind.
    fn append(&self, record: &[u8], kind: RecordKind);
}

/// Why a record was written. A log keeps all of them; a reader that follows the changes of a server that is
/// ahead of it in nothing else needs the changes alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecordKind {
    /// Something happened: a command, an expiry, an eviction, a flush.
    #[default]
    Change,
    /// A checkpoint wrote what was there again.
    Restatement,
    /// A value went to disk, or to another place there. Its key has the same value as before.
    Move,
}
