//! Load generator and comparison with peers.
//!
//! `tierce bench` loads any server that speaks RESP and reports throughput, latency percentiles and the server's CPU
//! time and memory. `tierce bench compare` does it with two servers in alternation. The program mounts
//! [`cli::BenchArgs`] as a subcommand and passes it to [`run`]:
//!
//! ```no_run
//! use clap::Parser;
//!
//! #[derive(Parser)]
//! enum Program {
//!     Bench(tierce_bench::cli::BenchArgs),
//! }
//!
//! let Program::Bench(args) = Program::parse_from(["tierce", "bench", "-P", "16", "-t", "get"]);
//! tierce_bench::run(args)?;
//! # Ok::<(), tierce_bench::Error>(())
//! ```
//!
//! [`race`] is a separate subcommand: it compares the storage engine with its disk.
//!
//! The load is a closed loop: a connection sends a batch, waits for its replies and sends the next. The generator
//! must cost far less than any server. So requests are encoded once and only their digits change, and replies are
//! counted, not decoded. The protocol code is in `tierce-wire`.

#![forbid(unsafe_code)]

pub mod cli;
pub mod race;

mod error;
mod plan;

mod catalog;
mod digits;
mod distribution;
mod protocol;
mod random;
mod request;
mod ring;
mod template;
mod workload;

mod counted;
mod engine;
mod replies;
mod socket;
mod target;

mod compare;
mod cpu;
mod machine;
mod measure;
mod memcached;
mod pedrokv;
mod progress;
mod report;

#[cfg(test)]
mod mock_server;

pub use error::Error;

/// Runs the command line and prints the results to standard output.
///
/// # Errors
/// If options are invalid, a server cannot be reached or started, or a connection is lost. Error *replies* are
/// results, not errors: they are counted and reported.
pub fn run(args: cli::BenchArgs) -> Result<(), Error> {
    match &args.mode {
        None => plan::Plan::new(&args)?.run(),
        Some(cli::Mode::Compare(compare)) => compare::run(compare),
    }
}
