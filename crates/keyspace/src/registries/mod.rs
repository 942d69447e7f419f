//! State that the shards and the keyspace keep for other modules: waiters and watchers, cached keys, busy shards, the
//! running snapshot, lazy freeing, figures and limits. This module does not know the keyspace.

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
