//! One measurement: a workload on a server, and its cost on both sides.

use std::time::Duration;

use serde::Serialize;

use crate::cpu::{CpuSource, Process};
use crate::engine::{Engine, Goal, Tally};
use crate::error::Error;
use crate::progress::Progress;
use crate::target::Target;
use crate::workload::Workload;

/// The result of one workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    pub(crate) test: String,
    pub(crate) clients: usize,
    pub(crate) threads: usize,
    pub(crate) pipeline: usize,
    pub(crate) data_size: usize,
    pub(crate) keyspace: u64,
    pub(crate) distribution: String,
    pub(crate) seed: u64,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    /// Number of null replies, such as those to GET of an absent key.
    pub(crate) nulls: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) seconds: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) latency_ms: Latency,
    /// CPU time of the load generator per request, in microseconds.
    pub(crate) generator_cpu_us: f64,
    /// CPU cores that the load generator used.
    pub(crate) generator_cores: f64,
    pub(crate) server: Option<ServerCost>,
}

/// Latency in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) p9999: f64,
    pub(crate) max: f64,
}

/// Cost of a measurement for the server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ServerCost {
    pub(crate) pid: u32,
    /// CPU time per request, in microseconds.
    pub(crate) cpu_us: f64,
    /// CPU cores that the server used.
    pub(crate) cores: f64,
    pub(crate) cpu_source: CpuSource,
    pub(crate) resident_before: u64,
    pub(crate) resident_after: u64,
}

/// Runs `workload` until `goal`, after `warmup` of the same load over the same connections.
///
/// Reads the server's costs when all connections are established, and again after the last reply
/// but before they close.
pub(crate) fn measure(
    target: &Target,
    workload: &Workload,
    goal: Goal,
    warmup: Option<Duration>,
    server: Option<&Process>,
    progress: &Progress,
) -> Result<Measurement, Error> {
    let mut engine = Engine::connect(target, &workload.load, &workload.mix)?;
    if let Some(time) = warmup {
        engine.run(Goal::Time(time), &mut |_, _| ())?;
    }
    let before = server.map(read_costs).transpose()?;
    let mut bar = progress.bar(&workload.title, goal);
    let tally = engine.run(goal, &mut |done, elapsed| bar.update(done, elapsed))?;
    drop(bar);
    let server = match (server, before) {
        (Some(process), Some(before)) => Some(server_cost(process, &before, &tally)?),
        _ => None,
    };
    Ok(Measurement::new(workload, &tally, server))
}

/// Sets every key of the workload's keyspace once.
pub(crate) fn fill(target: &Target, workload: &Workload, progress: &Progress) -> Result<(), Error> {
    let (fill, goal) = workload.fill();
    let measurement = measure(target, &fill, goal, None, None, progress)?;
    match measurement.first_error {
        None => Ok(()),
        Some(reply) => Err(Error::Refused {
            address: target.address.to_string(),
            command: "SET while filling the keyspace".into(),
            reply,
        }),
    }
}

struct Costs {
    cpu: crate::cpu::CpuReading,
    resident: u64,
}

fn read_costs(process: &Process) -> Result<Costs, Error> {
    Ok(Costs { cpu: process.cpu()?, resident: process.resident()? })
}

fn server_cost(process: &Process, before: &Costs, tally: &Tally) -> Result<ServerCost, Error> {
    let after = read_costs(process)?;
    let spent = after.cpu.since(&before.cpu);
    Ok(ServerCost {
        pid: process.pid(),
        cpu_us: per_request_us(spent.time, tally.replies),
        cores: cores(spent.time, tally.elapsed),
        cpu_source: spent.source,
        resident_before: before.resident,
        resident_after: after.resident,
    })
}

pub(crate) fn per_request_us(time: Duration, requests: u64) -> f64 {
    time.as_secs_f64() * 1e6 / requests.max(1) as f64
}

fn cores(time: Duration, elapsed: Duration) -> f64 {
    time.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)
}

impl Measurement {
    fn new(workload: &Workload, tally: &Tally, server: Option<ServerCost>) -> Self {
        let load = &workload.load;
        let seconds = tally.elapsed.as_secs_f64();
        Self {
            test: workload.title.clone(),
            clients: load.clients,
            threads: load.threads,
            pipeline: load.pipeline,
            data_size: load.data_size,
            keyspace: load.keyspace,
            distribution: load.distribution.to_string(),
            seed: load.seed,
            requests: tally.replies,
            errors: tally.errors,
            nulls: tally.nulls,
            first_error: tally.first_error.clone(),
            seconds,
            requests_per_second: tally.replies as f64 / seconds.max(1e-9),
            latency_ms: Latency::new(tally),
            generator_cpu_us: per_request_us(tally.own_cpu, tally.replies),
            generator_cores: cores(tally.own_cpu, tally.elapsed),
            server,
        }
    }
}

impl Latency {
    fn new(tally: &Tally) -> Self {
        let histogram = &tally.latency;
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        Self {
            mean: histogram.mean() / 1e6,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: histogram.max() as f64 / 1e6,
        }
    }
}
