//! Limits on the handshakes of one worker.

use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;

use super::{Buffers, Tls, TlsSettings};
use crate::system_clock::monotonic_nanos;

/// Time for handshakes in one turn. It is checked between two handshakes, so a turn spends at most this and the time of
/// one. The others wait for the next turn, which serves ready connections as well.
const TURN_NANOS_MAX: u64 = 500_000;

/// State that a worker needs for encrypted connections and their handshakes.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// `None` while there is no listener for encrypted connections.
    settings: Option<TlsSettings>,
    /// Buffers of the connection being served.
    pub(crate) buffers: Buffers,
    /// Number of handshakes in progress.
    under_way: usize,
    /// Time that handshakes have taken in this turn.
    spent_nanos: u64,
}

impl Handshakes {
    pub(crate) fn with(settings: Option<TlsSettings>) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Accepts connections with these settings from now on. Open ones do not change.
    pub(crate) fn set(&mut self, settings: Option<TlsSettings>) {
        self.settings = settings;
    }

    /// Begins a handshake and returns the milliseconds that it may take. `None` if there are too many, or encrypted
    /// connections are not accepted any more.
    pub(crate) fn begin(&mut self) -> Option<(Tls, u64)> {
        let settings = self.settings.as_ref()?;
        if self.under_way >= settings.handshakes_max {
            return None;
        }
        let session = UnbufferedServerConnection::new(Arc::clone(&settings.config)).ok()?;
        self.under_way += 1;
        Some((Tls::new(session), settings.handshake_ms_max))
    }

    /// Notes the end of a handshake.
    pub(crate) fn end(&mut self) {
        self.under_way -= 1;
    }

    /// Returns the number of handshakes in progress.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    pub(crate) fn begin_turn(&mut self) {
        self.spent_nanos = 0;
    }

    /// Returns true if handshakes have used up their time in this turn.
    pub(crate) fn have_had_their_share(&self) -> bool {
        self.spent_nanos >= TURN_NANOS_MAX
    }

    /// Runs a step of a handshake, and adds its time.
    pub(crate) fn timed<R>(&mut self, step: impl FnOnce(&mut Buffers) -> R) -> R {
        let begun = monotonic_nanos();
        let result = step(&mut self.buffers);
        self.spent_nanos += monotonic_nanos().saturating_sub(begun);
        result
    }
}
