//! Watched keys: those of a shard, and those that have changed and whose watchers are to be told.

mod filter;
pub(crate) mod registry;
pub(crate) mod touched;
