//! Event loops on epoll: acceptor, workers, connections, timers, mailboxes, buffers.

mod acceptor;
mod buffer;
mod clock;
mod connection;
mod fd_limit;
mod io;
mod listener;
mod mailbox;
mod metrics;
mod output;
mod runtime;
mod service;
mod slab;
mod system_clock;
mod timer;
mod transport;
mod worker;

pub use acceptor::DESCRIPTORS_RESERVED;
pub use buffer::rest::READ_AHEAD_BYTES_MAX;
pub use clock::{Clock, Now};
pub use connection::{ConnInfo, ConnKey, Endpoints, ListenerTag};
pub use fd_limit::raise_fd_limit;
pub use io::Io;
pub use listener::{BindAddress, ListenAddress, ListenError, Listener, Presence};
pub use metrics::Metrics;
pub use output::limits::{OUTPUT_CLASSES, OutputClass, OutputLimit, OutputLimits};
pub use output::{ATTACH_BYTES_MIN, Mark, Output};
pub use runtime::{Config, Handle, Runtime, WORKERS_MAX};
pub use service::{CloseReason, Flow, NextTurn, OnHangup, Refusal, Service, WorkerId};
pub use system_clock::monotonic_nanos;
pub use worker::conns::{ConnMut, ConnState, ConnView, Conns};
