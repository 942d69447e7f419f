//! The result of counting replies, for any protocol.

/// What a piece of input held.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Bytes that need not be shown again.
    pub(crate) consumed: usize,
    /// Replies that ended in this piece.
    pub(crate) replies: u64,
    /// How many of them are errors.
    pub(crate) errors: u64,
    /// How many of them are null, such as those to GET of an absent key.
    pub(crate) nulls: u64,
    /// The text of the first error among them.
    pub(crate) first_error: Option<String>,
}
