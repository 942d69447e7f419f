//! How far this replica has the stream on its device: what it confirms as FACK. With `appendfsync bucket` that is how far
//! its bucket has it, which is on the device as well.
//!
//! The log has positions of its own, and so has the feed. A mark says: when the log is on the device and the feed in the
//! bucket up to these, the stream is there up to the offset. At most two are remembered, so that one is always reached,
//! however fast the stream goes on: the next one, and the latest that the primary has asked for.

use crate::config::SyncPolicy;
use crate::durability::DurableLog;
use crate::server::Server;

/// A position in the log and one in the feed, and the offset in the stream that belongs to them.
#[derive(Debug, Clone, Copy)]
struct Mark {
    log: u64,
    feed: u64,
    offset: u64,
}

impl Mark {
    /// What is applied up to `offset`, and nothing behind it.
    fn here(server: &Server, durable_log: &DurableLog, offset: u64) -> Self {
        Self { log: durable_log.appended(), feed: server.feed.position(), offset }
    }

    fn is_reached(self, durable: Durable) -> bool {
        self.log <= durable.log && self.feed <= durable.feed
    }
}

/// Up to which positions of the log and the feed all that counts has everything.
#[derive(Debug, Clone, Copy)]
struct Durable {
    log: u64,
    feed: u64,
}

impl Durable {
    fn of(server: &Server) -> Self {
        // Without a log nothing is to be waited for any more.
        let log = server.durability.durable_log().map_or(u64::MAX, |log| counted(log));
        let feed = if needs_bucket(server) { server.bucket.committed() } else { u64::MAX };
        Self { log, feed }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Logged {
    /// Everything up to here is on the device.
    offset: u64,
    next: Option<Mark>,
    /// Behind `next`.
    latest: Option<Mark>,
    /// The primary wants to hear when `next` and `latest` are reached.
    is_awaited: bool,
}

impl Logged {
    /// What is on the device of a stream that is applied up to `applied`; `None` without a log.
    pub(super) fn offset(&mut self, server: &Server, applied: u64) -> Option<u64> {
        let durable_log = server.durability.durable_log()?;
        self.advance(Durable::of(server));
        if self.next.is_none() && self.offset < applied && !durable_log.has_write_error() {
            self.next = Some(Mark::here(server, durable_log, applied));
        }
        Some(self.offset)
    }

    /// The primary wants to hear when everything up to `applied` is on the device, which begins to be so at once.
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

    /// Whether the primary waits for a sync here.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Whether a sync has ended that the primary waits for.
    pub(super) fn take_news(&mut self, server: &Server) -> bool {
        let was_awaited = self.is_awaited;
        let is_news = self.advance(Durable::of(server)) && was_awaited;
        if self.is_awaited && needs_bucket(server) {
            server.bucket.hasten(&server.feed);
        }
        is_news
    }

    /// Whether more is on the device than was known.
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

/// Whether what is acknowledged here is to be in the bucket.
fn needs_bucket(server: &Server) -> bool {
    server.bucket.is_on() && server.config.live().appendfsync() == SyncPolicy::Bucket
}

/// Everything up to this position in the log survives a power cut: nothing of a log that does not have all keys yet, as
/// the one before it counts so long. Nor of one that has not taken something: what was applied since is not in it,
/// wherever its positions are.
fn counted(durable_log: &DurableLog) -> u64 {
    // In this order: what was on the device of a log that has become complete since counts, and what was applied before
    // it failed is not behind that.
    let durable = durable_log.durable();
    match durable_log.is_complete() && !durable_log.has_write_error() {
        true => durable,
        false => 0,
    }
}
