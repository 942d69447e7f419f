//! The clients: their calls and replies, and the outcomes.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tierce_keyspace::{Reaper, interleaving, simulation};
use tierce_net::simulation::can_read;
use tierce_net::{Handle, WorkerId};
use tierce_output::Output;
use tierce_wire::resp::{OwnedArgs, ReplyDecoder, Value};

use super::explain::explain;
use super::messages;
use super::model::{During, PUBLISHED};
use super::requests::{Call, Deed, LISTS, NUMBERS, Plan, SET, STREAM, Words, as_blocking, words};
use super::world::{self, WORKERS};
use crate::caller::Caller;
use crate::clients::{Client, Origin};
use crate::server::{Message, Server};

/// Time without other events after which a client that waits without limit will not be served.
const QUIET_MS: u64 = 500;

/// Time before the last read of the keys: until then, every key with a deadline has expired.
const BEFORE_LAST_MS: u64 = 1_000;

/// Delay before a script that had not begun is killed again.
const KILL_AGAIN_MS: u64 = 500;

/// Moment: the number of earlier events, and the time.
#[derive(Clone, Copy, Debug)]
struct Moment {
    number: usize,
    ms: u64,
}

/// Reply, with the moment of its arrival.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    at: Moment,
    pub(super) reply: String,
    /// Number of receivers of the message, for PUBLISH only.
    receivers: Option<i64>,
}

/// State of a call.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) call: Call,
    sent: Option<Moment>,
    pub(super) answered: Option<Answer>,
}

impl Record {
    fn new(call: Call) -> Self {
        Self { call, sent: None, answered: None }
    }

    pub(super) fn sent_at(&self) -> usize {
        self.sent.map_or(usize::MAX, |sent| sent.number)
    }

    pub(super) fn answered_at(&self) -> usize {
        self.answered.as_ref().map_or(usize::MAX, |answer| answer.at.number)
    }

    pub(super) fn reply(&self) -> &str {
        self.answered.as_ref().map_or("", |answer| &answer.reply)
    }

    pub(super) fn receivers(&self) -> Option<i64> {
        self.answered.as_ref()?.receivers
    }

    pub(super) fn during(&self) -> During {
        let (sent, answered) = (self.sent, self.answered.as_ref());
        During {
            sent_ms: sent.map_or(0, |sent| sent.ms),
            answered_ms: answered.map_or(u64::MAX, |answer| answer.at.ms),
        }
    }

    fn is_waiting(&self) -> bool {
        self.sent.is_some() && self.answered.is_none()
    }

    pub(super) fn describe(&self) -> String {
        let Self { call, sent, answered } = self;
        let requests: Vec<String> =
            call.deed.requests().0.iter().map(|words| words.join(" ")).collect();
        let when = match (sent, answered) {
            (None, _) => "not sent".to_owned(),
            (Some(sent), None) => format!("{} ({} ms) to ..", sent.number, sent.ms),
            (Some(sent), Some(Answer { at, reply, .. })) => {
                format!("{} to {} ({} to {} ms): {reply}", sent.number, at.number, sent.ms, at.ms)
            }
        };
        format!("{}: {} | {when}", call.client, requests.join("; ").escape_debug())
    }
}

/// All calls, by client and in the order of each.
pub(super) struct History(Mutex<Told>);

struct Told {
    records: Vec<Record>,
    moments: usize,
    /// Messages that arrived at clients, in their order.
    heard: Vec<(usize, String)>,
}

fn now_ms() -> u64 {
    simulation::nanos().expect("in a simulation") / 1_000_000
}

impl History {
    pub(super) fn new(calls: &[Call]) -> Self {
        let records = calls.iter().cloned().map(Record::new).collect();
        Self(Mutex::new(Told { records, moments: 0, heard: Vec::new() }))
    }

    fn moment(told: &mut Told) -> Moment {
        told.moments += 1;
        Moment { number: told.moments, ms: now_ms() }
    }

    fn sent(&self, index: usize) {
        let told = &mut *self.0.lock();
        let moment = Self::moment(told);
        told.records[index].sent = Some(moment);
    }

    fn answered(&self, index: usize, value: &Value) {
        let told = &mut *self.0.lock();
        let at = Self::moment(told);
        let record = &mut told.records[index];
        let receivers = match &record.call.deed {
            Deed::Command(call) if call[0] == "PUBLISH" => value.as_int(),
            _ => None,
        };
        record.answered = Some(Answer { at, reply: show(&record.call.deed, value), receivers });
    }

    fn heard(&self, client: usize, text: String) {
        self.0.lock().heard.push((client, text));
    }

    fn add(&self, calls: impl IntoIterator<Item = Call>) {
        self.0.lock().records.extend(calls.into_iter().map(Record::new));
    }

    /// Returns the calls of a client, by their numbers.
    fn of(&self, client: usize) -> VecDeque<usize> {
        let told = self.0.lock();
        let is_of = |index: &usize| told.records[*index].call.client == client;
        (0..told.records.len()).filter(is_of).collect()
    }

    fn call(&self, index: usize) -> Call {
        self.0.lock().records[index].call.clone()
    }

    /// Returns when the first of the waiting calls is late.
    ///
    /// # Panics
    /// If one is late.
    fn next_limit_ms(&self) -> Option<u64> {
        let told = self.0.lock();
        let waiting = told.records.iter().filter(|record| record.is_waiting());
        let limit =
            |record: &Record| Some((record.sent?.ms + record.call.limit_ms?, record.describe()));
        let (at_ms, call) = waiting.filter_map(limit).min()?;
        assert!(at_ms >= now_ms(), "a call is not answered in time: {call}");
        Some(at_ms)
    }

    pub(super) fn describe(&self) -> String {
        let told = self.0.lock();
        told.records.iter().map(|record| format!("{}\n", record.describe())).collect()
    }
}

/// Shows a reply as the model has it.
fn show(deed: &Deed, value: &Value) -> String {
    match (deed, value) {
        (Deed::Command(call), value) => show_of(call, value),
        (Deed::Script { does, .. }, value) => show_of(&does[does.len() - 1], value),
        (Deed::Exec(commands), Value::Array(values)) => {
            let shown = commands.iter().zip(values).map(|(call, value)| show_of(call, value));
            format!("[{}]", shown.collect::<Vec<_>>().join(" "))
        }
        (_, value) => show_plain(value),
    }
}

fn show_of(call: &Words, value: &Value) -> String {
    match (call[0].as_str(), value) {
        ("XADD", Value::Bulk(_)) => "id".to_owned(),
        ("PUBLISH", Value::Int(_)) => PUBLISHED.to_owned(),
        ("SMEMBERS", Value::Array(values)) => {
            let mut members: Vec<String> = values.iter().map(show_plain).collect();
            members.sort();
            format!("[{}]", members.join(" "))
        }
        ("XREADGROUP", Value::Array(_)) => {
            let mut elements = Vec::new();
            add_elements(value, &mut elements);
            elements.join(" ")
        }
        (_, value) => show_plain(value),
    }
}

/// Adds the entries that were added to the stream, without names and IDs.
fn add_elements(value: &Value, elements: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| add_elements(value, elements)),
        Value::Bulk(text) if text.starts_with(b"e") => {
            elements.push(String::from_utf8_lossy(text).into_owned());
        }
        _ => {}
    }
}

fn show_plain(value: &Value) -> String {
    match value {
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        Value::Simple(text) | Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Int(number) => number.to_string(),
        Value::Null => "nil".to_owned(),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(show_plain).collect::<Vec<_>>().join(" "))
        }
        other => format!("{other:?}"),
    }
}

/// Returns the text of a message to a subscriber; `None` if it is a reply.
fn message_in(value: &Value) -> Option<String> {
    let parts = value.as_values()?;
    let kind = parts.first()?.as_bytes()?;
    let is_message = kind == b"message" || kind == b"pmessage";
    is_message.then(|| show_plain(parts.last().expect("it has a kind")))
}

fn encode(call: &Words) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", call.len()).into_bytes();
    for word in call {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}

/// Client with a connection.
struct Connection {
    client: usize,
    socket: Arc<std::os::fd::OwnedFd>,
    input: Vec<u8>,
    /// Calls that are not sent yet.
    left: VecDeque<usize>,
    /// Expected replies: a call's number, or `None` for its other requests.
    expected: VecDeque<Option<usize>>,
    /// Time of its next call.
    ready_ms: u64,
}

/// All clients with connections.
pub(super) struct Clients {
    server: Arc<Server>,
    handle: Handle<Message>,
    history: Arc<History>,
    connections: Vec<Connection>,
    clients: usize,
    plan: Plan,
}

impl Clients {
    pub(super) fn new(
        server: &Arc<Server>,
        handle: &Handle<Message>,
        history: &Arc<History>,
        plan: Plan,
    ) -> Self {
        let (server, handle) = (Arc::clone(server), handle.clone());
        let clients = plan.off_worker().end;
        Self {
            server,
            handle,
            history: Arc::clone(history),
            connections: Vec::new(),
            clients,
            plan,
        }
    }

    pub(super) fn run(mut self, reaper: Reaper) {
        for client in 0..self.plan.connections {
            self.connect(client);
        }
        self.make_calls();
        interleaving::sleep(Duration::from_millis(BEFORE_LAST_MS));
        self.look_at_all();
        self.check();
        drop(reaper);
        world::end(&self.server, &self.handle);
    }

    fn connect(&mut self, client: usize) {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        for socket in [&ours, &theirs] {
            socket.set_nonblocking(true).expect("a socket may be so");
        }
        let number = self.connections.len();
        let worker = WorkerId((number % WORKERS) as u16);
        self.handle.hand_over(worker, number as u64 + 1, theirs.into());
        let left = self.history.of(client);
        self.connections.push(Connection {
            client,
            socket: Arc::new(ours.into()),
            input: Vec::new(),
            ready_ms: left.front().map_or(0, |first| self.history.call(*first).after_ms),
            left,
            expected: VecDeque::new(),
        });
    }

    /// Makes all calls, until they are answered or wait for something that never comes.
    fn make_calls(&mut self) {
        let mut changed_ms = now_ms();
        loop {
            if self.receive() {
                changed_ms = now_ms();
            }
            let now_ms = now_ms();
            let limit_ms = self.history.next_limit_ms();
            let may_send = |connection: &Connection| {
                connection.expected.is_empty() && !connection.left.is_empty()
            };
            let ready: Vec<usize> = (0..self.connections.len())
                .filter(|index| may_send(&self.connections[*index]))
                .filter(|index| self.connections[*index].ready_ms <= now_ms)
                .collect();
            if !ready.is_empty() {
                let chosen = simulation::random_below(ready.len() as u64) as usize;
                self.send(ready[chosen]);
                interleaving::pass("send");
                continue;
            }
            let later = self.connections.iter().filter(|it| may_send(it)).map(|it| it.ready_ms);
            let quiet_ms = changed_ms + QUIET_MS;
            let next_ms = later.chain(limit_ms).min();
            if next_ms.is_none() && now_ms >= quiet_ms && !self.is_called_off_worker() {
                return;
            }
            let until_ms = next_ms.unwrap_or(quiet_ms.max(now_ms + 1)) + 1;
            let sockets: Vec<_> =
                self.connections.iter().map(|it| Arc::clone(&it.socket)).collect();
            let is_due = move || can_read(sockets.iter().map(AsRef::as_ref));
            simulation::wait_until("clients", Some(until_ms * 1_000_000), Arc::new(is_due));
        }
    }

    fn is_called_off_worker(&self) -> bool {
        let told = self.history.0.lock();
        let is_off_worker = |record: &&Record| self.plan.off_worker().contains(&record.call.client);
        told.records.iter().filter(is_off_worker).any(|record| record.answered.is_none())
    }

    /// Sends the next call of a client, with those that are sent together with it.
    fn send(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        let mut bytes = Vec::new();
        while let Some(call) = connection.left.pop_front() {
            let (requests, with_reply) = self.history.call(call).deed.requests();
            for (number, request) in requests.iter().enumerate() {
                bytes.extend(encode(request));
                connection.expected.push_back((number == with_reply).then_some(call));
            }
            self.history.sent(call);
            let next = connection.left.front().map(|next| self.history.call(*next));
            if !next.is_some_and(|next| next.follows) {
                break;
            }
        }
        let mut socket = stream(&connection.socket);
        socket.write_all(&bytes).expect("there is room in the socket");
    }

    /// Receives replies. Returns true if there were any.
    fn receive(&mut self) -> bool {
        let mut has_received = false;
        for connection in &mut self.connections {
            let mut socket = stream(&connection.socket);
            let mut buffer = [0; 4096];
            loop {
                match socket.read(&mut buffer) {
                    Ok(0) => panic!("the server has closed a connection"),
                    Ok(count) => connection.input.extend_from_slice(&buffer[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("a socket has failed: {error}"),
                }
            }
            let mut read = 0;
            while let Some((value, used)) =
                ReplyDecoder::new().decode(&connection.input[read..]).expect("replies")
            {
                read += used;
                has_received = true;
                if let Some(text) = message_in(&value) {
                    self.history.heard(connection.client, text);
                    continue;
                }
                let expected = connection.expected.pop_front().expect("one reply to a request");
                let Some(call) = expected else { continue };
                self.history.answered(call, &value);
                if let Deed::Kill = self.history.call(call).deed
                    && matches!(&value, Value::Error(_))
                    && self.history.0.lock().records[0].answered.is_none()
                {
                    connection.left.push_front(call);
                    connection.ready_ms = now_ms() + KILL_AGAIN_MS;
                } else if let Some(next) = connection.left.front() {
                    connection.ready_ms = now_ms() + self.history.call(*next).after_ms;
                }
            }
            connection.input.drain(..read);
        }
        has_received
    }

    /// Has one more client read all keys.
    fn look_at_all(&mut self) {
        let lists = LISTS.iter().map(|key| format!("LRANGE {key} 0 -1"));
        let numbers = NUMBERS.iter().map(|key| format!("GET {key}"));
        let rest = [
            format!("SMEMBERS {SET}"),
            format!("XLEN {STREAM}"),
            format!("XREADGROUP GROUP g last COUNT 100 NOACK STREAMS {STREAM} >"),
        ];
        let client = self.clients;
        let call = |line: String| Call {
            client,
            deed: Deed::Command(words(&line)),
            limit_ms: Some(QUIET_MS),
            follows: false,
            after_ms: 0,
        };
        self.history.add(lists.chain(numbers).chain(rest).map(call));
        self.connect(client);
        self.make_calls();
    }

    fn check(&self) {
        let records = self.history.0.lock().records.clone();
        let found = |key: &str| {
            let mut last = records.iter().filter(|record| record.call.client == self.clients);
            last.any(|record| match &record.call.deed {
                Deed::Command(call) if call[0] == "LRANGE" => {
                    call[1] == key && record.reply() != "[]"
                }
                Deed::Command(call) if call[0] == "XREADGROUP" => {
                    key == STREAM && record.reply() != "nil"
                }
                _ => false,
            })
        };
        for record in records.iter().filter(|record| record.is_waiting()) {
            let Deed::Command(call) = &record.call.deed else {
                panic!("it has no reply: {}", record.describe());
            };
            let call = as_blocking(call);
            let keys: &[&str] = match call[0] {
                "BLPOP" => &call[1..call.len() - 1],
                "BLMOVE" => &call[1..2],
                _ => &call[call.len() - 2..call.len() - 1],
            };
            if let Some(key) = keys.iter().find(|key| found(key)) {
                panic!("a client waits in vain for {key}: {}", record.describe());
            }
        }
        let heard = self.history.0.lock().heard.clone();
        let checked = explain(&records).and_then(|()| messages::check(&records, &heard));
        if let Err(failure) = checked {
            panic!("{failure}");
        }
    }
}

fn stream(socket: &Arc<std::os::fd::OwnedFd>) -> UnixStream {
    UnixStream::from(socket.try_clone().expect("a descriptor"))
}

/// Client whose calls run on a thread other than the workers.
pub(super) struct OffWorker {
    server: Arc<Server>,
    history: Arc<History>,
    client: usize,
}

impl OffWorker {
    pub(super) fn new(server: &Arc<Server>, history: &Arc<History>, client: usize) -> Self {
        Self { server: Arc::clone(server), history: Arc::clone(history), client }
    }

    pub(super) fn run(self) {
        let now = simulation::unix_ms().expect("in a simulation");
        let mut caller = Caller::new(Arc::new(Client::new(Origin::default(), now)), true);
        for index in self.history.of(self.client) {
            let call = self.history.call(index);
            interleaving::sleep(Duration::from_millis(call.after_ms));
            let (mut args, mut output) = (OwnedArgs::new(), Output::new());
            let (requests, _) = call.deed.requests();
            requests[0].iter().for_each(|word| args.push(word.as_bytes()).expect("short words"));
            self.history.sent(index);
            let begun_ms = now_ms();
            let gives_up = || now_ms() > begun_ms + 20_000;
            let args = args.as_args();
            let done =
                self.server
                    .execute_off_worker(&mut caller, args, &mut output, &gives_up, &|| false);
            assert!(done.is_some(), "it gives way to nobody");
            let bytes = output.into_bytes();
            let (value, _) =
                ReplyDecoder::new().decode(&bytes).expect("a reply").expect("a whole one");
            self.history.answered(index, &value);
        }
    }
}
