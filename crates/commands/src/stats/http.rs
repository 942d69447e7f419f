//! Counters of HTTP, which runs beside the workers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the start; `CONFIG RESETSTAT` leaves them.
#[derive(Default, Debug)]
pub struct HttpFigures {
    connections: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    requests: AtomicU64,
}

impl HttpFigures {
    /// Connections that are open.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    /// Connections that were accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    /// Connections beyond `http-maxclients`, and those whose TLS handshake failed.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Requests of any kind, refused ones included.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// A connection is open from now on.
    pub fn open(&self) {
        self.connections.fetch_add(1, Relaxed);
        self.accepted.fetch_add(1, Relaxed);
    }

    /// It is no longer.
    pub fn close(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }

    /// A connection was not served.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// A request has come.
    pub fn request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }
}
