//! Why a server cannot start with its bucket.

use super::plan::Refusal;
use crate::engine::OpenError;

/// Why a server cannot start with its bucket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// The store, or what is in it.
    #[error("bucket {url}: {error}")]
    Store {
        /// Where it is.
        url: String,
        /// What is wrong.
        error: tierce_bucket::Error,
    },
    /// The directory and the log do not belong together.
    #[error("bucket {url}: {refusal}")]
    Refused {
        /// Where it is.
        url: String,
        /// Why not.
        refusal: Refusal,
    },
    /// What was restored has no place in this server.
    #[error("bucket {url}: {reason}")]
    Content {
        /// Where it is.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The data directory.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The settings.
    #[error("{0}")]
    Settings(String),
    /// The system.
    #[error("bucket: {0}")]
    Io(#[from] std::io::Error),
}

/// An error that names the URL itself.
pub(super) fn unusable(error: tierce_bucket::Error) -> BucketError {
    BucketError::Settings(error.to_string())
}
