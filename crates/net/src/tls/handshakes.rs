//! The bounds on handshakes of one worker.

use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;

use super::{Buffers, Tls, TlsSettings};
use crate::system_clock::monotonic_nanos;

/// Time that handshakes get in one turn. It is checked between two of them, so a turn spends at most this and the
/// time of one. Others wait for the next turn, in which connections that are ready have their place.
const TURN_NANOS_MAX: u64 = 500_000;

/// What a worker needs for encrypted connections, and knows about handshakes.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// `None` as long as there is no listener for encrypted connections.
    settings: Option<TlsSettings>,
    /// Buffers of the connection whose turn it is.
    pub(crate) buffers: Buffers,
    /// Handshakes under way.
    under_way: usize,
    /// Time that handshakes have taken in this turn.
    spent_nanos: u64,
}

impl Handshakes {
    pub(crate) fn with(settings: Option<TlsSettings>) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Accepts connections like this from now on. Open ones stay as they are.
    pub(crate) fn set(&mut self, settings: Option<TlsSettings>) {
        self.settings = settings;
    }

    /// Begins a handshake that has to end within the milliseconds that are returned. `None` if there are too many, or
    /// encrypted connections are not accepted any more.
    pub(crate) fn begin(&mut self) -> Option<(Tls, u64)> {
        let settings = self.settings.as_ref()?;
        if self.under_way >= settings.handshakes_max {
            return None;
        }
        let session = UnbufferedServerConnection::new(Arc::clone(&settings.config)).ok()?;
        self.under_way += 1;
        Some((Tls::new(session), settings.handshake_ms_max))
    }

    /// One that was begun has come to its end.
    pub(crate) fn end(&mut self) {
        self.under_way -= 1;
    }

    /// How many are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    pub(crate) fn begin_turn(&mut self) {
        self.spent_nanos = 0;
    }

    /// Whether handshakes have had their share of this turn.
    pub(crate) fn have_had_their_share(&self) -> bool {
        self.spent_nanos >= TURN_NANOS_MAX
    }

    /// Does a step of a handshake, and takes note of its time.
    pub(crate) fn timed<R>(&mut self, step: impl FnOnce(&mut Buffers) -> R) -> R {
        let begun = monotonic_nanos();
        let result = step(&mut self.buffers);
        self.spent_nanos += monotonic_nanos().saturating_sub(begun);
        result
    }
}
