//! Each command publishes the keyspace events of Redis, in the order of Redis.
//!
//! `events.txt` has the commands and their events. `scripts/events-of-redis` sends these commands to redis-server,
//! which has to publish equal events.

use std::mem;
use std::sync::{Arc, Mutex};

use tierce_commands::caller::Caller;
use tierce_commands::clients::{Client, Origin as Peer};
use tierce_commands::kernel::Kernel;
use tierce_commands::pipeline;
use tierce_config::{Config, LogLevel, Settings};
use tierce_engine::{Engine, durability::Durability, log::Log};
use tierce_keyspace::{EventBatch, EventClasses, EventSink, Keyspace, Options};
use tierce_output::Output;
use tierce_wire::resp::OwnedArgs;

const TABLE: &str = include_str!("events.txt");

/// The constant time of the test.
const NOW_MS: i64 = 1_700_000_000_000;

/// Published events, as lines of the table.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl EventSink for Heard {
    fn deliver(&self, events: &EventBatch<'_>) {
        let hidden = EventClasses::UNPUBLISHED | EventClasses::DATABASE;
        let published = events.iter().filter(|event| !hidden.contains(event.event.class()));
        self.0.lock().expect("no test panics here").extend(published.map(|event| {
            format!("{} {} {}", event.db.get(), event.event.name(), event.key.escape_ascii())
        }));
    }
}

struct Bench {
    kernel: Kernel,
    caller: Caller,
    heard: Arc<Heard>,
}

impl Bench {
    fn new() -> Self {
        let keyspace = Arc::new(Keyspace::new(Options::default()).expect("sound options"));
        let heard = Arc::<Heard>::default();
        keyspace.set_event_sink(Arc::clone(&heard));
        keyspace.set_event_classes(EventClasses::ALL);
        let log = Log::open(None, LogLevel::Nothing).expect("nothing is opened");
        let config = Arc::new(Config::new(Settings::default()));
        let engine = Engine::new(config, keyspace, Durability::without_log(), log);
        let kernel = Kernel::new(Arc::new(engine), tierce_commands::table(), 1);
        let client = Client::new(Peer::default(), NOW_MS);
        Self { kernel, caller: Caller::new(Arc::new(client), true), heard }
    }

    /// Returns the events of a command, followed by "error" if it fails.
    fn run(&mut self, line: &str) -> Vec<String> {
        let mut args = OwnedArgs::new();
        words_of(line).iter().for_each(|word| args.push(word).expect("a short command"));
        let mut output = Output::new();
        let Ok(command) = pipeline::resolve(&self.kernel, args.as_args()) else {
            panic!("no such command: {line}")
        };
        self.kernel.run(command, &mut self.caller, args.as_args(), &mut output, NOW_MS);
        let mut events = mem::take(&mut *self.heard.0.lock().expect("no test panics here"));
        if output.buffer().starts_with(b"-") {
            events.push("error".to_owned());
        }
        events
    }
}

/// Splits a line into words, which may be in quotes, with bytes in hexadecimal.
fn words_of(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| unescape(word.trim_matches(['"', '\'']))).collect()
}

fn unescape(word: &str) -> Vec<u8> {
    let mut parts = word.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (byte, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(byte, 16).expect("two digits"));
        bytes.extend(rest.as_bytes());
    }
    bytes
}

#[test]
fn commands_have_the_events_of_redis() {
    let (mut bench, mut wrong) = (Bench::new(), Vec::new());
    let mut lines = TABLE.lines().filter(|line| !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("> ").or_else(|| line.strip_prefix("! ")) else {
            assert!(line.is_empty(), "events without a command: {line}");
            bench.run("FLUSHALL");
            bench.run("SELECT 0");
            continue;
        };
        let mut expected = Vec::new();
        let is_event = |next: &&str| !next.is_empty() && !next.starts_with(['>', '!']);
        while let Some(event) = lines.next_if(is_event) {
            expected.push(event.to_owned());
        }
        let found = bench.run(command);
        if found != expected {
            wrong.push(format!("{command}\n  has {found:?}\n  and not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} commands:\n{}", wrong.len(), wrong.join("\n"));
}
