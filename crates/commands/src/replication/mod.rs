//! Replication in the kernel: both roles, and the stream of a primary.
//!
//! * `replica`: one replica of this server, and the data that it gets next.
//! * `copy`: a full copy of the data on its way to several replicas.
//! * `role`: the role of this server.
//! * `confirmations`: clients that wait until replicas have their writes.
//! * `failover`: this server hands its role over to a replica.
//! * `primary`: all replicas, and the decisions about them.
//!
//! This module has no threads and no sockets. The server has a thread that appends to the stream, one that starts full
//! copies, and workers that send bytes to replicas ([`Replica::take`]).
//!
//! **Invariant:** a replica gets the bytes of the stream in order and without gaps, from the offset that it was told.
//! If this is not possible, it is disconnected.

mod confirmations;
mod copy;
pub mod failover;
mod primary;
mod replica;
pub mod role;

pub(crate) use confirmations::{Asker, Waiting};
pub use confirmations::{Asks, Confirmations, Confirmed, Wanted};
pub use copy::Copy;
pub use primary::{Accepted, Begun, Primary, Source, Syncs};
pub use replica::{Asked, Began, CopyFilter, Facts, Position, Replica, Took};
