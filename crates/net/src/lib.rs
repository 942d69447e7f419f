//! Event loops on epoll: acceptor, workers, connections, timers, mailboxes, buffers.

mod acceptor;
mod arrivals;
mod buffer;
mod clock;
mod connection;
mod fd_limit;
mod handle;
mod io;
mod listener;
mod mailbox;
mod metrics;
mod queue;
mod runtime;
mod send_barriers;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod slab;
mod socket;
mod system_clock;
mod timer;
mod tls;
mod transport;
mod worker;

pub use acceptor::{DESCRIPTORS_RESERVED, TurnedAway};
pub use arrivals::ARRIVALS_PER_SECOND_MAX;
pub use buffer::rest::READ_AHEAD_BYTES_MAX;
pub use clock::{Clock, Now};
pub use connection::{CloseReason, ConnInfo, ConnKey, Endpoints, ListenerTag, OnHangup, WorkerId};
pub use fd_limit::raise_fd_limit;
pub use handle::Handle;
pub use io::Io;
pub use listener::{BindAddress, Encryption, ListenAddress, ListenError, Listener, Presence};
pub use metrics::{Metrics, TlsMetrics};
pub use runtime::{Config, Runtime, WORKERS_MAX};
pub use send_barriers::Ticket;
pub use system_clock::monotonic_nanos;
pub use tierce_output::{
    ATTACH_BYTES_MIN, Mark, OUTPUT_CLASSES, Output, OutputClass, OutputLimit, OutputLimits,
};
pub use tls::TlsSettings;
pub use worker::conns::{ConnMut, ConnState, ConnView, Conns, idle_conn_bytes};
pub use worker::service::{Flow, NextTurn, Refusal, Service};
