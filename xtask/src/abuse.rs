//! Random abuse of all protocols for a while; see `tierce_harness::abuse`.

use std::path::PathBuf;
use std::time::Duration;

use tierce_harness::abuse::{self, Abuse, Extent};
use tierce_harness::{Launch, allow_many_files};

/// Number of attacking threads.
const ABUSERS: usize = 16;

/// Number of connections that each of them keeps open.
const PARKED_EACH: usize = 24;

#[derive(clap::Args)]
pub struct Options {
    /// Seconds of abuse.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Seed of everything that is sent.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The server.
    #[arg(long, default_value = "target/release/tierce")]
    program: PathBuf,
}

pub fn run(options: &Options) -> Result<(), String> {
    allow_many_files();
    let Options { seconds, seed, program } = options;
    println!("abuse: {seconds} s with seed {seed}");
    let program =
        program.canonicalize().map_err(|error| format!("{}: {error}", program.display()))?;
    let extent = Extent::Time(Duration::from_secs(*seconds));
    let abuse = Abuse { seed: *seed, abusers: ABUSERS, parked_each: PARKED_EACH, extent };
    let report = abuse::run(Launch::new(program), abuse);
    for (kind, count) in &report.attacks {
        println!("{count:>9} {kind}");
    }
    for (name, replies) in &report.verified {
        println!("{replies:>9} replies verified, {name}");
    }
    let [first, last] = report.memory;
    println!("abuse: {first} after a tenth of it, {last} after all");
    Ok(())
}
