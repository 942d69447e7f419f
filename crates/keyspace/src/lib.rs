//! Typed values in shards: the data of a server that several threads read and write at once.
//!
//! A [`Keyspace`] spreads its databases over shards, each behind a small lock. A thread works
//! through a [`ShardLocks`]: it keeps the shard of the last request locked while the next ones go there,
//! too, and locks the shards of a request on several keys all at once. Under the lock a [`Db`] offers
//! the operations on keys and strings. Deadlines are Unix times in milliseconds, the time is handed
//! in, and a key whose deadline has come is never seen again, whether or not the [`Reaper`] has
//! removed it yet.
//!
//! What it guarantees:
//!
//! - Values come back byte by byte as they were set.
//! - Operations on one key have one order, and those under one [`MultiShardGuard`] happen as one.
//! - [`Keyspace::memory`] is exact, in the sizes that the allocator actually returns.
//! - No operation takes longer because there are many keys, except those that go through all.
//! - A scan visits each key that stays exactly once.
//! - A worker never waits for a thread that holds shards for long ([`Keyspace::long_locks`]).
//! - What is done under a guard can be taken back: [`ShardLocks::begin_undo`].
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

// In reading order: what keys are and when; how a key lies in memory with its value; what a shard
// holds; how shards are locked; what can be done to keys and strings, to whole databases, and how changes
// reach a log and come back; what happens by itself.
mod clock;
mod codec;
mod counter;
mod db_index;
mod error;
mod expiry;
pub mod interleaving;
mod key;
mod random;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;

mod collections;
mod entry;
mod value;

mod stamp;
mod usage;

mod accounting;
mod cached;
mod change;
mod db_counters;
mod deadline;
mod effects;
mod event;
mod interest;
mod lazy_free;
mod shard;
mod shard_db;
mod stats;
mod stream_place;
mod waiters;
mod watch;

mod busy;
mod keyspace;
mod reaper_wakeup;
mod shard_locks;

mod context;
mod db;
mod expire;
mod item;
mod string;
mod version;

mod policy;
mod pressure;

mod coldest;
mod evict;
mod spill;

mod undo;

mod code;
mod copies;
mod flush;
mod flushed;
mod prefetch;
mod scan;
mod snapshot;

pub mod log;

#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod planted;

mod aging;
mod reaper;

pub use crate::flushed::Freeing;
pub use busy::Freed;
pub use cached::{InvalidatedKey, InvalidationSink};
pub use change::{Change, Removal};
pub use clock::{Clock, ManualClock, SystemClock};
pub use code::{CODE_NAME_LEN_MAX, CodeEditor, CodeKind, CodeSet, CodeStore};
pub use collections::{
    BorrowGuard, CollectionPart, CollectionParts, CollectionType, Delivery, Editor, Limits,
    ListSide, Missing, SavedCollection, StreamFields, StreamIds,
};
pub use context::Touch;
pub use copies::{CopyRoom, ValueCopy};
pub use db::Db;
pub use db_index::{DATABASES_MAX, DbIndex};
pub use entry::{Entry, ItemNote, Marks, size_class};
pub use error::{Busy, Error, Result, SnapshotError};
pub use event::{Event, EventBatch, EventClasses, EventSink, KeyEvent, Origin, Source};
pub use evict::Evicted;
pub use expiry::{DeadlineSet, Expiry, Ttl};
pub use item::{Adjust, Adjusted, Condition, End, Item, Stored, Summary, VersionFor};
pub use key::{KEY_LEN_MAX, Key, KeyHash, VALUE_LEN_MAX};
pub use keyspace::{Keyspace, Options, OptionsError, SHARDS_MAX};
pub use policy::Policy;
pub use pressure::Eviction;
pub use reaper::Reaper;
pub use shard_locks::{MultiShardGuard, ShardLocks};
pub use snapshot::{
    Iter as SnapshotBatchIter, LargeHead, SavedDb, SavedEntry, SavedLarge, SavedValue, Snapshot,
    SnapshotBatch, SnapshotMemory, SnapshotPiece,
};
pub use spill::{Cleaning, Fetched, Gathered, LostValues, SpillBatch, SpillStats};
pub use stats::{DbStats, Memory, Stats};
pub use stream_place::{STREAM_NAME_LEN, StreamPlace};
pub use string::NewString;
pub use tierce_collections::{INT_TEXT_MAX, IntText, int_text_len, parse_int};
pub use undo::Savepoint;
pub use usage::FrequencyTuning;
pub use value::{BLOB_LEN_MIN, Blob, StrView, Value, ValueType, range_of};
pub use waiters::{Cancelled, Claimed, Reason, Returned, Sequence, WaitKey, Waiter, WaiterState};
pub use watch::{Watch, WatchState};

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
