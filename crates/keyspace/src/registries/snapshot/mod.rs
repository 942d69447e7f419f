//! A snapshot in progress: copies, large collections, and the part of each shard.

pub(crate) mod backlog;
pub(crate) mod batch;
pub(crate) mod larges;
pub(crate) mod shard;
