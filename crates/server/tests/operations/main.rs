//! The operations side of the server, over real sockets: what CONFIG SET does, who gets in, what is
//! logged, and what CLIENT, INFO and the like tell.

mod access;
mod clients;
mod command_table;
mod debug;
mod faults;
mod info;
mod listening;
mod log_switch;
mod process;
mod secrets;
mod spill;
mod support;
