//! Watched keys: those of a shard, and changed ones whose watchers must be told.

mod filter;
pub(crate) mod registry;
pub(crate) mod touched;
