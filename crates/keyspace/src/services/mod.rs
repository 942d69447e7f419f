//! Code that goes through the data, or serves those who hear of its changes: expiry in the background, eviction, values
//! on disk, snapshots, checkpoints of the log and its replay, whole databases, waiters, watchers, caching clients.

pub(crate) mod aging;
pub(crate) mod checkpoint;
pub(crate) mod code;
pub(crate) mod coldest;
pub(crate) mod copies;
pub(crate) mod events;
pub(crate) mod evict;
pub(crate) mod flush;
pub(crate) mod invalidation;
pub(crate) mod reaper;
pub(crate) mod replay;
pub(crate) mod scan;
pub(crate) mod snapshot;
pub(crate) mod spill;
pub(crate) mod waiters;
pub(crate) mod watch;
