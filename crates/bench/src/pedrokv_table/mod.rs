//! `tierce bench pedrokv`: the table of PedroKV's own benchmark, measured here.
//!
//! Records of 16-byte keys are written and read by 1, 4, 16 and 64 clients: asynchronously, each
//! connection keeping a window of requests under way, and synchronously, one request at a time. An
//! asynchronous write ends when everything is on the device. Beside it runs what PedroKV compares
//! itself with: redis-benchmark against redis-server, on the same cores and one after the other.
//!
//! As in the original, asynchronous clients share a few connections.

mod cli;
mod client;
mod plot;
mod redis;
mod report;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use serde::Serialize;
use tierce_wire::resp::{Proto, Value};

use cli::Generator;
pub(crate) use cli::PedroKvArgs;
use report::Report;

use crate::cli::LoadArgs;
use crate::compare::{Contender, Reaper, Server, free_port};
use crate::dialect::Dialect;
use crate::distribution::Distribution;
use crate::engine::{Engine, Goal, Tally};
use crate::error::Error;
use crate::measure::per_request_us;
use crate::progress::Progress;
use crate::target::{Address, Control, Target};
use crate::workload::Workload;

/// Keys are this and twelve digits: 16 bytes, as in the original.
const KEY_PREFIX: &str = "key:";

/// A store that is not freed for so long is measured as it is.
const FREED_MAX: Duration = Duration::from_secs(10);

/// How often it is looked at.
const FREED_POLL: Duration = Duration::from_millis(10);

/// One row of the table: the same load by more and more clients.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    cells: Vec<Cell>,
}

/// What one load came to.
#[derive(Debug, Serialize)]
struct Cell {
    clients: usize,
    operations: u64,
    seconds: f64,
    operations_per_second: f64,
    /// CPU time of the server for an operation, in microseconds.
    server_cpu_us: f64,
    /// The same of the client, where it was measured.
    client_cpu_us: Option<f64>,
}

/// Whether requests wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Asynchronous,
    Synchronous,
}

/// What is done with records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Every record once, from the first to the last.
    Write,
    /// Records at random.
    Read,
}

/// What a load came to on the side of the clients.
struct Outcome {
    /// Until the last reply.
    elapsed: Duration,
    own_cpu: Duration,
    first_error: Option<String>,
}

const ROWS: [(&str, Manner, Work); 4] = [
    ("async write", Manner::Asynchronous, Work::Write),
    ("async read", Manner::Asynchronous, Work::Read),
    ("sync write", Manner::Synchronous, Work::Write),
    ("sync read", Manner::Synchronous, Work::Read),
];

/// Measures what the command line asks for and prints it.
///
/// # Errors
/// When a server cannot be started, a connection is lost or a reply is an error.
pub(crate) fn run(args: &PedroKvArgs) -> Result<(), Error> {
    let reaper = Reaper::new()?;
    let progress = if args.quiet || args.json { Progress::Hidden } else { Progress::Shown };
    let contender = Contender::new(Some(&args.server()?), None, Proto::Resp2, Dialect::Resp)?;
    let bench = Bench::start(args, &contender, &reaper, progress)?;
    let is_durable = bench.is_durable;
    let mut rows = ROWS.iter().map(|row| bench.row(*row)).collect::<Result<Vec<_>, _>>()?;
    // It ends before the other one begins.
    drop(bench);
    let mut servers = vec![contender.origin()];
    if !args.no_redis {
        let contender = Contender::new(Some(&args.redis), None, Proto::Resp2, Dialect::Resp)?;
        let server = contender.start(&reaper)?;
        rows.extend(redis::rows(args, &server)?);
        servers.push(contender.origin());
    }
    let report = Report::new(args, servers, is_durable, rows);
    report.print(args.json)?;
    match &args.plot {
        None => Ok(()),
        Some(path) => {
            std::fs::write(path, plot::svg(&report.rows)).map_err(Error::io("writing the drawing"))
        }
    }
}

/// A server under measurement.
struct Bench<'a> {
    args: &'a PedroKvArgs,
    server: Server,
    /// Where it speaks PedroKV.
    target: Target,
    /// It has a log, so that writes can be waited for.
    is_durable: bool,
    progress: Progress,
}

impl<'a> Bench<'a> {
    fn start(
        args: &'a PedroKvArgs,
        contender: &Contender,
        reaper: &Reaper,
        progress: Progress,
    ) -> Result<Self, Error> {
        let server = contender.start(reaper)?;
        let port = free_port()?;
        let mut control = server.target.connect()?;
        control.must(&["CONFIG", "SET", "pedrokv-port", &port.to_string()])?;
        let is_durable = wait_for_device(&mut control)?;
        let address = Address::Tcp { host: "127.0.0.1".into(), port };
        let target = Target { address, ..server.target.clone() };
        Ok(Self { args, server, target, is_durable, progress })
    }

    fn row(&self, (name, manner, work): (&'static str, Manner, Work)) -> Result<Row, Error> {
        let cells = self.args.clients.iter();
        let cells = cells.map(|&clients| self.cell(name, manner, work, clients as usize));
        Ok(Row { name, cells: cells.collect::<Result<_, _>>()? })
    }

    fn cell(&self, name: &str, manner: Manner, work: Work, clients: usize) -> Result<Cell, Error> {
        let mut control = self.server.target.connect()?;
        if (manner, work) == (Manner::Asynchronous, Work::Write) {
            // As in the original, whose store is empty at first. The other rows use what this leaves.
            control.must(&["FLUSHALL"])?;
            wait_until_freed(&mut control)?;
        }
        let operations = match manner {
            Manner::Asynchronous => self.args.records,
            Manner::Synchronous => self.args.sync_operations.unwrap_or(self.args.records),
        };
        let server_cpu = || self.server.process.as_ref().map(|process| process.cpu()).transpose();
        let before = server_cpu()?;
        let outcome = match self.args.client {
            Generator::Engine => self.load(name, manner, work, clients, operations)?,
            Generator::TierceClient => {
                client::load(self.args, &self.target, manner, work, clients, operations)?
            }
        };
        let waited_for_device = match (manner, work) {
            (Manner::Asynchronous, Work::Write) => {
                let begun = Instant::now();
                wait_for_device(&mut control)?;
                begun.elapsed()
            }
            _ => Duration::ZERO,
        };
        let after = server_cpu()?;
        if let Some(reply) = outcome.first_error {
            let address = self.target.address.to_string();
            return Err(Error::Refused { address, command: name.into(), reply });
        }
        let seconds = (outcome.elapsed + waited_for_device).as_secs_f64();
        let server_cpu = before.zip(after).map(|(before, after)| after.since(&before).time);
        Ok(Cell {
            clients,
            operations,
            seconds,
            operations_per_second: operations as f64 / seconds.max(1e-9),
            server_cpu_us: server_cpu.map_or(f64::NAN, |time| per_request_us(time, operations)),
            client_cpu_us: Some(per_request_us(outcome.own_cpu, operations)),
        })
    }

    /// The load by this crate's engine, which does the least that a client can do.
    fn load(
        &self,
        name: &str,
        manner: Manner,
        work: Work,
        clients: usize,
        operations: u64,
    ) -> Result<Outcome, Error> {
        let workload = self.workload(manner, work, clients)?;
        let goal = Goal::Requests(operations);
        let mut engine = Engine::connect(&self.target, &workload.load, &workload.mix)?;
        let bar = self.progress.bar(&format!("{name} {clients}"), goal);
        let tally = engine.run(goal, &mut |done, elapsed| bar.update(done, elapsed))?;
        let Tally { elapsed, own_cpu, first_error, .. } = tally;
        Ok(Outcome { elapsed, own_cpu, first_error })
    }

    fn workload(&self, manner: Manner, work: Work, clients: usize) -> Result<Workload, Error> {
        let args = self.args;
        let is_async = manner == Manner::Asynchronous;
        let connections = if is_async { clients.min(args.connections as usize) } else { clients };
        let load = LoadArgs {
            protocol: Dialect::PedroKv,
            clients: Some(connections as u32),
            threads: Some(args.threads),
            window: is_async.then_some(args.window),
            keyspace: Some(args.records),
            key_prefix: Some(KEY_PREFIX.into()),
            data_size: Some(args.data_size),
            distribution: Some(match work {
                Work::Write => Distribution::Sequential,
                Work::Read => Distribution::Uniform,
            }),
            tests: vec![if work == Work::Write { "set" } else { "get" }.into()],
            ..LoadArgs::default()
        };
        Ok(load.workloads(&[])?.remove(0))
    }
}

/// Waits until the memory of what was flushed is free, which the server sees to in the background: a store
/// that is filled shall not pay for the one before. A server that does not tell has nothing to wait for.
fn wait_until_freed(control: &mut Control) -> Result<(), Error> {
    let given_up_at = Instant::now() + FREED_MAX;
    while Instant::now() < given_up_at {
        let info = control.call(&["INFO", "memory"])?;
        let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
        let left = info.lines().find_map(|line| line.strip_prefix("lazyfree_pending_bytes:"));
        if left.is_none_or(|bytes| bytes == "0") {
            return Ok(());
        }
        std::thread::sleep(FREED_POLL);
    }
    Ok(())
}

/// Waits until all writes are on the device; `false` if the server keeps no log.
fn wait_for_device(control: &mut Control) -> Result<bool, Error> {
    Ok(!matches!(control.call(&["WAITAOF", "1", "0", "0"])?, Value::Error(_)))
}
