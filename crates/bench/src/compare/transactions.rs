//! Transactions: the server's CPU time for `MULTI` to `EXEC`, sent at once or command by command.

use std::time::Instant;

use serde::Serialize;

use super::pair::{Pair, medians};
use super::reaper::Reaper;
use super::servers::{Contender, Server};
use crate::cli::LoadArgs;
use crate::error::Error;
use crate::measure::per_request_us;
use crate::target::Control;

/// Default number of transactions of a run.
const TRANSACTIONS: u64 = 20_000;

/// Commands of a transaction.
const SETS: [&[&str]; 12] = [
    &["MULTI"],
    &["SET", "key:0", "xxx"],
    &["SET", "key:1", "xxx"],
    &["SET", "key:2", "xxx"],
    &["SET", "key:3", "xxx"],
    &["SET", "key:4", "xxx"],
    &["SET", "key:5", "xxx"],
    &["SET", "key:6", "xxx"],
    &["SET", "key:7", "xxx"],
    &["SET", "key:8", "xxx"],
    &["SET", "key:9", "xxx"],
    &["EXEC"],
];
const CHECK_AND_SET: [&[&str]; 5] =
    [&["WATCH", "key:0"], &["GET", "key:0"], &["MULTI"], &["SET", "key:0", "xxx"], &["EXEC"]];

/// A way to send transactions.
struct Shape {
    name: &'static str,
    commands: &'static [&'static [&'static str]],
    /// Number of transactions that are sent together; 0 sends one command at a time.
    together: usize,
}

const SHAPES: [Shape; 3] = [
    Shape { name: "MULTI, 10 SET, EXEC in a pipeline", commands: &SETS, together: 1 },
    Shape { name: "16 of these in a pipeline", commands: &SETS, together: 16 },
    Shape { name: "WATCH, GET, MULTI, SET, EXEC in turn", commands: &CHECK_AND_SET, together: 0 },
];

/// All rounds of both servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Transactions {
    pub(crate) cases: Vec<Case>,
}

/// The figures of one shape.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Medians of the rounds.
    pub(crate) cpu_us: Pair<f64>,
    pub(crate) per_second: Pair<f64>,
}

struct Sample {
    cpu_us: f64,
    per_second: f64,
}

/// Runs all rounds.
pub(crate) fn run(
    contenders: &Pair<Contender>,
    requested: &LoadArgs,
    rounds: u32,
    reaper: &Reaper,
) -> Result<Transactions, Error> {
    let servers = contenders.as_ref().try_map(|contender| {
        contender.require_fresh("transactions")?;
        contender.start(reaper)
    })?;
    let count = requested.requests.unwrap_or(TRANSACTIONS);
    let mut cases = Vec::new();
    for shape in &SHAPES {
        let one = |server| round(server, shape, count);
        let samples =
            (0..rounds).map(|_| servers.as_ref().try_map(one)).collect::<Result<Vec<_>, _>>()?;
        cases.push(Case {
            name: shape.name,
            cpu_us: medians(&samples, |sample| sample.cpu_us),
            per_second: medians(&samples, |sample| sample.per_second),
        });
    }
    Ok(Transactions { cases })
}

fn round(server: &Server, shape: &Shape, count: u64) -> Result<Sample, Error> {
    let mut client = server.target.connect()?;
    shape.run(&mut client, count / 10)?;
    let process = server.own_process();
    let (before, begun) = (process.cpu()?, Instant::now());
    let done = shape.run(&mut client, count)?;
    let (elapsed, spent) = (begun.elapsed(), process.cpu()?.since(&before).time);
    Ok(Sample {
        cpu_us: per_request_us(spent, done),
        per_second: done as f64 / elapsed.as_secs_f64(),
    })
}

impl Shape {
    /// Runs so many transactions, rounded up to whole batches.
    fn run(&self, client: &mut Control, count: u64) -> Result<u64, Error> {
        let batch = self.commands.repeat(self.together.max(1));
        let sent_at_once = if self.together == 0 { 1 } else { batch.len() };
        let mut done = 0;
        while done < count {
            for commands in batch.chunks(sent_at_once) {
                client.must_all(commands)?;
            }
            done += self.together.max(1) as u64;
        }
        Ok(done)
    }
}
