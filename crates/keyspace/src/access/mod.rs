//! Access to the data for a thread: the keyspace, its shards, their locks, and operations on keys under the locks.
//! All changes of a key pass [`context`], which tells the log and all listeners; [`undo`] rolls them back.

pub(crate) mod accounting;
pub(crate) mod busy;
pub(crate) mod cold;
pub(crate) mod collections;
pub(crate) mod context;
pub(crate) mod db;
pub(crate) mod effects;
pub(crate) mod expire;
pub(crate) mod hash_deadlines;
pub(crate) mod item;
pub(crate) mod keyspace;
pub(crate) mod listeners;
pub(crate) mod memory;
pub(crate) mod notices;
pub(crate) mod prefetch;
pub(crate) mod saving;
pub(crate) mod shard;
pub(crate) mod shard_locks;
pub(crate) mod string;
pub(crate) mod undo;
