//! Checks the examples of `docs/commands/`: every command has one, each gets the shown replies in both protocol
//! versions, and its writes are there after the server was killed.
//!
//! With `TIERCE_TEST_PROGRAM` another server answers. Commands that it lacks are skipped, and so are those whose
//! replies are known to have different words.

mod notation;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tierce_harness::{Connection, Launch, Reply, Server, TempDir, wait_until};

use self::notation::{Manner, is_shown, printed};
use self::page::{Call, Example, arguments};
use crate::launch;

/// Examples name databases below this one. Each example begins in its own empty database.
const FIRST_DATABASE: usize = 16;

/// Examples, besides HELP, that another server answers in different words or order.
const OWN_WORDS: [&str; 11] = [
    "acl|cat",
    "acl|dryrun",
    "acl|getuser",
    "acl|list",
    "command|docs",
    "latency|doctor",
    "memory|doctor",
    "memory|malloc-stats",
    // Their examples begin with CLIENT CAPA, which only Valkey has.
    "readonly",
    "readwrite",
    "script|debug",
];

/// Commands whose examples use what is newer than redis-server 7.0: options, or commands in a list.
const NEWER: [&str; 8] =
    ["bitop", "command|list", "geosearch", "migrate", "set", "xadd", "xread", "zunion"];

/// Commands whose replies redis-cli prints as they are.
const TEXTS: [&str; 8] = [
    "client|info",
    "client|list",
    "info",
    "latency|doctor",
    "latency|graph",
    "lolwut",
    "memory|doctor",
    "memory|malloc-stats",
];

/// Maximum number of lines of a reply that a failure prints.
const LINES_MAX: usize = 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Protocol {
    Resp2,
    Resp3,
}

fn is_other_program() -> bool {
    std::env::var_os("TIERCE_TEST_PROGRAM").is_some()
}

#[test]
fn every_command_has_an_example() {
    if is_other_program() {
        return;
    }
    let shown: BTreeSet<_> = page::read().into_iter().map(|example| example.command).collect();
    let known = Known::ask(&mut crate::server().connect());
    assert_eq!(shown, known.callable);
}

#[test]
fn examples_are_true_in_resp2() {
    check_all(Protocol::Resp2);
}

#[test]
fn examples_are_true_in_resp3() {
    check_all(Protocol::Resp3);
}

fn check_all(protocol: Protocol) {
    let mut examples = page::read();
    // Commands about the server come first: one of them removes all keys.
    examples.sort_by_key(|example| example.chapter != "Server");
    let dir = TempDir::new();
    let launch = durable(dir.path(), FIRST_DATABASE + examples.len());
    let mut server = launch.start();
    let known = Known::ask(&mut server.connect());
    examples.retain(|example| !is_other_program() || known.is_comparable(example));
    let mut wrong = Vec::new();
    for (example, database) in examples.iter().zip(FIRST_DATABASE..) {
        wrong.extend(Stage { server: &server, known: &known, protocol }.play(example, database));
        if example.command == "shutdown" {
            assert!(server.wait_for_end().success());
            server = launch.start();
        }
        match example.chapter.as_str() {
            "Server" => wait_for_background_work(&server),
            "Pub/sub" => wait_for_the_end_of_subscriptions(&server),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{protocol:?}: {}", wrong.join("\n"));
    if !is_other_program() {
        check_that_all_is_kept(&examples, server, &launch);
    }
}

fn durable(dir: &Path, databases: usize) -> Launch {
    // The weakest sync policy, because it makes no difference for a killed process.
    launch()
        .with("appendonly", "yes")
        .with("appendfsync", "no")
        .with("enable-debug-command", "yes")
        .with("databases", &databases.to_string())
        .with("dir", &dir.display().to_string())
}

/// Kills the server, starts another one on its data, and compares all keys.
fn check_that_all_is_kept(examples: &[Example], server: Server, launch: &Launch) {
    let databases = FIRST_DATABASE + examples.len();
    let before = contents(&mut server.connect(), databases);
    // Kills it by SIGKILL.
    drop(server);
    let after = contents(&mut launch.start().connect(), databases);
    assert!(before.len() > examples.len() / 2, "{} keys were written", before.len());
    let lost = before.iter().filter(|(key, value)| after.get(*key) != Some(value));
    let new = after.iter().filter(|(key, _)| !before.contains_key(*key));
    let different: Vec<_> = lost
        .chain(new)
        .map(|((database, key), _)| {
            let example = database.checked_sub(FIRST_DATABASE).map(|at| &*examples[at].command);
            format!("{key} of {}", example.unwrap_or("a database that an example names"))
        })
        .collect();
    assert!(different.is_empty(), "another value after the restart: {different:#?}");
}

/// Returns the value and the deadline of every key, by database.
fn contents(c: &mut Connection, databases: usize) -> BTreeMap<(usize, String), String> {
    let mut contents = BTreeMap::new();
    for database in 0..databases {
        c.check(&format!("SELECT {database}"), "+OK");
        for key in c.ask("KEYS *").items() {
            let value = value_of(c, key);
            let deadline = c.call(&[b"PEXPIRETIME", key.bytes()]);
            contents.insert((database, key.text().to_owned()), format!("{value} {deadline}"));
        }
    }
    contents
}

fn value_of(c: &mut Connection, key: &Reply) -> Reply {
    if c.call(&[b"TYPE", key.bytes()]).text() == "stream" {
        return without_unlogged(&c.call(&[&b"XINFO"[..], b"STREAM", key.bytes(), b"FULL"]));
    }
    c.call(&[b"DUMP", key.bytes()])
}

/// The time of a consumer's last request is only logged if it got something, and a repeated message not at all.
fn without_unlogged(stream: &Reply) -> Reply {
    let Reply::Array(items) = stream else { return stream.clone() };
    let is_unlogged = |at: usize| {
        let name = at.checked_sub(1).map(|before| &items[before]);
        matches!(name, Some(Reply::Bulk(name)) if [&b"seen-time"[..], b"iids-duplicates"].contains(&&**name))
    };
    let kept = items.iter().enumerate().filter(|(at, _)| !is_unlogged(*at));
    Reply::Array(kept.map(|(_, item)| without_unlogged(item)).collect())
}

fn wait_for_background_work(server: &Server) {
    let mut c = server.connect();
    wait_until("snapshots and compactions are done", || {
        let info = c.ask("INFO persistence").text().to_owned();
        ["rdb_bgsave_in_progress:0", "aof_rewrite_in_progress:0"]
            .iter()
            .all(|line| info.contains(line))
    });
}

/// They end when the server notices that the connection of an example has ended.
fn wait_for_the_end_of_subscriptions(server: &Server) {
    let mut c = server.connect();
    wait_until("all subscriptions have ended", || {
        let channels = ["PUBSUB CHANNELS", "PUBSUB SHARDCHANNELS"];
        channels.iter().all(|line| c.ask(line).items().is_empty())
            && c.ask("PUBSUB NUMPAT").int() == 0
    });
}

/// The server's description of its commands.
struct Known {
    /// Commands that can be called: all except containers of subcommands.
    callable: BTreeSet<String>,
    /// Commands whose replies have no defined order.
    unordered: BTreeSet<String>,
}

impl Known {
    fn ask(c: &mut Connection) -> Self {
        let mut known = Self { callable: BTreeSet::new(), unordered: BTreeSet::new() };
        c.ask("COMMAND").items().iter().for_each(|command| known.add(command));
        known
    }

    fn add(&mut self, command: &Reply) {
        const CONTAINER_ARITY: i64 = -2;
        let facts = command.items();
        let (name, tips, subcommands) = (facts[0].text(), facts[7].items(), facts[9].items());
        if subcommands.is_empty() || facts[1].int() != CONTAINER_ARITY {
            self.callable.insert(name.to_owned());
        }
        if tips.iter().any(|tip| tip.text() == "nondeterministic_output_order") {
            self.unordered.insert(name.to_owned());
        }
        subcommands.iter().for_each(|subcommand| self.add(subcommand));
    }

    fn is_comparable(&self, example: &Example) -> bool {
        let name = &*example.command;
        let differs = OWN_WORDS.contains(&name) || NEWER.contains(&name);
        self.callable.contains(name) && !name.ends_with("|help") && !differs
    }

    fn manner_of(&self, call: &Call) -> Manner {
        let words: Vec<_> = call.line.split(' ').take(2).map(str::to_lowercase).collect();
        let subcommand = Some(words.join("|")).filter(|name| self.callable.contains(name));
        let name = subcommand.as_ref().unwrap_or(&words[0]);
        if TEXTS.contains(&name.as_str()) {
            Manner::Text
        } else if self.unordered.contains(name) {
            Manner::Unordered
        } else {
            Manner::Typed
        }
    }
}

/// Environment in which examples run.
struct Stage<'a> {
    server: &'a Server,
    known: &'a Known,
    protocol: Protocol,
}

impl Stage<'_> {
    /// Runs an example and returns the differences.
    fn play(&self, example: &Example, database: usize) -> Vec<String> {
        let mut c = match self.protocol {
            Protocol::Resp2 => self.server.connect(),
            Protocol::Resp3 => self.server.connect_resp3(),
        };
        c.check(&format!("SELECT {database}"), "+OK");
        let (mut wrong, count) = (Vec::new(), example.calls.len());
        for (call, number) in example.calls.iter().zip(1..) {
            c.request(&arguments(&call.line));
            if call.reply.is_empty() {
                // The next reply shows that this call had none. For the last call, the end shows it.
                if number == count {
                    c.expect_closed();
                }
                continue;
            }
            let reply = c.reply();
            if !self.is_as_shown(call, &reply) {
                let lines = printed(&reply, self.known.manner_of(call));
                let lines = lines[..lines.len().min(LINES_MAX)].join("\n");
                let shown = call.reply.join("\n");
                wrong.push(format!("> {}\n{lines}\n--- shown:\n{shown}\n", call.line));
            }
        }
        wrong
    }

    fn is_as_shown(&self, call: &Call, reply: &Reply) -> bool {
        let shown = match (&call.resp3, self.protocol) {
            (Some(resp3), Protocol::Resp3) => resp3,
            _ => &call.reply,
        };
        is_shown(shown, reply, self.known.manner_of(call))
    }
}
