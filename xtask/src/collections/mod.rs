//! Costs of collections in Tierce and in redis-server: memory for each element, and the latency of other requests
//! while a very large collection is removed.

mod load;
mod memory;
mod stalls;

use std::path::PathBuf;

use tierce_harness::{Launch, Server};

use crate::differential::release_build;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Elements of a large collection.
    #[arg(long, default_value_t = 1_000_000)]
    elements: usize,
    /// Types of collections, for `stalls`. By default all: list, set, zset, hash, stream.
    #[arg(long, value_delimiter = ',')]
    types: Vec<String>,
    /// The server to test. By default the release build of this workspace.
    #[arg(long)]
    program: Option<PathBuf>,
    /// The server to compare with.
    #[arg(long, default_value = "redis-server")]
    reference: PathBuf,
}

/// Returns Tierce and redis-server, both without a log.
fn subjects(options: &Options) -> [Server; 2] {
    let program = options.program.clone().unwrap_or_else(release_build);
    let tierce = Launch::new(program).with("appendonly", "no").start();
    let redis = Launch::new(&options.reference).with("save", "").with("daemonize", "no").start();
    [tierce, redis]
}

pub(crate) fn memory(options: &Options) -> Result<(), String> {
    memory::run(|| subjects(options), options.elements);
    Ok(())
}

pub(crate) fn stalls(options: &Options) -> Result<(), String> {
    stalls::run(&subjects(options), options.elements, &options.types);
    Ok(())
}
