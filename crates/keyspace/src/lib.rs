//! Typed values in shards: the data of a server that several threads read and write at once.
//!
//! A [`Keyspace`] spreads its databases over shards. Each shard has a small lock. A thread works through a
//! [`ShardLocks`]: it keeps the shard of the last request locked while the next requests use it too. For a request on
//! several keys it locks all their shards at once. Under the lock, a [`Db`] offers the operations on keys and
//! strings. Deadlines are Unix times in milliseconds, and the caller passes the time in. An expired key is never
//! visible, even if the [`Reaper`] has not removed it yet.
//!
//! Guarantees:
//!
//! - A value is returned byte for byte as it was set.
//! - Operations on one key are totally ordered. All operations under one [`MultiShardGuard`] are atomic.
//! - [`Keyspace::memory`] is exact, in the sizes that the allocator actually returns.
//! - The number of keys does not slow an operation down, except for those that visit all keys.
//! - A scan visits each key that stays exactly once.
//! - A worker never waits for a thread that locks shards for long ([`Keyspace::long_locks`]).
//! - Changes under a guard can be rolled back: [`ShardLocks::begin_undo`].
//! - A [`Snapshot`] contains all databases as of one moment, whatever changes meanwhile.
//!
//! ```
//! use tierce_keyspace::{DbIndex, Expiry, Keyspace, Options, Ttl};
//!
//! let keyspace = Keyspace::new(Options::default()).unwrap();
//! let now_ms = 1_700_000_000_000;
//!
//! let key = keyspace.key(b"visits");
//! let mut locks = keyspace.locks();
//! let mut db = locks.db(DbIndex::ZERO, key.hash(), now_ms);
//! db.set(key, "41", Expiry::At(now_ms + 1000))?;
//! assert_eq!(db.increment(key, 1), Ok(42));
//! assert_eq!(db.ttl(key), Ttl::Until(now_ms + 1000));
//!
//! // A second later it is gone.
//! let mut db = locks.db(DbIndex::ZERO, key.hash(), now_ms + 1000);
//! assert!(db.string(key)?.is_none());
//!
//! // Two keys change as one.
//! let (from, to) = (keyspace.key(b"from"), keyspace.key(b"to"));
//! let mut both = locks.lock_many(&[from.hash(), to.hash()]);
//! both.db(DbIndex::ZERO, from.hash(), now_ms).increment(from, -10)?;
//! both.db(DbIndex::ZERO, to.hash(), now_ms).increment(to, 10)?;
//! # Ok::<(), tierce_keyspace::Error>(())
//! ```

// From the lowest layer to the highest: shared basics; data; changes; state that shards keep for the services;
// locking of shards and access to keys; services that walk the data or serve listeners.
mod clock;
mod codec;
mod db_index;
mod error;
pub mod interleaving;
#[doc(hidden)]
pub mod planted;
mod random;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;

mod data;

mod change;

mod registries;

mod access;

mod services;

#[doc(hidden)]
pub mod fuzzing;

pub use access::cold::Fetched;
pub use access::collections::Missing;
pub use access::context::Touch;
pub use access::db::Db;
pub use access::item::{Adjust, Adjusted, Condition, End, Item, Stored, Summary, VersionFor};
pub use access::keyspace::{Keyspace, Options, OptionsError, SHARDS_MAX};
pub use access::memory::{SnapshotMemory, SpillStats};
pub use access::prefetch::prefetch_elements;
pub use access::shard_locks::{MultiShardGuard, SHARD_PATIENCE, ShardLocks};
pub use access::string::NewString;
pub use access::undo::Savepoint;
pub use change::event::{Event, EventBatch, EventClasses, EventSink, KeyEvent, Origin, Source};
pub use change::stream_position::{STREAM_NAME_LEN, StreamPosition};
pub use change::{Change, Removal};
pub use clock::{Clock, ManualClock, SystemClock};
pub use data::code::{CODE_NAME_LEN_MAX, CodeKind, CodeSet, CodeStore};
pub use data::collections::{
    BorrowGuard, CollectionPart, CollectionParts, CollectionType, Delivery, Editor, Limits,
    ListSide, SavedCollection, StreamFields, StreamIds,
};
pub use data::entry::{Entry, ItemNote, Marks, size_class};
pub use data::expiry::{DeadlineSet, Expiry, Ttl};
pub use data::key::{KEY_LEN_MAX, Key, KeyHash, VALUE_LEN_MAX};
pub use data::usage::FrequencyTuning;
pub use data::value::{BLOB_LEN_MIN, Blob, StrView, Value, ValueType, range_of};
pub use db_index::{DATABASES_MAX, DbIndex};
pub use error::{Busy, Error, Result, SnapshotError};
pub use registries::busy::Freed;
pub use registries::cached::{InvalidatedKey, InvalidationSink};
pub use registries::flushed::Freeing;
pub use registries::policy::Policy;
pub use registries::pressure::Eviction;
pub use registries::snapshot::batch::{
    Iter as SnapshotBatchIter, SavedEntry, SavedValue, SnapshotBatch,
};
pub use registries::snapshot::larges::LargeHead;
pub use registries::stats::{DbStats, Memory, Stats};
pub use registries::waiters::{
    Cancelled, Claimed, Reason, Returned, Sequence, WaitKey, Waiter, WaiterState, Wakes,
};
pub use registries::watch::registry::WatchState;
pub use services::aging::age_uses;
pub use services::code::CodeEditor;
pub use services::copies::{CopyRoom, ValueCopy};
#[cfg(debug_assertions)]
pub use services::events::{begin_naming, end_naming};
pub use services::events::{deliver_events, events_len, has_events};
pub use services::evict::{Evicted, evict, evict_for};
pub use services::flush::{flush_dbs, swap_dbs, try_flush_dbs};
pub use services::invalidation::{
    adopt_broadcast, invalidate_at_once, remember_reader, tell_invalidated,
};
pub use services::reaper::{Reaper, expire_due};
pub use services::scan::{
    for_each_entry, random_key, scan, try_for_each_entry, try_random_key, try_scan,
};
pub use services::snapshot::{SavedDb, SavedLarge, Snapshot, SnapshotPiece};
pub use services::spill::{Cleaning, Gathered, LostValues, SpillBatch, gather_cold, leave_to_disk};
pub use services::waiters::{
    claim_waiter, forget_waiter, forget_waiter_later, leave_unserved, take_unserved, wait_for_keys,
};
pub use services::watch::{Watch, end_dropped_watches, unwatch, watch_key};
pub use tierce_collections::{INT_TEXT_MAX, IntText, int_text_len, parse_int};

/// Encodes changes as operations in the records of a log, and loads them into a keyspace again.
///
/// An operation states the new value of a key, not the request. See [`Replay`](log::Replay),
/// [`LiveReplay`](log::LiveReplay) and [`Checkpoint`](log::Checkpoint).
///
/// **Order.** A record is appended before the shards of its operations are unlocked. So the records of a key are in
/// the order of its changes, and every change that another thread has seen is in the log.
///
/// **Atomicity.** All operations under one lock, or under one [`MultiShardGuard`], are one record. If they are longer
/// than a piece, they are one batch of records. A log keeps a record completely or not at all, and a batch takes
/// effect with its last record. So MSET, RENAME and transactions are atomic, whatever their size. To abandon a batch,
/// do not finish it.
///
/// **Expiry** is logged as a removal. Deadlines are absolute and nothing expires while a log is read. Without the
/// removal, a later edit could recreate a part of the key: the value before its expiry, or before a checkpoint
/// reached it, is not in the log any more.
pub mod log {
    pub use crate::change::log::{
        Effect, LogSink, Op, RecordKind, Sieve, Sifted, Sizes, Stored, Unfinished, cut,
        no_position, plain_put,
    };
    pub use crate::codec::{Malformed, Reader};
    pub use crate::data::collections::{
        Edit, Edits, FieldDeadline, Fields, HashEdit, ListEdit, MemberDeadline, SetEdit,
        SortedSetEdit, StreamEdit, TimedField, TimedMember,
    };
    pub use crate::data::entry::{Attributes, Spilled};
    pub use crate::services::checkpoint::{Checkpoint, Pass};
    pub use crate::services::replay::{LiveReplay, Replay, ReplayError, Replayed};
}

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
