//! News of long work on files for its caller.

/// How far a check or repair has come; handed to the caller's function now and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes of segments read so far.
    pub done: u64,
    /// Bytes of all segments.
    pub total: u64,
}
