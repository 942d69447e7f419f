//! The classic text commands.

use tierce_keyspace::{Condition, End, Error, Key, Stored, VersionFor};
use tierce_wire::memcached::meta::Verb;
use tierce_wire::memcached::text::{self, Command, Mode, Refused, Reply};

use super::auth::Credentials;
use super::counters::Count;
use super::prefixes::Use;
use super::run::{Refusal, Run, Store};
use super::stats::{Report, report};
use super::{
    BUSY, LOADING, MEMCACHED_VERSION, NO_PERMISSION, NOT_LOGGED, NOT_SAVED, PRIMARY_IS_DOWN,
    READ_ONLY, TOO_FEW_REPLICAS, WRONG_TYPE, expiry,
};
use crate::command::Access;
use crate::fault::Fault;
use crate::front_ends::{Outcome, write_value};

const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";

impl Run<'_, '_> {
    /// Runs a command with these keys.
    #[inline]
    pub fn command(&mut self, command: &Command<'_>, keys: &[Key<'_>]) {
        if !self.may() {
            return self.unauthenticated(command);
        }
        if let Some(fault) = self.stages.fault.filter(Fault::is_for_all) {
            return self.refused(command.reply(), Refusal::Server(fault));
        }
        match *command {
            Command::Get { with_version, touch, .. } => self.get(keys, with_version, touch),
            Command::Store(ref store) => self.store_text(store, keys[0]),
            Command::Meta(ref request) => self.meta(request, keys.first().copied()),
            Command::Delete { reply, .. } => {
                self.note(keys[0], Use::Delete);
                let deleted = self.delete(keys[0], None) == Stored::Done;
                self.line(reply, if deleted { "DELETED" } else { "NOT_FOUND" });
            }
            Command::Adjust { up, delta, reply, .. } => self.adjust_text(keys[0], up, delta, reply),
            Command::Touch { exptime, reply, .. } => {
                let touched = self.touch(keys[0], exptime);
                self.line(reply, if touched { "TOUCHED" } else { "NOT_FOUND" });
            }
            Command::FlushAll { reply, .. } if !self.may_flush() => {
                self.line(reply, "CLIENT_ERROR flush_all not allowed");
            }
            Command::FlushAll { delay, reply } => {
                if self.flush(delay) {
                    self.line(reply, "OK");
                }
            }
            Command::Verbosity { reply } => self.line(reply, "OK"),
            Command::Version => {
                self.write("VERSION ");
                self.line(Reply::Wanted, MEMCACHED_VERSION);
            }
            Command::MetaNoop => self.line(Reply::Wanted, "MN"),
            Command::Stats { what } => self.stats(what),
            Command::Admin { name, rest, reply } => self.admin(name, rest, reply),
            Command::Quit => self.closing = true,
        }
    }

    /// Replies to input that is no command.
    #[cold]
    pub fn refuse(&mut self, refused: &Refused<'_>) {
        if refused.line == text::TOO_LARGE || refused.fatal == Some(text::ENDLESS_LINE) {
            self.stages.note_too_large();
        }
        if let Some(why) = refused.fatal {
            let addr = &self.session.client.addr;
            self.server
                .log
                .warning(format_args!("Closed {addr}: {why} on the port for clients of memcached"));
            self.closing = true;
            return;
        }
        if !self.session.authenticated {
            return self.line(Reply::Wanted, UNAUTHENTICATED);
        }
        if let Some(key) = refused.outdated {
            if let Some(fault) = self.stages.fault {
                return self.refused(refused.reply, Refusal::Server(fault));
            }
            self.drop_outdated(key);
        }
        if refused.line == text::BAD_CHUNK {
            self.counters.add(Count::Set, 1);
            self.counters.add(Count::Unstored, 1);
        }
        self.line(refused.reply, refused.line);
    }

    #[inline]
    fn get(&mut self, keys: &[Key<'_>], with_version: bool, touch: Option<i64>) {
        let wanted = if with_version { VersionFor::Comparison } else { VersionFor::None };
        let start = self.output.mark();
        let (mut hits, mut expired) = (0, 0);
        for (number, &key) in keys.iter().enumerate() {
            // The shard of the first one is locked.
            if number > 0
                && let Err(busy) = self.guard.reach(key.hash())
            {
                self.output.truncate(start);
                self.busy = Some(busy);
                return;
            }
            let mut db = self.guard.db(self.stages.db, key.hash(), self.stages.now_ms);
            let expired_before = db.expired_so_far();
            let item = match db.item(key, wanted) {
                Ok(Some(item)) => item,
                Ok(None) => {
                    expired += u64::from(db.expired_so_far() != expired_before);
                    self.note(key, Use::Get { hit: false });
                    continue;
                }
                Err(error) => {
                    self.output.truncate(start);
                    return self.refused(Reply::Wanted, Refusal::Data(error));
                }
            };
            hits += 1;
            let version = with_version.then_some(item.version);
            let len = item.value.len();
            text::value_head(key.bytes(), item.flags, len, version, self.output.buffer());
            write_value(item.value, self.output);
            self.output.buffer().extend_from_slice(b"\r\n");
            if let Some(exptime) = touch {
                expiry::touch(&mut db, key, exptime);
            }
            self.note(key, Use::Get { hit: true });
            if !self.output.cut_if_long() || self.output.is_condemned() {
                // The rest is dropped.
                return;
            }
        }
        let misses = keys.len() as u64 - hits;
        if touch.is_some() {
            self.counters.add(Count::Touch, hits + misses);
            self.counters.add(Count::TouchHits, hits);
            self.counters.add(Count::TouchMisses, misses);
        } else {
            self.count_gets(hits, misses);
        }
        if expired > 0 {
            self.counters.add(Count::GetExpired, expired);
        }
        self.output.buffer().extend_from_slice(b"END\r\n");
    }

    #[inline]
    fn store_text(&mut self, store: &text::Store<'_>, key: Key<'_>) {
        self.note(key, Use::Set);
        let condition = match store.mode {
            Mode::Set => Condition::Always,
            Mode::Add => Condition::Absent,
            Mode::Replace => Condition::Present,
            Mode::Cas(version) => Condition::Version(version),
            Mode::Append => return self.extend_text(store, key, End::Back),
            Mode::Prepend => return self.extend_text(store, key, End::Front),
        };
        let text::Store { flags, exptime, data: value, reply, .. } = *store;
        let stored = self.store(&Store { key, value, flags, exptime, condition });
        self.tell_stored(stored, condition, reply);
    }

    fn extend_text(&mut self, store: &text::Store<'_>, key: Key<'_>, end: End) {
        let stored = self.extend(key, store.data, end, None);
        self.tell_stored(stored, Condition::Present, store.reply);
    }

    fn tell_stored(&mut self, stored: Result<Stored, Refusal>, condition: Condition, reply: Reply) {
        let line = match stored {
            Ok(Stored::Done) => "STORED",
            Ok(Stored::OtherVersion) => "EXISTS",
            Ok(Stored::Absent) if matches!(condition, Condition::Version(_)) => "NOT_FOUND",
            Ok(Stored::Absent | Stored::Present) => "NOT_STORED",
            Err(refusal) => return self.refused(reply, refusal),
        };
        self.line(reply, line);
    }

    fn adjust_text(&mut self, key: Key<'_>, up: bool, delta: u64, reply: Reply) {
        use tierce_keyspace::Adjusted;
        match self.adjust(key, up, delta, None) {
            Ok(Adjusted::To(value)) => {
                if reply == Reply::Wanted {
                    text::number(value, self.output.buffer());
                    self.write("\r\n");
                }
            }
            Ok(Adjusted::Absent) => {
                self.count_adjust_miss(up);
                self.line(reply, "NOT_FOUND");
            }
            Ok(Adjusted::NotANumber | Adjusted::OtherVersion) => self.not_a_number(reply),
            Err(refusal) => self.refused(reply, refusal),
        }
    }

    fn stats(&mut self, what: &[u8]) {
        match report(self, what) {
            Report::Figures(figures) => {
                for (name, value) in figures {
                    self.write("STAT ");
                    self.write(&name);
                    self.write(" ");
                    self.line(Reply::Wanted, &value);
                }
                self.line(Reply::Wanted, "END");
            }
            Report::Dump(text) => self.output.buffer().extend_from_slice(&text),
            Report::Done(line) | Report::Refused(line) => self.line(Reply::Wanted, line),
            Report::Unknown => self.line(Reply::Wanted, "ERROR"),
        }
    }

    /// Before authentication, accepts only a `set` with the password, whatever its key: `user password`.
    #[cold]
    fn unauthenticated(&mut self, command: &Command<'_>) {
        match command {
            Command::Store(store) if store.mode == Mode::Set => {
                let line = match Credentials::of_words(store.data) {
                    Some(credentials) if self.authenticate(Some(credentials), "set") => "STORED",
                    Some(_) => "CLIENT_ERROR authentication failure",
                    None => "CLIENT_ERROR bad authentication token format",
                };
                self.line(Reply::Wanted, line);
            }
            _ => self.line(Reply::Wanted, UNAUTHENTICATED),
        }
    }

    /// Authenticates the client with these credentials, which came with the command `called`. Returns true on success.
    pub fn authenticate(&mut self, credentials: Option<Credentials<'_>>, called: &str) -> bool {
        self.counters.add(Count::AuthCmds, 1);
        let (client, now_ms) = (&self.session.client, self.stages.now_ms);
        let rights = credentials.and_then(|said| said.check(self.server, client, called, now_ms));
        let is_granted = rights.is_some();
        match rights {
            Some(rights) => self.session.become_user(rights),
            None => self.counters.add(Count::AuthErrors, 1),
        }
        is_granted
    }

    /// Replies that the value to increment or decrement is no number.
    #[cold]
    pub fn not_a_number(&mut self, reply: Reply) {
        self.stages.note_error(Outcome::Failed, "CLIENT_ERROR");
        self.line(reply, "CLIENT_ERROR cannot increment or decrement non-numeric value");
    }

    /// Replies with the reason why a request is refused.
    #[cold]
    pub fn refused(&mut self, reply: Reply, refusal: Refusal) {
        let reason = match refusal {
            Refusal::Data(Error::WrongType) => WRONG_TYPE,
            Refusal::Data(Error::ValueTooLong { .. }) => "object too large for cache",
            Refusal::Data(error) => &error.to_string(),
            Refusal::Server(fault) => refusal_text(fault),
        };
        self.note_refusal(refusal);
        if reply == Reply::Wanted {
            self.write("SERVER_ERROR ");
            self.line(reply, reason);
        }
    }

    #[inline]
    pub fn write(&mut self, text: &str) {
        self.output.buffer().extend_from_slice(text.as_bytes());
    }

    /// Replies with a line, unless the client wants none.
    #[inline]
    pub fn line(&mut self, reply: Reply, line: &str) {
        if reply == Reply::Wanted {
            let buffer = self.output.buffer();
            buffer.extend_from_slice(line.as_bytes());
            buffer.extend_from_slice(b"\r\n");
        }
    }
}

/// Returns a command's access to the data; `None` if it touches no data.
pub fn access_of(command: &Command<'_>) -> Option<Access> {
    use Command as C;
    Some(match command {
        C::Get { touch: None, .. } => Access::READ,
        C::Get { touch: Some(_), .. } => Access::CHANGE,
        C::Meta(request) => match request.verb {
            Verb::Get if request.options.vivify.is_some() => Access::ADD,
            Verb::Get if request.options.ttl.is_some() => Access::CHANGE,
            Verb::Get | Verb::Debug => Access::READ,
            Verb::Set(_) | Verb::Arithmetic => Access::ADD,
            Verb::Delete => Access::CHANGE,
        },
        C::Store(_) | C::Adjust { .. } => Access::ADD,
        C::Delete { .. } | C::Touch { .. } | C::FlushAll { .. } => Access::CHANGE,
        C::Admin { .. }
        | C::MetaNoop
        | C::Version
        | C::Verbosity { .. }
        | C::Stats { .. }
        | C::Quit => return None,
    })
}

/// Returns the server's error text for this reason to refuse a request.
pub fn refusal_text(fault: Fault) -> &'static str {
    match fault {
        Fault::OutOfMemory => "out of memory storing object",
        Fault::NotLogged => NOT_LOGGED,
        Fault::NotSaved => NOT_SAVED,
        Fault::NoPermission => NO_PERMISSION,
        Fault::ReadOnly => READ_ONLY,
        Fault::Stale => PRIMARY_IS_DOWN,
        Fault::Loading => LOADING,
        Fault::TooFewReplicas => TOO_FEW_REPLICAS,
        Fault::Busy => BUSY,
    }
}
