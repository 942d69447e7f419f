//! Copies of values for commands that compute for long, made while the shard is free for others.
//!
//! A large collection is copied in slices. The shard is locked for one slice, and free while the slice is added to
//! the copy. The copy is abandoned if the key changes before it is complete.
//!
//! The shard is announced as busy for each slice, although that is short: without a free processor, the system may
//! stop the copying thread in the middle of a slice, for many milliseconds. Workers defer requests for the shard
//! meanwhile.
//!
//! A copy keeps the [version](crate::change::version) of its key. So its owner can check later, with the shard
//! locked, if the key still has this value ([`ValueCopy::is_current`]).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use tierce_collections::{Collection, CollectionKind};

use crate::access::context::Touch;
use crate::access::db::Db;
use crate::access::item::VersionFor;
use crate::access::keyspace::Keyspace;
use crate::access::shard_locks::ShardLocks;
use crate::codec::Writer;
use crate::data::collections::convert::{apply, encode_chunk};
use crate::data::entry::{Attributes, Content, Entry};
use crate::data::key::Key;
use crate::data::value::Value;
use crate::db_index::DbIndex;
use crate::error::Result;

/// Maximum bytes of all copies. Commands without room keep their shards locked instead.
const COPIES_BYTES_MAX: u64 = 1 << 30;

/// Bytes of a slice, which take some 100 µs. A value that is not larger is copied at once.
const SLICE_BYTES: usize = 64 * 1024;

/// Value and deadline of a key as of one moment.
#[derive(Debug)]
pub struct ValueCopy {
    /// `None`: there was no such key.
    entry: Option<Entry>,
    identity: Identity,
    /// Time of the copy, by which elements of the value have expired.
    now_ms: i64,
}

/// Distinguishes a value of a key from all earlier and later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    /// 0 for an absent key. A change of the value renews it.
    version: u64,
    /// A new deadline does not renew the version.
    deadline_ms: Option<i64>,
    /// Versions of different databases are not compared with each other.
    swaps: u64,
}

impl Identity {
    fn of(db: &mut Db<'_>, key: Key<'_>) -> Self {
        let swaps = db.at.keyspace.swaps.load(Relaxed);
        let version = db.version(key, VersionFor::Anybody);
        Self { version, deadline_ms: db.peek(key).and_then(Entry::deadline_ms), swaps }
    }
}

impl ValueCopy {
    /// Copies the value of a key. Counts a hit or a miss, and a use of the key if `touch` says so. The caller has no
    /// shard locked.
    ///
    /// `None` if the key changed before the copy was complete.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`](crate::Error::Unreadable).
    pub fn make(
        keyspace: &Keyspace,
        db: DbIndex,
        key: Key<'_>,
        now_ms: i64,
        touch: Touch,
    ) -> Result<Option<Self>> {
        let mut locks = keyspace.long_locks();
        locks.set_touch(touch);
        let mut shard = locks.db(db, key.hash(), now_ms);
        let is_there = shard.get(key)?.is_some();
        // An own version, which a change of another key does not renew.
        shard.version(key, VersionFor::Comparison);
        let identity = Identity::of(&mut shard, key);
        if !is_there {
            return Ok(Some(Self { entry: None, identity, now_ms }));
        }
        let entry = match shard.peek(key).and_then(large_kind) {
            None => shard.duplicate(key)?,
            Some(kind) => {
                let copied = copy_in_slices(&mut locks, db, key, now_ms, kind, identity);
                let Some(collection) = copied else { return Ok(None) };
                let at = locks.db(db, key.hash(), now_ms).at;
                let (content, access) = (Content::Collection(collection), at.first_access());
                let (bytes, deadline_ms) = (key.bytes(), identity.deadline_ms);
                Some(Entry::with_attributes(bytes, content, deadline_ms, Attributes::NONE, access))
            }
        };
        Ok(Some(Self { entry, identity, now_ms }))
    }

    /// Returns the value; `None` if there was none.
    pub fn value(&self) -> Option<Value<'_>> {
        self.entry.as_ref().map(|entry| entry.value_as_of(self.now_ms))
    }

    /// Returns the value with its deadline, for [`Db::put`].
    #[must_use]
    pub fn into_entry(self) -> Option<Entry> {
        self.entry
    }

    /// Returns true if the key still has this value and deadline, in the original database.
    pub fn is_current(&self, db: &mut Db<'_>, key: Key<'_>) -> bool {
        Identity::of(db, key) == self.identity
    }
}

/// Reserved memory for copies, which is released when this is dropped.
#[derive(Debug)]
pub struct CopyRoom<'k> {
    taken: &'k AtomicU64,
    bytes: u64,
}

impl<'k> CopyRoom<'k> {
    /// Reserves memory for copies of values of this size; `None` if there is not enough left, under either the limit
    /// of copies or the memory limit. [`Keyspace::memory`] counts it while it is reserved.
    pub fn take(keyspace: &'k Keyspace, bytes: u64) -> Option<Self> {
        let taken = &keyspace.copies_bytes;
        let before = taken.fetch_add(bytes, Relaxed);
        // Releases the reservation in any case.
        let room = Self { taken, bytes };
        let copies = before.saturating_add(bytes);
        let is_enough = copies <= COPIES_BYTES_MAX && copies <= keyspace.pressure.room_bytes();
        is_enough.then_some(room)
    }
}

impl Drop for CopyRoom<'_> {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Relaxed);
    }
}

/// Returns the type of a collection that is copied in slices.
fn large_kind(entry: &Entry) -> Option<CollectionKind> {
    let collection = entry.collection()?;
    (collection.allocated_bytes() > SLICE_BYTES).then(|| collection.kind())
}

/// Copies a collection in slices; `None` if the key changed meanwhile, or its value moved to disk.
fn copy_in_slices(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    key: Key<'_>,
    now_ms: i64,
    kind: CollectionKind,
    identity: Identity,
) -> Option<Collection> {
    let limits = &locks.keyspace().limits;
    let (mut copy, mut cursor, mut slice) = (Collection::new(kind), 0, Vec::new());
    loop {
        let mut shard = locks.db(db, key.hash(), now_ms);
        if Identity::of(&mut shard, key) != identity {
            return None;
        }
        let collection = shard.peek(key)?.collection()?;
        slice.clear();
        cursor = encode_chunk(&collection, cursor, SLICE_BYTES, &mut Writer::new(&mut slice));
        locks.release();
        apply(&mut copy, &slice, limits).expect("edits of this process are well formed");
        if cursor == 0 {
            return Some(copy);
        }
    }
}
