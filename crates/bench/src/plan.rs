//! A run against one server, resolved from the command line, and its execution.

use std::time::Duration;

use tierce_wire::resp::Proto;

use crate::cli::{BenchArgs, TargetArgs};
use crate::cpu::{self, Process};
use crate::engine::Goal;
use crate::error::Error;
use crate::measure::{Measurement, fill, measure};
use crate::progress::Progress;
use crate::report;
use crate::target::{Address, Target};
use crate::workload::Workload;

/// All decisions of the user about a run.
#[derive(Debug)]
pub(crate) struct Plan {
    target: Target,
    workloads: Vec<Workload>,
    goal: Goal,
    warmup: Option<Duration>,
    fill: Fill,
    server: Option<Process>,
    format: report::Format,
}

/// Filling of the keyspace before measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    First,
    Never,
}

impl Plan {
    /// # Errors
    /// If options contradict each other or name something unknown.
    pub(crate) fn new(args: &BenchArgs) -> Result<Self, Error> {
        let target = args.target.resolve()?;
        let server = match args.server_pid {
            Some(pid) => Some(Process::new(pid)),
            None => find_server(&target.address),
        };
        Ok(Self {
            workloads: args.load.workloads(&args.command)?,
            goal: args.load.goal_of_single_run(),
            warmup: args.load.warmup.map(Duration::from_secs_f64),
            fill: if args.load.load_first { Fill::First } else { Fill::Never },
            server,
            format: report::Format::new(args.json, args.csv, args.quiet),
            target,
        })
    }

    /// Runs one workload after the other. Prints each result at once, except in JSON, which is one
    /// document.
    pub(crate) fn run(&self) -> Result<(), Error> {
        let progress = match self.format {
            report::Format::Table => Progress::Shown,
            _ => Progress::Hidden,
        };
        let mut printer = report::Printer::new(self.format);
        if let (Fill::First, Some(workload)) = (self.fill, self.workloads.first()) {
            fill(&self.target, workload, &progress)?;
        }
        for workload in &self.workloads {
            printer.print(self.measure(workload, &progress)?)?;
        }
        printer.finish()
    }

    fn measure(&self, workload: &Workload, progress: &Progress) -> Result<Measurement, Error> {
        let server = self.server.as_ref();
        measure(&self.target, workload, self.goal, self.warmup, server, progress)
    }
}

impl TargetArgs {
    fn resolve(&self) -> Result<Target, Error> {
        let address = match &self.socket {
            Some(path) => Address::Unix(path.clone()),
            None => Address::Tcp { host: self.host.clone(), port: self.port },
        };
        let tls = if self.tls { Some(self.tls_files.resolve()?) } else { None };
        Ok(Target {
            address,
            user: self.user.clone(),
            password: self.password.clone(),
            database: self.dbnum,
            resp_version: if self.resp3 { Proto::Resp3 } else { Proto::Resp2 },
            tls,
        })
    }
}

/// Returns the server's process, if it runs on this machine and this user may read its data.
fn find_server(address: &Address) -> Option<Process> {
    match address {
        Address::Tcp { host, port } => {
            let local = host == "localhost"
                || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
            local.then(|| cpu::listener(*port)).flatten()
        }
        Address::Unix(path) => cpu::listener_of(path),
    }
}
