//! Replication over sockets.

pub mod replica;
