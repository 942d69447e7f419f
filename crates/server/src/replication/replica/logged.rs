//! How far this replica has the stream on its device: what it confirms as FACK.
//!
//! The log has positions of its own. A pair of a position and an offset says: when the log is on the device up to the
//! position, the stream is there up to the offset. At most two are remembered, so that one is always reached, however
//! fast the stream goes on: the next one, and the latest that the primary has asked for.

use crate::durability::{Durability, WalHandle};

/// A position in the log, and the offset in the stream that belongs to it.
type Pair = (u64, u64);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Logged {
    /// Everything up to here is on the device.
    offset: u64,
    next: Option<Pair>,
    /// Behind `next`.
    latest: Option<Pair>,
    /// The primary wants to hear when `next` and `latest` are reached.
    is_awaited: bool,
}

impl Logged {
    /// What is on the device of a stream that is applied up to `applied`; `None` without a log.
    pub(super) fn offset(&mut self, durability: &Durability, applied: u64) -> Option<u64> {
        let wal_handle = durability.wal_handle()?;
        self.advance(counted(wal_handle));
        if self.next.is_none() && self.offset < applied && !wal_handle.has_write_error() {
            self.next = Some((wal_handle.appended(), applied));
        }
        Some(self.offset)
    }

    /// The primary wants to hear when everything up to `applied` is on the device, which begins to be so at once.
    pub(super) fn demand(&mut self, durability: &Durability, applied: u64) {
        let Some(wal_handle) = durability.wal_handle() else { return };
        if wal_handle.has_write_error() {
            return;
        }
        let pair = (wal_handle.appended(), applied);
        match self.next {
            None => self.next = Some(pair),
            Some(_) => self.latest = Some(pair),
        }
        self.is_awaited = true;
        wal_handle.demand(pair.0);
    }

    /// Whether the primary waits for a sync here.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Whether a sync has ended that the primary waits for.
    pub(super) fn take_news(&mut self, durability: &Durability) -> bool {
        // Without a log nothing is to be waited for any more.
        let durable = durability.wal_handle().map_or(u64::MAX, |wal_handle| counted(wal_handle));
        let was_awaited = self.is_awaited;
        self.advance(durable) && was_awaited
    }

    /// Whether more is on the device than was known.
    fn advance(&mut self, durable: u64) -> bool {
        let before = self.offset;
        while let Some((_, offset)) = self.next.take_if(|(position, _)| *position <= durable) {
            self.offset = offset;
            self.next = self.latest.take();
        }
        self.is_awaited &= self.next.is_some();
        self.offset > before
    }
}

/// Everything up to this position in the log survives a power cut: nothing of a log that does not have all keys yet, as
/// the one before it counts so long. Nor of one that has not taken something: what was applied since is not in it,
/// wherever its positions are.
fn counted(wal_handle: &WalHandle) -> u64 {
    // In this order: what was on the device of a log that has become complete since counts, and what was applied before
    // it failed is not behind that.
    let durable = wal_handle.durable();
    match wal_handle.is_complete() && !wal_handle.has_write_error() {
        true => durable,
        false => 0,
    }
}
