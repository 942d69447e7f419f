//! A thread's way to the data: the keyspace, its shards, how they are locked, and what is done to a key under the lock.
//! Everything that changes a key passes [`context`], which tells the log and all who listen; [`undo`] takes it back.

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
