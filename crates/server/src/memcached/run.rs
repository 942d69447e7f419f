//! The state for executing requests, and the operations common to all languages.

use tierce_keyspace::{
    Adjust, Adjusted, Busy, Condition, Db, End, Event, Freeing, Key, NewString, Stored, VersionFor,
};
use tierce_output::Output;

use super::Host;
use super::auth::Credentials;
use super::counters::{Count, Counters};
use super::expiry;
use super::prefixes::Use;
use super::session::Session;
use crate::clients::Client;
use crate::fault::Fault;
use crate::front_ends::{Outcome, Stages};
use crate::pipeline::Guard;
use crate::waiting::Waits;

/// Maximum number of requests parsed before the first of them is executed. Enough for the prefetches of a pipeline to
/// overlap, and few enough for the parsed requests to stay in the L1 cache.
pub(super) const REQUESTS_MAX: usize = 64;

/// Executor of the requests of a batch, one after the other.
pub struct Run<'a, 'k> {
    pub server: Host<'k>,
    pub session: &'a mut Session,
    pub guard: Guard<'a, 'k>,
    pub output: &'a mut Output,
    pub counters: &'k Counters,
    /// Stages that requests pass.
    pub stages: Stages<'k>,
    /// True if uses are counted by prefix.
    pub detailed: bool,
    /// Set by a request after which the connection ends.
    pub closing: bool,
    /// Set by a request that could not run, because another thread locks a shard for long.
    pub busy: Option<Busy>,
}

/// Reason why a valid request is refused.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// The data do not allow it.
    Data(tierce_keyspace::Error),
    /// The state of the server does not allow it.
    Server(Fault),
}

impl From<tierce_keyspace::Error> for Refusal {
    fn from(error: tierce_keyspace::Error) -> Self {
        Self::Data(error)
    }
}

/// Value to store, common to all languages.
pub struct Store<'a> {
    pub key: Key<'a>,
    pub value: &'a [u8],
    pub flags: u32,
    pub exptime: i64,
    pub condition: Condition,
}

impl<'a, 'k> Run<'a, 'k> {
    /// Returns the stages, and the state that they work on.
    #[inline]
    pub fn parts(&mut self) -> (&mut Stages<'k>, &mut Guard<'a, 'k>, &mut Waits, &Client) {
        let Session { waits, client, .. } = &mut *self.session;
        (&mut self.stages, &mut self.guard, waits, client)
    }

    /// Returns an error if the last request could not run.
    #[inline]
    pub fn take_busy(&mut self) -> Result<(), Busy> {
        self.busy.take().map_or(Ok(()), Err)
    }

    /// Returns the database, with the shard of `key` locked.
    #[inline]
    pub fn open(&mut self, key: Key<'_>) -> Db<'_> {
        self.guard.db(self.stages.db, key.hash(), self.stages.now_ms)
    }

    /// Checks that data may be added; a read that creates a missing key is checked in this way too.
    #[inline]
    fn may_add(&self) -> Result<(), Refusal> {
        let Some(fault) = self.stages.fault else { return Ok(()) };
        self.counters.add(Count::NoMemory, 1);
        Err(Refusal::Server(fault))
    }

    /// Appends or prepends bytes to a string.
    pub fn extend(
        &mut self,
        key: Key<'_>,
        bytes: &[u8],
        end: End,
        version: Option<u64>,
    ) -> Result<Stored, Refusal> {
        self.may_add()?;
        let len_max = self.server.config.live().item_size_max() as usize;
        let stored = self.open(key).extend(key, bytes, end, version, len_max)?;
        // A version mismatch is not counted here.
        self.count_store(Condition::Present, stored);
        Ok(stored)
    }

    /// Stores a value if its condition holds.
    #[inline]
    pub fn store(&mut self, store: &Store<'_>) -> Result<Stored, Refusal> {
        let stored = self.put(store)?;
        self.count_store(store.condition, stored);
        Ok(stored)
    }

    /// Stores the value of a key that was found to be absent, for a command whose purpose is not to store.
    pub fn create(&mut self, key: Key<'_>, value: &[u8], exptime: i64) -> Result<Stored, Refusal> {
        let condition = Condition::Absent;
        let stored = self.put(&Store { key, value, flags: 0, exptime, condition })?;
        self.counters.add(Count::Created, 1);
        Ok(stored)
    }

    /// Stores a value, and counts nothing.
    #[inline]
    pub fn put(&mut self, store: &Store<'_>) -> Result<Stored, Refusal> {
        self.may_add()?;
        let Store { key, flags, condition, .. } = *store;
        let expiry = expiry::expiry(store.exptime, self.stages.now_ms);
        // A large value is copied before the shard is locked.
        let value = NewString::new(store.value);
        Ok(self.open(key).store(key, value, flags, expiry, condition)?)
    }

    #[inline]
    fn count_store(&self, condition: Condition, stored: Stored) {
        self.counters.add(Count::Set, 1);
        if stored != Stored::Done {
            self.counters.add(Count::Unstored, 1);
        }
        if let Condition::Version(_) = condition {
            let count = match stored {
                Stored::Done => Count::CasHits,
                Stored::Absent => Count::CasMisses,
                Stored::Present | Stored::OtherVersion => Count::CasBadval,
            };
            self.counters.add(count, 1);
        }
    }

    /// Deletes a key, if it has the required version, if any.
    pub fn delete(&mut self, key: Key<'_>, version: Option<u64>) -> Stored {
        let mut db = self.open(key);
        let outcome = match version {
            Some(_) if db.peek(key).is_none() => Stored::Absent,
            Some(version) if db.version(key, VersionFor::Comparison) != version => {
                Stored::OtherVersion
            }
            _ if db.remove(key) => {
                db.event(Event::Del, key);
                Stored::Done
            }
            _ => Stored::Absent,
        };
        self.count_delete(outcome);
        outcome
    }

    /// Counts the outcome of a delete. A version mismatch is not counted here.
    pub fn count_delete(&self, outcome: Stored) {
        match outcome {
            Stored::Done => self.counters.add(Count::DeleteHits, 1),
            Stored::Absent => self.counters.add(Count::DeleteMisses, 1),
            Stored::Present | Stored::OtherVersion => {}
        }
    }

    /// Increments or decrements a number.
    pub fn adjust(
        &mut self,
        key: Key<'_>,
        up: bool,
        delta: u64,
        version: Option<u64>,
    ) -> Result<Adjusted, Refusal> {
        self.may_add()?;
        let by = if up { Adjust::Up(delta) } else { Adjust::Down(delta) };
        let adjusted = self.open(key).adjust(key, by, version)?;
        let count = match (adjusted, up) {
            (Adjusted::To(_), true) => Count::IncrHits,
            (Adjusted::To(_), false) => Count::DecrHits,
            _ => return Ok(adjusted),
        };
        self.counters.add(count, 1);
        Ok(adjusted)
    }

    /// Counts a change of a number that is missing, and was not created.
    pub fn count_adjust_miss(&self, up: bool) {
        self.counters.add(if up { Count::IncrMisses } else { Count::DecrMisses }, 1);
    }

    /// Changes the time to live of a key. Returns false if there is no such key.
    pub fn touch(&mut self, key: Key<'_>, exptime: i64) -> bool {
        let found = expiry::touch(&mut self.open(key), key, exptime);
        self.count_touch(found);
        found
    }

    pub fn count_touch(&self, found: bool) {
        self.counters.add(Count::Touch, 1);
        self.counters.add(if found { Count::TouchHits } else { Count::TouchMisses }, 1);
    }

    /// Counts reads of keys.
    #[inline]
    pub fn count_gets(&self, hits: u64, misses: u64) {
        self.counters.add(Count::GetHits, hits);
        self.counters.add(Count::GetMisses, misses);
    }

    /// Counts a request that replies with an error.
    #[cold]
    pub fn note_refusal(&mut self, refusal: Refusal) {
        let outcome = match refusal {
            Refusal::Data(_) => Outcome::Failed,
            Refusal::Server(_) => Outcome::Refused,
        };
        self.stages.note_error(outcome, "SERVER_ERROR");
    }

    /// Counts a use of a key by its prefix, if enabled.
    #[inline]
    pub fn note(&self, key: Key<'_>, used: Use) {
        if self.detailed {
            self.server.memcached.prefixes.count(key.bytes(), used);
        }
    }

    /// Unlocks the shard of the previous request, for one that is not about keys.
    pub fn release(&mut self) {
        if let Some(locks) = self.guard.unlocked() {
            locks.release();
        }
    }

    /// Resets all statistics.
    pub fn reset_stats(&mut self) {
        self.release();
        self.server.reset_stats();
        self.server.memcached.reset();
    }

    /// Returns true if clients may flush; a request for it is counted in any case.
    pub fn may_flush(&self) -> bool {
        self.counters.add(Count::Flush, 1);
        self.server.config.live().memcached_flush_all()
    }

    /// Removes everything, now or after this many seconds. Returns false if that has to be tried again.
    pub fn flush(&mut self, delay: i64) -> bool {
        let shared = self.server.memcached;
        match expiry::expiry(delay, self.stages.now_ms) {
            tierce_keyspace::Expiry::At(at_ms) if at_ms > self.stages.now_ms => {
                shared.flush_at(at_ms);
            }
            _ => {
                shared.flush_at(i64::MAX);
                self.busy =
                    self.guard.flush([self.stages.db], Freeing::Later, || Ok::<(), Busy>(())).err();
            }
        }
        self.busy.is_none()
    }

    /// Removes the old value of a key whose new one was too large, so that no client takes it for the new one.
    #[cold]
    pub fn drop_outdated(&mut self, key: &[u8]) {
        self.counters.add(Count::TooLarge, 1);
        let key = self.server.keyspace.key(key);
        let mut db = self.open(key);
        if db.remove(key) {
            db.event(Event::Del, key);
        }
    }

    /// Returns the time until which an authentication attempt is deferred, if it is.
    #[cold]
    pub fn attempt_waits(&mut self, said: Credentials<'_>) -> Option<i64> {
        let (guesses, now_ms) = (&self.server.acl.guesses, self.stages.now_ms);
        let Session { attempt, client, .. } = &mut *self.session;
        attempt.waits_until(guesses, client.host(), said.user, now_ms)
    }

    /// Returns true if the client may use commands.
    #[inline]
    pub fn may(&mut self) -> bool {
        // The password may be gone since the client connected.
        if !self.session.authenticated && self.server.is_open() {
            self.session.authenticated = true;
        }
        self.session.authenticated
    }
}
