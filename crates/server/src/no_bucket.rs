//! Replacement of `bucket` in a build without it: a server with the directive `bucket` does not start.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use crate::config::DirectiveId;
use crate::engine::{Engine, Opening};
use crate::server::Server;

/// Reason why a server with a bucket cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    /// This build has no code for it.
    #[error("bucket: this build has no support for it (cargo feature bucket)")]
    NotBuilt,
}

/// Never exists.
pub type Looked = Nothing;

/// Never exists.
pub type Bucket = Nothing;

/// Type without values, in place of the bucket's types.
pub struct Nothing(Infallible);

/// Refuses a bucket.
///
/// # Errors
/// If one is configured.
pub fn look(_server: &Server, opening: &Opening) -> Result<Option<Looked>, BucketError> {
    const BUCKET: DirectiveId = DirectiveId::of("bucket");
    match opening.settings().text(BUCKET) {
        b"" => Ok(None),
        _ => Err(BucketError::NotBuilt),
    }
}

impl Nothing {
    /// Never called.
    pub fn has_log(&self) -> bool {
        match self.0 {}
    }

    /// Never called.
    pub fn claim(self, _server: &Server, _opening: &mut Opening) -> Result<Self, BucketError> {
        match self.0 {}
    }

    /// Never called.
    pub fn follow(&mut self, _engine: &Engine) {
        match self.0 {}
    }

    /// Never called.
    pub fn finish(self, _: std::time::Duration) {
        match self.0 {}
    }

    /// Never called.
    pub fn start(self, _server: &Arc<Server>) -> io::Result<Bucket> {
        match self.0 {}
    }
}
