//! TLS between a socket and the plain bytes that sessions see: a [`Tls`] for each encrypted connection.
//!
//! - rustls decrypts records in place in a buffer that the worker owns, and encrypts into another one. An idle
//!   connection owns neither: it keeps only the beginning of an incomplete record, plain bytes for which there was no
//!   room, and records that the socket did not take.
//! - Bytes count as sent when the socket has taken all of their record. The bytes of a partly sent record are passed to
//!   [`Tls::send`] again, like all unsent ones, and are not encrypted a second time.
//! - A handshake costs a hundred times as much as a request. [`Handshakes`] limits how many are in progress, how long
//!   they may take, and how much of a turn their cryptography gets.

mod handshakes;
mod outgoing;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(crate) use handshakes::Handshakes;
pub(crate) use session::{Buffers, Progress, Tls};

/// Settings of encrypted connections.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// Certificates, versions, ciphers, and the need for client certificates.
    pub config: Arc<rustls::ServerConfig>,
    /// Milliseconds that a handshake may take.
    pub handshake_ms_max: u64,
    /// Maximum number of handshakes in progress on each worker. Further connections are closed.
    pub handshakes_max: usize,
}
