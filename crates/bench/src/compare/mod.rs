//! Comparison of two servers: `tierce bench compare`.
//!
//! [`rounds`] compares throughput, CPU time and latency. The other workloads start fresh servers for their own
//! measurements. All of them produce [`finding`]s: a figure of A, the same figure of B, and their ratio.

mod about;
mod name;
mod pair;
mod reaper;
mod servers;

mod growth;
mod handover;
mod handshakes;
mod idle;
mod memory;
mod pubsub;
mod readers;
mod rounds;
mod tracking;
mod transactions;

mod finding;
mod table;

#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::cli::{CompareArgs, LoadArgs, Name};
use crate::error::Error;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::protocol::Protocol;
use crate::report;
use about::About;
use finding::Finding;
use name::Shape;
use pair::Pair;
pub(crate) use reaper::Reaper;
use rounds::Rounds;
pub(crate) use servers::Contender;

/// Name of a workload that the user's options define.
const CUSTOM: &str = "custom";

/// Runs the comparison of the command line.
pub(crate) fn run(args: &CompareArgs) -> Result<(), Error> {
    let names = if args.all { Name::ALL.to_vec() } else { args.workload.clone() };
    let mut comparison = Comparison::new(args)?;
    comparison.check(&names)?;
    comparison.head()?;
    if names.is_empty() {
        comparison.rounds(CUSTOM, &args.load)?;
    }
    for name in names {
        comparison.run(name)?;
    }
    comparison.finish()
}

/// Form of the results while they come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Tables of rounds, as soon as they are complete, and a report in Markdown at the end.
    Tables,
    /// Only the report in Markdown at the end.
    Markdown,
    /// One JSON document at the end.
    Json,
}

/// A comparison in progress.
struct Comparison<'a> {
    args: &'a CompareArgs,
    contenders: Pair<Contender>,
    reaper: Reaper,
    progress: Progress,
    form: Form,
    results: Results,
}

/// All results, as written to JSON.
#[derive(Debug, Serialize)]
struct Results {
    machine: Machine,
    /// Absent until the servers have been asked.
    servers: Option<Pair<About>>,
    findings: Vec<Finding>,
    throughput: Vec<Rounds>,
    memory: Vec<memory::Memory>,
    growth: Option<growth::Growth>,
    idle: Option<idle::Idle>,
    pubsub: Option<pubsub::PubSub>,
    handover: Option<handover::Handover>,
    transactions: Option<transactions::Transactions>,
    tracking: Option<tracking::Tracking>,
    handshakes: Option<handshakes::Handshakes>,
}

impl<'a> Comparison<'a> {
    fn new(args: &'a CompareArgs) -> Result<Self, Error> {
        let contenders = Contender::both(args)?;
        let form = match (args.json, args.all) {
            (true, _) => Form::Json,
            (_, true) => Form::Markdown,
            _ => Form::Tables,
        };
        Ok(Self {
            args,
            contenders,
            reaper: Reaper::new()?,
            progress: if args.quiet || args.json { Progress::Hidden } else { Progress::Shown },
            form,
            results: Results {
                machine: Machine::this(),
                servers: None,
                findings: Vec::new(),
                throughput: Vec::new(),
                memory: Vec::new(),
                growth: None,
                idle: None,
                pubsub: None,
                handover: None,
                transactions: None,
                tracking: None,
                handshakes: None,
            },
        })
    }

    /// Rejects options that would only fail after minutes of measuring.
    fn check(&self, names: &[Name]) -> Result<(), Error> {
        for shape in names.iter().flat_map(|name| name.shapes()) {
            shape.args(&self.args.load)?;
        }
        for name in names.iter().filter(|name| name.shapes().is_empty()) {
            let label = format!("{name:?}").to_lowercase();
            if self.args.load.protocol != Protocol::Resp {
                return Err(Error::Usage(format!("workload {label} is for RESP only")));
            }
            self.contenders.as_ref().try_map(|contender| contender.require_fresh(&label))?;
        }
        self.args.load.workloads(&[]).map(|_| ())
    }

    /// Asks both servers who they are, and shows it.
    fn head(&mut self) -> Result<(), Error> {
        let protocol = self.args.load.protocol;
        let ask = |contender: &Contender| About::ask(contender, protocol, &self.reaper);
        let servers = self.contenders.as_ref().try_map(ask)?;
        if self.form != Form::Json {
            let machine = self.results.machine.line();
            let lines = servers.as_ref().map(About::line);
            report::write(&format!("{machine}\n{}\n{}\n\n", lines.a, lines.b))?;
        }
        self.results.servers = Some(servers);
        Ok(())
    }

    fn run(&mut self, name: Name) -> Result<(), Error> {
        match name {
            Name::Memory => self.memory(),
            Name::Growth => self.growth(),
            Name::Idle => self.idle(),
            Name::Pubsub => self.pubsub(),
            Name::Handover => self.handover(),
            Name::Transactions => self.transactions(),
            Name::Tracking => self.tracking(),
            Name::Handshakes => self.handshakes(),
            Name::P1 | Name::P16 | Name::P200 | Name::P200Hot | Name::Latency => {
                name.shapes().iter().try_for_each(|shape| self.shape(*shape))
            }
        }
    }

    fn shape(&mut self, shape: Shape) -> Result<(), Error> {
        let tests = vec!["get".into(), "set".into()];
        let args = LoadArgs { tests, ratio: None, ..shape.args(&self.args.load)? };
        self.rounds(shape.name, &args)
    }

    /// Runs a load on both servers. They are fresh for every workload and run through all its tests and rounds.
    fn rounds(&mut self, name: &str, load: &LoadArgs) -> Result<(), Error> {
        let servers =
            self.contenders.as_ref().try_map(|contender| contender.start(&self.reaper))?;
        let (form, results) = (self.form, &mut self.results);
        let labels = self.contenders.as_ref().map(|contender| contender.label.as_str());
        rounds::run(name, &servers, load, self.args.rounds, &self.progress, &mut |rounds| {
            if form == Form::Tables {
                report::write(&table::rounds(&labels, &rounds))?;
            }
            results.findings.extend(finding::of_rounds(&rounds));
            results.throughput.push(rounds);
            Ok(())
        })
    }

    fn memory(&mut self) -> Result<(), Error> {
        let (load, entries) = (&self.args.load, self.args.entries);
        let memory = memory::run(&self.contenders, load, entries, &self.reaper, &self.progress)?;
        self.found(memory.iter().map(finding::of_memory).collect())?;
        self.results.memory = memory;
        Ok(())
    }

    fn growth(&mut self) -> Result<(), Error> {
        let (load, keys, rounds) = (&self.args.load, self.args.growth_keys, self.args.rounds);
        let growth =
            growth::run(&self.contenders, load, keys, rounds, &self.reaper, &self.progress)?;
        self.found(finding::of_growth(&growth))?;
        self.results.growth = Some(growth);
        Ok(())
    }

    fn idle(&mut self) -> Result<(), Error> {
        let (load, rounds) = (&self.args.load, self.args.rounds);
        let connections = self.args.idle_connections;
        let idle =
            idle::run(&self.contenders, load, connections, rounds, &self.reaper, &self.progress)?;
        self.found(finding::of_idle(&idle))?;
        self.results.idle = Some(idle);
        Ok(())
    }

    fn pubsub(&mut self) -> Result<(), Error> {
        let (load, crowd, rounds) = (&self.args.load, self.args.idle_connections, self.args.rounds);
        let pubsub = pubsub::run(&self.contenders, load, crowd, rounds, &self.reaper)?;
        self.found(finding::of_pubsub(&pubsub))?;
        self.results.pubsub = Some(pubsub);
        Ok(())
    }

    fn handover(&mut self) -> Result<(), Error> {
        let (load, rounds) = (&self.args.load, self.args.rounds);
        let handover = handover::run(&self.contenders, load, rounds, &self.reaper)?;
        self.found(finding::of_handover(&handover))?;
        self.results.handover = Some(handover);
        Ok(())
    }

    fn transactions(&mut self) -> Result<(), Error> {
        let (load, rounds) = (&self.args.load, self.args.rounds);
        let transactions = transactions::run(&self.contenders, load, rounds, &self.reaper)?;
        self.found(finding::of_transactions(&transactions))?;
        self.results.transactions = Some(transactions);
        Ok(())
    }

    fn tracking(&mut self) -> Result<(), Error> {
        let (load, keys, rounds) = (&self.args.load, self.args.entries, self.args.rounds);
        let tracking =
            tracking::run(&self.contenders, load, keys, rounds, &self.reaper, &self.progress)?;
        self.found(finding::of_tracking(&tracking))?;
        self.results.tracking = Some(tracking);
        Ok(())
    }

    fn handshakes(&mut self) -> Result<(), Error> {
        let (load, files, rounds) = (&self.args.load, &self.args.tls_files, self.args.rounds);
        let handshakes = handshakes::run(&self.contenders, load, files, rounds, &self.reaper)?;
        self.found(finding::of_handshakes(&handshakes))?;
        self.results.handshakes = Some(handshakes);
        Ok(())
    }

    fn found(&mut self, findings: Vec<Finding>) -> Result<(), Error> {
        if self.form == Form::Tables {
            report::write(&(finding::lines(&findings) + "\n"))?;
        }
        self.results.findings.extend(findings);
        Ok(())
    }

    fn finish(self) -> Result<(), Error> {
        if self.form == Form::Json {
            return report::write(&report::document(&self.results));
        }
        let labels = self.contenders.as_ref().map(|contender| contender.label.as_str());
        let servers = self.results.servers.as_ref();
        let head = servers.map(|servers| about::markdown(&self.results.machine, servers));
        report::write(
            &(head.unwrap_or_default() + &finding::markdown(&labels, &self.results.findings)),
        )
    }
}
