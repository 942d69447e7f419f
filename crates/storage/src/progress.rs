//! Progress of long work on files.

/// Progress of a check or repair; passed to the caller's function from time to time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes of segments read so far.
    pub done: u64,
    /// Bytes of all segments.
    pub total: u64,
}
