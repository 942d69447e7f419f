//! Values on disk: how they leave memory, come back, and move.
//!
//! Keys, deadlines and all else stay in memory. A value goes to a [`ColdStore`], and its entry remembers
//! what it is and where ([`Spilled`](crate::data::entry::Spilled)). A command that needs the value fetches it; then the
//! entry has it in memory and on disk, until it is changed, or until memory is needed and the value in
//! memory is forgotten.
//!
//! * `gather`: choosing cold values and copying them, for a caller that writes them.
//! * `written`: what becomes of the entries when they are written.
//! * `fetch`: back into memory.
//! * `clean`: moving values out of segments in which little else counts.
//! * `lost`: finding values that are gone.
//!
//! **Invariants:**
//! - A location belongs to one entry. It is released by the code that changes or drops the entry, which
//!   `Db::account`, [`Keyspace::let_go`] and [`Flushed`](crate::registries::flushed::Flushed) do. An entry that
//!   was taken out to be put under another key keeps its location.
//! - An entry refers to a location only when its value is on the device, so that the log may say so.
//! - The log holds nothing that changes a value on disk in part: what is changed is logged as a whole
//!   ([`ColdAccounting::change`]). So reading the log needs no value from disk.
//! - Where a value is makes no difference to readers of the key: moving it is not a change, does not
//!   count as a use, and does not concern snapshots.

mod clean;
mod fetch;
mod gather;
mod lost;
mod written;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tierce_cask::{ColdLocation, ColdStore};

use crate::access::accounting::ColdAccounting;
use crate::access::db::Db;
use crate::access::keyspace::Keyspace;
use crate::data::entry::Entry;

pub use clean::Cleaning;
pub use fetch::Fetched;
pub use gather::{Gathered, SpillBatch};
pub use lost::LostValues;

/// Figures of values on disk.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SpillStats {
    /// Keys whose values are on disk only.
    pub keys: u64,
    /// Bytes of these values.
    pub bytes: u64,
    /// Values that were fetched so far.
    pub fetched: u64,
    /// Of these, values that a command had to wait for with a shard locked.
    pub fetched_late: u64,
}

impl Keyspace {
    /// Gives the keyspace its store for values on disk: before anything is loaded that refers to it. A
    /// second one is not taken.
    pub fn set_cold_store(&self, store: Arc<ColdStore>) {
        let _ = self.cold.set(store);
    }

    /// The store for values on disk.
    #[inline]
    pub fn cold_store(&self) -> Option<&Arc<ColdStore>> {
        self.cold.get()
    }

    /// Bytes of memory as they count against the limit, give or take a 256th of that.
    pub fn told_memory(&self) -> u64 {
        self.pressure.used_bytes()
    }

    /// Whether there may be values that are on disk only.
    #[inline]
    pub fn has_spilled(&self) -> bool {
        self.has_spilled.load(Ordering::Relaxed)
    }

    /// Figures of values on disk, without a lock.
    pub fn spill_stats(&self) -> SpillStats {
        let mut all = SpillStats::default();
        for slot in &self.slots {
            all.keys += slot.stats.spilled_keys.get();
            all.bytes += slot.stats.spilled_bytes.get();
            all.fetched += slot.stats.fetched.get();
            all.fetched_late += slot.stats.fetched_late.get();
        }
        all
    }

    /// An entry ends that is in no database any more.
    pub(crate) fn let_go(&self, entry: &Entry) {
        if let Some(location) = entry.location() {
            self.release(location);
        }
    }

    pub(crate) fn release(&self, location: ColdLocation) {
        if let Some(store) = self.cold_store() {
            store.release(location);
        }
    }
}

impl Db<'_> {
    /// Brings the figures up to date with an entry whose location has changed, and releases the old one.
    #[cold]
    pub(crate) fn account_cold(&mut self, before: ColdAccounting, after: ColdAccounting) {
        let at = self.at;
        if let Some(location) = before.location
            && after.location != before.location
            && !before.is_moved
        {
            match at.undo() {
                None => at.keyspace.release(location),
                Some(undo) => undo.release(location),
            }
        }
        let cold = &mut self.db().cold;
        cold.placed = cold.placed - usize::from(before.location.is_some())
            + usize::from(after.location.is_some());
        if after.is_spilled && !at.keyspace.has_spilled() {
            at.keyspace.has_spilled.store(true, Ordering::Relaxed);
        }
        let (before, after) = (before.spilled_len(), after.spilled_len());
        cold.spilled_keys =
            cold.spilled_keys - u64::from(before.is_some()) + u64::from(after.is_some());
        cold.spilled_bytes = cold.spilled_bytes - before.unwrap_or(0) + after.unwrap_or(0);
        let follow =
            |b: Option<u64>, a: Option<u64>| (usize::from(b.is_some()), usize::from(a.is_some()));
        let (keys_before, keys_after) = follow(before, after);
        at.stats.spilled_keys.follow(keys_before, keys_after);
        at.stats.spilled_bytes.follow(before.unwrap_or(0) as usize, after.unwrap_or(0) as usize);
    }
}
