//! The meta commands.
//!
//! They avoid a thundering herd of readers: an item that is stale (`md` with `I`), about to expire (`mg` with `R`) or
//! was missing and created empty (`mg` with `N`) tells one reader that it has won (W) and may store the new value. It
//! tells all others that another one has won (Z), until the item is stored again.

use std::num::NonZeroU64;

use tierce_keyspace::{
    Adjusted, Condition, Db, End, Event, Expiry, Item, Key, Marks, NewString, Stored, Touch,
    VersionFor,
};
use tierce_wire::memcached::KEY_LEN_MAX;
use tierce_wire::memcached::meta::{Options, Request, Verb};
use tierce_wire::memcached::text::{self, Reply};

use super::counters::Count;
use super::expiry::{self, seconds_left};
use super::run::{Refusal, Run, Store};
use super::stats::SLAB_CLASS;
use crate::command::Access;
use crate::commands::replica_level::ReplicaLevel;
use crate::front_ends::write_value;

/// Facts that the flags of a reply may ask for.
#[derive(Default)]
struct Told {
    size: usize,
    flags: u32,
    version: u64,
    deadline_ms: Option<i64>,
    idle_seconds: u32,
    fetched: bool,
}

fn version_for(options: &Options) -> VersionFor {
    let is_used = options.version || options.compare.is_some();
    if is_used { VersionFor::Comparison } else { VersionFor::None }
}

impl Run<'_, '_> {
    /// Runs a meta command; `key` is absent if it has to be decoded first.
    #[inline]
    pub fn meta(&mut self, request: &Request<'_>, key: Option<Key<'_>>) {
        // Few commands need it, and zeroing it takes time.
        let mut room;
        let key = match key {
            Some(key) => key,
            None => {
                room = [0; KEY_LEN_MAX];
                self.server.keyspace.key(request.key(&mut room))
            }
        };
        match request.verb {
            Verb::Get => self.meta_get(request, key),
            Verb::Set(value) => self.meta_set(request, key, value),
            Verb::Delete => self.meta_delete(request, key),
            Verb::Arithmetic => self.meta_arithmetic(request, key),
            Verb::Debug => self.meta_debug(request, key),
        }
    }

    fn meta_get(&mut self, request: &Request<'_>, key: Key<'_>) {
        let options = &request.options;
        if options.no_touch {
            self.guard.set_touch(Touch::No);
        }
        let found = self.meta_read(request, key, Created::No);
        let found = found || options.vivify.is_some() && self.vivify(request, key);
        if options.no_touch {
            self.guard.set_touch(Touch::Yes);
        }
        if found && options.ttl.is_some() {
            self.count_touch(true);
        } else {
            self.count_gets(u64::from(found), u64::from(!found));
        }
        if !found && !options.quiet {
            self.status("EN", request);
        }
    }

    /// Creates an empty item for the reader that found none, and tells the reader that it has won.
    fn vivify(&mut self, request: &Request<'_>, key: Key<'_>) -> bool {
        // Its time to live is set when the flags are processed.
        if let Err(refusal) = self.create(key, b"", 0) {
            self.refused(Reply::Wanted, refusal);
            return true;
        }
        if let Some(given) = request.options.given {
            self.open(key).set_version(key, given);
        }
        self.meta_read(request, key, Created::Yes)
    }

    /// Replies with an item, if there is one.
    #[inline]
    fn meta_read(&mut self, request: &Request<'_>, key: Key<'_>, created: Created) -> bool {
        let options = &request.options;
        let now_ms = self.stages.now_ms;
        let mut db = self.guard.db(self.stages.db, key.hash(), now_ms);
        let item = match db.item(key, version_for(options)) {
            Ok(Some(item)) => item,
            Ok(None) => return false,
            Err(error) => {
                self.refused(Reply::Wanted, error.into());
                return true;
            }
        };
        let marks = item.marks;
        let mut told = Told::of(&item);
        // A reader that has this version needs no value.
        let sends_value = options.value && options.compare != Some(item.version);
        let buffer = self.output.buffer();
        if sends_value {
            buffer.extend_from_slice(b"VA ");
            text::number(told.size as u64, buffer);
        } else {
            buffer.extend_from_slice(b"HD");
        }
        let due = |deadline_ms: Option<i64>, within: i64| match expiry::expiry(within, now_ms) {
            Expiry::At(limit_ms) => deadline_ms.is_some_and(|at_ms| at_ms < limit_ms),
            _ => false,
        };
        let mut won = created == Created::Yes;
        for (letter, token) in request.flags() {
            match letter {
                b'T' | b'N' => {
                    told.deadline_ms = told.deadline_after(letter, options, created, now_ms);
                }
                b'R' if created == Created::No && !marks.won => {
                    won |= due(told.deadline_ms, options.recache.unwrap_or(0));
                }
                // The most frequent flag: the value follows the line.
                b'v' => {}
                _ => write_flag(letter, token, request, &told, now_ms, buffer),
            }
        }
        if marks.won {
            buffer.extend_from_slice(b" Z");
        }
        if marks.stale {
            buffer.extend_from_slice(b" X");
            won |= !marks.won;
        }
        // A win is a write, which is logged and sent to replicas. So no win is given while writes are not admitted, or
        // while there would be no room for the new value.
        let kernel = self.stages.kernel;
        let is_closed = || {
            kernel.has_closed(Access::CHANGE, ReplicaLevel::of_server(kernel))
                || kernel.cannot_fit(0)
        };
        if won && created == Created::No && is_closed() {
            won = false;
        }
        if won {
            buffer.extend_from_slice(b" W");
        }
        buffer.extend_from_slice(b"\r\n");
        if sends_value {
            write_value(item.value, self.output);
            self.output.buffer().extend_from_slice(b"\r\n");
        }
        let fetched = marks.fetched || options.hit && !options.no_touch;
        if won || fetched != marks.fetched {
            db.mark(key, |marks| (marks.won, marks.fetched) = (marks.won | won, fetched));
        }
        if options.ttl.is_some() || created == Created::Yes {
            set_deadline(&mut db, key, told.deadline_ms);
        }
        true
    }

    fn meta_set(&mut self, request: &Request<'_>, key: Key<'_>, value: &[u8]) {
        let options = &request.options;
        let compare = options.compare;
        let condition = match (options.mode, compare) {
            (b'E', _) => Condition::Absent,
            (b'A' | b'P', _) => Condition::Present,
            (_, Some(version)) => Condition::Version(version),
            (b'R', None) => Condition::Present,
            _ => Condition::Always,
        };
        let end = match options.mode {
            b'A' => Some(End::Back),
            b'P' => Some(End::Front),
            _ => None,
        };
        let (flags, exptime) = (options.client_flags, options.ttl.unwrap_or(0));
        let store = Store { key, value, flags, exptime, condition };
        let stored = match end {
            // Here 0 is no version.
            Some(end) => self.extend_or_vivify(&store, end, options),
            None => self.store(&store),
        };
        let status = match stored {
            Ok(Stored::Done) => "HD",
            Ok(Stored::OtherVersion) if options.invalidate && self.store_stale(&store) => "HD",
            Ok(Stored::OtherVersion) => "EX",
            Ok(Stored::Absent) if matches!(condition, Condition::Version(_)) => "NF",
            Ok(Stored::Absent | Stored::Present) => "NS",
            Err(refusal) => return self.refused(Reply::Wanted, refusal),
        };
        if let (Some(given), "HD") = (options.given, status) {
            self.open(key).set_version(key, given);
        }
        if options.quiet && status == "HD" {
            return;
        }
        let version = match (options.version, status) {
            (true, "HD") => self.open(key).version(key, VersionFor::Comparison),
            _ => 0,
        };
        self.write(status);
        let has_size = status == "HD" && request.flags().any(|(letter, _)| letter == b's');
        let size = has_size.then(|| self.open(key).summary(key, VersionFor::None)).flatten();
        let size = size.map_or(value.len(), |stored| stored.len);
        for (letter, token) in request.flags() {
            if b"Okcs".contains(&letter) {
                let told = Told { version, size, ..Told::default() };
                write_flag(letter, token, request, &told, self.stages.now_ms, self.output.buffer());
            }
        }
        self.write("\r\n");
    }

    /// Extends a value. With the flag `N`, a missing one is created, with the time to live of that flag.
    fn extend_or_vivify(
        &mut self,
        store: &Store<'_>,
        end: End,
        options: &Options,
    ) -> Result<Stored, Refusal> {
        // Here 0 is no version.
        let compare = options.compare.filter(|&version| version != 0);
        let stored = self.extend(store.key, store.value, end, compare);
        match (stored, options.vivify) {
            (Ok(Stored::Absent), Some(exptime)) => {
                self.counters.take_back(Count::Unstored);
                self.store(&Store { exptime, condition: Condition::Always, ..*store })
            }
            (stored, _) => stored,
        }
    }

    /// Stores a value whose version is older than that of the present one, marked as stale. Returns false if it is not
    /// older.
    fn store_stale(&mut self, store: &Store<'_>) -> bool {
        let key = store.key;
        let present = self.open(key).version(key, VersionFor::Comparison);
        if !matches!(store.condition, Condition::Version(version) if version < present) {
            return false;
        }
        // Only one client may store a new value.
        let mut won = false;
        self.open(key).mark(key, |marks| won = marks.won);
        // It keeps the expiry time of the present one.
        let (value, flags) = (NewString::new(store.value), store.flags);
        let always = Condition::Always;
        let stored = self.open(key).store(key, value, flags, Expiry::Keep, always).is_ok();
        self.open(key).mark(key, |marks| (marks.stale, marks.won) = (true, won));
        if stored {
            // It was counted as a version mismatch.
            self.counters.take_back(Count::CasBadval);
            self.counters.take_back(Count::Unstored);
            self.counters.add(Count::CasHits, 1);
        }
        stored
    }

    fn meta_delete(&mut self, request: &Request<'_>, key: Key<'_>) {
        let options = &request.options;
        match self.delete_or_keep(key, options) {
            Ok("HD") if options.quiet => {}
            Ok(status) => self.status(status, request),
            Err(refusal) => self.refused(Reply::Wanted, refusal),
        }
    }

    /// Deletes an item, or the parts of it that the flags name.
    fn delete_or_keep(&mut self, key: Key<'_>, options: &Options) -> Result<&'static str, Refusal> {
        let deleted = match (options.remove_value, options.invalidate) {
            (true, _) => self.remove_value(key, options)?,
            (false, true) => return self.invalidate(key, options),
            (false, false) => self.delete(key, options.compare),
        };
        if deleted == Stored::Done && options.invalidate {
            // Its version was compared before the value was removed.
            return self.invalidate(key, &Options { compare: None, ..*options });
        }
        Ok(match deleted {
            Stored::Done => "HD",
            Stored::OtherVersion | Stored::Present => {
                self.counters.add(Count::DeleteMisses, 1);
                "EX"
            }
            Stored::Absent => "NF",
        })
    }

    /// Leaves an empty item with this version, unless the client gives another one.
    fn remove_value(&mut self, key: Key<'_>, options: &Options) -> Result<Stored, Refusal> {
        let version = NonZeroU64::new(self.open(key).version(key, VersionFor::Comparison));
        let condition = options.compare.map_or(Condition::Present, Condition::Version);
        let (flags, exptime) = (options.client_flags, options.ttl.unwrap_or(0));
        let stored = self.put(&Store { key, value: b"", flags, exptime, condition })?;
        if stored == Stored::Done
            && let Some(version) = options.given.or(version)
        {
            self.open(key).set_version(key, version);
        }
        if !(stored == Stored::Done && options.invalidate) {
            self.count_delete(stored);
        }
        Ok(stored)
    }

    fn invalidate(&mut self, key: Key<'_>, options: &Options) -> Result<&'static str, Refusal> {
        let mut db = self.open(key);
        if let Some(version) = options.compare
            && db.peek(key).is_some()
            && db.version(key, VersionFor::Comparison) != version
        {
            return Ok("EX");
        }
        if !db.make_stale(key)? {
            self.counters.add(Count::DeleteMisses, 1);
            return Ok("NF");
        }
        if let Some(given) = options.given {
            db.set_version(key, given);
        }
        if let Some(ttl) = options.ttl {
            expiry::touch(&mut db, key, ttl);
        }
        Ok("HD")
    }

    fn meta_arithmetic(&mut self, request: &Request<'_>, key: Key<'_>) {
        let options = &request.options;
        let up = !matches!(options.mode, b'D' | b'-');
        let mut created = Created::No;
        let compare = options.compare.filter(|&version| version != 0);
        let value = match self.adjust(key, up, options.delta, compare) {
            Ok(Adjusted::To(value)) => value,
            Ok(Adjusted::Absent) => match options.vivify {
                None => {
                    self.count_adjust_miss(up);
                    return self.status("NF", request);
                }
                Some(_) => {
                    created = Created::Yes;
                    match self.create(key, options.initial.to_string().as_bytes(), 0) {
                        Ok(_) => options.initial,
                        Err(refusal) => return self.refused(Reply::Wanted, refusal),
                    }
                }
            },
            Ok(Adjusted::OtherVersion) => return self.status("EX", request),
            Ok(Adjusted::NotANumber) => return self.not_a_number(Reply::Wanted),
            Err(refusal) => return self.refused(Reply::Wanted, refusal),
        };
        let now_ms = self.stages.now_ms;
        let mut db = self.open(key);
        if let Some(given) = options.given {
            db.set_version(key, given);
        }
        let version = match options.version {
            true => db.version(key, VersionFor::Comparison),
            false => 0,
        };
        let before = db.peek(key).and_then(tierce_keyspace::Entry::deadline_ms);
        let mut told = Told { version, deadline_ms: before, ..Told::default() };
        if options.ttl.is_some() || created == Created::Yes {
            let after = told.deadline_after_all(request, created, now_ms);
            set_deadline(&mut db, key, after);
        }
        if options.quiet {
            return;
        }
        let value = value.to_string();
        let buffer = self.output.buffer();
        if options.value {
            buffer.extend_from_slice(b"VA ");
            text::number(value.len() as u64, buffer);
        } else {
            buffer.extend_from_slice(b"HD");
        }
        for (letter, token) in request.flags() {
            match letter {
                b'T' | b'N' => {
                    told.deadline_ms = told.deadline_after(letter, options, created, now_ms);
                }
                b'c' | b't' | b'O' | b'k' => {
                    write_flag(letter, token, request, &told, now_ms, buffer);
                }
                _ => {}
            }
        }
        buffer.extend_from_slice(b"\r\n");
        if options.value {
            buffer.extend_from_slice(value.as_bytes());
            buffer.extend_from_slice(b"\r\n");
        }
    }

    /// Writes debug output for people; the last two figures have no meaning here but must be present.
    fn meta_debug(&mut self, request: &Request<'_>, key: Key<'_>) {
        self.counters.add(Count::Meta, 1);
        let now_ms = self.stages.now_ms;
        let line = match self.open(key).summary(key, VersionFor::Anybody) {
            Some(item) => format!(
                "ME {} exp={} la={} cas={} fetch={} cls={SLAB_CLASS} size={}",
                String::from_utf8_lossy(request.key_text),
                seconds_left(item.deadline_ms, now_ms),
                item.idle_seconds,
                item.version,
                if item.marks.fetched { "yes" } else { "no" },
                item.memory_bytes,
            ),
            None => "EN".to_owned(),
        };
        self.line(Reply::Wanted, &line);
    }

    /// Writes a reply without an item; it still returns key and opaque.
    fn status(&mut self, status: &str, request: &Request<'_>) {
        self.write(status);
        for (letter, token) in request.flags() {
            if matches!(letter, b'O' | b'k') {
                let (told, buffer) = (Told::default(), self.output.buffer());
                write_flag(letter, token, request, &told, 0, buffer);
            }
        }
        self.write("\r\n");
    }
}

/// Tells if the command that replies with an item has created it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Created {
    No,
    Yes,
}

impl Told {
    /// Returns the deadline after a flag that may set one: later flags report the new one.
    fn deadline_after(
        &self,
        letter: u8,
        options: &Options,
        created: Created,
        now_ms: i64,
    ) -> Option<i64> {
        match (letter, created) {
            (b'T', _) => deadline(options.ttl.unwrap_or(0), now_ms),
            (b'N', Created::Yes) => deadline(options.vivify.unwrap_or(0), now_ms),
            _ => self.deadline_ms,
        }
    }

    /// Returns the deadline after all flags.
    fn deadline_after_all(
        &self,
        request: &Request<'_>,
        created: Created,
        now_ms: i64,
    ) -> Option<i64> {
        let mut told = Self { deadline_ms: self.deadline_ms, ..Self::default() };
        for (letter, _) in request.flags() {
            told.deadline_ms = told.deadline_after(letter, &request.options, created, now_ms);
        }
        told.deadline_ms
    }

    #[inline]
    fn of(item: &Item<'_>) -> Self {
        let Marks { fetched, .. } = item.marks;
        Self {
            size: item.value.len(),
            flags: item.flags,
            version: item.version,
            deadline_ms: item.deadline_ms,
            idle_seconds: item.idle_seconds,
            fetched,
        }
    }
}

fn set_deadline(db: &mut Db<'_>, key: Key<'_>, deadline_ms: Option<i64>) {
    match deadline_ms {
        Some(deadline_ms) => {
            let set = db.set_deadline(key, deadline_ms);
            db.event_of_deadline(key, set);
        }
        None if db.clear_deadline(key) => db.event(Event::Persist, key),
        None => {}
    }
}

fn deadline(exptime: i64, now_ms: i64) -> Option<i64> {
    match expiry::expiry(exptime, now_ms) {
        Expiry::At(deadline_ms) => Some(deadline_ms),
        Expiry::Never | Expiry::Keep => None,
    }
}

/// Appends the answer to a flag that asks for something.
#[inline]
fn write_flag(
    letter: u8,
    token: &[u8],
    request: &Request<'_>,
    told: &Told,
    now_ms: i64,
    out: &mut Vec<u8>,
) {
    let number = match letter {
        b'O' => {
            out.extend_from_slice(b" O");
            out.extend_from_slice(token);
            return;
        }
        b'k' => {
            out.extend_from_slice(b" k");
            out.extend_from_slice(request.key_text);
            if request.options.base64 {
                out.extend_from_slice(b" b");
            }
            return;
        }
        b't' if told.deadline_ms.is_none() => {
            out.extend_from_slice(b" t-1");
            return;
        }
        b't' => seconds_left(told.deadline_ms, now_ms).max(0) as u64,
        b's' => told.size as u64,
        b'f' => told.flags.into(),
        b'c' => told.version,
        b'l' => told.idle_seconds.into(),
        b'h' => told.fetched.into(),
        _ => return,
    };
    out.extend_from_slice(&[b' ', letter]);
    text::number(number, out);
}
