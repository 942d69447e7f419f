//! The command line of `tierce bench`, unresolved. `plan.rs` and `workload.rs` resolve it.
//!
//! Short options mean the same as in redis-benchmark. So `-h` is the host, and help is `--help` only.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, ArgGroup, Args, Subcommand, ValueEnum};

use tierce_client::{Tls, TlsOptions};

use crate::catalog;
use crate::digits::NUMBER_LIMIT;
use crate::distribution::Distribution;
use crate::error::Error;
use crate::protocol::Protocol;

/// Measure a server under load: throughput, latency, and what a request costs the server.
///
/// Speaks the protocols of Redis, memcached and PedroKV.
///
/// Without a command, runs the tests named by -t (SET and GET). A command may be given instead,
/// with placeholders: __key__ (prefix and 12 digits, by --distribution), __rand_int__ (12 digits,
/// uniform) and __data__ (a value of -d bytes), for example: tierce bench -P 16 hset h __key__
/// __data__
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true, disable_help_subcommand = true)]
#[command(args_conflicts_with_subcommands = true)]
#[command(group = ArgGroup::new("output").multiple(false))]
pub struct BenchArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,

    /// Process whose CPU time and memory are reported [default: the local listener of the port]
    #[arg(long, value_name = "PID")]
    pub(crate) server_pid: Option<u32>,
    /// Print results as JSON
    #[arg(long, group = "output")]
    pub(crate) json: bool,
    /// Print results as CSV
    #[arg(long, group = "output")]
    pub(crate) csv: bool,
    /// Print one line per test, and no progress
    #[arg(short, long, group = "output")]
    pub(crate) quiet: bool,
    /// Command to send instead of the tests
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(crate) command: Vec<String>,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,

    #[command(subcommand)]
    pub(crate) mode: Option<Mode>,
}

/// Task other than loading one server.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Mode {
    Compare(Box<CompareArgs>),
}

/// Address of the server.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetArgs {
    /// Server's host
    #[arg(short = 'h', long, default_value = "127.0.0.1", help_heading = "Server")]
    pub(crate) host: String,
    /// Server's port
    #[arg(short, long, default_value_t = 6379, help_heading = "Server")]
    pub(crate) port: u16,
    /// Server's Unix socket, instead of host and port
    #[arg(short, long, value_name = "PATH", help_heading = "Server")]
    pub(crate) socket: Option<PathBuf>,
    /// Password for AUTH
    #[arg(short = 'a', long, help_heading = "Server")]
    pub(crate) password: Option<String>,
    /// User for AUTH
    #[arg(long, requires = "password", help_heading = "Server")]
    pub(crate) user: Option<String>,
    /// Database to SELECT
    #[arg(long, default_value_t = 0, help_heading = "Server")]
    pub(crate) dbnum: u32,
    /// Speak RESP3
    #[arg(short = '3', long, help_heading = "Server")]
    pub(crate) resp3: bool,
    /// Encrypt connections
    #[arg(long, requires = "cacert", help_heading = "TLS")]
    pub(crate) tls: bool,
    #[command(flatten)]
    pub(crate) tls_files: TlsArgs,
}

/// Options of encrypted connections.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TlsArgs {
    /// File with the certificates of the authorities to trust
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub(crate) cacert: Option<PathBuf>,
    /// File with the client's certificate
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "TLS")]
    pub(crate) cert: Option<PathBuf>,
    /// File with the private key of that certificate
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "TLS")]
    pub(crate) key: Option<PathBuf>,
    /// Name in the server's certificate [default: the host]
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    pub(crate) sni: Option<String>,
}

impl TlsArgs {
    /// Returns the configuration of encrypted connections.
    ///
    /// # Errors
    /// If a file is missing or invalid.
    pub(crate) fn resolve(&self) -> Result<Tls, Error> {
        self.tls(Sessions::Resumed)
    }

    /// Like [`resolve`](Self::resolve), with a choice of sessions.
    ///
    /// # Errors
    /// Same as for [`resolve`](Self::resolve).
    pub(crate) fn tls(&self, sessions: Sessions) -> Result<Tls, Error> {
        let Some(ca_file) = self.cacert.clone() else {
            return Err(Error::Usage("encrypted connections need --cacert".into()));
        };
        let options = TlsOptions {
            ca_file,
            identity: self.cert.clone().zip(self.key.clone()),
            server_name: self.sni.clone(),
            never_resume: sessions == Sessions::New,
        };
        Tls::new(&options).map_err(|error| Error::Usage(error.to_string()))
    }
}

/// Handshake of encrypted connections after the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sessions {
    /// A full handshake.
    New,
    /// Resumption with the ticket of an earlier connection.
    Resumed,
}

/// Servers of a comparison that are reached over encrypted connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encrypted {
    /// Neither.
    #[default]
    None,
    /// Server A.
    A,
    /// Server B.
    B,
    /// Both.
    Both,
}

/// The shape of the load. Everything is optional, because named workloads of a comparison have their own defaults.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LoadArgs {
    /// Protocol of the requests. Those of memcached know the tests set, get and mget, and --ratio; pedrokv knows set,
    /// get and --ratio
    #[arg(long, value_enum, default_value_t, value_name = "NAME", help_heading = "Load")]
    pub(crate) protocol: Protocol,
    /// Keys of one mget in the protocols of memcached
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Load")]
    pub(crate) multi_keys: u32,
    /// Connections [default: 50]
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Load")]
    pub(crate) clients: Option<u32>,
    /// Threads, which share the connections [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Load")]
    pub(crate) threads: Option<u32>,
    /// Requests sent before their replies are awaited [default: 1]
    #[arg(short = 'P', long, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Load")]
    pub(crate) pipeline: Option<u32>,
    /// Requests kept in flight on each connection: new ones are sent as replies come, instead of batches
    #[arg(long, value_name = "N", conflicts_with_all = ["pipeline", "rate"], value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Load")]
    pub(crate) window: Option<u32>,
    /// Requests of each test [default: 100000]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "time", help_heading = "Load")]
    pub(crate) requests: Option<u64>,
    /// Seconds that each test lasts, instead of a number of requests
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Load")]
    pub(crate) time: Option<f64>,
    /// Seconds of load before measuring
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Load")]
    pub(crate) warmup: Option<f64>,
    /// Requests per second of all connections together [default: as many as the server answers]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Load")]
    pub(crate) rate: Option<u64>,
    /// Bytes of a value [default: 3]
    #[arg(short = 'd', long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=512 << 20), help_heading = "Load")]
    pub(crate) data_size: Option<u32>,
    /// Number of different keys [default: 1]
    #[arg(short = 'r', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=NUMBER_LIMIT), help_heading = "Load")]
    pub(crate) keyspace: Option<u64>,
    /// Prefix of keys; twelve digits follow [default: key:]
    #[arg(long, value_name = "TEXT", help_heading = "Load")]
    pub(crate) key_prefix: Option<String>,
    /// uniform, zipf, zipf:THETA, gauss or sequential [default: uniform]
    #[arg(long, value_name = "SHAPE", help_heading = "Load")]
    pub(crate) distribution: Option<Distribution>,
    /// Seed of all random choices; equal seeds send equal keys [default: 1]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub(crate) seed: Option<u64>,
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',', help_heading = "Load", help = tests_help())]
    pub(crate) tests: Vec<String>,
    /// Fill the keyspace before measuring: every key is SET once, in order
    #[arg(long = "load", help_heading = "Load")]
    pub(crate) load_first: bool,
    /// One test that mixes SET and GET in this proportion, such as 1:10
    #[arg(long, value_name = "SET:GET", value_parser = ratio, conflicts_with = "tests", help_heading = "Load")]
    pub(crate) ratio: Option<(u32, u32)>,
}

/// The named workloads; [`crate::compare`] describes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    P1,
    P16,
    P200,
    P200Hot,
    Latency,
    Memory,
    Growth,
    Idle,
    Pubsub,
    Handover,
    Transactions,
    Tracking,
    Handshakes,
}

/// Compare two servers, measured in turns.
///
/// Each server is started on a free port, which replaces {port} in its command line, or is reached at an address
/// where it already runs. Both run during a whole workload, and only one is loaded at a time: A B A B. Medians of the
/// rounds are reported; ratios are A divided by B.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
#[command(group = ArgGroup::new("server_a").required(true))]
#[command(group = ArgGroup::new("server_b").required(true))]
pub(crate) struct CompareArgs {
    /// Command line of server A, such as: 'tierce --port {port} --appendonly no'
    #[arg(long, value_name = "COMMAND", group = "server_a", help_heading = "Servers")]
    pub(crate) a: Option<String>,
    /// Command line of server B, such as: 'redis-server --port {port} --save "" --appendonly no'
    #[arg(long, value_name = "COMMAND", group = "server_b", help_heading = "Servers")]
    pub(crate) b: Option<String>,
    /// Address of a running server A
    #[arg(long, value_name = "IP:PORT", group = "server_a", help_heading = "Servers")]
    pub(crate) a_addr: Option<SocketAddr>,
    /// Address of a running server B
    #[arg(long, value_name = "IP:PORT", group = "server_b", help_heading = "Servers")]
    pub(crate) b_addr: Option<SocketAddr>,
    /// Speak RESP3
    #[arg(short = '3', long, help_heading = "Servers")]
    pub(crate) resp3: bool,
    /// Servers to reach over encrypted connections, at the same {port}
    #[arg(long, value_name = "WHICH", num_args = 0..=1, value_enum, default_value = "none", default_missing_value = "both", help_heading = "TLS")]
    pub(crate) tls: Encrypted,
    #[command(flatten)]
    pub(crate) tls_files: TlsArgs,

    /// Rounds, each of which runs A and B once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Named workloads to run [default: one made of the load options]
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', num_args = 1..)]
    pub(crate) workload: Vec<Name>,
    /// Run all named workloads and print only the report at the end
    #[arg(long, conflicts_with = "workload")]
    pub(crate) all: bool,
    /// Entries of the memory workload, and keys of the tracking workload
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) entries: u64,
    /// Keys that the growth workload adds
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) growth_keys: u64,
    /// Idle connections of the idle workload, and subscribers of the pubsub workload
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) idle_connections: u32,
    /// Print results as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) load: LoadArgs,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

fn tests_help() -> String {
    format!("Tests to run, separated by commas [default: set,get; known: {}]", catalog::names())
}

fn seconds(text: &str) -> Result<f64, String> {
    const SECONDS_MAX: f64 = 1e6;
    match text.parse() {
        Ok(value) if value > 0.0 && value <= SECONDS_MAX => Ok(value),
        _ => Err("a positive number of seconds".into()),
    }
}

/// Upper bound of the sum, and so of the requests that must be encoded in advance.
const RATIO_SUM_MAX: u64 = 10_000;

fn ratio(text: &str) -> Result<(u32, u32), String> {
    let parts =
        text.split_once(':').and_then(|(set, get)| Some((set.parse().ok()?, get.parse().ok()?)));
    match parts {
        Some((0, 0)) => Err("at least one of the two must be above 0".into()),
        Some((set, get)) if u64::from(set) + u64::from(get) <= RATIO_SUM_MAX => Ok((set, get)),
        Some(_) => Err(format!("the sum must not exceed {RATIO_SUM_MAX}")),
        None => Err("two numbers, such as 1:10".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(line: &str) -> Result<BenchArgs, clap::Error> {
        let words = std::iter::once("bench").chain(line.split_ascii_whitespace());
        Program::try_parse_from(words).map(|program| program.bench)
    }

    #[test]
    fn the_definition_is_consistent() {
        <Program as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn habits_of_redis_benchmark_work() {
        let line = "-h ::1 -p 7000 -c 10 -n 5 -P 16 -d 100 -r 1000 -t get,set -a secret -q -3";
        let args = parse(line).unwrap();
        assert_eq!((args.target.host.as_str(), args.target.port), ("::1", 7000));
        assert_eq!(args.load.tests, ["get", "set"]);
        assert_eq!(args.load.pipeline, Some(16));
        assert!(args.quiet && args.target.resp3);
    }

    #[test]
    fn a_command_may_have_words_that_look_like_options() {
        let args = parse("-P 4 zadd z -5 __key__ --json").unwrap();
        assert_eq!(args.command, ["zadd", "z", "-5", "__key__", "--json"]);
        assert!(!args.json);
    }

    #[test]
    fn a_mistyped_option_is_no_command() {
        for line in ["--typo", "-P 4 --typo get k", "--requets=5 -t get", "-Z"] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::UnknownArgument, "{line}: {error}");
        }
    }

    #[test]
    fn a_comparison_needs_two_servers() {
        assert!(parse("compare --a x --b y --rounds 3 -P 16").unwrap().mode.is_some());
        assert!(parse("compare --a x --b-addr 127.0.0.1:7000").unwrap().mode.is_some());
        for wrong in ["compare --a x", "compare --a x --a-addr 127.0.0.1:1 --b y"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for wrong in [
            "-n 5 --time 3",
            "-t get --ratio 1:1",
            "--json --csv",
            "--ratio 0:0",
            "--ratio 1",
            "-c 0",
            "-r 0",
            "--time 0",
            "--time -1",
            "--user x",
            "--distribution normal",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
