//! The texts of PedroKV's errors.

/// A cause of an [`Error`](super::Status::Error) that PedroKV has a text for. The text is all that a client can
/// tell errors apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the texts are in the table below")]
pub enum Failure {
    NotFound,
    Corruption,
    NotSupported,
    InvalidArgument,
    Io,
    ServerClosed,
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::NotFound,
        Self::Corruption,
        Self::NotSupported,
        Self::InvalidArgument,
        Self::Io,
        Self::ServerClosed,
    ];

    /// Returns the text that is sent for it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NotFound => "err: not found",
            Self::Corruption => "err: corruption",
            Self::NotSupported => "err: not support",
            Self::InvalidArgument => "err: invalid argument",
            Self::Io => "err: io error",
            Self::ServerClosed => "server closed",
        }
    }

    /// Returns the failure with this text, if there is one.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.text().as_bytes() == text)
    }
}
