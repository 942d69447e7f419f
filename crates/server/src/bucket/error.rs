//! Errors that keep a server from starting with its bucket.

use super::plan::Refusal;
use crate::engine::OpenError;

/// Reason why a server cannot start with its bucket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// The store or its contents are unusable.
    #[error("bucket {url}: {error}")]
    Store {
        /// URL of the store.
        url: String,
        /// The error.
        error: tierce_bucket::Error,
    },
    /// The directory and the log do not belong together.
    #[error("bucket {url}: {refusal}")]
    Refused {
        /// URL of the store.
        url: String,
        /// The reason.
        refusal: Refusal,
    },
    /// The restored data do not fit into this server.
    #[error("bucket {url}: {reason}")]
    Content {
        /// URL of the store.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The data directory cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The settings are invalid.
    #[error("{0}")]
    Settings(String),
    /// The system reported an error.
    #[error("bucket: {0}")]
    Io(#[from] std::io::Error),
}

/// Converts an error that contains the URL itself.
pub(super) fn unusable(error: tierce_bucket::Error) -> BucketError {
    BucketError::Settings(error.to_string())
}
