//! HTTP beside the event loops: commands as JSON, messages as server-sent events, health, and metrics.
//!
//! One listener (`http-port`) on a thread of its own with a small tokio runtime, off the data path. It calls the command
//! kernel directly, as a caller with the rights of a user. `docs/http.md` says what clients see, and
//! `docs/decisions/0026-http-on-a-runtime-of-its-own.md` why it is no protocol of the event loops.
//!
//! | module | what it holds |
//! |---|---|
//! | `gateway` | the thread: start, listeners that change, end |
//! | `connection` | a connection: its limits of time |
//! | `guard` | which hosts and web pages are let in |
//! | `routes` | from a request to a response |
//! | `credentials` | who sends it |
//! | `request` | JSON and paths as commands |
//! | `execute` | commands, at once or on a thread that may wait |
//! | `reply` | replies as JSON |
//! | `events` | messages of channels as server-sent events |
//! | `health` | `/healthz` and `/readyz` |
//! | `metrics` | `/metrics` for Prometheus |
//!
//! **Invariant:** the runtime's thread waits for no lock that a command holds for long: what may wait or take long runs
//! on one of its few threads for that.

#![forbid(unsafe_code)]

mod connection;
mod credentials;
mod events;
mod execute;
mod failure;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod guard;
mod health;
mod metrics;
mod reply;
mod request;
mod routes;

pub use gateway::{Dial, Gateway, KernelHandle, ListenError};
