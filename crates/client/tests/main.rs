//! Tests the clients over real sockets, against a small server in this process.

mod callbacks;
mod closing;
mod cluster;
mod failures;
mod reconnecting;
mod synchronous;
mod window;
