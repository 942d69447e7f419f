//! State that the shards and the keyspace keep for others: who waits for keys and who watches them, what clients have
//! cached, which shards are busy, the snapshot in progress, what waits to be freed, figures and limits. None of it knows
//! the keyspace.

pub(crate) mod aging;
pub(crate) mod busy;
pub(crate) mod cached;
pub(crate) mod flushed;
pub(crate) mod lazy_free;
pub(crate) mod policy;
pub(crate) mod pressure;
pub(crate) mod reaper_wakeup;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod waiters;
pub(crate) mod watch;
