//! Replication, as far as commands know it.

pub mod role;
