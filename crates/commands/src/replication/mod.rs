//! What the kernel knows of replication: the stream of a primary, and those that follow it.
//!
//! * `replica`: one follower, and what it gets next.
//! * `copy`: a full copy of the data on its way to several of them.
//! * `role`: whether this server follows another one.
//! * `confirmations`: clients that wait until followers have what was written.
//! * `primary`: all followers, and the decisions about them.
//!
//! Nothing here has a thread or a socket. The server has a thread that appends to the stream, one that begins full
//! copies, and workers that carry bytes to replicas ([`Replica::take`]).
//!
//! **Invariant:** a replica gets bytes of the stream in order, from the offset that it was told on, without gaps. One
//! for which this cannot be kept loses its connection.

mod confirmations;
mod copy;
mod primary;
mod replica;
pub mod role;

pub(crate) use confirmations::Waiting;
pub use confirmations::{Confirmations, Confirmed, Wanted};
pub use copy::Copy;
pub use primary::{Accepted, Begun, Primary, Syncs};
pub use replica::{Asked, Began, Facts, Place, Replica, Took};
