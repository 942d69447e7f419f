//! The output at the start of a server.

use std::io::{self, IsTerminal, Write};

use tierce_engine::count;

use crate::config::{DirectiveId, Settings};
use crate::listening;
use crate::log::Colour;
use crate::supervision;

use super::Instance;

/// Writes a few lines about the server, with colours on a terminal. Scripts that start the server wait for the last
/// one. They are plain text, unless the standard output has a JSON log, whose lines are parsed by collectors.
pub(super) fn announce(instance: &Instance) {
    const LOG_FORMAT: DirectiveId = DirectiveId::of("log-format");
    let Instance { server, startup, .. } = instance;
    let title =
        format!("Tierce {} ({}-bit), pid {}", crate::VERSION, usize::BITS, std::process::id());
    let mut facts = facts(instance);
    let (stdout, ready) = (io::stdout(), "Ready to accept connections");
    let is_json = server.config.settings().word(LOG_FORMAT) == "json";
    if startup.logfile.is_some() || is_json {
        // Columns are for people.
        let lines = facts.iter().map(|(label, fact)| match is_json {
            true => format!("{label} {fact}"),
            false => format!("{label:<14}{fact}"),
        });
        let lines = std::iter::once(title.clone()).chain(lines);
        lines.chain([ready.to_owned()]).for_each(|line| server.log.notice(line));
        if startup.logfile.is_none() {
            return;
        }
    }
    if stdout.is_terminal() {
        let signal = match supervision::wants_background(&server.config.settings()) {
            true => format!("kill {}", std::process::id()),
            false => "Ctrl-C".to_owned(),
        };
        facts.push(("stop with", format!("{signal}, or the command SHUTDOWN")));
    }
    let paint = |text: &str, colour: Colour| colour.paint(text, &stdout);
    let mut text = paint(&title, Colour::Bold) + "\n";
    for (label, fact) in facts {
        text += &format!("  {}{fact}\n", paint(&format!("{label:<14}"), Colour::Faint));
    }
    text += &paint(ready, Colour::Green);
    text.push('\n');
    // The service manager may not listen, which is no reason to stop.
    let _ = stdout.lock().write_all(text.as_bytes());
}

/// Returns the contents of the data directory: a mistyped `dir` is empty, which surprises the operator.
fn contents(instance: &Instance) -> String {
    match instance.server.keyspace.total_len() {
        0 if matches!(instance.server.durability.unread_log(), Ok(Some(_))) => {
            "no keys: appendonly is off, so the log is not loaded".to_owned()
        }
        0 if instance.is_new => "new and empty".to_owned(),
        0 => "no keys yet".to_owned(),
        keys => count(keys, "key"),
    }
}

/// Returns the location of the log in a bucket, with its maximum lag.
fn bucket(settings: &Settings) -> Option<String> {
    const BUCKET: DirectiveId = DirectiveId::of("bucket");
    const INTERVAL: DirectiveId = DirectiveId::of("bucket-interval");
    const APPENDFSYNC: DirectiveId = DirectiveId::of("appendfsync");
    let url = String::from_utf8_lossy(settings.text(BUCKET));
    let when = match settings.word(APPENDFSYNC) {
        "bucket" => "before each reply (appendfsync bucket)".to_owned(),
        _ => format!("every {} ms (bucket-interval)", settings.count(INTERVAL)),
    };
    Some(format!("{url}, {when}")).filter(|_| !url.is_empty())
}

/// Returns facts for an operator at the start, each with a label.
fn facts(instance: &Instance) -> Vec<(&'static str, String)> {
    const APPENDFSYNC: DirectiveId = DirectiveId::of("appendfsync");
    const MAXMEMORY: DirectiveId = DirectiveId::of("maxmemory");
    const POLICY: DirectiveId = DirectiveId::of("maxmemory-policy");
    let Instance { server, startup, .. } = instance;
    let settings = server.config.settings();
    let mut facts = Vec::new();
    for listener in server.listening.listeners() {
        facts.push(("listening on", listening::describe(&listener)));
    }
    for address in instance.gateway.addresses() {
        facts.push(("HTTP on", address.to_string()));
    }
    let (shards, databases) = (server.keyspace.shard_count(), server.keyspace.db_indices().count());
    let (shards, databases) = (count(shards, "shard"), count(databases, "database"));
    let workers = format!("{} ({shards}, {databases})", server.workers());
    facts.push(("workers", workers));
    let dir = format!("{}, {}", startup.dir.display(), contents(instance));
    facts.push((
        "data",
        match (server.durability.durable_log(), settings.word(APPENDFSYNC)) {
            (None, _) => format!("in memory only (appendonly is off), snapshots in {dir}"),
            (_, "always") => format!("{dir}, on disk before each reply"),
            (_, "no") => format!("{dir}, on disk when the kernel writes it (appendfsync no)"),
            (_, "bucket") => format!("{dir}, in the bucket before each reply"),
            (_, _) => format!("{dir}, on disk within a second (appendfsync everysec)"),
        },
    ));
    if let Some(bucket) = bucket(&settings) {
        facts.push(("bucket", bucket));
    }
    if let Some((host, port)) = settings.primary() {
        facts.push(("replica of", format!("{}:{port}", String::from_utf8_lossy(host))));
    }
    facts.push((
        "memory",
        match settings.bytes(MAXMEMORY) {
            0 => "no limit (maxmemory)".to_owned(),
            bytes => format!("at most {} MB, then {}", bytes >> 20, settings.word(POLICY)),
        },
    ));
    if let Some(path) = &startup.logfile {
        facts.push(("log", path.display().to_string()));
    }
    facts
}
