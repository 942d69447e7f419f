//! A connection of a replica to the server that it follows, with the bytes that are on their way.

use tierce_replication::backlog::{Reader, Taken};
use tierce_replication::link::{Introduction, Link, Place};

pub(crate) struct Connection {
    pub(crate) link: Link,
    /// On their way to the replica.
    pub(crate) down: Vec<u8>,
    /// On their way to the primary.
    up: Vec<u8>,
    /// What the primary has got of a request.
    request: Vec<u8>,
    /// Where the primary reads the stream for it.
    pub(crate) reader: Option<Reader>,
    /// A full copy that arrives.
    pub(crate) copy: Option<(Place, Vec<u8>)>,
}

impl Connection {
    /// A replica connects, and asks for the stream from this place on.
    pub(crate) fn new(place: Place) -> Self {
        let introduction = Introduction { port: 1, ..Introduction::default() };
        Self {
            link: Link::new(&introduction, Some(place)),
            down: Vec::new(),
            up: Vec::new(),
            request: Vec::new(),
            reader: None,
            copy: None,
        }
    }

    /// Takes so many bytes at most that are on their way to the replica.
    pub(crate) fn arrive(&mut self, max: usize) -> Vec<u8> {
        self.down.drain(..max.min(self.down.len())).collect()
    }

    /// Lets so many bytes at most arrive at the primary. The requests that are complete with them.
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

    /// Sends some of the stream. `false` if the bytes that it lacks are gone.
    pub(crate) fn send(&mut self, max: usize) -> bool {
        let Some(reader) = &mut self.reader else { return true };
        reader.take(max, &mut self.down) != Taken::Lost
    }

    /// Whether nothing is on its way, and nothing is to be sent.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.up.extend(self.link.take_output());
        let is_sent = self.reader.as_ref().is_none_or(|reader| reader.lag() == Some(0));
        self.down.is_empty() && self.up.is_empty() && is_sent
    }
}

/// A request at the beginning of `bytes`, if it is complete, and its length. Links send well-formed ones.
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

/// The number in a line such as `*3` or `$5`.
fn header(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let line = bytes.get(*at..)?;
    let end = line.iter().position(|byte| *byte == b'\n')?;
    let number = std::str::from_utf8(line.get(1..end)?).ok()?.trim_end().parse().ok();
    *at += end + 1;
    number
}
