//! A small RESP server for tests. It counts requests and can be made to misbehave.
//!
//! It reads requests strictly: anything but an array of bulk strings ends the connection. So a badly encoded or split
//! batch shows as a lost connection.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use tierce_wire::resp::Proto;

use crate::target::{Address, Target};

/// Behavior of a mock server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behavior {
    /// Answers correctly.
    Plain,
    /// Answers in pieces of this many bytes, each sent separately.
    Pieces(usize),
    /// Answers every n-th request of a connection with an error.
    ErrorEvery(u64),
    /// Closes a connection after so many requests, with an error as the reason.
    CloseAfter(u64),
    /// Sends something that is not RESP.
    Garbage,
}

/// A server that runs until the test process ends.
#[derive(Debug)]
pub(crate) struct MockServer {
    port: u16,
    seen: Arc<Mutex<Seen>>,
}

/// Requests received so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: u64,
    /// Number of calls of each command, by its name in capitals.
    pub(crate) commands: HashMap<String, u64>,
    /// Number of uses of each first argument.
    pub(crate) keys: HashMap<String, u64>,
}

impl Seen {
    pub(crate) fn requests(&self) -> u64 {
        self.commands.values().sum()
    }
}

impl MockServer {
    pub(crate) fn start(behavior: Behavior) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = Arc::clone(&shared);
                seen.lock().unwrap().connections += 1;
                let stream = stream.unwrap();
                // A client that disconnects in the middle is the normal end of a connection.
                thread::spawn(move || serve(&stream, behavior, &seen));
            }
        });
        Self { port, seen }
    }

    pub(crate) fn target(&self) -> Target {
        Target {
            address: Address::Tcp { host: "127.0.0.1".into(), port: self.port },
            user: None,
            password: None,
            database: 0,
            resp_version: Proto::Resp2,
            tls: None,
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(stream: &TcpStream, behavior: Behavior, seen: &Mutex<Seen>) -> Option<()> {
    let mut input = BufReader::new(stream);
    for number in 1.. {
        let words = request(&mut input)?;
        {
            let mut seen = seen.lock().unwrap();
            *seen.commands.entry(words[0].to_ascii_uppercase()).or_default() += 1;
            if let Some(key) = words.get(1) {
                *seen.keys.entry(key.clone()).or_default() += 1;
            }
        }
        let reply = match behavior {
            Behavior::CloseAfter(limit) if number > limit => {
                (&*stream).write_all(b"-ERR enough\r\n").ok()?;
                return None;
            }
            Behavior::ErrorEvery(every) if number % every == 0 => "-ERR every now and then\r\n",
            Behavior::Garbage => "hello\r\n",
            _ => reply(&words[0]),
        };
        match behavior {
            Behavior::Pieces(size) => {
                for piece in reply.as_bytes().chunks(size) {
                    (&*stream).write_all(piece).ok()?;
                }
            }
            _ => (&*stream).write_all(reply.as_bytes()).ok()?,
        }
    }
    None
}

fn request(input: &mut impl BufRead) -> Option<Vec<String>> {
    let count = number(input, b'*')?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; number(input, b'$')? + 2];
            input.read_exact(&mut word).ok()?;
            String::from_utf8(word).ok()?.strip_suffix("\r\n").map(str::to_owned)
        })
        .collect()
}

fn number(input: &mut impl BufRead, kind: u8) -> Option<usize> {
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    line.strip_prefix(kind as char)?.strip_suffix("\r\n")?.parse().ok()
}

fn reply(command: &str) -> &'static str {
    match command.to_ascii_uppercase().as_str() {
        "GET" => "$13\r\n+OK\r\n-ERR x\r\n\r\n",
        "MGET" => "*3\r\n$1\r\na\r\n$-1\r\n*0\r\n",
        "PING" => "+PONG\r\n",
        "INCR" => ":1\r\n",
        _ => "+OK\r\n",
    }
}
