//! A line-based service for the tests, a running instance of it, and a client.
//!
//! | line | answer |
//! |---|---|
//! | `echo text` | `text` |
//! | `bytes n` | `n` bytes of [`pattern`] and a line's end |
//! | `attach n` | these bytes by reference |
//! | `suspend` | none; the session waits to be resumed, or ends when its peer does |
//! | `wait` | none; the session waits to be resumed even if its peer ends |
//! | `yield` | `yielded`, and the rest of the input in another turn |
//! | `hold n` | `held`; from this batch on output is deferred until released up to `n` |
//! | `turn` | `turn`, sent at the end of the turn |
//! | `timer ms` | none; `timer` when it fires, which also resumes |
//! | `class n` | none; chooses output limits |
//! | `quit` | `bye`, and the connection ends |
//!
//! Every line's length is declared to the loop as soon as a part of it is there.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tierce_net::{
    CloseReason, Config, ConnInfo, ConnKey, ConnMut, Conns, Flow, Handle, Io, ListenAddress,
    Listener, ListenerTag, NextTurn, Now, OnHangup, Refusal, Runtime, Service, Ticket, WorkerId,
};

/// Longest wait for anything that is certain to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a condition that is certain to become true, and is not announced.
#[track_caller]
pub fn eventually(mut is_true: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_true() {
        assert!(std::time::Instant::now() < deadline, "did not happen");
        std::thread::yield_now();
    }
}

/// Event that the service reports to the test.
#[derive(Debug)]
pub enum Event {
    Opened(ConnInfo),
    Closed(ConnKey, CloseReason),
    /// A session was suspended, reported at the end of the turn.
    Suspended(ConnKey),
    /// Answer to [`Message::Report`].
    Report(Vec<Report>),
}

/// State of a connection as the service sees it.
#[derive(Clone, Debug)]
pub struct Report {
    pub id: u64,
    pub input_bytes: usize,
    pub output_bytes: usize,
    pub suspended: bool,
    pub lines: usize,
}

type Act = Box<dyn FnOnce(&mut ConnMut<'_, Session>) + Send>;

/// Message from the test to a worker.
pub enum Message {
    /// Do something with a connection, if it is there.
    With(ConnKey, Act),
    /// Write a line to all connections.
    Shout(String),
    /// Describe all connections.
    Report,
}

#[derive(Debug, Default)]
pub struct Session {
    key: Option<ConnKey>,
    pub lines: usize,
    suspended: bool,
}

pub struct Lines {
    events: Mutex<Sender<Event>>,
    conns_max: usize,
}

/// Returns bytes that differ from their neighbours' and from those a period away.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| b'a' + ((index + index / 26 + index / 1000) % 26) as u8).collect()
}

impl Lines {
    fn tell(&self, event: Event) {
        // A test that has seen enough may be gone.
        let _ = self.events.lock().unwrap().send(event);
    }

    fn line(&self, session: &mut Session, line: &str, io: &mut Io<'_>) -> Flow {
        session.lines += 1;
        let (command, argument) = line.split_once(' ').unwrap_or((line, ""));
        let number = || argument.parse::<u64>().expect("a number");
        let reply = |io: &mut Io<'_>, text: &str| {
            io.output().buffer().extend_from_slice(text.as_bytes());
            io.output().buffer().push(b'\n');
        };
        match command {
            "echo" => reply(io, argument),
            "bytes" => {
                let bytes = pattern(number() as usize);
                io.output().buffer().extend_from_slice(&bytes);
                reply(io, "");
            }
            "attach" => {
                io.output().attach(Arc::new(pattern(number() as usize)));
                reply(io, "");
            }
            "suspend" => return Flow::Suspend(OnHangup::Close),
            "wait" => return Flow::Suspend(OnHangup::Wait),
            "yield" => {
                reply(io, "yielded");
                return Flow::Yield;
            }
            "hold" => {
                io.hold_output(Ticket([number(), 0, 0]));
                reply(io, "held");
            }
            "turn" => {
                io.output().hold_for_turn();
                reply(io, "turn");
            }
            "timer" => io.set_timer(io.now().monotonic_ms + number()),
            "class" => io.set_output_class(tierce_net::OutputClass::new(number() as u8)),
            "quit" => {
                reply(io, "bye");
                return Flow::Close;
            }
            other => panic!("no such command: {other:?}"),
        }
        Flow::Continue
    }
}

impl Service for Lines {
    type Worker = Vec<Event>;
    type Session = Session;
    type Message = Message;

    fn worker(&self, _: WorkerId, _: &Handle<Message>) -> Vec<Event> {
        Vec::new()
    }

    fn open(
        &self,
        _: &mut Vec<Event>,
        info: &ConnInfo,
        _: Option<&[u8]>,
        _: Now,
    ) -> Result<Session, Refusal> {
        if info.key.id > self.conns_max as u64 {
            return Err(b"too many\n".into());
        }
        self.tell(Event::Opened(*info));
        Ok(Session { key: Some(info.key), ..Session::default() })
    }

    fn input(&self, later: &mut Vec<Event>, session: &mut Session, io: &mut Io<'_>) -> Flow {
        assert!(!std::mem::take(&mut session.suspended) || io.info().key.id > 0);
        let mut flow = Flow::Continue;
        while flow == Flow::Continue {
            let input = io.input();
            let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
                io.expect(input.len() + 1);
                break;
            };
            io.consume(end + 1);
            flow = self.line(session, std::str::from_utf8(&input[..end]).expect("text"), io);
        }
        if matches!(flow, Flow::Suspend(_)) {
            session.suspended = true;
            later.push(Event::Suspended(io.info().key));
        }
        flow
    }

    fn timer(&self, _: &mut Vec<Event>, session: &mut Session, io: &mut Io<'_>) -> Flow {
        assert!(io.input().is_empty());
        session.suspended = false;
        io.output().buffer().extend_from_slice(b"timer\n");
        Flow::Continue
    }

    fn message(&self, _: &mut Vec<Event>, message: Message, conns: &mut Conns<'_, Session>) {
        match message {
            Message::With(key, act) => {
                if let Some(mut conn) = conns.get(key) {
                    act(&mut conn);
                }
            }
            Message::Shout(text) => conns.for_each(|conn| {
                conn.output().buffer().extend_from_slice(text.as_bytes());
                conn.output().buffer().push(b'\n');
            }),
            Message::Report => {
                let report = conns.iter().map(|view| Report {
                    id: view.info.key.id,
                    input_bytes: view.state.input_bytes,
                    output_bytes: view.state.output_bytes,
                    suspended: view.state.suspended,
                    lines: view.session.lines,
                });
                self.tell(Event::Report(report.collect()));
            }
        }
    }

    fn turn_end(&self, later: &mut Vec<Event>, _: &mut Conns<'_, Session>, _: Now) -> NextTurn {
        later.drain(..).for_each(|event| self.tell(event));
        NextTurn::WhenReady
    }

    fn close(&self, _: &mut Vec<Event>, session: Session, info: &ConnInfo, reason: CloseReason) {
        assert_eq!(session.key, Some(info.key), "a session ends with its own connection");
        self.tell(Event::Closed(info.key, reason));
    }
}

/// Running service. Ends on drop, and panics if one of its threads has.
pub struct Server {
    runtime: Option<Runtime<Message>>,
    events: Receiver<Event>,
    pub address: ListenAddress,
}

impl Server {
    pub fn start(config: Config) -> Server {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::tcp(any, 511, ListenerTag::default()).expect("a free port");
        Server::start_on(config, listener, usize::MAX)
    }

    pub fn start_on(config: Config, listener: Listener, conns_max: usize) -> Server {
        Server::start_after(config, listener, conns_max, || ())
    }

    /// Starts a service that accepts connections once `wait` has returned.
    pub fn start_after(
        config: Config,
        listener: Listener,
        conns_max: usize,
        wait: impl FnOnce() + Send + 'static,
    ) -> Server {
        let (sender, events) = channel();
        let address = listener.address().clone();
        let service = Arc::new(Lines { events: Mutex::new(sender), conns_max });
        let mut runtime = Runtime::prepare(config, vec![listener], service).expect("started");
        runtime.accept_after(wait).expect("a thread");
        Server { runtime: Some(runtime), events, address }
    }

    pub fn one_worker() -> Server {
        Server::start(Config { workers: 1, ..Config::default() })
    }

    pub fn handle(&self) -> &Handle<Message> {
        self.runtime.as_ref().expect("running").handle()
    }

    pub fn tcp_address(&self) -> SocketAddr {
        let ListenAddress::Tcp(address) = self.address else { panic!("not on TCP") };
        address
    }

    pub fn connect(&self) -> Client<TcpStream> {
        Client::new(TcpStream::connect(self.tcp_address()).expect("connected"))
    }

    /// Connects, and waits until a worker has the connection.
    pub fn connect_known(&self) -> (Client<TcpStream>, ConnKey) {
        let client = self.connect();
        match self.next_event() {
            Event::Opened(info) => (client, info.key),
            other => panic!("{other:?} instead of a connection"),
        }
    }

    pub fn next_event(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("an event")
    }

    /// Skips events until one satisfies `choose`.
    pub fn wait_for<T>(&self, mut choose: impl FnMut(Event) -> Option<T>) -> T {
        loop {
            if let Some(chosen) = choose(self.next_event()) {
                return chosen;
            }
        }
    }

    pub fn wait_for_close(&self, key: ConnKey) -> CloseReason {
        self.wait_for(|event| match event {
            Event::Closed(closed, reason) if closed == key => Some(reason),
            _ => None,
        })
    }

    pub fn wait_for_suspension(&self, key: ConnKey) {
        self.wait_for(|event| matches!(event, Event::Suspended(it) if it == key).then_some(()));
    }

    /// Runs `act` on a connection, on its worker.
    pub fn with(&self, key: ConnKey, act: impl FnOnce(&mut ConnMut<'_, Session>) + Send + 'static) {
        self.handle().post(key.worker, Message::With(key, Box::new(act)));
    }

    /// Returns the first worker's view of its connections.
    pub fn report(&self) -> Vec<Report> {
        self.handle().post(WorkerId(0), Message::Report);
        self.wait_for(|event| match event {
            Event::Report(report) => Some(report),
            _ => None,
        })
    }

    /// Returns the first worker's view of one connection once it satisfies `wanted`.
    pub fn report_when(&self, key: ConnKey, wanted: impl Fn(&Report) -> bool) -> Report {
        let mut found = None;
        eventually(|| {
            let mut report = self.report().into_iter();
            found = report.find(|report| report.id == key.id && wanted(report));
            found.is_some()
        });
        found.expect("found just now")
    }

    pub fn stop(mut self) {
        self.end();
    }

    /// Waits for the threads of a server that is draining.
    pub fn join(mut self) {
        self.runtime.take().expect("running").join();
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.handle().drain(Duration::ZERO);
            runtime.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// Stream type of a client.
pub trait Stream: Read + Write + Sized {
    fn set_patience(&self);
    fn clone_stream(&self) -> Self;
    fn shut_write(&self);
}

macro_rules! stream {
    ($name:ty) => {
        impl Stream for $name {
            fn set_patience(&self) {
                self.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                self.set_write_timeout(Some(PATIENCE)).expect("a timeout");
            }

            fn clone_stream(&self) -> Self {
                self.try_clone().expect("a descriptor")
            }

            fn shut_write(&self) {
                self.shutdown(std::net::Shutdown::Write).expect("shut down");
            }
        }
    };
}

stream!(TcpStream);
stream!(std::os::unix::net::UnixStream);

/// Connection to the service, seen from outside.
pub struct Client<S: Stream> {
    pub stream: S,
    reader: BufReader<S>,
}

impl<S: Stream> Client<S> {
    pub fn new(stream: S) -> Client<S> {
        stream.set_patience();
        let reader = BufReader::new(stream.clone_stream());
        Client { stream, reader }
    }

    pub fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("sent");
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line");
        assert!(line.ends_with('\n'), "the connection ended after {line:?}");
        line.pop();
        line
    }

    #[track_caller]
    pub fn expect(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    /// Sends a line and expects another.
    #[track_caller]
    pub fn check(&mut self, request: &str, reply: &str) {
        self.send(&format!("{request}\n"));
        self.expect(reply);
    }

    /// Reads `len` bytes of [`pattern`] and a line's end.
    #[track_caller]
    pub fn expect_pattern(&mut self, len: usize) {
        let mut bytes = vec![0; len + 1];
        self.reader.read_exact(&mut bytes).expect("all bytes");
        assert_eq!(bytes.pop(), Some(b'\n'));
        assert!(bytes == pattern(len), "{len} bytes differ");
    }

    /// Fills the buffer.
    pub fn read_exactly(&mut self, buffer: &mut [u8]) {
        self.reader.read_exact(buffer).expect("all bytes");
    }

    /// Reads to the end, and fails unless it is an orderly one.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.reader.read_to_string(&mut rest).expect("an orderly end");
        rest
    }

    /// Reads until the connection ends, orderly or not; returns the number of bytes.
    pub fn drain(&mut self) -> usize {
        let mut total = 0;
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = self.reader.read(&mut buffer) {
            total += count;
        }
        total
    }
}
