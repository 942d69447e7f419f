//! Counters: each worker has its own, and readers sum them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sums over all workers, since the start unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Number of connections accepted, including those the service refused.
    pub accepted: u64,
    /// Number of connections that have ended.
    pub closed: u64,
    /// Number of connections rejected for lack of file descriptors.
    pub dropped: u64,
    /// Number of connections rejected because their address opened them too fast.
    pub too_fast: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Turns of the workers' loops.
    pub turns: u64,
    /// Outcomes of TLS handshakes.
    pub tls: TlsMetrics,
}

/// Outcomes of TLS handshakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsMetrics {
    /// Handshakes that were completed.
    pub completed: u64,
    /// Completed handshakes that resumed a session with a ticket.
    pub resumed: u64,
    /// Handshakes that failed or took too long, and connections that broke the protocol later.
    pub failed: u64,
    /// Connections that were closed because too many handshakes were in progress.
    pub refused: u64,
    /// Failed handshakes that took too long.
    pub timed_out: u64,
    /// Handshakes in progress now.
    pub under_way: u64,
}

/// A worker's own counters.
#[derive(Debug, Default)]
pub(crate) struct LocalMetrics {
    pub(crate) accepted: u64,
    pub(crate) closed: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) turns: u64,
    pub(crate) tls: TlsMetrics,
}

/// Worker's counters that other threads read. Only the worker writes, so plain stores suffice. They
/// have their own cache lines, so they cost the worker nothing between readings.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SharedMetrics {
    accepted: AtomicU64,
    closed: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    turns: AtomicU64,
    tls_completed: AtomicU64,
    tls_resumed: AtomicU64,
    tls_failed: AtomicU64,
    tls_refused: AtomicU64,
    tls_timed_out: AtomicU64,
    tls_under_way: AtomicU64,
}

impl LocalMetrics {
    /// Publishes the counters. Readers may see only some of a turn's updates.
    pub(crate) fn publish(&self, shared: &SharedMetrics) {
        shared.accepted.store(self.accepted, Ordering::Relaxed);
        shared.closed.store(self.closed, Ordering::Relaxed);
        shared.bytes_in.store(self.bytes_in, Ordering::Relaxed);
        shared.bytes_out.store(self.bytes_out, Ordering::Relaxed);
        shared.turns.store(self.turns, Ordering::Relaxed);
        if self.tls != TlsMetrics::default() {
            self.publish_tls(shared);
        }
    }

    #[cold]
    fn publish_tls(&self, shared: &SharedMetrics) {
        shared.tls_completed.store(self.tls.completed, Ordering::Relaxed);
        shared.tls_resumed.store(self.tls.resumed, Ordering::Relaxed);
        shared.tls_failed.store(self.tls.failed, Ordering::Relaxed);
        shared.tls_refused.store(self.tls.refused, Ordering::Relaxed);
        shared.tls_timed_out.store(self.tls.timed_out, Ordering::Relaxed);
        shared.tls_under_way.store(self.tls.under_way, Ordering::Relaxed);
    }
}

impl SharedMetrics {
    pub(crate) fn add_to(&self, sum: &mut Metrics) {
        sum.accepted += self.accepted.load(Ordering::Relaxed);
        sum.closed += self.closed.load(Ordering::Relaxed);
        sum.bytes_in += self.bytes_in.load(Ordering::Relaxed);
        sum.bytes_out += self.bytes_out.load(Ordering::Relaxed);
        sum.turns += self.turns.load(Ordering::Relaxed);
        sum.tls.completed += self.tls_completed.load(Ordering::Relaxed);
        sum.tls.resumed += self.tls_resumed.load(Ordering::Relaxed);
        sum.tls.failed += self.tls_failed.load(Ordering::Relaxed);
        sum.tls.refused += self.tls_refused.load(Ordering::Relaxed);
        sum.tls.timed_out += self.tls_timed_out.load(Ordering::Relaxed);
        sum.tls.under_way += self.tls_under_way.load(Ordering::Relaxed);
    }
}
