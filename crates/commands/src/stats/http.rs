//! Counters of HTTP, which does not run on the workers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the start; `CONFIG RESETSTAT` does not reset them.
#[derive(Default, Debug)]
pub struct HttpFigures {
    connections: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    requests: AtomicU64,
}

impl HttpFigures {
    /// Returns the number of open connections.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// Returns the number of accepted connections.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Returns the number of connections beyond `http-maxclients`, or with a failed TLS handshake.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Returns the number of all requests, including refused ones.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Counts a connection that opens.
    pub fn open(&self) {
        self.connections.fetch_add(1, Relaxed);
        self.accepted.fetch_add(1, Relaxed);
    }

    /// Counts a connection that closes.
    pub fn close(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    /// Counts a connection that was not served.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Counts a request.
    pub fn request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }
}
