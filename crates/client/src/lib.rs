//! Clients for Tierce, and for other servers that speak its protocols.
//!
//! | protocol | many requests in flight | one after the other |
//! |---|---|---|
//! | PedroKV's | [`pedrokv::Client`] | [`pedrokv::SyncClient`] |
//! | RESP, the Redis protocol | [`resp::Client`] | [`resp::SyncClient`] |
//!
//! The asynchronous clients have both callbacks and futures, which are completed exactly once whatever
//! happens, a window of requests in flight, timeouts, repetition of what may be repeated, and they
//! connect again by themselves. What is requested at about the same time, by whatever threads, leaves
//! in one write. Over TCP and Unix sockets. [`Cluster`] spreads keys over several servers.
//!
//! ```
//! use std::time::Duration;
//! use tierce_client::{Config, pedrokv::Client};
//! # let server = tierce_client::testing::FakeServer::pedrokv();
//! # let address = server.address();
//!
//! let client = Client::connect(address, Config::default())?;
//! let stored: Vec<_> = (0..100u8).map(|n| client.put(&[n], b"value")).collect();
//! for stored in stored {
//!     stored.wait()?;
//! }
//! assert_eq!(client.get(&[7]).wait()?, Some(b"value".to_vec()));
//! assert!(client.finish(Duration::from_secs(1)));
//! # Ok::<(), tierce_client::Error>(())
//! ```
//!
//! The page `docs/client.md` says how it behaves in detail.

#![forbid(unsafe_code)]

mod address;
mod cluster;
mod config;
mod error;
pub mod pedrokv;
mod reply;
pub mod resp;

mod alarm;
mod blocking;
mod callback;
mod channel;
mod driver;
mod engine;
mod framing;
mod socket;
mod window;

#[doc(hidden)]
pub mod testing;

pub use address::Address;
pub use cluster::{Cluster, Failover, Ring, Server, Shard};
pub use config::{Backoff, Config, MAX_INFLIGHT_MAX, Offline};
pub use error::Error;
pub use reply::Reply;
