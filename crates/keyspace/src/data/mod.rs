//! Values, keys, and a database's part in a shard: their memory layout, edits, and encodings. This module does not
//! use the log, shard locks, running snapshots or waiters.

pub(crate) mod code;
pub(crate) mod cold_value;
pub(crate) mod collections;
pub(crate) mod counter;
pub(crate) mod db_counters;
pub(crate) mod deadline;
pub(crate) mod entry;
pub(crate) mod expiry;
pub(crate) mod key;
pub(crate) mod shard_db;
pub(crate) mod stamp;
pub(crate) mod usage;
pub(crate) mod value;
