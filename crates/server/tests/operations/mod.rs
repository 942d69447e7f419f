//! The operations side of the server, over real sockets: what CONFIG SET does, who gets in, what is
//! logged, and what CLIENT, INFO and the like tell.

mod access;
mod accounts;
#[cfg(feature = "bucket")]
mod bucket;
mod clients;
mod command_table;
mod debug;
mod faults;
mod gated_disk;
mod info;
mod listening;
mod log_switch;
mod notifications;
mod process;
mod redaction;
mod set_aside;
mod slow_syncs;
mod spill;
mod support;
mod transactions;
mod waiters;
