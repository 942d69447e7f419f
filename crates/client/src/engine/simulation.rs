//! Simulates thousands of lives of a client in virtual time, each from a seed.
//!
//! The server delays, reorders, forgets and splits answers, sends nonsense, refuses connections and dies. The callers
//! make requests of all sorts, also from callbacks, and drop futures. In all cases:
//!
//! - every request is completed exactly once, before its deadline, and only with the answer to this request;
//! - no more requests than the window are in flight at any moment;
//! - a request that must not be repeated is executed at most once, and a request reported as unsent was never sent.
//!
//! A failing seed is printed; `TIERCE_CLIENT_SEED=n cargo test -p tierce-client --lib simulation` runs it alone.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tierce_harness::effort;

use super::{Engine, Greeting};
use crate::callback::{Callback, Outcome, Recipient};
use crate::config::{Backoff, Config, Offline};
use crate::error::Error;
use crate::framing::{Framing, PedroKvFraming, RespFraming};
use crate::wakeup::Wakeup;
use crate::window::{Repeat, Submission, Window};

/// Lives in an ordinary test run, for each protocol.
const SEEDS: u64 = 3_000;

/// Steps of one life until the server recovers.
const STEPS: u32 = 150;

const TIMEOUT_MS: u64 = 200;

/// Longest time step.
const STEP_MS: u64 = 40;

/// Source of random decisions.
struct Random(tierce_harness::Random);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A protocol as the simulated server speaks it. A request and its answer carry a number.
trait Dialect: Framing + Default {
    const REQUEST_LEN: usize;
    /// Appends a request that is answered by this many replies.
    fn request(number: u32, replies: u32, out: &mut Vec<u8>) -> Result<(), Error>;
    /// Returns number and id, and true if it is the first part of a request.
    fn read(request: &[u8]) -> (u32, u32, bool);
    fn answer(number: u32, id: u32, out: &mut Vec<u8>);
    fn nonsense() -> &'static [u8];
}

impl Dialect for PedroKvFraming {
    const REQUEST_LEN: usize = 12;

    fn request(number: u32, _replies: u32, out: &mut Vec<u8>) -> Result<(), Error> {
        out.extend_from_slice(b"\x00\x0c\x04\x01\x00\x00\x00\x00");
        out.extend_from_slice(&number.to_be_bytes());
        Ok(())
    }

    fn read(request: &[u8]) -> (u32, u32, bool) {
        let field = |at: usize| u32::from_be_bytes(request[at..at + 4].try_into().unwrap());
        assert_eq!(&request[..4], b"\x00\x0c\x04\x01", "the stream is out of step");
        (field(8), field(4), true)
    }

    fn answer(number: u32, id: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\x00\x0b\x00");
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&number.to_be_bytes());
    }

    fn nonsense() -> &'static [u8] {
        b"\x00\x01\x00\x00"
    }
}

impl Dialect for RespFraming {
    const REQUEST_LEN: usize = 14;

    fn request(number: u32, replies: u32, out: &mut Vec<u8>) -> Result<(), Error> {
        for part in 0..replies {
            let word = if part == 0 { "GET" } else { "AND" };
            out.extend_from_slice(format!("{word} {number:08}\r\n").as_bytes());
        }
        Ok(())
    }

    fn read(request: &[u8]) -> (u32, u32, bool) {
        let text = std::str::from_utf8(request).expect("the stream is in step");
        let (word, number) = text.split_once(' ').expect("the stream is in step");
        assert!(word == "GET" || word == "AND", "the stream is out of step");
        (number.trim_end().parse().expect("a number"), 0, word == "GET")
    }

    fn answer(number: u32, _id: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("$8\r\n{number:08}\r\n").as_bytes());
    }

    fn nonsense() -> &'static [u8] {
        b"?\r\n"
    }
}

/// Known facts about a request.
#[derive(Debug)]
struct Fate {
    repeat: Repeat,
    /// Number of replies in its answer.
    replies: u32,
    /// Time when it was made; `None` while it waits for room.
    made_ms: Option<u64>,
    completions: u32,
    outcome: Option<Result<(), Error>>,
    executions: u32,
    /// True if its future was dropped, so that it may never be made.
    is_dropped: bool,
}

/// Records of a life, shared with the callbacks.
struct Book {
    random: Random,
    now_ms: u64,
    fates: Vec<Fate>,
    in_flight: usize,
    max_inflight: usize,
    is_recovering: bool,
}

type SharedBook = Arc<Mutex<Book>>;

struct Life<F: Dialect> {
    book: SharedBook,
    window: Arc<Window>,
    engine: Engine<F>,
    batch: Submission,
    server: Server<F>,
    /// Futures that were not dropped.
    futures: BTreeSet<u32>,
}

/// A server and the connection to it.
struct Server<F> {
    is_connected: bool,
    /// Bytes in transit in both directions.
    requests: Vec<u8>,
    answers: Vec<u8>,
    /// Number and id of requests that are executed and not answered.
    pending: Vec<(u32, u32)>,
    /// True if the server sends no more answers on this connection.
    is_stuck: bool,
    /// Last request that was executed on this connection.
    last: u32,
    dialect: PhantomData<F>,
}

fn new_life<F: Dialect>(seed: u64) -> Life<F> {
    let mut random = Random(tierce_harness::Random::new(seed));
    let max_inflight = 1 + random.below(12) as usize;
    let config = Config {
        max_inflight,
        timeout: Some(Duration::from_millis(TIMEOUT_MS)),
        attempt_timeout: random.one_in(2).then(|| Duration::from_millis(100)),
        retries: random.below(4) as u32,
        backoff: Backoff { first: Duration::from_millis(5), max: Duration::from_millis(50) },
        reconnect: Backoff { first: Duration::from_millis(5), max: Duration::from_millis(80) },
        connect_timeout: Duration::from_millis(60),
        offline: if random.one_in(3) { Offline::Fail } else { Offline::Wait },
        ..Config::default()
    };
    let window = Arc::new(Window::new(max_inflight, Wakeup::new().unwrap()));
    window.adopt_io_thread();
    let engine =
        Engine::new(F::default(), Arc::clone(&window), config, Greeting::default(), random.next());
    let book = Book {
        random,
        now_ms: 1,
        fates: Vec::new(),
        in_flight: 0,
        max_inflight,
        is_recovering: false,
    };
    Life {
        book: Arc::new(Mutex::new(book)),
        window,
        engine,
        batch: Submission::default(),
        server: Server {
            is_connected: false,
            requests: Vec::new(),
            answers: Vec::new(),
            pending: Vec::new(),
            is_stuck: false,
            last: u32::MAX,
            dialect: PhantomData,
        },
        futures: BTreeSet::new(),
    }
}

/// Records a new request and returns its number.
fn begin<F: Dialect>(book: &SharedBook, is_made: bool) -> (u32, Repeat, u32) {
    let mut book = book.lock().unwrap();
    let replies = if F::ORDERED && book.random.one_in(4) { 3 } else { 1 };
    let repeat = if book.random.one_in(2) { Repeat::Yes } else { Repeat::No };
    let made_ms = is_made.then_some(book.now_ms);
    if is_made {
        book.in_flight += 1;
        assert!(book.in_flight <= book.max_inflight, "the window is exceeded");
    }
    book.fates.push(Fate {
        repeat,
        replies,
        made_ms,
        completions: 0,
        outcome: None,
        executions: 0,
        is_dropped: false,
    });
    (book.fates.len() as u32 - 1, repeat, replies)
}

/// Stands for a future; it is dropped when the book says so.
struct SimulatedFuture<F> {
    number: u32,
    book: SharedBook,
    dialect: PhantomData<fn() -> F>,
}

impl<F> SimulatedFuture<F> {
    fn new(number: u32, book: &SharedBook) -> SimulatedFuture<F> {
        SimulatedFuture { number, book: Arc::clone(book), dialect: PhantomData }
    }
}

impl<F: Dialect> Recipient for SimulatedFuture<F> {
    fn receive(&self, outcome: Outcome<'_>) {
        end::<F>(&self.book, self.number, outcome);
    }

    fn is_waiting(&self) -> bool {
        !self.book.lock().unwrap().fates[self.number as usize].is_dropped
    }
}

/// Makes a request whose callback sometimes makes another one. Returns true if there was room.
fn make<F: Dialect>(window: &Arc<Window>, book: &SharedBook) -> bool {
    let Ok(entry) = window.try_enter() else { return false };
    let (number, repeat, replies) = begin::<F>(book, true);
    let callback = {
        let (window, book) = (Arc::clone(window), Arc::clone(book));
        Callback::new(move |outcome| {
            let goes_on = end::<F>(&book, number, outcome);
            if goes_on && !window.is_closed() && !make::<F>(&window, &book) {
                let _poisoned = book.lock();
                panic!("a callback has no room for a request");
            }
        })
    };
    entry.send(|out| F::request(number, replies, out), repeat, replies, callback);
    true
}

/// Records the end of a request. Returns true if its callback makes another one.
fn end<F: Dialect>(book: &SharedBook, number: u32, outcome: Result<&[u8], Error>) -> bool {
    let mut book = book.lock().unwrap();
    let now_ms = book.now_ms;
    let fate = &mut book.fates[number as usize];
    fate.completions += 1;
    assert_eq!(fate.completions, 1, "request {number} was completed twice");
    if let Ok(answer) = outcome {
        let mut expected = Vec::new();
        (0..fate.replies).for_each(|_| F::answer(number, 0, &mut expected));
        assert_eq!(answer.len(), expected.len(), "too many or few replies");
        // The ids are those of requests, which the caller does not know.
        let id = if F::ORDERED { 0..0 } else { 3..7 };
        let data = |bytes: &[u8]| [&bytes[..id.start], &bytes[id.end..]].concat();
        assert_eq!(data(answer), data(&expected), "the answer to another request");
    }
    let was_made = fate.made_ms.is_some();
    if let Some(made_ms) = fate.made_ms {
        assert!(now_ms <= made_ms + TIMEOUT_MS + 2 * STEP_MS, "request {number} is late");
    }
    fate.outcome = Some(outcome.map(|_| ()));
    if was_made {
        book.in_flight -= 1;
    }
    !book.is_recovering && book.random.one_in(3)
}

impl<F: Dialect> Life<F> {
    fn one_in(&self, n: u64) -> bool {
        self.book.lock().unwrap().random.one_in(n)
    }

    fn below(&self, bound: u64) -> u64 {
        self.book.lock().unwrap().random.below(bound)
    }

    fn now_ms(&self) -> u64 {
        self.book.lock().unwrap().now_ms
    }

    fn run(&mut self) {
        let steps = self.below(u64::from(STEPS)) as u32 + 10;
        for _ in 0..steps {
            self.callers();
            self.drive();
            self.world();
            // Short steps are more frequent.
            let step_ms = self.below(STEP_MS) * self.below(STEP_MS) / STEP_MS;
            self.book.lock().unwrap().now_ms += step_ms;
        }
        if self.one_in(2) {
            self.recover();
        }
        self.close();
        self.check();
    }

    fn callers(&mut self) {
        for _ in 0..self.below(4) {
            match self.below(3) {
                0 => self.make_future(),
                _ => {
                    make::<F>(&self.window, &self.book);
                }
            }
        }
        if self.one_in(5)
            && let Some(number) = self.futures.pop_first()
        {
            self.book.lock().unwrap().fates[number as usize].is_dropped = true;
        }
    }

    /// Makes a request with a future. It may wait in line, so it does not count as in flight.
    fn make_future(&mut self) {
        let (number, repeat, replies) = begin::<F>(&self.book, false);
        let future = SimulatedFuture::<F>::new(number, &self.book);
        let encode = |out: &mut Vec<u8>| F::request(number, replies, out);
        self.window.submit(encode, repeat, replies, Callback::to(Arc::new(future)));
        self.futures.insert(number);
    }

    /// Does one turn of the I/O thread.
    fn drive(&mut self) {
        let now_ms = self.now_ms();
        self.engine.tick(now_ms);
        self.follow_link(now_ms);
        self.window.exchange(&mut self.batch);
        self.engine.take_up(now_ms, &mut self.batch);
        self.send();
    }

    fn follow_link(&mut self, now_ms: u64) {
        if self.server.is_connected && !self.engine.has_connection() {
            self.server.hang_up();
        }
        if self.engine.wants_connection(now_ms) {
            self.engine.connecting(now_ms);
        }
        if self.engine.is_connecting() {
            match self.below(8) {
                0 if !self.is_recovering() => {
                    self.engine.lost(now_ms, Error::Unreachable(ErrorKind::ConnectionRefused));
                }
                1 | 2 if !self.is_recovering() => {}
                _ => {
                    self.server.is_connected = true;
                    self.engine.connected(now_ms);
                }
            }
        }
    }

    fn is_recovering(&self) -> bool {
        self.book.lock().unwrap().is_recovering
    }

    /// The socket takes all bytes, some, or none.
    fn send(&mut self) {
        if !self.server.is_connected {
            return;
        }
        loop {
            let room = if self.one_in(4) { self.below(30) as usize } else { usize::MAX };
            let Some(bytes) = self.engine.to_send() else { return };
            let count = bytes.len().min(room);
            self.server.requests.extend_from_slice(&bytes[..count]);
            let is_full = count < bytes.len();
            self.engine.sent(count);
            if is_full {
                return;
            }
        }
    }

    /// Simulates the server and the network.
    fn world(&mut self) {
        if !self.server.is_connected {
            return;
        }
        self.server.execute(&self.book);
        let troubled = !self.is_recovering();
        for _ in 0..self.below(6) {
            let reorders = !F::ORDERED;
            let index = if reorders { self.below(8) as usize } else { 0 };
            let forgets = troubled && !F::ORDERED && self.one_in(12);
            self.server.answer(index, forgets);
        }
        if troubled && self.one_in(30) {
            self.server.is_stuck = true;
        }
        if troubled && self.one_in(60) {
            self.server.answers.extend_from_slice(F::nonsense());
        }
        self.deliver();
        if troubled && self.one_in(25) {
            // It may have received requests whose answers are lost.
            if self.one_in(2) {
                self.server.execute(&self.book);
            }
            self.server.hang_up();
            self.engine.lost(self.now_ms(), Error::Unreachable(ErrorKind::ConnectionReset));
        }
    }

    fn deliver(&mut self) {
        while !self.server.answers.is_empty() && !self.one_in(3) && self.engine.has_connection() {
            let count = (1 + self.below(20) as usize).min(self.server.answers.len());
            self.engine.space()[..count].copy_from_slice(&self.server.answers[..count]);
            self.server.answers.drain(..count);
            self.engine.received(self.now_ms(), count);
        }
    }

    /// Lets the server recover, and everything end.
    fn recover(&mut self) {
        self.book.lock().unwrap().is_recovering = true;
        self.server.is_stuck = false;
        let mut turns = 0;
        while self.window.outstanding() > 0 {
            self.drive();
            self.world();
            self.book.lock().unwrap().now_ms += STEP_MS / 4;
            turns += 1;
            assert!(turns < 2_000, "requests are never completed");
        }
    }

    fn close(&mut self) {
        self.book.lock().unwrap().is_recovering = true;
        self.window.close();
        self.window.exchange(&mut self.batch);
        self.engine.take_up(self.now_ms(), &mut self.batch);
        self.engine.close();
        self.window.exchange(&mut self.batch);
    }

    fn check(&self) {
        assert_eq!(self.window.outstanding(), 0);
        let book = self.book.lock().unwrap();
        for (number, fate) in book.fates.iter().enumerate() {
            assert_eq!(fate.completions, 1, "request {number}: {fate:?}");
            match &fate.outcome {
                Some(Ok(())) => assert!(fate.executions > 0),
                Some(Err(error)) if error.is_harmless() => {
                    assert_eq!(fate.executions, 0, "request {number}: {fate:?}");
                }
                _ => {}
            }
            if fate.repeat == Repeat::No {
                assert!(fate.executions <= 1, "request {number}: {fate:?}");
            }
        }
    }
}

impl<F: Dialect> Server<F> {
    fn execute(&mut self, book: &SharedBook) {
        let whole = self.requests.len() / F::REQUEST_LEN * F::REQUEST_LEN;
        for request in self.requests[..whole].chunks(F::REQUEST_LEN) {
            let (number, id, is_first) = F::read(request);
            match is_first {
                true => book.lock().unwrap().fates[number as usize].executions += 1,
                false => assert_eq!(self.last, number, "a request was torn apart"),
            }
            self.last = number;
            self.pending.push((number, id));
        }
        self.requests.drain(..whole);
    }

    fn answer(&mut self, index: usize, forgets: bool) {
        if self.is_stuck || self.pending.is_empty() {
            return;
        }
        let (number, id) = self.pending.remove(index % self.pending.len());
        if !forgets {
            F::answer(number, id, &mut self.answers);
        }
    }

    fn hang_up(&mut self) {
        self.is_connected = false;
        self.is_stuck = false;
        self.last = u32::MAX;
        self.requests.clear();
        self.answers.clear();
        self.pending.clear();
    }
}

/// Number of requests by outcome, so that a simulation in which nothing happens is noticed.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    lost: usize,
    timed_out: usize,
    never_sent: usize,
    repeated: usize,
}

impl Tally {
    fn add(&mut self, book: &Book) {
        for fate in &book.fates {
            match &fate.outcome {
                Some(Ok(())) => self.answered += 1,
                Some(Err(Error::Disconnected(_))) => self.lost += 1,
                Some(Err(Error::TimedOut { sent: true })) => self.timed_out += 1,
                Some(Err(error)) if error.is_harmless() => self.never_sent += 1,
                _ => {}
            }
            self.repeated += usize::from(fate.executions > 1);
        }
    }
}

fn lives<F: Dialect>() {
    let only = std::env::var("TIERCE_CLIENT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(0..effort(SEEDS), |seed: u64| seed..seed + 1);
    let mut tally = Tally::default();
    for seed in seeds.clone() {
        // The engine catches panics of callbacks, so they poison the book.
        let life = || {
            let mut life = new_life::<F>(seed);
            life.run();
            life.book
        };
        let book = std::panic::catch_unwind(life);
        let book = book.unwrap_or_else(|_| panic!("TIERCE_CLIENT_SEED={seed}"));
        tally.add(&book.lock().unwrap());
    }
    let count = seeds.end - seeds.start;
    if count >= SEEDS {
        let Tally { answered, lost, timed_out, never_sent, repeated } = tally;
        let rarest = [answered, lost, timed_out, never_sent, repeated].into_iter().min();
        assert!(rarest > Some(count as usize / 4), "{tally:?}");
    }
}

#[test]
fn every_request_is_completed_once_by_id() {
    lives::<PedroKvFraming>();
}

#[test]
fn every_request_is_completed_once_in_order() {
    lives::<RespFraming>();
}
