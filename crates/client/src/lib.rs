//! Clients for Tierce and for other servers with its protocols.
//!
//! | protocol | many requests in flight | one after the other |
//! |---|---|---|
//! | PedroKV's | [`pedrokv::Client`] | [`pedrokv::SyncClient`] |
//! | RESP, the Redis protocol | [`resp::Client`] | [`resp::SyncClient`] |
//!
//! The asynchronous clients offer callbacks and futures, each completed exactly once, a window of requests in flight,
//! timeouts, retries where allowed, and reconnection. Requests that any threads make at about the same time share one
//! write, over TCP or Unix sockets. [`Cluster`] distributes keys over several servers.
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
//! `docs/client.md` describes the behaviour in detail.

#![forbid(unsafe_code)]

mod address;
mod cluster;
mod config;
mod error;
pub mod pedrokv;
mod reply;
pub mod resp;

mod blocking;
mod callback;
mod channel;
mod driver;
mod engine;
mod framing;
mod socket;
#[cfg(feature = "tls")]
mod tls;
mod wakeup;
mod window;

#[doc(hidden)]
pub mod testing;

pub use address::Address;
pub use cluster::{Cluster, Failover, Ring, Server, Shard};
pub use config::{Backoff, Config, MAX_INFLIGHT_MAX, Offline};
pub use error::Error;
pub use reply::Reply;
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError, TlsOptions, TlsSession};

/// The examples of the documents compile.
#[cfg(all(doctest, feature = "tls"))]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/client.md")]
    struct Guide;
}
