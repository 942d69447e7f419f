//! Memory overhead per entry.
//!
//! Each value size gets a fresh server. Its resident set is read when it is empty, and again when all entries are
//! stored and the loading connections closed. The difference per entry, minus the bytes of key and value, is the
//! overhead. Everything counts: index, headers, allocator slack, and spare capacity.

use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::pair::Pair;
use super::reaper::Reaper;
use super::servers::{Contender, Server};
use crate::cli::LoadArgs;
use crate::cpu::Process;
use crate::digits::DIGITS_LEN;
use crate::engine::Goal;
use crate::error::Error;
use crate::measure::measure;
use crate::progress::Progress;
use crate::workload::Workload;

/// Measured value sizes, in bytes.
const VALUE_SIZES: [u32; 3] = [10, 100, 1000];

/// Few connections and short batches keep their buffers out of the result.
const CLIENTS: u32 = 4;
const PIPELINE: u32 = 16;

/// Memory counts as settled when two successive readings differ by less.
const SETTLED_WITHIN: u64 = 64 * 1024;
const SETTLE_POLL: Duration = Duration::from_millis(200);
const SETTLE_POLLS_MAX: u32 = 25;

/// Memory of both servers at one value size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) value_size: u32,
    pub(crate) entries: u64,
    pub(crate) servers: Pair<Resident>,
}

/// Resident bytes of one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Resident {
    pub(crate) empty: u64,
    pub(crate) full: u64,
    /// Bytes per entry beyond key and value.
    pub(crate) overhead_per_entry: f64,
}

/// Measures all value sizes on both servers.
pub(crate) fn run(
    contenders: &Pair<Contender>,
    requested: &LoadArgs,
    entries: u64,
    reaper: &Reaper,
    progress: &Progress,
) -> Result<Vec<Memory>, Error> {
    VALUE_SIZES
        .iter()
        .map(|&value_size| {
            let workload = filling(requested, value_size, entries)?;
            let servers = contenders.as_ref().try_map(|contender| {
                contender.require_fresh("memory")?;
                resident(&contender.start(reaper)?, &workload, progress)
            })?;
            Ok(Memory { value_size, entries, servers })
        })
        .collect()
}

/// Returns the load that stores each entry once.
fn filling(requested: &LoadArgs, value_size: u32, entries: u64) -> Result<Workload, Error> {
    let args = LoadArgs {
        clients: Some(CLIENTS),
        pipeline: Some(PIPELINE),
        data_size: Some(value_size),
        keyspace: Some(entries),
        distribution: Some(crate::distribution::Distribution::Sequential),
        tests: vec!["set".into()],
        ratio: None,
        rate: None,
        ..requested.clone()
    };
    Ok(args.workloads(&[])?.remove(0))
}

fn resident(server: &Server, workload: &Workload, progress: &Progress) -> Result<Resident, Error> {
    let process = server.own_process();
    let entries = workload.load.keyspace;
    let empty = settled(process)?;
    measure(&server.target, workload, Goal::Requests(entries), None, None, progress)?;
    expect_entries(server, entries)?;
    let full = settled(process)?;
    let payload = workload.load.key_prefix.len() + DIGITS_LEN + workload.load.data_size;
    let grown = full as f64 - empty as f64;
    Ok(Resident { empty, full, overhead_per_entry: grown / entries as f64 - payload as f64 })
}

fn expect_entries(server: &Server, entries: u64) -> Result<(), Error> {
    let reply = server.target.connect()?.call(&["DBSIZE"])?;
    if reply.as_int().is_some_and(|count| count as u64 == entries) {
        return Ok(());
    }
    Err(Error::Refused {
        address: server.target.address.to_string(),
        command: format!("to keep {entries} entries"),
        reply: format!("DBSIZE {reply:?}"),
    })
}

/// Returns resident memory when it no longer changes, or after a few seconds.
pub(super) fn settled(process: &Process) -> Result<u64, Error> {
    let mut last = process.resident()?;
    for _ in 0..SETTLE_POLLS_MAX {
        thread::sleep(SETTLE_POLL);
        let now = process.resident()?;
        if now.abs_diff(last) < SETTLED_WITHIN {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}
