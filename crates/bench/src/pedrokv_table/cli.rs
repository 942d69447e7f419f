//! The command line of `tierce bench pedrokv`.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use crate::error::Error;

/// The table of PedroKV's own benchmark, measured on this machine.
///
/// Records are written and read over PedroKV's protocol by 1, 4, 16 and 64 clients, asynchronously
/// and synchronously, and beside it redis-benchmark loads redis-server. Both servers are started
/// here, on free ports, one after the other; {port} in a command line is the port to use.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct PedroKvArgs {
    /// Command line of the server, whose option pedrokv-port is then set [default: this program]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Command line of the server to compare with
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "redis-server --port {port} --save '' --appendonly yes --appendfsync everysec"
    )]
    pub(super) redis: String,
    /// The program that loads it
    #[arg(long, value_name = "PROGRAM", default_value = "redis-benchmark")]
    pub(super) redis_benchmark: PathBuf,
    /// Compare with nothing
    #[arg(long)]
    pub(super) no_redis: bool,
    /// Records; as many are written, and read
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) records: u64,
    /// Operations of a synchronous cell, and of one of redis-benchmark [default: one a record]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) sync_operations: Option<u64>,
    /// Bytes of a value
    #[arg(short, long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub(super) data_size: u32,
    /// Numbers of clients
    #[arg(short, long, value_name = "N", value_delimiter = ',', default_value = "1,4,16,64", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) clients: Vec<u32>,
    /// Requests under way on each asynchronous connection
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) window: u32,
    /// Connections that asynchronous clients share
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) connections: u32,
    /// Who sends the requests
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    pub(super) client: Generator,
    /// Threads of the load generator's engine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: u32,
    /// Draw the table into this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// Print results as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Print no progress
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Who sends the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Generator {
    /// The load generator's engine, which does the least that a client can do
    #[default]
    Engine,
    /// What an application would use
    TierceClient,
}

impl PedroKvArgs {
    /// The name of who sends the requests.
    pub(super) fn client_name(&self) -> String {
        let value = self.client.to_possible_value().expect("no generator is skipped");
        value.get_name().to_owned()
    }

    /// The command line of the server.
    pub(super) fn server(&self) -> Result<String, Error> {
        if let Some(line) = &self.server {
            return Ok(line.clone());
        }
        let program = std::env::current_exe().map_err(Error::io("looking for this program"))?;
        Ok(format!("'{}' --port {{port}}", program.display()))
    }
}
