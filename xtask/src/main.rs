//! Tasks of this repository, behind `cargo xtask`.

mod abuse;
mod chart;
mod check;
mod collections;
mod differential;
mod hit_ratio;
mod lines;
mod memcached;
#[cfg(test)]
mod repository;
mod start_time;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of this repository")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Send the same random commands to Tierce and to redis-server, and compare all replies.
    Differential(differential::Options),
    /// Send random commands of memcached's protocols to Tierce and to memcached, and compare all replies.
    DifferentialMemcached(memcached::Options),
    /// Report the hit ratio in Tierce and in redis-server, by eviction policy.
    HitRatio(hit_ratio::Options),
    /// Report the memory of an element of each type, in Tierce and in redis-server.
    ElementMemory(collections::Options),
    /// Report the latency of other clients while a very large collection is removed.
    Stalls(collections::Options),
    /// Report the time that Tierce and redis-server take to start from their logs.
    StartTime(start_time::Options),
    /// Abuse all protocols at random, while well-behaved clients verify their data.
    Abuse(abuse::Options),
    /// Run all tests, and run each failed one twice more, alone.
    Test(test::Options),
    /// Print the product lines of each crate next to its budget.
    Lines,
    /// Run the checks that fail most often, in two minutes: formatting, lints and unit tests of changed crates,
    /// tables of docs/.
    Check,
    /// Draw the chart of the README from docs/benchmarks.csv.
    Chart,
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Differential(options) => differential::run(&options),
        Task::DifferentialMemcached(options) => memcached::run(&options),
        Task::HitRatio(options) => hit_ratio::run(&options),
        Task::ElementMemory(options) => collections::memory(&options),
        Task::Stalls(options) => collections::stalls(&options),
        Task::StartTime(options) => start_time::run(&options),
        Task::Abuse(options) => abuse::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Lines => lines::print(),
        Task::Check => check::run(),
        Task::Chart => chart::write(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
