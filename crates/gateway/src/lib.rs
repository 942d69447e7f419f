//! HTTP next to the event loops: commands as JSON, messages as server-sent events, health checks, and metrics.
//!
//! One listener (`http-port`) on a thread of its own with a small tokio runtime, off the data path. It calls the
//! command kernel directly, as a caller with the rights of a user. `docs/http.md` describes the interface for clients,
//! and `docs/decisions/0026-http-on-a-runtime-of-its-own.md` explains why HTTP is not a protocol of the event loops.
//!
//! | module | contents |
//! |---|---|
//! | `shared`, `waiting` | state that all requests share, threads that may wait |
//! | `gateway` | the thread: start, listeners that change, end |
//! | `connection` | a connection and its time limits |
//! | `guard` | allowed hosts and web pages |
//! | `routes` | from a request to a response |
//! | `credentials` | the user that sends it |
//! | `execute` | commands, at once or on a thread that may wait |
//! | `events` | messages of channels as server-sent events |
//! | `health` | `/healthz` and `/readyz` |
//! | `metrics` | `/metrics` for Prometheus |
//!
//! **Invariant:** the runtime's thread waits for no lock that a command holds for long. Commands that may wait or take
//! long run on one of a few other threads, which also parse and encode long bodies, replies and messages.

#![forbid(unsafe_code)]

mod connection;
mod credentials;
mod events;
mod execute;
mod failure;
mod gateway;
mod guard;
mod health;
mod metrics;
mod routes;
mod shared;
mod waiting;

pub use gateway::{Gateway, ListenError};
pub use shared::{Dial, KernelHandle};
