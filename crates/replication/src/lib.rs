//! Redis' replication as bytes and decisions: what both sides know, without sockets, threads of their own or clocks.
//!
//! A primary turns its changes into a stream of commands. Each byte of the stream has an offset, and the stream has a
//! name, its *replication id*. A replica that has lost its connection asks for the rest of a stream by name and
//! offset; [`identity`] decides whether it may go on there, and [`backlog`] has the bytes.

pub mod backlog;
#[doc(hidden)]
pub mod fuzzing;
pub mod identity;
pub mod link;
pub mod note;
pub mod translate;
