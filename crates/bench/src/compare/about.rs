//! The head of a comparison's report: everything that a reader needs to repeat the measurement.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tierce_wire::resp::Value;

use super::pair::Pair;
use super::reaper::Reaper;
use super::servers::Contender;
use crate::error::Error;
use crate::machine::Machine;
use crate::protocol::Protocol;
use crate::target::Control;

/// Fields of `INFO server` with a version, most specific first. Servers that resemble Redis report `redis_version` too.
const VERSIONS: [(&str, &str); 5] = [
    ("tierce_version", "Tierce"),
    ("valkey_version", "Valkey"),
    ("dragonfly_version", "Dragonfly"),
    ("garnet_version", "Garnet"),
    ("redis_version", "Redis"),
];

/// Ends of the names of options and variables whose values are secret.
const SECRETS: [&str; 6] = ["pass", "auth", "password", "secret", "token", "access_key"];

/// Text in place of a secret.
const HIDDEN: &str = "***";

/// Directives that decide what a crash costs.
const DURABILITY: [&str; 3] = ["appendonly", "appendfsync", "save"];

/// A server that takes part, as the reader of a report needs to know it.
#[derive(Debug, Serialize)]
pub(super) struct About {
    /// Name in tables.
    label: String,
    /// Command line or address, as the user gave it.
    origin: String,
    /// Name and version; absent if the server does not report it over RESP.
    version: Option<String>,
    /// Values of [`DURABILITY`] as directives; absent if the server does not report them over RESP.
    durability: Option<String>,
}

impl About {
    /// Starts the server once to ask it, or asks the one that runs.
    pub(super) fn ask(
        contender: &Contender,
        protocol: Protocol,
        reaper: &Reaper,
    ) -> Result<Self, Error> {
        let mut about = Self {
            label: contender.label.clone(),
            origin: line_shown(&contender.origin()),
            version: None,
            durability: None,
        };
        if protocol == Protocol::Resp {
            let server = contender.start(reaper)?;
            let mut control = server.target.connect()?;
            // A server may close the connection instead of answering.
            let info = control.call(&["INFO", "server"]);
            about.version = info.ok().and_then(|info| version(&text(&info)));
            about.durability = durability(&mut control).ok().flatten();
        }
        Ok(about)
    }

    /// Lines for people, before the first result.
    pub(super) fn line(&self) -> String {
        let known = [&self.version, &self.durability].into_iter().flatten();
        let known = known.map(|it| format!(", {it}")).collect::<String>();
        format!("{}: {}{known}", self.label, self.origin)
    }
}

/// Machine, date, command and servers in Markdown.
pub(super) fn markdown(machine: &Machine, servers: &Pair<About>) -> String {
    let mut text =
        format!("Measured on {}, {}:\n\n```sh\n{}\n```\n\n", today(), machine.line(), command());
    let _ = writeln!(text, "| | {} | {} |\n|---|---|---|", servers.a.label, servers.b.label);
    let mut row = |title: &str, field: fn(&About) -> Option<&str>| {
        let cells = servers.as_ref().map(field);
        if cells.a.is_none() && cells.b.is_none() {
            return;
        }
        let cells = cells.map(|cell| cell.unwrap_or("unknown"));
        let _ = writeln!(text, "| {title} | {} | {} |", cells.a, cells.b);
    };
    row("version", |about| about.version.as_deref());
    row("durability", |about| about.durability.as_deref());
    text + "\n"
}

/// The date of today, in UTC.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    chrono::DateTime::from_timestamp(seconds, 0).unwrap_or_default().date_naive().to_string()
}

/// The command of this process.
fn command() -> String {
    let words = std::iter::once("tierce".to_owned()).chain(std::env::args().skip(1));
    shown(&words.collect::<Vec<_>>())
}

/// Writes words as a command that can be pasted into a shell, but without secrets, since reports are published.
fn shown(words: &[String]) -> String {
    let mut before = "";
    let shown = words.iter().map(|word| {
        let word_shown = match std::mem::replace(&mut before, word) {
            "--a" | "--b" => line_shown(word),
            option if is_secret(option) => HIDDEN.to_owned(),
            _ => without_secret(word),
        };
        quoted(&word_shown)
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Writes a command line as [`shown`] does; an address stays as it is.
fn line_shown(line: &str) -> String {
    let words = tierce_wire::words::split(line.as_bytes()).unwrap_or_default();
    let words = words.iter().map(|word| String::from_utf8_lossy(word).into_owned());
    shown(&words.collect::<Vec<_>>())
}

/// Returns true if the value behind this option is secret.
fn is_secret(option: &str) -> bool {
    option == "-a" || option.starts_with("--") && names_secret(option)
}

fn names_secret(name: &str) -> bool {
    SECRETS.iter().any(|end| name.to_ascii_lowercase().ends_with(end))
}

/// Hides the value of `name=value`, and the passwords in rules of an ACL.
fn without_secret(word: &str) -> String {
    match word.split_once('=') {
        Some((name, _)) if names_secret(name) => format!("{name}={HIDDEN}"),
        _ => {
            let parts = word.split(' ').map(|part| match part.starts_with('>') {
                true => format!(">{HIDDEN}"),
                false => part.to_owned(),
            });
            parts.collect::<Vec<_>>().join(" ")
        }
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+{}*".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn version(info: &str) -> Option<String> {
    VERSIONS.iter().find_map(|(field, name)| {
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(format!("{name} {}", value.trim()))
    })
}

fn durability(control: &mut Control) -> Result<Option<String>, Error> {
    let mut known = Vec::new();
    for directive in DURABILITY {
        let reply = control.call(&["CONFIG", "GET", directive])?;
        let value = match &reply {
            Value::Array(items) => items.get(1).map(text),
            Value::Map(pairs) => pairs.first().map(|(_, value)| text(value)),
            _ => None,
        };
        let value = value.map(|value| if value.is_empty() { "\"\"".to_owned() } else { value });
        known.extend(value.map(|value| format!("{directive} {value}")));
    }
    Ok((!known.is_empty()).then(|| known.join(", ")))
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_version_is_reported() {
        let info = "# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.0.1\r\n";
        assert_eq!(version(info).as_deref(), Some("Valkey 8.0.1"));
        assert_eq!(version("redis_version:7.0.15\r\n").as_deref(), Some("Redis 7.0.15"));
        assert_eq!(version("# Server\r\n"), None);
    }

    #[test]
    fn secrets_are_not_shown() {
        let a = "env AWS_SECRET_ACCESS_KEY=x redis-server --port {port} --requirepass  'two words' -p 1";
        let b = "other --masterauth=x --setting nopass {port}";
        let words = ["tierce", "bench", "compare", "--a", a, "--b", b, "--user", "on >x ~*"];
        let said = shown(&words.map(ToOwned::to_owned));
        let a = "'env AWS_SECRET_ACCESS_KEY=*** redis-server --port {port} --requirepass *** -p 1'";
        let b = "'other --masterauth=*** --setting nopass {port}'";
        assert_eq!(said, format!("tierce bench compare --a {a} --b {b} --user 'on >*** ~*'"));
    }

    #[test]
    fn a_report_has_date_machine_and_durability_of_both() {
        let about = |label: &str, durability: Option<&str>| About {
            label: label.to_owned(),
            origin: String::new(),
            version: Some("1".to_owned()),
            durability: durability.map(ToOwned::to_owned),
        };
        let servers = Pair { a: about("one", Some("appendonly yes")), b: about("two", None) };
        let text = markdown(&Machine::this(), &servers);
        assert!(text.starts_with("Measured on 2"), "{text}");
        assert!(text.contains("| durability | appendonly yes | unknown |"), "{text}");
        assert!(text.contains("```sh\ntierce"), "{text}");
    }
}
