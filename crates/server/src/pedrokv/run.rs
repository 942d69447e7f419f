//! One request and its response.

use tierce_keyspace::{DbIndex, Error, Expiry, Key, Locker, NewString};
use tierce_net::Output;
use tierce_wire::pedrokv::{Failure, Kind, Response, Status};

use super::{NOT_A_VALUE, OUT_OF_MEMORY, PASSWORD};
use crate::eviction::Room;
use crate::foreign::write_value;
use crate::server::Server;

/// A request whose key has been hashed.
#[derive(Clone, Copy)]
pub struct Keyed<'a> {
    pub kind: Kind,
    pub id: u32,
    pub key: Key<'a>,
    pub value: &'a [u8],
}

/// Runs the requests of a batch, one after the other.
pub struct Run<'a, 'k> {
    pub server: &'k Server,
    pub locker: &'a mut Locker<'k>,
    pub output: &'a mut Output,
    pub db: DbIndex,
    pub now_ms: i64,
    /// The client may use the data.
    pub may: bool,
    /// The log cannot take writes.
    pub refuses_writes: bool,
    /// There is a limit on memory.
    pub is_limited: bool,
}

impl Run<'_, '_> {
    /// Runs a request and responds to it.
    #[inline]
    pub fn request(&mut self, request: &Keyed<'_>) {
        if !self.may {
            return self.fail(request.id, PASSWORD);
        }
        match request.kind {
            Kind::Get => self.get(request),
            Kind::Put => self.put(request),
            Kind::Delete => self.delete(request),
            Kind::Unknown(_) => self.fail(request.id, Failure::NotSupported.text()),
        }
    }

    #[inline]
    fn get(&mut self, request: &Keyed<'_>) {
        let key = request.key;
        let mut db = self.locker.db(self.db, key.hash(), self.now_ms);
        match db.string(key) {
            Ok(Some(value)) => match Response::header(Status::Ok, request.id, value.len()) {
                Ok(header) => {
                    self.output.buffer().extend_from_slice(&header);
                    write_value(value, self.output);
                }
                // Clients of other protocols may store more than a frame can hold.
                Err(_) => self.fail(request.id, NOT_A_VALUE),
            },
            Ok(None) => self.fail(request.id, Failure::NotFound.text()),
            Err(error) => self.fail(request.id, text_of(&error)),
        }
    }

    #[inline]
    fn put(&mut self, request: &Keyed<'_>) {
        match self.store(request) {
            Ok(()) => self.done(request.id),
            Err(text) => self.fail(request.id, text),
        }
    }

    /// Stores what a Put brings, or says why not.
    #[inline]
    fn store(&mut self, request: &Keyed<'_>) -> Result<(), &'static str> {
        if self.refuses_writes {
            return Err(Failure::Io.text());
        }
        if self.is_limited && self.server.make_room(self.locker, self.now_ms) == Room::None {
            return Err(OUT_OF_MEMORY);
        }
        let key = request.key;
        // A large value is copied before the shard is locked.
        let value = NewString::new(request.value);
        let mut db = self.locker.db(self.db, key.hash(), self.now_ms);
        db.set(key, value, Expiry::Never).map_err(|error| text_of(&error))
    }

    /// Runs Puts in the order of `places`, which are all places in `requests`, and responds in the order
    /// of the requests.
    pub fn puts(&mut self, requests: &[Keyed<'_>], places: impl Iterator<Item = usize>) {
        let mut failed: Vec<(usize, &'static str)> = Vec::new();
        for place in places {
            if let Err(text) = self.store(&requests[place]) {
                failed.push((place, text));
            }
        }
        failed.sort_unstable();
        let mut failed = failed.into_iter().peekable();
        for (place, request) in requests.iter().enumerate() {
            match failed.next_if(|(at, _)| *at == place) {
                None => self.done(request.id),
                Some((_, text)) => self.fail(request.id, text),
            }
        }
    }

    #[inline]
    fn delete(&mut self, request: &Keyed<'_>) {
        if self.refuses_writes {
            return self.fail(request.id, Failure::Io.text());
        }
        let key = request.key;
        if self.locker.db(self.db, key.hash(), self.now_ms).remove(key) {
            self.done(request.id);
        } else {
            self.fail(request.id, Failure::NotFound.text());
        }
    }

    #[inline]
    fn done(&mut self, id: u32) {
        self.respond(Status::Ok, id, b"");
    }

    #[cold]
    fn fail(&mut self, id: u32, text: &str) {
        self.respond(Status::Error, id, text.as_bytes());
    }

    #[inline]
    fn respond(&mut self, status: Status, id: u32, data: &[u8]) {
        let written = Response { status, id, data }.write(self.output.buffer());
        debug_assert!(written.is_ok(), "texts fit into frames");
    }
}

/// What a client is told of an error of the keyspace.
#[cold]
fn text_of(error: &Error) -> &'static str {
    match error {
        Error::WrongType => NOT_A_VALUE,
        _ => Failure::InvalidArgument.text(),
    }
}
