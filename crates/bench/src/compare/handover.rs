//! Blocked clients: the latency from the client that pushes an element to the one that waits for it.
//!
//! Some clients block on one list, and another one pushes an element at a time. The measured time begins before the
//! push is sent and ends when the client that gets the element has read it. When all clients have got one, they block
//! again. The next push comes when the server counts all of them as blocked.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::retry_on_intr;
use serde::Serialize;
use tierce_wire::resp::Value;

use super::pair::{Pair, medians};
use super::reaper::Reaper;
use super::servers::{Contender, Server};
use crate::cli::LoadArgs;
use crate::error::Error;
use crate::target::Control;

const LIST: &str = "jobs";
const PAYLOAD: &str = "a job of twenty bytes";

/// Blocking commands.
const COMMANDS: [&[&str]; 2] =
    [&["BLPOP", LIST, "0"], &["BLMOVE", LIST, "done", "LEFT", "RIGHT", "0"]];

/// Numbers of blocked clients.
const CLIENTS: [u32; 2] = [1, 100];

/// Default number of hand-overs of a run.
const HANDOVERS: u64 = 5_000;

/// Time limit for blocking the clients, and for one hand-over.
const PATIENCE: Duration = Duration::from_secs(30);

/// All rounds of both servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Handover {
    pub(crate) cases: Vec<Case>,
}

/// One command with one number of clients.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) command: &'static str,
    pub(crate) clients: u32,
    /// Medians of the rounds.
    pub(crate) p50_us: Pair<f64>,
    pub(crate) p99_us: Pair<f64>,
}

struct Sample {
    p50_us: f64,
    p99_us: f64,
}

/// Runs all rounds.
pub(crate) fn run(
    contenders: &Pair<Contender>,
    requested: &LoadArgs,
    rounds: u32,
    reaper: &Reaper,
) -> Result<Handover, Error> {
    let servers = contenders.as_ref().try_map(|contender| {
        contender.require_fresh("handover")?;
        contender.start(reaper)
    })?;
    let handovers = requested.requests.unwrap_or(HANDOVERS);
    let mut cases = Vec::new();
    for command in COMMANDS {
        for clients in CLIENTS {
            let one = |server| round(server, command, clients, handovers);
            let samples = (0..rounds)
                .map(|_| servers.as_ref().try_map(one))
                .collect::<Result<Vec<_>, _>>()?;
            cases.push(Case {
                command: command[0],
                clients,
                p50_us: medians(&samples, |sample| sample.p50_us),
                p99_us: medians(&samples, |sample| sample.p99_us),
            });
        }
    }
    Ok(Handover { cases })
}

/// Runs so many hand-overs, rounded up to one for each client.
fn round(server: &Server, command: &[&str], clients: u32, handovers: u64) -> Result<Sample, Error> {
    let mut queue = Queue::open(server, clients)?;
    let mut times = Vec::new();
    while times.len() < handovers as usize {
        queue.block(command)?;
        for _ in 0..clients {
            times.push(queue.hand_over(command)?.as_secs_f64() * 1e6);
        }
    }
    queue.pusher.must(&["DEL", "done"])?;
    times.sort_by(f64::total_cmp);
    Ok(Sample { p50_us: times[times.len() / 2], p99_us: times[times.len() * 99 / 100] })
}

/// The clients that wait, and the one that pushes.
struct Queue {
    clients: Vec<Control>,
    pusher: Control,
    epoll: OwnedFd,
}

impl Queue {
    fn open(server: &Server, count: u32) -> Result<Self, Error> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(Error::io("creating epoll"))?;
        let mut clients = Vec::new();
        for number in 0..count {
            let client = server.target.connect()?;
            epoll::add(&epoll, &client, EventData::new_u64(number.into()), EventFlags::IN)
                .map_err(Error::io("adding to epoll"))?;
            clients.push(client);
        }
        Ok(Self { clients, pusher: server.target.connect()?, epoll })
    }

    /// Blocks all clients.
    fn block(&mut self, command: &[&str]) -> Result<(), Error> {
        for client in &mut self.clients {
            client.begin(command)?;
        }
        let begun = Instant::now();
        loop {
            let info = self.pusher.call(&["INFO", "clients"])?;
            let blocked = blocked_clients(&info);
            if blocked == Some(self.clients.len()) {
                return Ok(());
            }
            if blocked.is_none() || begun.elapsed() > PATIENCE {
                let reply = format!("{blocked:?} of {} clients wait", self.clients.len());
                return Err(self.pusher.refused(command, reply.as_bytes()));
            }
        }
    }

    /// Hands one element from the pusher to the first client, and returns the latency.
    fn hand_over(&mut self, command: &[&str]) -> Result<Duration, Error> {
        let begun = Instant::now();
        self.pusher.begin(&["RPUSH", LIST, PAYLOAD])?;
        let client = self.ready()?;
        let reply = self.clients[client].reply()?;
        let time = begun.elapsed();
        if let Value::Error(text) = reply {
            return Err(self.clients[client].refused(command, &text));
        }
        self.pusher.reply()?;
        Ok(time)
    }

    /// Returns the index of the client that got an element.
    fn ready(&self) -> Result<usize, Error> {
        let mut events = Vec::with_capacity(1);
        let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        retry_on_intr(|| epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)))
            .map_err(Error::io("waiting for an element"))?;
        let stalled =
            Error::Stalled { seconds: PATIENCE.as_secs(), outstanding: self.clients.len() };
        events.first().map(|event| event.data.u64() as usize).ok_or(stalled)
    }
}

/// Returns `blocked_clients` from a reply to `INFO clients`.
fn blocked_clients(info: &Value) -> Option<usize> {
    let text = std::str::from_utf8(info.as_bytes()?).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"))?;
    number.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_blocked_clients_is_found() {
        let info = |text: &str| blocked_clients(&Value::Bulk(text.as_bytes().into()));
        assert_eq!(info("# Clients\r\nconnected_clients:9\r\nblocked_clients:7\r\n"), Some(7));
        assert_eq!(info("# Clients\r\nconnected_clients:9\r\n"), None);
        assert_eq!(blocked_clients(&Value::Error(b"ERR".as_slice().into())), None);
    }
}
