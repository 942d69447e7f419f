//! A connection of a replica to the server that it follows, with the bytes in flight.

use tierce_replication::backlog::{Reader, Taken};
use tierce_replication::link::{Introduction, Link, Position};

pub(crate) struct Connection {
    pub(crate) link: Link,
    /// Bytes in flight to the replica.
    pub(crate) down: Vec<u8>,
    /// Bytes in flight to the primary.
    up: Vec<u8>,
    /// Received part of a request at the primary.
    request: Vec<u8>,
    /// Reader of the primary's stream for this replica.
    pub(crate) reader: Option<Reader>,
    /// Full copy that is arriving.
    pub(crate) copy: Option<(Position, Vec<u8>)>,
}

impl Connection {
    /// Connects a replica, which asks for the stream from this position on.
    pub(crate) fn new(position: Position) -> Self {
        let introduction = Introduction { port: 1, ..Introduction::default() };
        Self {
            link: Link::new(&introduction, Some(position)),
            down: Vec::new(),
            up: Vec::new(),
            request: Vec::new(),
            reader: None,
            copy: None,
        }
    }

    /// Takes at most `max` of the bytes in flight to the replica.
    pub(crate) fn arrive(&mut self, max: usize) -> Vec<u8> {
        self.down.drain(..max.min(self.down.len())).collect()
    }

    /// Lets at most `max` bytes arrive at the primary. Returns the requests that are complete then.
    pub(crate) fn requests(&mut self, max: usize) -> Vec<Vec<Vec<u8>>> {
        self.up.extend(self.link.take_output());
        let arrived = self.up.drain(..max.min(self.up.len()));
        self.request.extend(arrived);
        let mut requests = Vec::new();
        while let Some((words, len)) = request(&self.request) {
            self.request.drain(..len);
            requests.push(words);
        }
        requests
    }

    /// Sends some of the stream. Returns false if the bytes that the replica needs are gone.
    pub(crate) fn send(&mut self, max: usize) -> bool {
        let Some(reader) = &mut self.reader else { return true };
        reader.take(max, &mut self.down) != Taken::Lost
    }

    /// Returns true if no bytes are in flight or pending.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.up.extend(self.link.take_output());
        let is_sent = self.reader.as_ref().is_none_or(|reader| reader.lag() == Some(0));
        self.down.is_empty() && self.up.is_empty() && is_sent
    }
}

/// Returns the request at the front of `bytes` and its length, if it is complete. Links send well-formed ones.
fn request(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut at = 0;
    let count = header(bytes, &mut at)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let len = header(bytes, &mut at)?;
        words.push(bytes.get(at..at + len)?.to_vec());
        at += len + 2;
    }
    (at <= bytes.len()).then_some((words, at))
}

/// Returns the number in a line such as `*3` or `$5`.
fn header(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let line = bytes.get(*at..)?;
    let end = line.iter().position(|byte| *byte == b'\n')?;
    let number = std::str::from_utf8(line.get(1..end)?).ok()?.trim_end().parse().ok();
    *at += end + 1;
    number
}
