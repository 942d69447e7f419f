//! Sends the same random commands to two servers and compares their replies, byte for byte.
//!
//! Redis itself is the specification of commands and their replies. A run starts pairs of servers, empty and without
//! files, and sends both of a pair the same stream: all commands that both know, on keys of all types and on
//! connections, with all their options, with wrong options, and with values at the limits. It uses several
//! connections of both protocol versions, in pipelines of random depth. Between the pipelines there are scenarios
//! that need more than a pipeline ([`scenarios`]). From time to time the whole data sets are compared ([`audit`]),
//! and so are the keyspace events of both servers ([`events`]).
//!
//! [`comparison`] lists the permitted differences and their comparison; `docs/differences.md` gives the reasons.
//! Expiry during a pipeline would make the outcome depend on time. So times to live in a pipeline have either passed
//! or are far away; keys expire in scenarios.
//!
//! Only the seed is random: an equal seed repeats a run.

mod audit;
mod bits;
mod comparison;
mod draws;
mod events;
mod geo;
mod grammar;
mod history;
mod lists;
mod messages;
mod run;
mod scenarios;
mod scripts;
mod sorted_sets;
mod stream;
mod streams;
mod tracking;
mod transactions;
mod waits;
mod watches;

use std::path::PathBuf;
use std::thread;
use std::time::{Instant, SystemTime};

use self::run::DifferentialRun;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of commands of all pairs together.
    #[arg(long, default_value_t = 1_000_000)]
    commands: usize,
    /// Number of pairs of servers. Each pair gets a part of the commands, from its own seed.
    #[arg(long, default_value_t = 4)]
    pairs: usize,
    /// Seed to repeat a run. By default each run has another one.
    #[arg(long)]
    seed: Option<u64>,
    /// Show all commands before a difference, not only those on its keys.
    #[arg(long)]
    history: bool,
    /// The server to test. By default the release build of this workspace.
    #[arg(long)]
    program: Option<PathBuf>,
    /// The reference server.
    #[arg(long, default_value = "redis-server")]
    reference: PathBuf,
}

/// Runs until all commands were sent or the servers of a pair disagree.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let seed = options.seed.unwrap_or_else(seed_of_the_day);
    let program = options.program.clone().unwrap_or_else(release_build);
    if !program.exists() {
        return Err(format!("{} is missing: cargo build --release", program.display()));
    }
    let version = version_of(&options.reference)?;
    let pairs = options.pairs.max(1);
    println!("seed {seed}, {} commands in {pairs} streams, against {version}", options.commands);
    let started = Instant::now();
    let commands = options.commands.div_ceil(pairs);
    let execute = |seed: u64| {
        let mut run = DifferentialRun::begin(&program, &options.reference, seed);
        run.history.is_shown = options.history;
        run.execute(commands).map(|()| run.tally()).map_err(|difference| {
            format!(
                "{difference}\nrepeat with: cargo xtask differential --pairs 1 --seed {seed} --commands {commands}"
            )
        })
    };
    let results = thread::scope(|scope| {
        let seeds = (0..pairs as u64).map(|n| seed.wrapping_add(n));
        let runs: Vec<_> = seeds.map(|seed| scope.spawn(move || execute(seed))).collect();
        runs.into_iter().map(|run| run.join()).collect::<Vec<_>>()
    });
    for result in results {
        let tally = result.map_err(|_| format!("a panic; the seeds begin with {seed}"))??;
        println!("{tally}");
    }
    println!("no difference, {:.1?}", started.elapsed());
    Ok(())
}

fn seed_of_the_day() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |time| time.as_millis() as u64)
}

/// Returns the path next to this program, which is in the directory of its own profile.
pub(crate) fn release_build() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let target = own.parent().and_then(|profile| profile.parent()).map(PathBuf::from);
    target.unwrap_or_default().join("release/tierce")
}

fn version_of(reference: &PathBuf) -> Result<String, String> {
    let output = std::process::Command::new(reference).arg("--version").output();
    let output = output.map_err(|error| {
        format!("{}: {error}; on Debian: apt-get install redis-server", reference.display())
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
