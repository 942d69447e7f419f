//! Typed values in shards: expiry, memory accounting, multi-key locking.
