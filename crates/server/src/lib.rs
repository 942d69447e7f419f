//! The server: command table, commands, sessions, configuration, metrics.

pub mod config;
