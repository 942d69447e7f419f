//! Two servers that get the same commands.

use std::fmt;
use std::path::Path;

use tierce_harness::{Connection, Launch, Random, Server, encode};

use super::comparison::Comparison;
use super::events::Listener;
use super::history::{self, History};
use super::messages::SUBSCRIBERS;
use super::scenarios::Scenario;
use super::stream::{Call, Stream};
use super::transactions::{QUEUED, Transaction};

/// Maximum number of requests in a pipeline.
const DEPTH_MAX: usize = 40;
/// Number of connections to each server. They begin in both protocol versions and change later.
pub(super) const CONNECTIONS: usize = 4;
/// Number of connections to each server with blocked clients, in both protocol versions.
pub(super) const WAITERS: usize = 3;
/// Number of commands of the same pipeline that a report shows, for any keys.
const NEAREST: usize = 5;
/// Number of commands between two comparisons of everything.
const COMMANDS_BETWEEN_AUDITS: usize = 5_000;
/// Number of pipelines between two with a transaction in them, on average.
const PIPELINES_BETWEEN_TRANSACTIONS: usize = 4;
/// Number of pipelines between two scenarios, on average.
const PIPELINES_BETWEEN_SCENARIOS: usize = 10;

/// Two servers and the connections to them.
pub(super) struct DifferentialRun {
    pub(super) tested: Side,
    pub(super) reference: Side,
    pub(super) stream: Stream,
    pub(super) random: Random,
    pub(super) history: History,
    seed: u64,
    marks: usize,
    commands: usize,
    audits: usize,
    scenarios: usize,
}

/// One of the servers.
pub(super) struct Side {
    connections: Vec<Connection>,
    /// Connection for reading everything, and for commands about other connections.
    pub(super) auditor: Connection,
    pub(super) waiters: Vec<Waiter>,
    pub(super) subscribers: Vec<Connection>,
    /// Subscriber to keyspace events.
    pub(super) listener: Listener,
    /// Ends with the run.
    _server: Server,
}

/// A connection whose client may block.
pub(super) struct Waiter {
    pub(super) connection: Connection,
    /// Id of the client on the server.
    pub(super) id: i64,
}

impl Side {
    fn begin(program: &Path, options: &[(&str, &str)]) -> Self {
        // Redis sorts texts by the locale.
        let launch = Launch::new(program).variable("LC_ALL", "C");
        let launch = options.iter().fold(launch, |launch, (name, value)| launch.with(name, value));
        let server = launch.start();
        let connect = |n: usize| match n % 2 {
            0 => server.connect(),
            _ => server.connect_resp3(),
        };
        let waiter = |n| {
            let mut connection = connect(n);
            let id = connection.ask("CLIENT ID").int();
            Waiter { connection, id }
        };
        let mut auditor = server.connect();
        // When no client tracks keys any more, Tierce forgets which keys were read. Redis does not.
        auditor.check("CLIENT TRACKING ON OPTIN", "+OK");
        Self {
            connections: (0..CONNECTIONS).map(connect).collect(),
            auditor,
            waiters: (0..WAITERS).map(waiter).collect(),
            subscribers: (0..SUBSCRIBERS).map(connect).collect(),
            listener: Listener::of(&server),
            _server: server,
        }
    }
}

/// A difference between the servers.
pub(super) struct Difference {
    pub(super) call: Call,
    pub(super) tested: Vec<u8>,
    pub(super) reference: Vec<u8>,
    pub(super) before: Vec<String>,
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

pub(super) type Outcome<T = ()> = Result<T, Box<Difference>>;

impl DifferentialRun {
    pub(super) fn begin(program: &Path, reference: &Path, seed: u64) -> Self {
        // With this, the size of a block in a stream is a number of entries, so that approximate
        // trimming can be compared. The size in bytes is a server's own.
        let same = ("stream-node-max-bytes", "0");
        // Makes Redis check timeouts every few milliseconds.
        let prompt = ("hz", "500");
        Self {
            tested: Side::begin(program, &[same]),
            reference: Side::begin(reference, &[same, prompt]),
            stream: Stream::new(seed),
            random: Random::new(seed ^ 0x5eed),
            history: History::default(),
            seed,
            marks: 0,
            commands: 0,
            audits: 0,
            scenarios: 0,
        }
    }

    pub(super) fn tally(&self) -> String {
        let Self { seed, commands, audits, scenarios, .. } = self;
        format!("seed {seed}: {commands} commands, {scenarios} scenarios, {audits} audits")
    }

    pub(super) fn execute(&mut self, commands: usize) -> Outcome {
        let mut until_audit = COMMANDS_BETWEEN_AUDITS;
        while self.commands < commands {
            let depth = if self.random.one_in(3) { 1 } else { 1 + self.random.below(DEPTH_MAX) };
            let depth = depth.min(commands - self.commands);
            let calls = (0..depth).map(|_| self.stream.next_call()).collect();
            self.pipeline(calls)?;
            if self.random.one_in(PIPELINES_BETWEEN_SCENARIOS) {
                self.scenarios += 1;
                let scenario = Scenario::random(&mut self.random);
                self.play(scenario)?;
                self.skip_events();
            }
            until_audit = until_audit.saturating_sub(depth);
            if until_audit == 0 || self.commands == commands {
                self.audits += 1;
                self.audit()?;
                until_audit = COMMANDS_BETWEEN_AUDITS;
            }
        }
        Ok(())
    }

    /// Sends some commands over one connection to each server and compares the replies.
    pub(super) fn pipeline(&mut self, mut calls: Vec<Call>) -> Outcome {
        let connection = self.random.below(CONNECTIONS);
        while calls.last().is_some_and(is_skip) {
            calls.pop();
        }
        let with_transaction = !calls.is_empty()
            && !calls.iter().any(is_skip)
            && self.random.one_in(PIPELINES_BETWEEN_TRANSACTIONS);
        let transaction =
            with_transaction.then(|| Transaction::among(&mut calls, &mut self.random));
        self.commands += calls.len();
        self.marks += 1;
        // Its reply ends the replies, for any number of them.
        let mark = format!("mark:{}", self.marks);
        let mut bytes: Vec<u8> = calls.iter().flat_map(|call| self.encoded(call)).collect();
        bytes.extend(encode(&["ECHO", &mark]));
        let end = format!("${}\r\n{mark}\r\n", mark.len());
        self.tested.connections[connection].send(&bytes);
        self.reference.connections[connection].send(&bytes);
        let replies_of = |side: &mut Side| {
            let connection = &mut side.connections[connection];
            let replies = std::iter::from_fn(|| Some(connection.reply_bytes()));
            let mut replies: Vec<_> =
                replies.take_while(|reply| *reply != end.as_bytes()).collect();
            if let Some(transaction) = transaction {
                transaction.spread(&mut replies);
            }
            replies
        };
        let tested = replies_of(&mut self.tested);
        let reference = replies_of(&mut self.reference);
        let answered = answered(&calls);
        for (n, call) in answered.iter().enumerate() {
            let missing = b"(no reply)".to_vec();
            let ours = tested.get(n).unwrap_or(&missing);
            let theirs = reference.get(n).unwrap_or(&missing);
            let next = answered.get(n + 1).zip(tested.get(n + 1));
            let next = next.map(|(call, reply)| (*call, reply.as_slice()));
            let is_queued = ours == QUEUED && theirs == QUEUED;
            if !is_queued && !Comparison::of(call).accepts_before(call, ours, theirs, next) {
                let sent = calls.iter().position(|other| std::ptr::eq(other, *call));
                let with = &calls[..sent.unwrap_or(calls.len())];
                let mut before = self.history.of_keys_in(call, connection, with);
                let nearest = &with[with.len().saturating_sub(NEAREST)..];
                before.push("right before it:".to_owned());
                before.extend(nearest.iter().map(history::line));
                return differ(call, ours, theirs, before);
            }
        }
        assert_eq!(tested.len(), answered.len(), "more replies than commands: {calls:?}");
        self.compare_events(&calls)?;
        self.history.add(connection, calls);
        Ok(())
    }

    /// Encodes a call as an array or, if the arguments allow it, sometimes as a line.
    fn encoded(&mut self, call: &Call) -> Vec<u8> {
        let is_plain = |arg: &Vec<u8>| !arg.is_empty() && arg.iter().all(u8::is_ascii_alphanumeric);
        if self.random.one_in(10) && call.iter().all(is_plain) {
            return [call.join(&b' '), b"\r\n".to_vec()].concat();
        }
        encode(call)
    }
}

/// Returns a difference between the servers as an error.
pub(super) fn differ<T>(
    call: &Call,
    tested: &[u8],
    reference: &[u8],
    before: Vec<String>,
) -> Outcome<T> {
    let (tested, reference) = (tested.to_vec(), reference.to_vec());
    Err(Box::new(Difference { call: call.clone(), tested, reference, before }))
}

fn is_skip(call: &Call) -> bool {
    let word = |n: usize, word: &str| {
        call.get(n).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    call.len() == 3 && word(0, "client") && word(1, "reply") && word(2, "skip")
}

/// Returns the calls that get a reply: all except `CLIENT REPLY SKIP` and the call after it.
fn answered(calls: &[Call]) -> Vec<&Call> {
    let follows_skip = |n: usize| n > 0 && is_skip(&calls[n - 1]);
    let answered = (0..calls.len()).filter(|n| !is_skip(&calls[*n]) && !follows_skip(*n));
    answered.map(|n| &calls[n]).collect()
}
