//! The command line of `tierce race`. `plan.rs` resolves it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::engine::{Placement, Writes};

/// Measure the storage engine: kills, random writes, random reads and ordered scans.
///
/// First the raw limits of the disk are measured in the same directory, without the page cache. Then processes that
/// write are killed with SIGKILL, and every acknowledged write must survive. Then 64 threads write keys of 8 bytes
/// with values of 4 KiB in random order, read them in random order, and each scan all of them in ascending order
/// twice. Each phase runs in a new process with an empty page cache. Everything is verified: content, order and
/// number.
///
/// The table ends with ratios to the limits of the disk. docs/race.md explains them.
///
/// Exit code 0: the run is valid, even if goals were missed. 1: it is void, because data was lost or wrong, or the
/// run was not possible; the store is then kept. 2: the command line is wrong.
#[derive(Args, Clone, Debug)]
pub struct RaceArgs {
    /// Directory for the files of the race, on the disk to measure
    #[arg(long, value_name = "DIR", default_value = "tierce-race")]
    pub(super) dir: PathBuf,
    /// Threads that write, read and scan
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) threads: u32,
    /// Keys that each thread writes and reads; 1000000 is the contest's size
    #[arg(long, value_name = "N", default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) per_thread: u64,
    /// Number of scans of each thread over everything
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) scans: u32,
    /// Number of kills of writers
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) kills: u32,
    /// Seed of keys, values and times of kills
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Phases to run. Without `write`, an earlier run with --keep must have left a store
    #[arg(long, value_name = "NAME", value_delimiter = ',', num_args = 1.., default_values_t = Step::ALL)]
    pub(super) phases: Vec<Step>,

    /// Method of emptying the page cache before a phase
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(super) drop_caches: DropCaches,
    /// Let every thread of a scan compare every byte, not only its share of the values
    #[arg(long)]
    pub(super) verify_all: bool,

    /// Logs that the engine writes in parallel
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Engine")]
    pub(super) shards: u32,
    /// Placement of keys in logs
    #[arg(long, value_name = "HOW", default_value = "ordered", help_heading = "Engine")]
    pub(super) placement: Placement,
    /// Method of writing segments
    #[arg(long, value_name = "HOW", default_value = "direct", help_heading = "Engine")]
    pub(super) writes: Writes,
    /// Memory for the end of each log in KiB
    #[arg(long, value_name = "KIB", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..=8192), help_heading = "Engine")]
    pub(super) tail: u64,
    /// Read without the page cache
    #[arg(long, help_heading = "Engine")]
    pub(super) direct_io: bool,
    /// Length of a segment in MiB
    #[arg(long, value_name = "MIB", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Engine")]
    pub(super) segment_size: u64,
    /// Memory for recently read values in MiB
    #[arg(long, value_name = "MIB", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1 << 20), help_heading = "Engine")]
    pub(super) read_cache: u64,
    /// Memory in which scans share loaded values in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(0..=1 << 20), help_heading = "Engine")]
    pub(super) scan_memory: u64,

    /// Leave the store of the run in its directory
    #[arg(long, help_heading = "Output")]
    pub(super) keep: bool,
    /// Write the results to a file as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) json: Option<PathBuf>,
    /// Draw the throughput of each phase over time, as SVG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) plot: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long, help_heading = "Output")]
    pub(super) quiet: bool,

    /// Job that the parent process gives to the process of a phase
    #[arg(long, value_name = "JSON", hide = true)]
    pub(super) child: Option<String>,
}

/// Steps of a race, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Step {
    /// The raw limits of the disk
    #[value(alias = "yardstick")]
    RawDisk,
    /// Writers are killed, and all acknowledged writes must survive
    Recovery,
    /// Every thread writes its keys, in random order
    Write,
    /// All keys are read once, in random order, from the disk
    Read,
    /// All keys are read again with everything in the page cache
    Warm,
    /// Every thread scans all keys in ascending order
    Scan,
}

impl Step {
    const ALL: [Self; 6] =
        [Self::RawDisk, Self::Recovery, Self::Write, Self::Read, Self::Warm, Self::Scan];
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value().expect("no step is skipped");
        f.write_str(value.get_name())
    }
}

/// Method of emptying the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DropCaches {
    /// `system` if this user is allowed to, otherwise `files`
    Auto,
    /// The cache of the whole system, by /proc/sys/vm/drop_caches
    System,
    /// Cached pages of the store's files, by posix_fadvise
    Files,
    /// Not at all
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        race: RaceArgs,
    }

    #[test]
    fn the_definition_is_consistent() {
        <Program as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn all_phases_run_unless_some_are_named() {
        let parse = |line: &str| {
            Program::try_parse_from(line.split_ascii_whitespace()).map(|program| program.race)
        };
        assert_eq!(parse("race").unwrap().phases, Step::ALL);
        assert_eq!(parse("race --phases write,scan").unwrap().phases, [Step::Write, Step::Scan]);
        for wrong in ["race --phases swim", "race --threads 0", "race --drop-caches yes"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
