//! `tierce inspect`: the big and the hot keys of a live server.
//!
//! Big keys are found by SCAN, while the server keeps serving; hot keys by HOTKEYS, which runs for a few seconds.
//! Memory is bounded by the number of keys shown. It works with redis-server as well; HOTKEYS came with Redis 8.6.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use tierce_client::resp::{Login, Pipeline, SyncClient, Value};
use tierce_client::{Address, Config, Error};
use tierce_progress::{Display, Progress, Unit};

use crate::upkeep::print;
use tierce_engine::count;

/// Number of keys per SCAN; each page costs a round trip with three commands per key.
const SCAN_COUNT: &str = "500";

/// Show the big and the hot keys of a running server.
///
/// Goes through all keys with SCAN (--big), and collects for some seconds which keys take the most time and bytes
/// (--hot). The server goes on meanwhile. Without either option, both are done.
///
/// Exit code: 0, or 2 when the server cannot be reached or refuses a command.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct InspectArgs {
    /// Show the biggest keys of each type, by memory and by elements
    #[arg(long)]
    big: bool,
    /// Show the keys that take the most time and bytes
    #[arg(long)]
    hot: bool,
    /// Keys to show in each list
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=64))]
    count: u16,
    /// Seconds to collect hot keys for
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Collect every N-th command only
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sample: u32,
    /// Database whose keys are looked at, for --big
    #[arg(long, default_value_t = 0)]
    dbnum: u32,
    /// Server's host
    #[arg(short = 'h', long, default_value = "127.0.0.1")]
    host: String,
    /// Server's port
    #[arg(short, long, default_value_t = 6379)]
    port: u16,
    /// Server's Unix socket, instead of host and port
    #[arg(short, long, value_name = "PATH")]
    socket: Option<std::path::PathBuf>,
    /// User for AUTH
    #[arg(long)]
    user: Option<String>,
    /// Password for AUTH [default: the environment variable REDISCLI_AUTH, as for redis-cli]
    #[arg(short = 'a', long)]
    password: Option<String>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Reason why the inspection stopped.
#[derive(Debug)]
enum Failure {
    Client(Error),
    /// An unexpected reply to this command.
    Unexpected(&'static str),
    /// Another HOTKEYS session is active.
    IsActive,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Unexpected(command) => write!(f, "the server has an unknown reply to {command}"),
            Self::IsActive => f.write_str(
                "hot keys are being collected already: HOTKEYS GET shows them, HOTKEYS STOP ends that",
            ),
        }
    }
}

impl Failure {
    /// Returns the remedy, as the end of a message.
    fn next_step(&self) -> &'static str {
        let Self::Client(error) = self else { return "" };
        match error {
            Error::Unreachable(_) => "; -h, -p or -s say where it is",
            Error::Refused(_) => "; -a and --user say who asks",
            Error::Server(text) if text.starts_with("NOAUTH") => "; -a gives the password",
            Error::Server(text) if text.starts_with("ERR unknown command") => {
                "; the server is too old for --hot, and --big works"
            }
            Error::Server(text) if text.starts_with("LOADING") => {
                "; try again when its data are loaded"
            }
            _ => "",
        }
    }
}

impl InspectArgs {
    /// Inspects the server and prints the result.
    pub fn run(&self) -> ExitCode {
        match self.inspect() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("tierce inspect: {failure}{}", failure.next_step());
                ExitCode::from(2)
            }
        }
    }

    fn inspect(&self) -> Result<(), Failure> {
        let address = match &self.socket {
            Some(path) => Address::Unix(path.clone()),
            None => Address::Tcp(match self.host.contains(':') {
                true => format!("[{}]:{}", self.host, self.port),
                false => format!("{}:{}", self.host, self.port),
            }),
        };
        let password = self.password.clone().or_else(|| std::env::var("REDISCLI_AUTH").ok());
        let user = self.user.clone().filter(|_| password.is_some());
        let login = Login { user, password, database: self.dbnum };
        // A loaded server may be slow.
        let config = Config { timeout: Some(Duration::from_secs(60)), ..Config::default() };
        let mut client = SyncClient::new(address, config, &login);
        client.connect()?;
        let both = !self.big && !self.hot;
        if self.big || both {
            let found = self.find_big(&mut client)?;
            print(&found.report());
        }
        if self.hot || both {
            let report = self.find_hot(&mut client)?;
            print(&report);
        }
        Ok(())
    }

    fn find_big(&self, client: &mut SyncClient) -> Result<Big, Failure> {
        let mut shown = Progress::new("scan", Unit::Keys, Display::unless(self.quiet));
        let total = match client.query(&["DBSIZE"])? {
            Value::Int(total) => total.max(0) as u64,
            _ => return Err(Failure::Unexpected("DBSIZE")),
        };
        let (mut big, mut cursor) = (Big::new(self.count.into()), b"0".to_vec());
        loop {
            let reply = client.query(&[&b"SCAN"[..], &cursor, b"COUNT", SCAN_COUNT.as_bytes()])?;
            let (next, keys) = page_of(reply).ok_or(Failure::Unexpected("SCAN"))?;
            look_at(client, &keys, &mut big)?;
            shown.update(big.keys.min(total), total);
            cursor = next;
            if cursor == b"0" {
                return Ok(big);
            }
        }
    }

    fn find_hot(&self, client: &mut SyncClient) -> Result<String, Failure> {
        let (count, seconds) = (self.count.to_string(), self.seconds.to_string());
        let sample = self.sample.to_string();
        let start = ["HOTKEYS", "START", "METRICS", "2", "CPU", "NET", "COUNT", &count, "DURATION"];
        client.command(&[&start[..], &[&seconds, "SAMPLE", &sample]].concat()).map_err(
            |error| {
                let is_active = matches!(&error, Error::Server(text) if text.contains("already"));
                if is_active { Failure::IsActive } else { Failure::Client(error) }
            },
        )?;
        let mut shown = Progress::new("collect", Unit::Milliseconds, Display::unless(self.quiet));
        let (begun, all) = (Instant::now(), Duration::from_secs(self.seconds.into()));
        while let Some(left) = all.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            thread::sleep(left.min(Duration::from_millis(200)));
            shown.update(begun.elapsed().as_millis() as u64, all.as_millis() as u64);
        }
        drop(shown);
        // The session may have ended by itself.
        client.command(&["HOTKEYS", "STOP"])?;
        let reply = client.command(&["HOTKEYS", "GET"])?;
        client.command(&["HOTKEYS", "RESET"])?;
        hot_report(&reply).ok_or(Failure::Unexpected("HOTKEYS GET"))
    }
}

/// Returns the cursor and the keys of a reply to SCAN.
fn page_of(reply: Value) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let Value::Array(parts) = reply else { return None };
    let [Value::Bulk(cursor), Value::Array(keys)] = <[Value; 2]>::try_from(parts).ok()? else {
        return None;
    };
    let keys = keys.into_iter().map(|key| match key {
        Value::Bulk(key) => Some(key),
        _ => None,
    });
    Some((cursor, keys.collect::<Option<_>>()?))
}

/// Requests type, memory and length of some keys.
fn look_at(client: &mut SyncClient, keys: &[Vec<u8>], big: &mut Big) -> Result<(), Failure> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut pipeline = Pipeline::new();
    for key in keys {
        pipeline = pipeline.command(&[&b"TYPE"[..], key])?;
        pipeline = pipeline.command(&[&b"MEMORY"[..], b"USAGE", key, b"SAMPLES", b"5"])?;
    }
    let replies = client.pipeline(&pipeline)?;
    let mut found = Vec::new();
    for (key, pair) in keys.iter().zip(replies.chunks(2)) {
        // A key that was deleted meanwhile has no memory.
        if let [Value::Simple(kind), Value::Int(bytes)] = pair {
            let kind = String::from_utf8_lossy(kind).into_owned();
            found.push((key, kind, (*bytes).max(0) as u64));
        }
    }
    let mut pipeline = Pipeline::new();
    for (key, kind, _) in &found {
        pipeline = pipeline.command(&[length_command(kind).as_bytes(), &key[..]])?;
    }
    let lengths = if found.is_empty() { Vec::new() } else { client.pipeline(&pipeline)? };
    for ((key, kind, bytes), length) in found.into_iter().zip(lengths) {
        let Value::Int(length) = length else { continue };
        big.add(key, &kind, bytes, length.max(0) as u64);
    }
    Ok(())
}

/// Returns the command for the length of a value. For an unknown type it is EXISTS, which replies 1.
fn length_command(kind: &str) -> &'static str {
    match kind {
        "string" => "STRLEN",
        "list" => "LLEN",
        "set" => "SCARD",
        "zset" => "ZCARD",
        "hash" => "HLEN",
        "stream" => "XLEN",
        _ => "EXISTS",
    }
}

/// Returns the unit of this length of a value.
fn unit_of(kind: &str, length: u64) -> &'static str {
    let (one, many) = match kind {
        "string" => ("byte", "bytes"),
        "list" => ("element", "elements"),
        "set" | "zset" => ("member", "members"),
        "hash" => ("field", "fields"),
        "stream" => ("entry", "entries"),
        _ => ("value", "values"),
    };
    if length == 1 { one } else { many }
}

/// Result of a scan.
struct Big {
    count: usize,
    keys: u64,
    types: BTreeMap<String, OfType>,
}

/// Result for one type.
#[derive(Default)]
struct OfType {
    keys: u64,
    bytes: u64,
    length: u64,
    by_bytes: Vec<(u64, Vec<u8>)>,
    by_length: Vec<(u64, Vec<u8>)>,
}

impl Big {
    fn new(count: usize) -> Self {
        Self { count, keys: 0, types: BTreeMap::new() }
    }

    fn add(&mut self, key: &[u8], kind: &str, bytes: u64, length: u64) {
        self.keys += 1;
        let of_type = self.types.entry(kind.to_owned()).or_default();
        of_type.keys += 1;
        of_type.bytes += bytes;
        of_type.length += length;
        keep(&mut of_type.by_bytes, self.count, bytes, key);
        keep(&mut of_type.by_length, self.count, length, key);
    }

    fn report(&self) -> String {
        let mut text = count(self.keys, "key") + "\n";
        for (kind, of_type) in &self.types {
            let OfType { keys, bytes, length, by_bytes, by_length } = of_type;
            let unit = |length| unit_of(kind, length);
            let _ = writeln!(
                text,
                "\n{kind}: {}, {bytes} bytes of memory ({} on average), {length} {}",
                count(*keys, "key"),
                bytes / (*keys).max(1),
                unit(*length)
            );
            for (figure, key) in by_bytes {
                let _ = writeln!(text, "  {figure:>12} bytes of memory {}", shown(key));
            }
            for (figure, key) in by_length {
                let _ = writeln!(text, "  {figure:>12} {:<15} {}", unit(*figure), shown(key));
            }
        }
        text
    }
}

/// Maximum number of characters shown of a key, so that a line of a list stays a line.
const KEY_CHARS_MAX: usize = 80;

/// Formats a key for people: escaped, and shortened in the middle if it is long, since keys differ at their ends.
fn shown(key: &[u8]) -> String {
    let escaped = key.escape_ascii().to_string();
    if escaped.len() <= KEY_CHARS_MAX {
        return escaped;
    }
    let half = KEY_CHARS_MAX / 2;
    let (head, tail) = (&escaped[..half], &escaped[escaped.len() - half..]);
    format!("{head}...{tail} ({} bytes)", key.len())
}

/// Keeps the largest figures, in descending order. SCAN may return a key twice.
fn keep(list: &mut Vec<(u64, Vec<u8>)>, count: usize, figure: u64, key: &[u8]) {
    let is_small = list.len() == count && list.last().is_some_and(|(least, _)| figure <= *least);
    if is_small || list.iter().any(|(_, present)| present == key) {
        return;
    }
    let position = list.partition_point(|(present, _)| *present >= figure);
    list.insert(position, (figure, key.to_vec()));
    list.truncate(count);
}

/// Converts milliseconds to seconds, rounded to a tenth.
fn seconds(ms: i64) -> f64 {
    (ms as f64 / 100.0).round() / 10.0
}

/// Formats the reply to HOTKEYS GET: an array with a map, or with alternating names and values.
fn hot_report(reply: &Value) -> Option<String> {
    let fields = match reply {
        Value::Array(nodes) => nodes.first()?,
        other => other,
    };
    let fields: Vec<(&Value, &Value)> = match fields {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        _ => return None,
    };
    let field = |wanted: &str| {
        let is_wanted = |(name, _): &&(&Value, &Value)| matches!(name, Value::Bulk(name) if name == wanted.as_bytes());
        fields.iter().find(is_wanted).map(|(_, value)| *value)
    };
    let number = |name| match field(name) {
        Some(Value::Int(number)) => *number,
        _ => 0,
    };
    let mut text = format!(
        "\nhot keys, measured for {} s: all commands took {} us and {} bytes\n",
        seconds(number("collection-duration-ms")),
        number("all-commands-all-slots-us"),
        number("net-bytes-all-commands-all-slots")
    );
    for (name, unit) in [("by-cpu-time-us", "us"), ("by-net-bytes", "bytes of network")] {
        let Some(Value::Array(list)) = field(name) else { continue };
        for pair in list.chunks_exact(2) {
            let [Value::Bulk(key), Value::Int(figure)] = pair else { return None };
            let _ = writeln!(text, "  {figure:>12} {unit:<16} {}", shown(key));
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_in_order() {
        let mut list = Vec::new();
        for (figure, key) in [(3, "c"), (9, "i"), (1, "a"), (5, "e"), (5, "e"), (4, "d"), (9, "j")]
        {
            keep(&mut list, 3, figure, key.as_bytes());
        }
        let expected = [(9, b"i".to_vec()), (9, b"j".to_vec()), (5, b"e".to_vec())];
        assert_eq!(list, expected);
    }

    #[test]
    fn long_keys_are_cut_in_the_middle() {
        assert_eq!(shown(b"user:1\n\xff"), "user:1\\n\\xff");
        assert_eq!(shown(&[b'a'; 80]), "a".repeat(80));
        let long = [&[b'a'; 500][..], &[b'z'; 40]].concat();
        let expected = format!("{}...{} (540 bytes)", "a".repeat(40), "z".repeat(40));
        assert_eq!(shown(&long), expected);
        assert!(shown(&[0; 4096]).len() < 120);
    }

    #[test]
    fn both_forms_of_hot_keys_are_read() {
        let bulk = |text: &str| Value::Bulk(text.as_bytes().to_vec());
        let list = Value::Array(vec![bulk("k\n"), Value::Int(7)]);
        let flat =
            vec![bulk("collection-duration-ms"), Value::Int(3004), bulk("by-cpu-time-us"), list];
        let pairs = flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        let of = |fields| hot_report(&Value::Array(vec![fields])).unwrap();
        let (flat, map) = (of(Value::Array(flat)), of(Value::Map(pairs)));
        assert_eq!(flat, map);
        assert!(flat.contains("hot keys, measured for 3 s") && flat.contains("7 us"), "{flat}");
        assert!(flat.ends_with("k\\n\n"), "{flat}");
        assert_eq!(hot_report(&Value::Null), None);
    }
}
