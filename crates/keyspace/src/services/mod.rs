//! Code that walks the data, or serves listeners to its changes: active expiry, eviction, values on disk, snapshots,
//! checkpoints and replay of the log, whole databases, waiters, watchers, client-side caching.

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
