//! The commands of the binary protocol.
//!
//! Every reply has the version of the value in its header, even if the client does not use it; see
//! [`VersionFor::Anybody`].

use tierce_keyspace::{Adjusted, Condition, End, Error, Key, Stored, VersionFor};
use tierce_wire::memcached::binary::{
    DO_NOT_CREATE, Loudness, Mode, Operation, Reply, Request, Status,
};

use super::auth::Credentials;
use super::counters::Count;
use super::expiry::{self, from_frame};
use super::prefixes::Use;
use super::run::{Refusal, Run, Store};
use super::stats::{Report, report};
use super::text::refusal_text;
use super::{MEMCACHED_VERSION, WRONG_TYPE};
use crate::command::Access;
use crate::fault::Fault;
use crate::front_ends::{Outcome, write_value};

/// SASL mechanisms: PLAIN is the only one.
const MECHANISMS: &[u8] = b"PLAIN";

fn reply(request: &Request<'_>, status: Status, version: u64) -> Reply {
    Reply { opcode: request.opcode, status, opaque: request.opaque, version }
}

/// Returns the version that a request requires of a value, if any.
fn wanted(request: &Request<'_>) -> Option<u64> {
    (request.version != 0).then_some(request.version)
}

impl Run<'_, '_> {
    /// Runs a request with this key.
    #[inline]
    pub fn frame(&mut self, request: &Request<'_>, key: Key<'_>) {
        let operation = match request.operation() {
            Ok(operation) => operation,
            Err(status) => return self.refuse_frame(request, status),
        };
        if !self.may() && !is_open_to_all(&operation) {
            return self.fail(request, Status::AuthError);
        }
        if let Some(fault) = self.stages.fault.filter(Fault::is_for_all) {
            return self.fail_with(request, Refusal::Server(fault));
        }
        match operation {
            Operation::Get { with_key, touch } => self.get_frame(request, key, with_key, touch),
            Operation::Store { mode, flags, expiry } => {
                self.store_frame(request, key, mode, flags, expiry);
            }
            Operation::Extend { mode } => self.extend_frame(request, key, mode),
            Operation::Delete => {
                self.note(key, Use::Delete);
                let stored = self.delete(key, wanted(request));
                self.tell(request, Ok(stored), Status::NotFound);
            }
            Operation::Adjust { up, delta, initial, expiry } => {
                self.adjust_frame(request, key, up, delta, initial, expiry);
            }
            Operation::Touch { expiry } => self.touch_frame(request, key, expiry),
            Operation::Flush { .. } if !self.may_flush() => self.fail(request, Status::AuthError),
            Operation::Flush { delay } => {
                if self.flush(from_frame(delay)) {
                    self.done(request, 0);
                }
            }
            Operation::Noop => self.done(request, 0),
            Operation::Version => self.done_with(request, MEMCACHED_VERSION.as_bytes()),
            Operation::Stat => self.stat_frames(request),
            Operation::Quit => {
                self.done(request, 0);
                self.closing = true;
            }
            // Clients with a configured password then continue without authentication.
            Operation::SaslList | Operation::SaslAuth { .. } | Operation::SaslStep
                if self.server.acl.users.need_not_authenticate() =>
            {
                self.fail(request, Status::UnknownCommand);
            }
            Operation::SaslList => self.done_with(request, MECHANISMS),
            Operation::SaslAuth { mechanism, message } => {
                let credentials = (mechanism == MECHANISMS).then(|| Credentials::of_plain(message));
                match self.authenticate(credentials.flatten(), "sasl") {
                    true => self.done_with(request, b"Authenticated"),
                    false => self.fail(request, Status::AuthError),
                }
            }
            // PLAIN has one step only.
            Operation::SaslStep => self.fail(request, Status::AuthError),
        }
    }

    /// Refuses a request for the size of its value.
    #[cold]
    pub fn too_large(&mut self, request: &Request<'_>) {
        match request.operation() {
            Ok(Operation::Store { mode: Mode::Set, .. }) if self.session.authenticated => {
                if let Some(fault) = self.stages.fault {
                    return self.fail_with(request, Refusal::Server(fault));
                }
                self.drop_outdated(request.key);
            }
            Ok(Operation::Store { .. } | Operation::Extend { .. } | Operation::SaslAuth { .. }) => {
            }
            // Others have no value.
            _ => return self.refuse_frame(request, Status::InvalidArguments),
        }
        self.stages.note_too_large();
        self.fail(request, Status::TooLarge);
    }

    /// Refuses a malformed request. If parts of a request have wrong lengths, it is unknown how the client interprets
    /// the bytes, so its connection ends.
    #[cold]
    fn refuse_frame(&mut self, request: &Request<'_>, status: Status) {
        self.fail(request, status);
        self.stages.note_malformed();
        self.closing = status == Status::InvalidArguments;
    }

    /// Ends a connection whose frames cannot be told apart.
    #[cold]
    pub fn broken(&mut self, opaque: u32, opcode: u8) {
        let request = Request { opcode, opaque, version: 0, extras: b"", key: b"", value: b"" };
        self.fail(&request, Status::UnknownCommand);
        self.closing = true;
    }

    #[inline]
    fn get_frame(
        &mut self,
        request: &Request<'_>,
        key: Key<'_>,
        with_key: bool,
        touch: Option<u32>,
    ) {
        let mut db = self.guard.db(self.stages.db, key.hash(), self.stages.now_ms);
        let expired_before = db.expired_so_far();
        let item = match db.item(key, VersionFor::Anybody) {
            Ok(Some(item)) => item,
            Ok(None) => {
                let expired = db.expired_so_far() != expired_before;
                self.note(key, Use::Get { hit: false });
                if touch.is_some() {
                    self.count_touch(false);
                } else {
                    self.count_gets(0, 1);
                }
                if expired {
                    self.counters.add(Count::GetExpired, 1);
                }
                return self.miss(request, with_key);
            }
            Err(error) => return self.fail_with(request, error.into()),
        };
        let key_bytes = if with_key { key.bytes() } else { b"" };
        let buffer = self.output.buffer();
        let head = reply(request, Status::Ok, item.version);
        head.header(4, key_bytes.len(), item.value.len(), buffer);
        buffer.extend_from_slice(&item.flags.to_be_bytes());
        buffer.extend_from_slice(key_bytes);
        write_value(item.value, self.output);
        if let Some(expiry) = touch {
            expiry::touch(&mut db, key, from_frame(expiry));
            self.count_touch(true);
        } else {
            self.count_gets(1, 0);
        }
        self.note(key, Use::Get { hit: true });
    }

    /// Replies to a read that found nothing, with its key if requested.
    fn miss(&mut self, request: &Request<'_>, with_key: bool) {
        if request.loudness() == Loudness::Quiet {
            return;
        }
        if with_key {
            let head = reply(request, Status::NotFound, 0);
            head.write(b"", request.key, b"", self.output.buffer());
        } else {
            self.fail(request, Status::NotFound);
        }
    }

    fn touch_frame(&mut self, request: &Request<'_>, key: Key<'_>, expiry: u32) {
        let mut db = self.open(key);
        let version = db.version(key, VersionFor::Anybody);
        let flags = db.peek(key).map_or(0, tierce_keyspace::Entry::flags);
        let found = self.touch(key, from_frame(expiry));
        self.note(key, Use::Get { hit: found });
        if !found {
            return self.fail(request, Status::NotFound);
        }
        let head = reply(request, Status::Ok, version);
        head.write(&flags.to_be_bytes(), b"", b"", self.output.buffer());
    }

    #[inline]
    fn store_frame(
        &mut self,
        request: &Request<'_>,
        key: Key<'_>,
        mode: Mode,
        flags: u32,
        expiry: u32,
    ) {
        self.note(key, Use::Set);
        let condition = match (mode, wanted(request)) {
            (_, Some(version)) => Condition::Version(version),
            (Mode::Add, None) => Condition::Absent,
            (Mode::Replace, None) => Condition::Present,
            _ => Condition::Always,
        };
        let exptime = from_frame(expiry);
        let stored = self.store(&Store { key, value: request.value, flags, exptime, condition });
        self.tell_stored_frame(request, key, stored, Status::NotFound);
    }

    fn extend_frame(&mut self, request: &Request<'_>, key: Key<'_>, mode: Mode) {
        self.note(key, Use::Set);
        let end = if mode == Mode::Append { End::Back } else { End::Front };
        let stored = self.extend(key, request.value, end, wanted(request));
        self.tell_stored_frame(request, key, stored, Status::NotStored);
    }

    /// Replies with the outcome of a store, with the version of the new value.
    #[inline(always)]
    fn tell_stored_frame(
        &mut self,
        request: &Request<'_>,
        key: Key<'_>,
        stored: Result<Stored, Refusal>,
        absent: Status,
    ) {
        match stored {
            // A request without a reply needs no version.
            Ok(Stored::Done) if request.loudness() == Loudness::Quiet => {}
            Ok(Stored::Done) => {
                let version = self.open(key).version_of_store(key);
                self.done(request, version);
            }
            _ => self.tell(request, stored, absent),
        }
    }

    fn adjust_frame(
        &mut self,
        request: &Request<'_>,
        key: Key<'_>,
        up: bool,
        delta: u64,
        initial: u64,
        expiry: u32,
    ) {
        let value = match self.adjust(key, up, delta, wanted(request)) {
            Ok(Adjusted::To(value)) => value,
            Ok(Adjusted::Absent) if expiry == DO_NOT_CREATE => {
                self.count_adjust_miss(up);
                return self.fail(request, Status::NotFound);
            }
            Ok(Adjusted::Absent) => {
                match self.create(key, initial.to_string().as_bytes(), from_frame(expiry)) {
                    Ok(_) => initial,
                    Err(refusal) => return self.fail_with(request, refusal),
                }
            }
            Ok(Adjusted::OtherVersion) => return self.fail(request, Status::Exists),
            Ok(Adjusted::NotANumber) => {
                self.stages.note_error(Outcome::Failed, "CLIENT_ERROR");
                return self.fail(request, Status::NotANumber);
            }
            Err(refusal) => return self.fail_with(request, refusal),
        };
        if request.loudness() == Loudness::Loud {
            let version = self.open(key).version_of_store(key);
            let head = reply(request, Status::Ok, version);
            head.write(b"", b"", &value.to_be_bytes(), self.output.buffer());
        }
    }

    fn stat_frames(&mut self, request: &Request<'_>) {
        let head = reply(request, Status::Ok, 0);
        match report(self, request.key) {
            Report::Figures(figures) => {
                for (name, value) in figures {
                    let buffer = self.output.buffer();
                    head.write(b"", name.as_bytes(), value.as_bytes(), buffer);
                }
            }
            Report::Dump(text) if request.key.starts_with(b"detail") => {
                head.write(b"", b"detailed", &text, self.output.buffer());
            }
            Report::Done(_) => {}
            Report::Dump(_) | Report::Refused(_) | Report::Unknown => {
                return self.fail(request, Status::NotFound);
            }
        }
        // An empty one ends the list.
        self.done(request, 0);
    }

    /// Replies with the outcome of a store or delete.
    fn tell(&mut self, request: &Request<'_>, stored: Result<Stored, Refusal>, absent: Status) {
        match stored {
            Ok(Stored::Done) => self.done(request, 0),
            Ok(Stored::Absent) => self.fail(request, absent),
            Ok(Stored::Present | Stored::OtherVersion) => self.fail(request, Status::Exists),
            Err(refusal) => self.fail_with(request, refusal),
        }
    }

    #[inline]
    fn done(&mut self, request: &Request<'_>, version: u64) {
        if request.loudness() == Loudness::Loud {
            reply(request, Status::Ok, version).header(0, 0, 0, self.output.buffer());
        }
    }

    fn done_with(&mut self, request: &Request<'_>, value: &[u8]) {
        reply(request, Status::Ok, 0).write(b"", b"", value, self.output.buffer());
    }

    #[cold]
    fn fail(&mut self, request: &Request<'_>, status: Status) {
        if status == Status::NotFound
            && request.loudness() == Loudness::Quiet
            && misses_quietly(request)
        {
            return;
        }
        let head = reply(request, status, 0);
        head.write(b"", b"", status.text().as_bytes(), self.output.buffer());
    }

    #[cold]
    fn fail_with(&mut self, request: &Request<'_>, refusal: Refusal) {
        self.note_refusal(refusal);
        let (status, text) = match refusal {
            Refusal::Data(Error::ValueTooLong { .. }) => {
                return self.fail(request, Status::TooLarge);
            }
            Refusal::Data(Error::WrongType) => (Status::NotSupported, WRONG_TYPE),
            Refusal::Data(_) => return self.fail(request, Status::Internal),
            Refusal::Server(Fault::OutOfMemory) => return self.fail(request, Status::OutOfMemory),
            Refusal::Server(Fault::NoPermission) => return self.fail(request, Status::AuthError),
            Refusal::Server(fault) => (Status::Temporary, refusal_text(fault)),
        };
        reply(request, status, 0).write(b"", b"", text.as_bytes(), self.output.buffer());
    }
}

/// Returns true if a quiet request does not report a missing key: reads do not.
fn misses_quietly(request: &Request<'_>) -> bool {
    matches!(request.operation(), Ok(Operation::Get { .. }))
}

/// Returns true for requests that are allowed before authentication.
fn is_open_to_all(operation: &Operation<'_>) -> bool {
    use Operation::{Noop, Quit, SaslAuth, SaslList, SaslStep, Version};
    matches!(operation, Noop | Quit | SaslAuth { .. } | SaslList | SaslStep | Version)
}

/// Returns a request's access to the data; `None` if it touches no data.
pub fn access_of(request: &Request<'_>) -> Option<Access> {
    use Operation as Op;
    Some(match request.operation().ok()? {
        Op::Get { touch: None, .. } => Access::READ,
        Op::Get { touch: Some(_), .. } | Op::Touch { .. } => Access::CHANGE,
        Op::Store { .. } | Op::Extend { .. } | Op::Adjust { .. } => Access::ADD,
        Op::Delete | Op::Flush { .. } => Access::CHANGE,
        Op::Noop
        | Op::Version
        | Op::Stat
        | Op::Quit
        | Op::SaslList
        | Op::SaslAuth { .. }
        | Op::SaslStep => return None,
    })
}

/// Returns the access of a request whose value is too large: one that would have replaced a value removes it.
pub fn access_of_too_large(request: &Request<'_>) -> Option<Access> {
    let replaces = matches!(request.operation(), Ok(Operation::Store { mode: Mode::Set, .. }));
    replaces.then_some(Access::CHANGE)
}
