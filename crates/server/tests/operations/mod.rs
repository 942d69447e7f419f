//! Tests of the server's operation, over real sockets: CONFIG SET, access control, logging, CLIENT,
//! INFO and similar commands.

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
