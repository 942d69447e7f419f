//! Counters: each worker counts for itself, readers add up.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::buffer::pool::PoolStats;

/// Sums over all workers, since the start unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Connections that were accepted, including those the service refused.
    pub accepted: u64,
    /// Connections that have ended.
    pub closed: u64,
    /// Connections the process had no file descriptors for.
    pub dropped: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Turns of the workers' loops.
    pub turns: u64,
    /// Memory held by the pools of connection buffers at the moment.
    pub pool_bytes: u64,
    /// Memory of them in use.
    pub pool_bytes_used: u64,
}

/// A worker's own counters.
#[derive(Debug, Default)]
pub(crate) struct LocalMetrics {
    pub(crate) accepted: u64,
    pub(crate) closed: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) turns: u64,
    pub(crate) pool: PoolStats,
}

/// A worker's counters as others may read them. Only the worker writes, so plain stores do; being
/// on cache lines of their own they cost it nothing between readings.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SharedMetrics {
    accepted: AtomicU64,
    closed: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    turns: AtomicU64,
    pool_bytes: AtomicU64,
    pool_bytes_used: AtomicU64,
}

impl LocalMetrics {
    /// Publishes the counters. Readers may see some of a turn's counters and not the others.
    pub(crate) fn publish(&self, shared: &SharedMetrics) {
        shared.accepted.store(self.accepted, Ordering::Relaxed);
        shared.closed.store(self.closed, Ordering::Relaxed);
        shared.bytes_in.store(self.bytes_in, Ordering::Relaxed);
        shared.bytes_out.store(self.bytes_out, Ordering::Relaxed);
        shared.turns.store(self.turns, Ordering::Relaxed);
        shared.pool_bytes.store(self.pool.arena_bytes as u64, Ordering::Relaxed);
        shared.pool_bytes_used.store(self.pool.used_bytes as u64, Ordering::Relaxed);
    }
}

impl SharedMetrics {
    pub(crate) fn add_to(&self, sum: &mut Metrics) {
        sum.accepted += self.accepted.load(Ordering::Relaxed);
        sum.closed += self.closed.load(Ordering::Relaxed);
        sum.bytes_in += self.bytes_in.load(Ordering::Relaxed);
        sum.bytes_out += self.bytes_out.load(Ordering::Relaxed);
        sum.turns += self.turns.load(Ordering::Relaxed);
        sum.pool_bytes += self.pool_bytes.load(Ordering::Relaxed);
        sum.pool_bytes_used += self.pool_bytes_used.load(Ordering::Relaxed);
    }
}
