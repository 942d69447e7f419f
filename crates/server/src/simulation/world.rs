//! The server, and its threads in a simulation.

use std::sync::Arc;
use std::time::Duration;

use tierce_keyspace::planted::{self, Fault};
use tierce_keyspace::simulation::{self, BEGINS_UNIX_MS, Course, IsDue, Simulation};
use tierce_keyspace::{Clock, Keyspace, Options, Reaper, interleaving};
use tierce_net::simulation::{System, workers};
use tierce_net::{Handle, Now};
use tierce_output::Output;
use tierce_wire::resp::OwnedArgs;

use super::clients::{Clients, History, OffWorker};
use super::requests::{BIG_KEY, BIG_LEN, Plan, STREAM};
use crate::caller::Caller;
use crate::clients::{Client, Origin};
use crate::commands;
use crate::config::{Config, LogLevel, Settings};
use crate::dispatcher::Dispatcher;
use crate::durability::Durability;
use crate::engine::Engine;
use crate::listening::Listening;
use crate::log::Log;
use crate::long_commands::{Seat, work};
use crate::server::{Message, Server};

pub(super) const WORKERS: usize = 2;

/// Maximum number of steps; a run has far fewer.
const STEPS_MAX: u64 = 200_000;

/// Time and waiting, as workers and the reaper see them.
struct Simulated;

impl System for Simulated {
    fn now(&self) -> Now {
        let nanos = simulation::nanos().unwrap_or_default();
        let unix_ms = simulation::unix_ms().unwrap_or(BEGINS_UNIX_MS);
        Now { monotonic_ms: nanos / 1_000_000, unix_ms: unix_ms as u64 }
    }

    fn wait(&self, timeout_ms: Option<u64>, is_due: IsDue) {
        let now = simulation::nanos().unwrap_or_default();
        let until = timeout_ms.map(|ms| now.saturating_add(ms.saturating_mul(1_000_000)));
        simulation::wait_until("poll", until, is_due);
    }
}

impl Clock for Simulated {
    fn now_ms(&self) -> i64 {
        simulation::unix_ms().unwrap_or(BEGINS_UNIX_MS)
    }
}

/// Returns the clock that times commands. Each call may switch threads, like an interrupt.
fn nanos() -> u64 {
    interleaving::pass("clock");
    simulation::nanos().unwrap_or_default()
}

fn server(seed: u64) -> Arc<Server> {
    // Few, so that keys share some; the seed decides which ones.
    let shards = [4, 8, 16][(seed % 3) as usize];
    let options = Options { shards, databases: 1, seed, ..Options::default() };
    let keyspace = Arc::new(Keyspace::new(options).expect("options within bounds"));
    let log = Log::open(None, LogLevel::Nothing).expect("nothing is opened");
    let config = Arc::new(Config::new(Settings::default()));
    let engine = Engine::new(config, keyspace, Durability::without_log(), log);
    let table = commands::table();
    let mut server = Server::new(Arc::new(engine), table, WORKERS, Listening::nowhere());
    server.kernel.nanos = nanos;
    Arc::new(server)
}

/// Creates the keys that exist before the first client connects.
fn prepare(server: &Server) {
    let mut caller = Caller::new(Arc::new(Client::new(Origin::default(), BEGINS_UNIX_MS)), true);
    let big_end = (BIG_LEN - 1).to_string();
    for call in [
        ["SETRANGE", BIG_KEY, &big_end, "x"].as_slice(),
        &["XGROUP", "CREATE", STREAM, "g", "$", "MKSTREAM"],
    ] {
        let (mut args, mut output) = (OwnedArgs::new(), Output::new());
        call.iter().for_each(|word| args.push(word.as_bytes()).expect("a short call"));
        server.execute(&mut caller, args.as_args(), &mut output);
        assert_ne!(output.buffer()[0], b'-', "{call:?}");
    }
}

/// Ends all threads.
pub(super) fn end(server: &Server, handle: &Handle<Message>) {
    server.offload.close();
    server.scripts.offload.close();
    server.migrations.close();
    server.scripts.running.end_all();
    server.pubsub.set_publisher(false);
    handle.drain(Duration::ZERO);
}

/// Runs a seed. Returns its course, and all calls.
pub(super) fn run(seed: u64, fault: Option<Fault>) -> Result<(Course, String), String> {
    let server = server(seed);
    prepare(&server);
    let plan = Plan::new(seed, &server.keyspace);
    let history = Arc::new(History::new(plan.calls()));
    let system: Arc<dyn System> = Arc::new(Simulated);
    let config = tierce_net::Config {
        workers: WORKERS,
        input_buffer_bytes: 8 * 1024,
        ..tierce_net::Config::default()
    };
    let service = Arc::new(Dispatcher(Arc::clone(&server)));
    let (handle, bodies) = workers(&config, &system, &service).expect("descriptors");
    server.attach(handle.clone());
    server.offload.open();
    server.scripts.offload.open();
    server.migrations.open();
    server.pubsub.set_publisher(true);

    let mut simulation = Simulation::new(seed, STEPS_MAX);
    let mut spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
        simulation.spawn(name, move || {
            planted::plant(fault);
            body();
        });
    };
    for (number, body) in bodies.into_iter().enumerate() {
        spawn(&format!("worker-{number}"), body);
    }
    for seat in Seat::all(&server) {
        let server = Arc::clone(&server);
        spawn(&seat.name(), Box::new(move || work(&server, seat)));
    }
    let publisher = Arc::clone(&server);
    spawn("publisher", Box::new(move || while publisher.pubsub.publish_next() {}));
    let (reaper, body) = Reaper::prepare(Arc::clone(&server.keyspace), Arc::new(Simulated));
    spawn("reaper", Box::new(body));
    for number in plan.off_worker() {
        let off_worker = OffWorker::new(&server, &history, number);
        spawn("beside", Box::new(move || off_worker.run()));
    }
    let clients = Clients::new(&server, &handle, &history, plan);
    spawn("clients", Box::new(move || clients.run(reaper)));
    let ended = simulation.run();
    let calls = history.describe();
    match ended {
        Ok(course) => Ok((course, calls)),
        Err(failure) => Err(format!("seed {seed}: {failure}\n{calls}")),
    }
}
