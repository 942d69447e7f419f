//! The program from outside: started like a user starts it, and driven over sockets.
//!
//! One file for each behaviour, named as a fact, and a folder for a subject with many of them. All of them are
//! modules of one test program, because linking thirty would take longer than running them:
//!
//! ```text
//! cargo test -p tierce --test program              everything
//! cargo test -p tierce --test program expiry::     one file
//! cargo test -p tierce --test program bucket::     one folder
//! ```
//!
//! Most tests describe any server of the protocol. To check an expectation, run it against another server:
//! `TIERCE_TEST_PROGRAM=/usr/bin/redis-server` (7.0 lacks the features of 7.2).

// The protocol.
mod hello_and_auth;
mod inline_commands;
mod pipelines_of_any_depth;
mod pipelines_that_change_their_own_terms;
mod protocol_errors_close_the_connection;
mod resp_split_at_any_byte;
mod unknown_and_misused_commands;
mod values_come_back_exactly;

// The other protocols.
mod http;
mod http_events;
mod memcached;
mod memcached_edges;
mod memcached_tools;
mod packaging;
mod pedrokv;

// Encrypted connections.
mod tls;

// The data.
mod bitmap_commands;
mod concurrent_counters;
mod data_of_redis;
mod dump_restore;
mod durability;
mod expiry;
mod functions;
mod geo_commands;
mod hash_commands;
mod hyperloglog_commands;
mod import_and_export;
mod key_commands;
mod list_commands;
mod migrate;
mod scan_guarantee;
mod select_move_swapdb;
mod set_commands;
mod sort;
mod sorted_set_commands;
mod stream_commands;
mod string_commands;
mod strings_of_redis_8;
mod tracking;
mod transactions;
mod watching;

// The server and its clients.
mod acl;
mod check_and_start;
mod client_commands;
mod clients_that_wait;
mod command_table;
mod commandlog;
mod compaction;
mod config_commands;
mod config_sources;
mod examples;
mod hot_keys;
mod info;
mod monitor;
mod named_files;
mod nonblocking;
mod notifications;
mod pubsub;
mod redis_conf;
mod redis_directives;
mod secrets;
mod slowlog_and_latency;

// The limits.
mod abuse;
mod eviction;
mod few_descriptors;
mod hostile_input;
mod idle_server_uses_no_cpu;
mod limits;
mod many_connections;
mod memory_goes_back;
mod messages_added_once;
mod metrics;
mod overload;

// The process and its tools.
mod bucket;
mod failover;
mod handoffs;
mod loading;
mod race;
mod redirections;
mod released_formats;
mod replication;
mod settings_at_their_limits;
mod shutdown;
mod signals;
mod snapshots;
mod snapshots_of_large_collections;
mod spill;
mod terminal;
mod unix_socket_and_ipv6;
mod upgrading;
mod upkeep;

// Scripts.
mod scripts;
mod scripts_by_name;
mod scripts_that_run_long;

// Shared code.
mod both_protocols;

use std::path::PathBuf;

use tierce_harness::{Launch, Server};

/// Returns the program under test.
fn program() -> PathBuf {
    let other = std::env::var_os("TIERCE_TEST_PROGRAM");
    other.map_or_else(|| env!("CARGO_BIN_EXE_tierce").into(), PathBuf::from)
}

/// Makes a launch of the program, to which directives can be added.
fn launch() -> Launch {
    Launch::new(program())
}

/// Starts a server with defaults.
fn server() -> Server {
    launch().start()
}
