//! The classic text commands.

use tierce_keyspace::{Condition, End, Error, Key, Stored, VersionFor};
use tierce_wire::memcached::meta::Verb;
use tierce_wire::memcached::text::{self, Command, Mode, Refused, Reply};

use super::counters::Count;
use super::run::{Refusal, Run, Store};
use super::{MEMCACHED_VERSION, NOT_LOGGED, WRONG_TYPE, auth, expiry, stats};
use crate::foreign::write_value;

impl Run<'_, '_> {
    /// Runs a command, whose keys these are.
    #[inline]
    pub fn command(&mut self, command: &Command<'_>, keys: &[Key<'_>]) {
        if !self.may() {
            return self.unauthenticated(command);
        }
        if self.refuses_writes && is_write(command) {
            return self.refused(Refusal::NotLogged);
        }
        match *command {
            Command::Get { with_version, touch, .. } => self.get(keys, with_version, touch),
            Command::Store(ref store) => self.store_text(store, keys[0]),
            Command::Meta(ref request) => self.meta(request, keys.first().copied()),
            Command::Delete { reply, .. } => {
                let deleted = self.delete(keys[0], None) == Stored::Done;
                self.line(reply, if deleted { "DELETED" } else { "NOT_FOUND" });
            }
            Command::Adjust { up, delta, reply, .. } => self.adjust_text(keys[0], up, delta, reply),
            Command::Touch { exptime, reply, .. } => {
                let touched = self.touch(keys[0], exptime);
                self.line(reply, if touched { "TOUCHED" } else { "NOT_FOUND" });
            }
            Command::FlushAll { delay, reply } => {
                self.flush(delay);
                self.line(reply, "OK");
            }
            Command::Verbosity { reply } => self.line(reply, "OK"),
            Command::Version => {
                self.write("VERSION ");
                self.line(Reply::Wanted, MEMCACHED_VERSION);
            }
            Command::MetaNoop => self.line(Reply::Wanted, "MN"),
            Command::Stats { what } => self.stats(what),
            Command::Quit => self.closing = true,
        }
    }

    /// Answers something that is no command.
    #[cold]
    pub fn refuse(&mut self, refused: &Refused<'_>) {
        if let Some(key) = refused.outdated.filter(|_| self.session.authenticated) {
            self.drop_outdated(key);
        }
        self.closing = refused.fatal;
        self.line(refused.reply, refused.line);
    }

    #[inline]
    fn get(&mut self, keys: &[Key<'_>], with_version: bool, touch: Option<i64>) {
        let wanted = if with_version { VersionFor::Comparison } else { VersionFor::Nobody };
        let start = self.output.mark();
        let mut hits = 0;
        for &key in keys {
            let mut db = self.locker.db(self.db, key.hash(), self.now_ms);
            let item = match db.item(key, wanted) {
                Ok(Some(item)) => item,
                Ok(None) => continue,
                Err(error) => {
                    self.output.truncate(start);
                    return self.refused(Refusal::Data(error));
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
        }
        let misses = keys.len() as u64 - hits;
        self.count_gets(hits, misses);
        if touch.is_some() {
            self.counters.add(Count::Touch, hits + misses);
            self.counters.add(Count::TouchHits, hits);
            self.counters.add(Count::TouchMisses, misses);
        }
        self.output.buffer().extend_from_slice(b"END\r\n");
    }

    #[inline]
    fn store_text(&mut self, store: &text::Store<'_>, key: Key<'_>) {
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
            Err(refusal) => return self.refused(refusal),
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
            Ok(Adjusted::Absent) => self.line(reply, "NOT_FOUND"),
            Ok(Adjusted::NotANumber | Adjusted::OtherVersion) => {
                let line = "CLIENT_ERROR cannot increment or decrement non-numeric value";
                self.line(reply, line);
            }
            Err(refusal) => self.refused(refusal),
        }
    }

    fn stats(&mut self, what: &[u8]) {
        match stats::report(self.server, what) {
            stats::Report::Figures(figures) => {
                for (name, value) in figures {
                    self.write("STAT ");
                    self.write(&name);
                    self.write(" ");
                    self.line(Reply::Wanted, &value);
                }
                self.line(Reply::Wanted, "END");
            }
            stats::Report::Reset => {
                self.server.reset_stats();
                self.line(Reply::Wanted, "RESET");
            }
            stats::Report::Unknown => self.line(Reply::Wanted, "ERROR"),
        }
    }

    /// Without a password only a `set` that brings it is accepted, whatever its key: `user password`.
    #[cold]
    fn unauthenticated(&mut self, command: &Command<'_>) {
        match command {
            Command::Store(store) if store.mode == Mode::Set => {
                let granted = auth::check_words(self.server, store.data);
                self.note_authentication(granted);
                self.line(
                    Reply::Wanted,
                    if granted { "STORED" } else { "CLIENT_ERROR authentication failure" },
                );
            }
            Command::Quit => self.closing = true,
            _ => self.line(Reply::Wanted, "CLIENT_ERROR unauthenticated"),
        }
    }

    /// Takes note of how an authentication ended.
    pub fn note_authentication(&mut self, granted: bool) {
        self.counters.add(Count::AuthCmds, 1);
        if granted {
            self.session.authenticated = true;
        } else {
            self.counters.add(Count::AuthErrors, 1);
        }
    }

    /// Tells why a request is refused.
    #[cold]
    pub fn refused(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Data(Error::WrongType) => self.server_error(WRONG_TYPE),
            Refusal::Data(Error::ValueTooLong { .. }) => {
                self.server_error("object too large for cache");
            }
            Refusal::Data(error) => self.server_error(&error.to_string()),
            Refusal::OutOfMemory => self.server_error("out of memory storing object"),
            Refusal::NotLogged => self.server_error(NOT_LOGGED),
        }
    }

    #[cold]
    fn server_error(&mut self, reason: &str) {
        self.server.errors.count("SERVER_ERROR");
        self.write("SERVER_ERROR ");
        self.line(Reply::Wanted, reason);
    }

    #[inline]
    pub fn write(&mut self, text: &str) {
        self.output.buffer().extend_from_slice(text.as_bytes());
    }

    /// Replies with a line, unless the client does not want it.
    #[inline]
    pub fn line(&mut self, reply: Reply, line: &str) {
        if reply == Reply::Wanted {
            let buffer = self.output.buffer();
            buffer.extend_from_slice(line.as_bytes());
            buffer.extend_from_slice(b"\r\n");
        }
    }
}

/// Whether a command may change data.
fn is_write(command: &Command<'_>) -> bool {
    use Command as C;
    match command {
        C::Get { touch, .. } => touch.is_some(),
        C::Meta(request) => match request.verb {
            Verb::Get => request.options.ttl.is_some() || request.options.vivify.is_some(),
            Verb::Debug => false,
            Verb::Set(_) | Verb::Delete | Verb::Arithmetic => true,
        },
        C::Store(_)
        | C::Delete { .. }
        | C::Adjust { .. }
        | C::Touch { .. }
        | C::FlushAll { .. } => true,
        C::MetaNoop | C::Version | C::Verbosity { .. } | C::Stats { .. } | C::Quit => false,
    }
}
