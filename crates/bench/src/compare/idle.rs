//! Idle connections: the cost of thousands of idle clients for the busy ones.
//!
//! Busy connections send GET, one at a time, first alone and then next to the idle ones, repeatedly. Like a client in
//! a pool, every idle connection has had one PING answered.

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

/// Descriptors of a process in addition to the idle connections.
pub(super) const DESCRIPTORS_SPARE: u64 = 1000;

/// All rounds of both servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Idle {
    pub(crate) connections: u32,
    pub(crate) servers: Pair<Side>,
}

/// One server with and without idle connections.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) rounds: Vec<Round>,
    /// Medians of the rounds.
    pub(crate) requests_per_second_alone: f64,
    #[serde(rename = "requests_per_second_beside_idle")]
    pub(crate) requests_per_second_next_to_idle: f64,
    pub(crate) throughput_ratio: f64,
    /// CPU time per request with idle connections, divided by that without.
    pub(crate) cpu_ratio: f64,
    /// Resident bytes of the server for each idle connection, when they are first opened.
    pub(crate) bytes_per_connection: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Round {
    alone: Measurement,
    next_to_idle: Measurement,
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
    let next_to_idle = busy()?;
    drop(idle);
    Ok(Round { alone, next_to_idle, bytes_per_connection: bytes / f64::from(connections) })
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

/// Lets the server accept enough clients. A server without such a setting may accept them anyway. If it does not,
/// opening them fails with a reason.
pub(super) fn allow_clients(server: &Server, connections: u32) -> Result<(), Error> {
    let clients = (u64::from(connections) + DESCRIPTORS_SPARE).to_string();
    server.target.connect()?.call(&["CONFIG", "SET", "maxclients", &clients]).map(|_| ())
}

/// Raises the descriptor limit of this process and of servers that are started later.
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
            requests_per_second_next_to_idle: of(&|round| round.next_to_idle.requests_per_second),
            throughput_ratio: of(&|round| {
                round.next_to_idle.requests_per_second / round.alone.requests_per_second
            }),
            cpu_ratio: of(&|round| cpu_us(&round.next_to_idle) / cpu_us(&round.alone)),
            bytes_per_connection: rounds.first().map_or(f64::NAN, |it| it.bytes_per_connection),
            rounds,
        }
    }
}

fn cpu_us(measurement: &Measurement) -> f64 {
    measurement.server.map_or(f64::NAN, |server| server.cpu_us)
}
