//! Redis' replication as bytes and decisions, for both sides, without sockets, threads of its own or clocks.
//!
//! A primary turns its changes into a stream of commands. Each byte of the stream has an offset, and the stream has
//! a *replication id*. A replica that lost its connection asks for the rest of a stream by id and offset;
//! [`identity`] decides if it may continue there, and [`backlog`] has the bytes.

pub mod backlog;
#[doc(hidden)]
pub mod fuzzing;
pub mod identity;
pub mod link;
pub mod note;
pub mod translate;
