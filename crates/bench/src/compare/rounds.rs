//! Throughput, CPU time and latency of two servers, measured in alternation.
//!
//! Both servers run through all rounds, but only one is loaded at a time. Machine noise that lasts longer than a
//! round affects both. So ratios are taken within a round; their median is steadier than the ratio of two medians.

use std::time::Duration;

use serde::Serialize;

use super::pair::{Pair, median};
use super::servers::Server;
use crate::cli::LoadArgs;
use crate::cpu::CpuSource;
use crate::engine::Goal;
use crate::error::Error;
use crate::measure::{Measurement, fill, measure};
use crate::progress::Progress;
use crate::workload::Workload;

/// Default duration of each run of a round, and of its warm-up.
const TIME_DEFAULT: Duration = Duration::from_secs(2);
const WARMUP_DEFAULT: Duration = Duration::from_millis(300);

/// All rounds of one test.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rounds {
    pub(crate) workload: String,
    pub(crate) test: String,
    pub(crate) rounds: Vec<Pair<Measurement>>,
    pub(crate) median: Median,
}

/// The median of the rounds. Ratios are A divided by B.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Median {
    pub(crate) requests_per_second: Pair<f64>,
    pub(crate) throughput_ratio: Option<f64>,
    /// Absent if a server's process is not known.
    pub(crate) cpu_us: Option<Pair<f64>>,
    pub(crate) cpu_ratio: Option<f64>,
    /// Coarsest source of CPU time in any round.
    pub(crate) cpu_source: Option<CpuSource>,
    pub(crate) p50_ms: Pair<f64>,
    pub(crate) p99_ms: Pair<f64>,
    pub(crate) p99_ratio: Option<f64>,
    pub(crate) p999_ms: Pair<f64>,
}

/// Runs every test of a load, `rounds` times on each side, and passes each result to `done`.
pub(crate) fn run(
    name: &str,
    servers: &Pair<Server>,
    args: &LoadArgs,
    rounds: u32,
    progress: &Progress,
    done: &mut dyn FnMut(Rounds) -> Result<(), Error>,
) -> Result<(), Error> {
    let goal = args.goal(Goal::Time(TIME_DEFAULT));
    let warmup = args.warmup.map_or(WARMUP_DEFAULT, Duration::from_secs_f64);
    let workloads = args.workloads(&[])?;
    if let (true, Some(workload)) = (args.load_first, workloads.first()) {
        servers.as_ref().try_map(|server| fill(&server.target, workload, progress))?;
    }
    for workload in &workloads {
        let one = |server: &Server| {
            let process = server.process.as_ref();
            measure(&server.target, workload, goal, Some(warmup), process, progress)
        };
        let rounds =
            (0..rounds).map(|_| servers.as_ref().try_map(one)).collect::<Result<Vec<_>, _>>()?;
        done(Rounds::new(name, workload, rounds))?;
    }
    Ok(())
}

impl Rounds {
    fn new(name: &str, workload: &Workload, rounds: Vec<Pair<Measurement>>) -> Self {
        let median = Median::new(&rounds);
        Self { workload: name.to_owned(), test: workload.title.clone(), rounds, median }
    }
}

type Figure = fn(&Measurement) -> f64;

impl Median {
    fn new(rounds: &[Pair<Measurement>]) -> Self {
        let side = |figure: Figure| {
            let of = |values: Vec<f64>| median(values).unwrap_or(f64::NAN);
            Pair {
                a: of(rounds.iter().map(|round| figure(&round.a)).collect()),
                b: of(rounds.iter().map(|round| figure(&round.b)).collect()),
            }
        };
        let ratio = |figure: Figure| {
            median(rounds.iter().filter_map(|round| round.as_ref().map(figure).ratio()))
        };
        let cpu: Figure = |of| of.server.as_ref().map_or(f64::NAN, |server| server.cpu_us);
        let cpu_us = Some(side(cpu)).filter(|pair| !pair.a.is_nan() && !pair.b.is_nan());
        Self {
            requests_per_second: side(|of| of.requests_per_second),
            throughput_ratio: ratio(|of| of.requests_per_second),
            cpu_ratio: ratio(cpu),
            cpu_us,
            cpu_source: rounds
                .iter()
                .flat_map(|round| [&round.a, &round.b])
                .filter_map(source)
                .max(),
            p50_ms: side(|of| of.latency_ms.p50),
            p99_ms: side(|of| of.latency_ms.p99),
            p99_ratio: ratio(|of| of.latency_ms.p99),
            p999_ms: side(|of| of.latency_ms.p999),
        }
    }
}

fn source(of: &Measurement) -> Option<CpuSource> {
    of.server.map(|server| server.cpu_source)
}
