//! The durable offset of this replica, which it confirms as FACK: the device has the stream up to it. With `appendfsync
//! bucket`, the bucket has it as well.
//!
//! The log has positions of its own, and so has the feed. A mark pairs one of each with an offset: when the log is on
//! the device and the feed in the bucket up to these positions, the stream is durable up to the offset. At most two
//! marks are kept, the next one and the latest one that the primary has asked for. So one is always reached, however
//! fast the stream grows.

use crate::config::SyncPolicy;
use crate::durability::DurableLog;
use crate::server::Server;

/// Position in the log and one in the feed, with the matching offset in the stream.
#[derive(Debug, Clone, Copy)]
struct Mark {
    log: u64,
    feed: u64,
    offset: u64,
}

impl Mark {
    /// Returns the mark of a stream that is applied exactly up to `offset`.
    fn here(server: &Server, durable_log: &DurableLog, offset: u64) -> Self {
        Self { log: durable_log.appended(), feed: server.feed.position(), offset }
    }

    fn is_reached(self, durable: Durable) -> bool {
        self.log <= durable.log && self.feed <= durable.feed
    }
}

/// Durable positions of the log and the feed.
#[derive(Debug, Clone, Copy)]
struct Durable {
    log: u64,
    feed: u64,
}

impl Durable {
    fn of(server: &Server) -> Self {
        // Without a log there is nothing to wait for.
        let log = server.durability.durable_log().map_or(u64::MAX, |log| counted(log));
        let feed = if needs_bucket(server) { server.bucket.committed() } else { u64::MAX };
        Self { log, feed }
    }
}

/// Durable offset of a link; see the module.
#[derive(Debug, Default)]
pub(super) struct Logged {
    /// Offset up to which everything is on the device.
    offset: u64,
    next: Option<Mark>,
    /// Mark behind `next`.
    latest: Option<Mark>,
    /// True if the primary wants a report when `next` and `latest` are reached.
    is_awaited: bool,
}

impl Logged {
    /// Returns the durable offset of a stream that is applied up to `applied`; `None` without a log.
    pub(super) fn offset(&mut self, server: &Server, applied: u64) -> Option<u64> {
        let durable_log = server.durability.durable_log()?;
        self.advance(Durable::of(server));
        if self.next.is_none() && self.offset < applied && !durable_log.has_write_error() {
            self.next = Some(Mark::here(server, durable_log, applied));
        }
        Some(self.offset)
    }

    /// Starts a sync up to `applied`, whose end the primary wants to be told.
    pub(super) fn demand(&mut self, server: &Server, applied: u64) {
        let Some(durable_log) = server.durability.durable_log() else { return };
        if durable_log.has_write_error() {
            return;
        }
        let mark = Mark::here(server, durable_log, applied);
        match self.next {
            None => self.next = Some(mark),
            Some(_) => self.latest = Some(mark),
        }
        self.is_awaited = true;
        durable_log.demand(mark.log);
    }

    /// Returns true if the primary waits for a sync here.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Returns true once a sync has ended that the primary waits for.
    pub(super) fn take_news(&mut self, server: &Server) -> bool {
        let was_awaited = self.is_awaited;
        let is_news = self.advance(Durable::of(server)) && was_awaited;
        if self.is_awaited && needs_bucket(server) {
            server.bucket.hasten(&server.feed);
        }
        is_news
    }

    /// Updates the durable offset. Returns true if it has grown.
    fn advance(&mut self, durable: Durable) -> bool {
        let before = self.offset;
        while let Some(reached) = self.next.take_if(|mark| mark.is_reached(durable)) {
            self.offset = reached.offset;
            self.next = self.latest.take();
        }
        self.is_awaited &= self.next.is_some();
        self.offset > before
    }
}

/// Returns true if acknowledged data must be in the bucket.
fn needs_bucket(server: &Server) -> bool {
    server.bucket.is_on() && server.config.live().appendfsync() == SyncPolicy::Bucket
}

/// Returns the position in the log up to which everything survives a power loss. It is 0 for a log without all keys
/// yet, because the previous log is still valid. It is also 0 for a log that failed to take a record: later changes are
/// not in it, whatever its positions are.
fn counted(durable_log: &DurableLog) -> u64 {
    // Read in this order: a log that became complete since then has this durable position. If it fails later, changes
    // applied before the failure are not behind it.
    let durable = durable_log.durable();
    match durable_log.is_complete() && !durable_log.has_write_error() {
        true => durable,
        false => 0,
    }
}
