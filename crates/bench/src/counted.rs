//! The result of counting replies, for any protocol.

/// Counts for a piece of input.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Number of bytes that need not be passed again.
    pub(crate) consumed: usize,
    /// Number of replies that ended in this piece.
    pub(crate) replies: u64,
    /// Number of error replies among them.
    pub(crate) errors: u64,
    /// Number of null replies among them, such as those to GET of an absent key.
    pub(crate) nulls: u64,
    /// Text of the first error among them.
    pub(crate) first_error: Option<String>,
}
