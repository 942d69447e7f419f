//! Growth: the worst latency while many new keys are added to a server.
//!
//! On a fresh server every key is SET once, in order, and then again. The second pass is the same load without
//! growth. So the difference between the two maxima is the cost of growing: rehashing, resizing, memory from the
//! system. A single hiccup of the machine determines a maximum, hence several rounds and their median.

use serde::Serialize;

use super::pair::{Pair, median};
use super::reaper::Reaper;
use super::servers::{Contender, Server};
use crate::cli::LoadArgs;
use crate::distribution::Distribution;
use crate::engine::Goal;
use crate::error::Error;
use crate::measure::{Latency, measure};
use crate::progress::Progress;
use crate::workload::Workload;

/// Pipeline depth. It adds ten million keys within seconds.
const PIPELINE: u32 = 16;

/// Maximum number of rounds. More would take longer than all other workloads together.
const ROUNDS_MAX: u32 = 3;

/// All rounds of both servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Growth {
    pub(crate) keys: u64,
    pub(crate) rounds: Vec<Pair<Passes>>,
    /// Medians of the rounds, in milliseconds.
    pub(crate) adding_max_ms: Pair<f64>,
    pub(crate) overwriting_max_ms: Pair<f64>,
    pub(crate) excess_ms: Pair<f64>,
}

/// Latency of the two passes on one server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Passes {
    pub(crate) adding: Latency,
    pub(crate) overwriting: Latency,
}

/// Runs both passes on fresh servers of both sides.
pub(crate) fn run(
    contenders: &Pair<Contender>,
    requested: &LoadArgs,
    keys: u64,
    rounds: u32,
    reaper: &Reaper,
    progress: &Progress,
) -> Result<Growth, Error> {
    let workload = setting(requested, keys)?;
    let rounds = (0..rounds.min(ROUNDS_MAX))
        .map(|_| {
            contenders.as_ref().try_map(|contender| {
                contender.require_fresh("growth")?;
                passes(&contender.start(reaper)?, &workload, progress)
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Growth::new(keys, rounds))
}

fn setting(requested: &LoadArgs, keys: u64) -> Result<Workload, Error> {
    let args = LoadArgs {
        pipeline: Some(PIPELINE),
        keyspace: Some(keys),
        distribution: Some(Distribution::Sequential),
        tests: vec!["set".into()],
        ratio: None,
        ..requested.clone()
    };
    Ok(args.workloads(&[])?.remove(0))
}

fn passes(server: &Server, workload: &Workload, progress: &Progress) -> Result<Passes, Error> {
    let pass = || {
        let goal = Goal::Requests(workload.load.keyspace);
        let measurement = measure(&server.target, workload, goal, None, None, progress)?;
        Ok::<_, Error>(measurement.latency_ms)
    };
    Ok(Passes { adding: pass()?, overwriting: pass()? })
}

impl Growth {
    fn new(keys: u64, rounds: Vec<Pair<Passes>>) -> Self {
        let side = |figure: fn(&Passes) -> f64| {
            let of = |values: Vec<f64>| median(values).unwrap_or(f64::NAN);
            Pair {
                a: of(rounds.iter().map(|round| figure(&round.a)).collect()),
                b: of(rounds.iter().map(|round| figure(&round.b)).collect()),
            }
        };
        Self {
            keys,
            adding_max_ms: side(|passes| passes.adding.max),
            overwriting_max_ms: side(|passes| passes.overwriting.max),
            excess_ms: side(|passes| passes.adding.max - passes.overwriting.max),
            rounds,
        }
    }
}
