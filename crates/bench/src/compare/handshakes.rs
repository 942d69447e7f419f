//! TLS handshakes: the server's CPU time for a connection that is opened, used for one PING, and closed.
//!
//! Most of that is the kernel's cost of a plain connection. So only the comparison with another server is meaningful.

use serde::Serialize;

use super::pair::{Pair, medians};
use super::reaper::Reaper;
use super::servers::{Contender, Server};
use crate::cli::{LoadArgs, Sessions, TlsArgs};
use crate::error::Error;
use crate::measure::per_request_us;

/// Default number of connections of a run.
const CONNECTIONS: u64 = 2_000;

/// All rounds of both servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Handshakes {
    pub(crate) cases: Vec<Case>,
}

/// A kind of handshake.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Medians of the rounds.
    pub(crate) cpu_us: Pair<f64>,
}

/// Runs all rounds.
pub(crate) fn run(
    contenders: &Pair<Contender>,
    requested: &LoadArgs,
    files: &TlsArgs,
    rounds: u32,
    reaper: &Reaper,
) -> Result<Handshakes, Error> {
    let servers = contenders.as_ref().try_map(|contender| {
        contender.require_fresh("handshakes")?;
        if !contender.is_encrypted() {
            return Err(Error::Usage("workload handshakes needs --tls".into()));
        }
        contender.start(reaper)
    })?;
    let count = requested.requests.unwrap_or(CONNECTIONS);
    let mut cases = Vec::new();
    for (name, sessions) in
        [("full handshake", Sessions::New), ("resumed handshake", Sessions::Resumed)]
    {
        let one = |server| round(server, files, sessions, count);
        let samples =
            (0..rounds).map(|_| servers.as_ref().try_map(one)).collect::<Result<Vec<_>, _>>()?;
        cases.push(Case { name, cpu_us: medians(&samples, |cpu_us| *cpu_us) });
    }
    Ok(Handshakes { cases })
}

fn round(server: &Server, files: &TlsArgs, sessions: Sessions, count: u64) -> Result<f64, Error> {
    let mut target = server.target.clone();
    target.tls = Some(files.tls(sessions)?);
    let connect = |times: u64| {
        (0..times).try_for_each(|_| target.connect().and_then(|mut it| it.must(&["PING"])))
    };
    connect(count / 10)?;
    let process = server.own_process();
    let before = process.cpu()?;
    connect(count)?;
    Ok(per_request_us(process.cpu()?.since(&before).time, count))
}
