//! One request and its response.

use std::borrow::Cow;
use std::marker::PhantomData;

use tierce_keyspace::{Busy, Error, Event, Expiry, Key, KeyHash, NewString};
use tierce_output::Output;
use tierce_wire::pedrokv::{Failure, Kind, Response, Status};

use super::serve::place;
use super::session::Session;
use super::{
    BUSY, LOADING, NO_PERMISSION, NOT_A_VALUE, OUT_OF_MEMORY, PASSWORD, PRIMARY_IS_DOWN, READ_ONLY,
    TOO_FEW_REPLICAS,
};
use crate::acl::Rights;
use crate::clients::Client;
use crate::command::{Access, Operation, Operations};
use crate::fault::Fault;
use crate::front_ends::{Equivalent, Outcome, Request, Runner, Stages, write_value};
use crate::pipeline::Guard;
use crate::waiting::Waits;

/// Kind under which errors of this protocol are counted.
const ERROR_KIND: &str = "err";

/// Request with a hashed key.
#[derive(Clone, Copy)]
pub struct Keyed<'a> {
    pub kind: Kind,
    pub id: u32,
    pub key: Key<'a>,
    pub value: &'a [u8],
}

impl Request for Keyed<'_> {
    fn access(&self) -> Option<Access> {
        match self.kind {
            Kind::Get => Some(Access::READ),
            Kind::Put => Some(Access::ADD),
            Kind::Delete => Some(Access::CHANGE),
            Kind::Unknown(_) => None,
        }
    }

    fn for_each_key_read(&self, mut each: impl FnMut(&[u8])) {
        if self.kind == Kind::Get {
            each(self.key.bytes());
        }
    }

    #[inline]
    fn operation(&self, operations: Operations) -> Option<Operation> {
        let place = match self.kind {
            Kind::Get => 0,
            Kind::Put => 1,
            Kind::Delete => 2,
            Kind::Unknown(_) => return None,
        };
        Some(operations.get(place, true))
    }

    fn equivalent(&self) -> Option<Equivalent> {
        match self.kind {
            Kind::Get => Some(Equivalent::GET),
            Kind::Put => Some(Equivalent::SET),
            Kind::Delete => Some(Equivalent::DEL),
            Kind::Unknown(_) => None,
        }
    }

    fn for_each_key(&self, mut each: impl FnMut(&[u8])) {
        each(self.key.bytes());
    }

    fn words(&self) -> Vec<Cow<'_, [u8]>> {
        let key = Cow::Borrowed(self.key.bytes());
        match self.kind {
            Kind::Get => vec![Cow::Borrowed(b"get"), key],
            Kind::Put => vec![Cow::Borrowed(b"put"), key, self.value.into()],
            Kind::Delete => vec![Cow::Borrowed(b"delete"), key],
            Kind::Unknown(_) => Vec::new(),
        }
    }
}

/// Executor of the requests of a batch, one after the other.
pub struct Run<'a, 'k, 'q> {
    pub guard: Guard<'a, 'k>,
    pub session: &'a mut Session,
    pub output: &'a mut Output,
    /// Stages that requests pass.
    pub stages: Stages<'k>,
    pub requests: PhantomData<Keyed<'q>>,
}

impl<'a, 'k, 'q> Runner<'a, 'k> for Run<'a, 'k, 'q> {
    type Request = Keyed<'q>;

    #[inline]
    fn parts(&mut self) -> (&mut Stages<'k>, &mut Guard<'a, 'k>, &mut Waits, &Client) {
        let Session { waits, client, .. } = &mut *self.session;
        (&mut self.stages, &mut self.guard, waits, client)
    }

    #[inline]
    fn may(&mut self) -> bool {
        self.session.may
    }

    #[inline]
    fn rights(&self) -> &Rights {
        &self.session.rights
    }

    #[inline]
    fn first_key(&self, request: &Keyed<'q>) -> Option<KeyHash> {
        Some(request.key.hash())
    }

    /// Runs a request and responds to it.
    #[inline]
    fn run(&mut self, request: &Keyed<'q>) -> Result<(), Busy> {
        match request.kind {
            _ if !self.session.may => self.fail(request.id, PASSWORD),
            Kind::Get => self.get(request),
            Kind::Put => self.put(request),
            Kind::Delete => self.delete(request),
            Kind::Unknown(_) => self.fail(request.id, Failure::NotSupported.text()),
        }
        Ok(())
    }

    #[inline]
    fn closing(&self) -> bool {
        false
    }
}

/// Executor of Puts that leaves the responses for later.
pub struct Puts<'r, 'a, 'k, 'q>(pub &'r mut Run<'a, 'k, 'q>);

impl<'a, 'k, 'q> Runner<'a, 'k> for Puts<'_, 'a, 'k, 'q> {
    type Request = Keyed<'q>;

    #[inline]
    fn parts(&mut self) -> (&mut Stages<'k>, &mut Guard<'a, 'k>, &mut Waits, &Client) {
        self.0.parts()
    }

    #[inline]
    fn may(&mut self) -> bool {
        true
    }

    #[inline]
    fn rights(&self) -> &Rights {
        &self.0.session.rights
    }

    #[inline]
    fn first_key(&self, request: &Keyed<'q>) -> Option<KeyHash> {
        Some(request.key.hash())
    }

    #[inline]
    fn run(&mut self, request: &Keyed<'q>) -> Result<(), Busy> {
        let outcome = self.0.store(request);
        self.0.session.puts.note(outcome);
        Ok(())
    }

    #[inline]
    fn closing(&self) -> bool {
        false
    }
}

impl Run<'_, '_, '_> {
    /// Responds to the Puts of the session, all of which have run, in the order of the requests.
    pub fn respond_to_puts(&mut self, requests: &[Keyed<'_>], order: &[u64]) {
        let puts = std::mem::take(&mut self.session.puts);
        let place_of = |(nth, text): (usize, &'static str)| (place(order[nth]), text);
        let mut failed: Vec<_> = puts.failed.into_iter().map(place_of).collect();
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
    fn permitted(&mut self) -> Result<(), &'static str> {
        match self.stages.fault {
            None => Ok(()),
            Some(fault) => Err(self.refuse(fault)),
        }
    }

    #[cold]
    fn refuse(&mut self, fault: Fault) -> &'static str {
        self.stages.note_error(Outcome::Refused, ERROR_KIND);
        match fault {
            Fault::OutOfMemory => OUT_OF_MEMORY,
            Fault::NotLogged | Fault::NotSaved => Failure::Io.text(),
            Fault::NoPermission => NO_PERMISSION,
            Fault::ReadOnly => READ_ONLY,
            Fault::Stale => PRIMARY_IS_DOWN,
            Fault::Loading => LOADING,
            Fault::TooFewReplicas => TOO_FEW_REPLICAS,
            Fault::Busy => BUSY,
        }
    }

    #[inline]
    fn get(&mut self, request: &Keyed<'_>) {
        if let Some(fault @ (Fault::NoPermission | Fault::Stale | Fault::Loading | Fault::Busy)) =
            self.stages.fault
        {
            let text = self.refuse(fault);
            return self.fail(request.id, text);
        }
        let key = request.key;
        let mut db = self.guard.db(self.stages.db, key.hash(), self.stages.now_ms);
        match db.string(key) {
            Ok(Some(value)) => match Response::header(Status::Ok, request.id, value.len()) {
                Ok(header) => {
                    self.output.buffer().extend_from_slice(&header);
                    write_value(value, self.output);
                }
                // Clients of other protocols may store more than fits into a frame.
                Err(_) => {
                    self.stages.note_error(Outcome::Failed, ERROR_KIND);
                    self.fail(request.id, NOT_A_VALUE);
                }
            },
            Ok(None) => self.fail(request.id, Failure::NotFound.text()),
            Err(error) => {
                let text = self.text_of(&error);
                self.fail(request.id, text);
            }
        }
    }

    #[inline]
    fn put(&mut self, request: &Keyed<'_>) {
        match self.store(request) {
            Ok(()) => self.done(request.id),
            Err(text) => self.fail(request.id, text),
        }
    }

    /// Stores the value of a Put, or returns the error.
    #[inline]
    fn store(&mut self, request: &Keyed<'_>) -> Result<(), &'static str> {
        self.permitted()?;
        let key = request.key;
        // A large value is copied before the shard is locked.
        let value = NewString::new(request.value);
        let mut db = self.guard.db(self.stages.db, key.hash(), self.stages.now_ms);
        let stored = db.set(key, value, Expiry::Never);
        if stored.is_ok() {
            db.event(Event::Set, key);
        }
        stored.map_err(|error| self.text_of(&error))
    }

    #[inline]
    fn delete(&mut self, request: &Keyed<'_>) {
        if let Err(text) = self.permitted() {
            return self.fail(request.id, text);
        }
        let key = request.key;
        let mut db = self.guard.db(self.stages.db, key.hash(), self.stages.now_ms);
        if db.remove(key) {
            db.event(Event::Del, key);
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

    /// Returns the error text for an error of the keyspace.
    #[cold]
    fn text_of(&mut self, error: &Error) -> &'static str {
        self.stages.note_error(Outcome::Failed, ERROR_KIND);
        match error {
            Error::WrongType => NOT_A_VALUE,
            _ => Failure::InvalidArgument.text(),
        }
    }
}
