//! Chooses cold values and copies them.
//!
//! The choice is that of eviction, with a clock hand over the index ([`crate::services::coldest`]), but takes a few
//! at a time: the coldest quarter of some dozen entries whose values are in memory. A value that is already on disk
//! is dropped from memory immediately. The others are copied, to be written without any lock.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use tierce_collections::Collection;
use tierce_storage::{ColdBatch, ColdLimits, ColdLocation, ColdRefusal};

use crate::access::accounting::Accounting;
use crate::access::db::Db;
use crate::access::shard_locks::ShardLocks;
use crate::data::cold_value;
use crate::data::collections::each_collection;
use crate::data::collections::sealed::Sealed;
use crate::data::entry::{Attributes, Content, Entry, Kind, Spilled};
use crate::data::value::StrView;
use crate::db_index::DbIndex;
use crate::random::mix;
use crate::registries::policy::{Measure, Scope};
use crate::services::coldest::{Candidate, ColdSearch};
use crate::services::evict::larger_shard;

/// Minimum length of strings to spill: shorter ones take about as much memory as their location.
const STRING_LEN_MIN: usize = 64;

/// Minimum size of collections to spill, which have more overhead.
const COLLECTION_BYTES_MIN: usize = 128;

/// Maximum size of collections to spill: encoding and decoding a larger one would lock a shard for milliseconds.
const COLLECTION_BYTES_MAX: usize = 1 << 20;

/// Number of visited entries, of which the coldest quarter is taken.
const LOOKS: usize = 40;

/// Values to be written to disk, with their keys.
#[derive(Debug, Default)]
pub struct SpillBatch {
    pub(super) values: ColdBatch,
    pub(super) items: Vec<Item>,
    /// Keys, one after the other.
    pub(super) keys: Vec<u8>,
    /// Large strings whose bytes are not copied yet. There is room for all of them.
    blobs: Vec<(Item, Arc<Vec<u8>>)>,
    blob_bytes: usize,
    /// Addresses of the entries whose values are copied. They stay in memory until the batch is written, and would be
    /// chosen as coldest again.
    copied: HashSet<usize>,
}

/// Size of a batch at which gathering stops: large strings are copied when they are added.
const ENOUGH_BYTES: usize = 1 << 20;

/// Key of a value.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) db: DbIndex,
    pub(super) key: Range<usize>,
    /// Present location of the value, if it is only moved.
    pub(super) moved_from: Option<ColdLocation>,
}

impl SpillBatch {
    /// Returns a batch with these limits. Longer values stay in memory.
    pub fn with_limits(limits: ColdLimits) -> Self {
        Self { values: ColdBatch::with_limits(limits), ..Self::default() }
    }

    /// Returns the approximate bytes to write.
    pub fn bytes(&self) -> usize {
        self.values.bytes() + self.blob_bytes
    }

    /// Returns true if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.blobs.is_empty()
    }

    /// Returns the values, in the order of the locations that [`leave_to_disk`](super::leave_to_disk) expects. Copies
    /// large strings.
    pub fn values(&mut self) -> &mut ColdBatch {
        for (item, blob) in self.blobs.drain(..) {
            // A value that is refused nevertheless stays in memory.
            if self.values.push(|out| cold_value::encode_blob(&blob, out)).is_ok() {
                self.items.push(item);
            }
        }
        self.blob_bytes = 0;
        &mut self.values
    }

    /// Clears the batch, and keeps up to `kept_max` bytes of memory.
    pub fn clear(&mut self, kept_max: usize) {
        self.values.clear(kept_max);
        self.items.clear();
        self.keys.clear();
        self.blobs.clear();
        self.blob_bytes = 0;
        self.copied.clear();
    }

    fn item(&mut self, db: DbIndex, key: &[u8], moved_from: Option<ColdLocation>) -> Item {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        Item { db, key: start..self.keys.len(), moved_from }
    }

    /// Adds the value of an entry. Large strings are only shared, if there will be room for them.
    fn push(&mut self, db: DbIndex, entry: &Entry) -> Result<(), ColdRefusal> {
        if let Ok(StrView::Shared(blob)) = entry.string() {
            let waiting = self.blobs.iter().map(|(_, blob)| blob.len());
            self.values.takes(waiting.chain([blob.len()]).map(cold_value::blob_len))?;
            let item = self.item(db, entry.key(), None);
            self.blob_bytes += blob.len();
            self.blobs.push((item, blob.to_arc()));
            return Ok(());
        }
        self.values.push(|out| cold_value::encode(entry, out))?;
        let item = self.item(db, entry.key(), None);
        self.items.push(item);
        Ok(())
    }

    /// Adds a value that is only moved.
    pub(super) fn push_moved(
        &mut self,
        db: DbIndex,
        key: &[u8],
        from: ColdLocation,
        value: &[u8],
    ) -> Result<(), ColdRefusal> {
        self.values.push(|out| out.extend_from_slice(value))?;
        let item = self.item(db, key, Some(from));
        self.items.push(item);
        Ok(())
    }
}

/// The result of [`gather_cold`](super::gather_cold).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Gathered {
    /// Number of values that were copied.
    pub copied: usize,
    /// Number of values that were already on disk, and were dropped from memory.
    pub forgotten: usize,
    /// True if the shard is busy, and nothing was visited.
    pub is_busy: bool,
}

/// Drops some cold values of one shard from memory that are already on disk, and copies others, unless the shard is
/// busy. Releases the shard of the last request, and the one it has used.
///
/// # Panics
///
/// Under a [`MultiShardGuard`](crate::MultiShardGuard).
pub fn gather_cold(locks: &mut ShardLocks<'_>, batch: &mut SpillBatch, now_ms: i64) -> Gathered {
    let keyspace = locks.keyspace();
    let tuning = keyspace.eviction().frequency;
    let turn = keyspace.pressure.turn();
    let random = mix(turn as u64 ^ now_ms as u64);
    let (scope, measure, want) = (Scope::All, Measure::Uses, LOOKS);
    let mut search = ColdSearch { keyspace, scope, measure, tuning, now_ms, random, want };
    let shard = larger_shard(keyspace, scope, turn, mix(random) as usize);
    let len_max = batch.values.limits().value_len_max;
    if !locks.try_reach_shard(shard) {
        return Gathered { is_busy: true, ..Gathered::default() };
    }
    let coldest = search.coldest_few(locks.held(shard), |entry| {
        let is_new = batch.copied.is_empty() || !batch.copied.contains(&entry.address().addr());
        is_new && is_worth_it(entry, len_max, now_ms)
    });
    let mut gathered = Gathered::default();
    for candidate in coldest {
        if gathered.copied > 0 && batch.bytes() >= ENOUGH_BYTES {
            break;
        }
        match gather(&mut locks.shard_db(shard, candidate.db, now_ms), &candidate, batch) {
            Some(Fate::Forgotten) => gathered.forgotten += 1,
            Some(Fate::Copied) => gathered.copied += 1,
            None => {}
        }
    }
    locks.release();
    gathered
}

/// Result for a candidate.
enum Fate {
    Forgotten,
    Copied,
}

fn gather(db: &mut Db<'_>, candidate: &Candidate, batch: &mut SpillBatch) -> Option<Fate> {
    let at = db.at;
    let hash = at.keyspace.hasher.table_hash(candidate.hash);
    let table = &mut db.present().table;
    let entry = table.find_mut(hash, |entry| entry.address() == candidate.address)?;
    let Some(location) = entry.location() else {
        batch.push(candidate.db, entry).ok()?;
        batch.copied.insert(entry.address().addr());
        return Some(Fate::Copied);
    };
    let before = Accounting::of(entry);
    let displaced = forget_value(entry, location);
    let after = Accounting::of(entry);
    db.account(candidate.hash, before, after);
    db.at.keyspace.free_displaced(displaced);
    Some(Fate::Forgotten)
}

/// Replaces the value of an entry by its location on disk. Returns the out-of-line value.
pub(super) fn forget_value(
    entry: &mut Entry,
    location: ColdLocation,
) -> Option<crate::data::entry::OutOfLine> {
    let content = Content::Spilled(Spilled::of(entry, location));
    let attributes = Attributes { location: None, ..entry.attributes() };
    entry.replace(content, entry.deadline_ms(), attributes)
}

fn may_go(collection: &Collection) -> bool {
    let bytes = collection.allocated_bytes();
    // Expired elements must be removed in memory, so such hashes and sets stay there.
    let has_deadlines = each_collection!(collection, value => value.next_deadline_ms()).is_some();
    (COLLECTION_BYTES_MIN..COLLECTION_BYTES_MAX).contains(&bytes) && !has_deadlines
}

/// Returns true if spilling the value of an entry saves memory, and a batch with the limit `len_max` accepts it.
fn is_worth_it(entry: &Entry, len_max: usize, now_ms: i64) -> bool {
    let may_be_written = |len: usize| cold_value::blob_len(len) <= len_max;
    let is_long = match entry.kind() {
        Kind::Spilled | Kind::Int => false,
        Kind::Embedded | Kind::Raw => entry
            .string()
            .is_ok_and(|string| string.len() >= STRING_LEN_MIN && may_be_written(string.len())),
        Kind::Blob => entry.string().is_ok_and(|string| may_be_written(string.len())),
        Kind::Collection => {
            let may_go = entry.collection().is_some_and(|collection| may_go(&collection));
            may_go && entry.snapshot_id().is_none()
        }
    };
    is_long && !entry.is_expired(now_ms)
}
