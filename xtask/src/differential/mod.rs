//! The same random commands to two servers, and a comparison of their replies, byte for byte.
//!
//! Redis itself is the specification of what a command does and answers. A run starts both
//! servers, empty and without files, and sends both the same stream: all commands on strings, keys
//! and connections that both know, with all their options, with wrong ones, and with values at the
//! limits. It goes over several connections of both protocol versions, in pipelines of random
//! depth. From time to time the whole data sets are compared.
//!
//! What may differ, and how it is compared then, is decided in [`comparison`]; the reasons are in
//! `docs/differences.md`. Expiry in the course of a run would make the outcome depend on time, so
//! all times to live are either over or far away; tests of the program look at the rest.
//!
//! The seed is all that is random: the same seed repeats a run.

mod comparison;
mod grammar;
mod history;
mod stream;

use std::fmt;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use tierce_harness::{Connection, Launch, Random, Reply, Server, encode};

use self::comparison::Comparison;
use self::history::History;
use self::stream::{Call, Stream};

/// Requests in a pipeline.
const DEPTH_MAX: usize = 40;
/// Connections to each server. They begin in both protocol versions, and change on the way.
const CONNECTIONS: usize = 4;
/// Commands between two comparisons of everything.
const COMMANDS_BETWEEN_AUDITS: usize = 5_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of commands.
    #[arg(long, default_value_t = 200_000)]
    commands: usize,
    /// Repeats the run with this seed. By default each run has another one.
    #[arg(long)]
    seed: Option<u64>,
    /// The server to test. By default the release build of this workspace.
    #[arg(long)]
    program: Option<PathBuf>,
    /// The server that is right.
    #[arg(long, default_value = "redis-server")]
    reference: PathBuf,
}

/// Runs until all commands were sent or the servers disagree.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let seed = options.seed.unwrap_or_else(seed_of_the_day);
    let program = options.program.clone().unwrap_or_else(release_build);
    if !program.exists() {
        return Err(format!("{} is missing: cargo build --release", program.display()));
    }
    let version = version_of(&options.reference)?;
    println!("seed {seed}, {} commands, against {version}", options.commands);
    let started = Instant::now();
    let mut duel = Duel::begin(&program, &options.reference, seed);
    duel.fight(options.commands).map_err(|difference| {
        format!("{difference}\nrepeat with: cargo xtask differential --seed {seed}")
    })?;
    println!("no difference, {} audits, {:.1?}", duel.audits, started.elapsed());
    Ok(())
}

fn seed_of_the_day() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |time| time.as_millis() as u64)
}

/// Beside this very program, which is in the directory of its own profile.
pub(crate) fn release_build() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let target = own.parent().and_then(|profile| profile.parent()).map(PathBuf::from);
    target.unwrap_or_default().join("release/tierce")
}

fn version_of(reference: &PathBuf) -> Result<String, String> {
    let output = std::process::Command::new(reference).arg("--version").output();
    let output = output.map_err(|error| {
        format!("{}: {error}; on Debian: apt-get install redis-server", reference.display())
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Two servers and the connections to them.
struct Duel {
    tested: Side,
    reference: Side,
    stream: Stream,
    random: Random,
    history: History,
    marks: usize,
    audits: usize,
}

struct Side {
    connections: Vec<Connection>,
    /// For looking at everything.
    auditor: Connection,
    /// Ends with the run.
    _server: Server,
}

impl Side {
    fn begin(launch: &Launch) -> Self {
        let server = launch.start();
        let connections = (0..CONNECTIONS).map(|n| match n % 2 {
            0 => server.connect(),
            _ => server.connect_resp3(),
        });
        Self { connections: connections.collect(), auditor: server.connect(), _server: server }
    }
}

/// What the servers disagree about.
struct Difference {
    call: Call,
    tested: Vec<u8>,
    reference: Vec<u8>,
    before: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the replies differ")?;
        writeln!(f, "  command:   {}", history::line(&self.call))?;
        writeln!(f, "  tierce:    {}", self.tested.escape_ascii())?;
        writeln!(f, "  reference: {}", self.reference.escape_ascii())?;
        writeln!(f, "  what happened before to its keys (the number is that of the connection):")?;
        self.before.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

impl Duel {
    fn begin(program: &PathBuf, reference: &PathBuf, seed: u64) -> Self {
        // Redis asks for this before it lets anybody use DEBUG; the stream does not, but mistakes
        // in it would be found sooner.
        let begin = |path: &PathBuf| Side::begin(&Launch::new(path));
        Self {
            tested: begin(program),
            reference: begin(reference),
            stream: Stream::new(seed),
            random: Random::new(seed ^ 0x5eed),
            history: History::default(),
            marks: 0,
            audits: 0,
        }
    }

    fn fight(&mut self, commands: usize) -> Result<(), Difference> {
        let mut until_audit = COMMANDS_BETWEEN_AUDITS;
        let mut left = commands;
        while left > 0 {
            let depth = if self.random.one_in(3) { 1 } else { 1 + self.random.below(DEPTH_MAX) };
            let depth = depth.min(left);
            self.pipeline(depth)?;
            left -= depth;
            until_audit = until_audit.saturating_sub(depth);
            if until_audit == 0 || left == 0 {
                self.audit()?;
                until_audit = COMMANDS_BETWEEN_AUDITS;
            }
        }
        Ok(())
    }

    /// Sends some commands over one connection to each server and compares the replies.
    fn pipeline(&mut self, depth: usize) -> Result<(), Difference> {
        let connection = self.random.below(CONNECTIONS);
        let mut calls: Vec<Call> = (0..depth).map(|_| self.stream.next_call()).collect();
        while calls.last().is_some_and(is_skip) {
            calls.pop();
        }
        self.marks += 1;
        // Its reply ends the replies, however many there are.
        let mark = format!("mark:{}", self.marks);
        let bytes: Vec<u8> = calls.iter().flat_map(|call| self.encoded(call)).collect();
        let bytes = [bytes, encode(&["ECHO", &mark])].concat();
        let end = format!("${}\r\n{mark}\r\n", mark.len());
        let exchange = |side: &mut Side| {
            let c = &mut side.connections[connection];
            c.send(&bytes);
            let replies = std::iter::from_fn(|| Some(c.reply_bytes()));
            replies.take_while(|reply| *reply != end.as_bytes()).collect::<Vec<_>>()
        };
        let tested = exchange(&mut self.tested);
        let reference = exchange(&mut self.reference);
        let answered = answered(&calls);
        for (n, call) in answered.iter().enumerate() {
            let missing = b"(no reply)".to_vec();
            let tested = tested.get(n).unwrap_or(&missing);
            let reference = reference.get(n).unwrap_or(&missing);
            if !Comparison::of(call).accepts(call, tested, reference) {
                let sent = calls.iter().position(|other| std::ptr::eq(other, *call));
                let with = &calls[..sent.unwrap_or(calls.len())];
                let before = self.history.of_keys_in(call, connection, with);
                let (tested, reference) = (tested.clone(), reference.clone());
                return Err(Difference { call: (*call).clone(), tested, reference, before });
            }
        }
        assert_eq!(tested.len(), answered.len(), "more replies than commands: {calls:?}");
        self.history.add(connection, calls);
        Ok(())
    }

    /// As an array or, if the arguments allow it, now and then as a line.
    fn encoded(&mut self, call: &Call) -> Vec<u8> {
        let is_plain = |arg: &Vec<u8>| !arg.is_empty() && arg.iter().all(u8::is_ascii_alphanumeric);
        if self.random.one_in(10) && call.iter().all(is_plain) {
            return [call.join(&b' '), b"\r\n".to_vec()].concat();
        }
        encode(call)
    }

    /// Compares the whole data sets: keys, values and times of all databases.
    fn audit(&mut self) -> Result<(), Difference> {
        self.audits += 1;
        for db in 0..stream::DATABASES {
            self.audit_call(&format!("SELECT {db}"))?;
            self.audit_call("DBSIZE")?;
            let keys = self.audit_call("KEYS *")?;
            self.audit_scan(keys.items())?;
            for key in keys.items() {
                for command in ["TYPE", "GET", "STRLEN", "PEXPIRETIME"] {
                    self.audit_same(&vec![command.into(), key.bytes().to_vec()])?;
                }
            }
        }
        Ok(())
    }

    /// A full iteration has to find all keys.
    fn audit_scan(&mut self, keys: &[Reply]) -> Result<(), Difference> {
        let mut expected: Vec<_> = keys.iter().map(|key| key.bytes().to_vec()).collect();
        let mut found = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let reply = self.tested.auditor.ask(&format!("SCAN {cursor} COUNT 5"));
            found.extend(reply.items()[1].items().iter().map(|key| key.bytes().to_vec()));
            reply.items()[0].text().clone_into(&mut cursor);
            if cursor == "0" {
                break;
            }
        }
        expected.sort();
        found.sort();
        found.dedup();
        if found == expected {
            return Ok(());
        }
        let (tested, reference) = (found.join(&b' '), expected.join(&b' '));
        Err(Difference { call: vec![b"SCAN".to_vec()], tested, reference, before: Vec::new() })
    }

    fn audit_call(&mut self, line: &str) -> Result<Reply, Difference> {
        self.audit_same(&line.split(' ').map(|word| word.as_bytes().to_vec()).collect())
    }

    fn audit_same(&mut self, call: &Call) -> Result<Reply, Difference> {
        let exchange = |side: &mut Side| {
            side.auditor.request(call);
            side.auditor.reply_bytes()
        };
        let tested = exchange(&mut self.tested);
        let reference = exchange(&mut self.reference);
        if !Comparison::of(call).accepts(call, &tested, &reference) {
            let before = self.history.of_keys_in(call, CONNECTIONS, &[]);
            return Err(Difference { call: call.clone(), tested, reference, before });
        }
        Ok(Reply::decode(&tested).expect("a whole reply").0)
    }
}

fn is_skip(call: &Call) -> bool {
    let word = |n: usize, word: &str| {
        call.get(n).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    call.len() == 3 && word(0, "client") && word(1, "reply") && word(2, "skip")
}

/// The calls that get a reply: those that neither are `CLIENT REPLY SKIP` nor follow it.
fn answered(calls: &[Call]) -> Vec<&Call> {
    let follows_skip = |n: usize| n > 0 && is_skip(&calls[n - 1]);
    let answered = (0..calls.len()).filter(|n| !is_skip(&calls[*n]) && !follows_skip(*n));
    answered.map(|n| &calls[n]).collect()
}
