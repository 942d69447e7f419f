//! Client-side caching: the cost of writes while a client tracks all keys, and the memory for each tracked key.
//!
//! One client reads every key once, so that the server remembers all of them for it. Then another client sets random
//! keys. The first SET of a key causes an invalidation, which the first client reads.

use std::iter;

use serde::Serialize;
use tierce_wire::resp::Proto;

use super::memory::settled;
use super::pair::{Pair, medians};
use super::readers::Readers;
use super::reaper::Reaper;
use super::servers::{Contender, Server};
use crate::cli::LoadArgs;
use crate::digits::DIGITS_LEN;
use crate::engine::Goal;
use crate::error::Error;
use crate::measure::{fill, measure, per_request_us};
use crate::progress::Progress;
use crate::target::{Control, Target};
use crate::workload::Workload;

/// Number of keys that one request reads.
const READ_TOGETHER: u64 = 1000;

const PIPELINE: u32 = 16;

/// All rounds of both servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tracking {
    pub(crate) keys: u64,
    pub(crate) sets: u64,
    /// Medians of the rounds.
    pub(crate) cpu_us_per_set: Pair<f64>,
    pub(crate) cpu_us_per_key_read: Pair<f64>,
    /// Resident bytes of the tracking table.
    pub(crate) bytes_per_key: Pair<f64>,
}

struct Sample {
    set_us: f64,
    read_us: f64,
    bytes: f64,
}

/// Runs all rounds, each of which starts both servers.
pub(crate) fn run(
    contenders: &Pair<Contender>,
    requested: &LoadArgs,
    keys: u64,
    rounds: u32,
    reaper: &Reaper,
    progress: &Progress,
) -> Result<Tracking, Error> {
    let workload = setting(requested, keys)?;
    // With this number, eight in ten SETs find a key that has not been set before.
    let sets = requested.requests.unwrap_or(keys * 4 / 10).max(1);
    let one = |contender: &Contender| {
        contender.require_fresh("tracking")?;
        round(&contender.start(reaper)?, &workload, sets, progress)
    };
    let samples =
        (0..rounds).map(|_| contenders.as_ref().try_map(one)).collect::<Result<Vec<_>, _>>()?;
    Ok(Tracking {
        keys,
        sets,
        cpu_us_per_set: medians(&samples, |sample| sample.set_us),
        cpu_us_per_key_read: medians(&samples, |sample| sample.read_us),
        bytes_per_key: medians(&samples, |sample| sample.bytes),
    })
}

/// Returns the load that sets random keys.
fn setting(requested: &LoadArgs, keys: u64) -> Result<Workload, Error> {
    let args = LoadArgs {
        clients: requested.clients.or(Some(1)),
        pipeline: requested.pipeline.or(Some(PIPELINE)),
        keyspace: Some(keys),
        tests: vec!["set".into()],
        ratio: None,
        ..requested.clone()
    };
    Ok(args.workloads(&[])?.remove(0))
}

fn round(
    server: &Server,
    workload: &Workload,
    sets: u64,
    progress: &Progress,
) -> Result<Sample, Error> {
    let process = server.own_process();
    fill(&server.target, workload, progress)?;
    let (keys, before) = (workload.load.keyspace, settled(process)?);
    let mut reader = Target { resp_version: Proto::Resp3, ..server.target.clone() }.connect()?;
    reader.must(&["CONFIG", "SET", "tracking-table-max-keys", "0"])?;
    reader.must(&["CLIENT", "TRACKING", "ON"])?;
    let cpu = process.cpu()?;
    read_all(&mut reader, &workload.load.key_prefix, keys)?;
    let read = process.cpu()?.since(&cpu).time;
    let bytes = settled(process)? as f64 - before as f64;
    let invalidations = Readers::start(iter::once(Ok(reader)))?;
    let goal = Goal::Requests(sets);
    let measured = measure(&server.target, workload, goal, None, Some(process), progress)?;
    drop(invalidations);
    Ok(Sample {
        set_us: measured.server.map_or(f64::NAN, |server| server.cpu_us),
        read_us: per_request_us(read, keys),
        bytes: bytes / keys as f64,
    })
}

/// Reads every key once, in order.
fn read_all(reader: &mut Control, prefix: &str, keys: u64) -> Result<(), Error> {
    for first in (0..keys).step_by(READ_TOGETHER as usize) {
        let names: Vec<String> = (first..keys.min(first + READ_TOGETHER))
            .map(|number| format!("{prefix}{number:0DIGITS_LEN$}"))
            .collect();
        let words: Vec<&str> =
            iter::once("EXISTS").chain(names.iter().map(String::as_str)).collect();
        let reply = reader.call(&words)?;
        if reply.as_int() != Some(names.len() as i64) {
            return Err(reader.refused(&words, format!("{reply:?}").as_bytes()));
        }
    }
    Ok(())
}
