//! Idle connections: what thousands of silent clients cost the busy ones.
//!
//! Busy connections send GET, one at a time, first alone and then beside the idle ones, repeatedly. Every idle
//! connection has had one PING answered, like a client in a pool.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use super::memory::settled;
use super::name;
use super::pair::{Pair, median};
use super::reaper::Reaper;
use super::servers::{Contender, Server};
use crate::cli::LoadArgs;
use crate::engine::Goal;
use crate::error::Error;
use crate::measure::{Measurement, fill, measure};
use crate::progress::Progress;
use crate::target::Control;
use crate::workload::Workload;

const TIME_DEFAULT: Duration = Duration::from_secs(2);
const WARMUP: Duration = Duration::from_millis(300);

/// Descriptors beyond the idle connections that a process needs.
pub(super) const DESCRIPTORS_SPARE: u64 = 1000;

/// All rounds on both sides.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Idle {
    pub(crate) connections: u32,
    pub(crate) servers: Pair<Side>,
}

/// One server with and without idle connections.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) rounds: Vec<Round>,
    /// Medians over the rounds.
    pub(crate) requests_per_second_alone: f64,
    pub(crate) requests_per_second_beside_idle: f64,
    pub(crate) throughput_ratio: f64,
    /// CPU time per request beside idle connections, divided by that alone.
    pub(crate) cpu_ratio: f64,
    /// Resident bytes of the server per idle connection, the first time they are opened.
    pub(crate) bytes_per_connection: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Round {
    alone: Measurement,
    beside_idle: Measurement,
    bytes_per_connection: f64,
}

/// Runs all rounds.
pub(crate) fn run(
    contenders: &Pair<Contender>,
    requested: &LoadArgs,
    connections: u32,
    rounds: u32,
    reaper: &Reaper,
    progress: &Progress,
) -> Result<Idle, Error> {
    raise_descriptor_limit(u64::from(connections) + DESCRIPTORS_SPARE)?;
    let args = LoadArgs { tests: vec!["get".into()], ratio: None, ..name::P1.args(requested)? };
    let workload = args.workloads(&[])?.remove(0);
    let goal = args.goal(Goal::Time(TIME_DEFAULT));
    let servers = contenders.as_ref().try_map(|contender| {
        contender.require_fresh("idle")?;
        let server = contender.start(reaper)?;
        allow_clients(&server, connections)?;
        fill(&server.target, &workload, progress)?;
        Ok::<_, Error>(server)
    })?;
    let mut sides = Pair { a: Vec::new(), b: Vec::new() };
    for _ in 0..rounds {
        let one = |server| round(server, &workload, goal, connections, progress);
        let Pair { a, b } = servers.as_ref().try_map(one)?;
        sides.a.push(a);
        sides.b.push(b);
    }
    Ok(Idle { connections, servers: sides.map(Side::new) })
}

fn round(
    server: &Server,
    workload: &Workload,
    goal: Goal,
    connections: u32,
    progress: &Progress,
) -> Result<Round, Error> {
    let process = server.own_process();
    let busy = || measure(&server.target, workload, goal, Some(WARMUP), Some(process), progress);
    let alone = busy()?;
    let before = settled(process)?;
    let idle = open_idle(server, connections)?;
    let bytes = settled(process)? as f64 - before as f64;
    let beside_idle = busy()?;
    drop(idle);
    Ok(Round { alone, beside_idle, bytes_per_connection: bytes / f64::from(connections) })
}

fn open_idle(server: &Server, connections: u32) -> Result<Vec<Control>, Error> {
    (0..connections)
        .map(|_| {
            let mut control = server.target.connect()?;
            control.must(&["PING"])?;
            Ok(control)
        })
        .collect()
}

/// Lets the server accept enough clients. One that knows no such setting may accept them anyhow; if
/// not, opening them fails and says why.
pub(super) fn allow_clients(server: &Server, connections: u32) -> Result<(), Error> {
    let clients = (u64::from(connections) + DESCRIPTORS_SPARE).to_string();
    server.target.connect()?.call(&["CONFIG", "SET", "maxclients", &clients]).map(|_| ())
}

/// Makes room for so many descriptors, here and in servers that are started from now on.
pub(super) fn raise_descriptor_limit(needed: u64) -> Result<(), Error> {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(Error::Usage(format!(
            "{needed} descriptors are needed and the hard limit allows {}: raise it (ulimit -Hn) \
             or lower --idle-connections",
            limit.maximum.unwrap_or_default()
        )));
    }
    if limit.current.is_some_and(|current| current < needed) {
        let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).map_err(Error::io("raising the descriptor limit"))?;
    }
    Ok(())
}

impl Side {
    fn new(rounds: Vec<Round>) -> Self {
        let of =
            |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure)).unwrap_or(f64::NAN);
        Self {
            requests_per_second_alone: of(&|round| round.alone.requests_per_second),
            requests_per_second_beside_idle: of(&|round| round.beside_idle.requests_per_second),
            throughput_ratio: of(&|round| {
                round.beside_idle.requests_per_second / round.alone.requests_per_second
            }),
            cpu_ratio: of(&|round| cpu_us(&round.beside_idle) / cpu_us(&round.alone)),
            bytes_per_connection: rounds.first().map_or(f64::NAN, |it| it.bytes_per_connection),
            rounds,
        }
    }
}

fn cpu_us(measurement: &Measurement) -> f64 {
    measurement.server.map_or(f64::NAN, |server| server.cpu_us)
}
