//! What a command has of the data: databases in the shards that are locked for it.

use std::sync::Arc;

use tierce_keyspace::{
    Db, DbIndex, Entry, Error, Freeing, Key, KeyHash, Keyspace, Locker, Touch, Value, Waiter,
};

/// Databases, in the shards that a command has declared. It cannot lock, unlock or wait for any: that is
/// done around it, by what its [`Scope`](crate::command::Scope) says.
///
/// What concerns all shards goes through them one after the other, or, where they are all locked, finds
/// them so.
pub struct Guard<'a, 'k> {
    /// For the kernel alone.
    pub(super) locker: &'a mut Locker<'k>,
    #[cfg(debug_assertions)]
    pub(super) declared: super::declared::Declared,
}

impl<'a, 'k> Guard<'a, 'k> {
    /// Over a locker that holds what a caller has locked for several commands, or locks for one.
    #[inline]
    pub fn new(locker: &'a mut Locker<'k>) -> Self {
        Self {
            locker,
            #[cfg(debug_assertions)]
            declared: super::declared::Declared::default(),
        }
    }

    /// The database `db` as far as it is in the shard of `hash`.
    #[inline]
    pub fn db(&mut self, db: DbIndex, hash: KeyHash, now_ms: i64) -> Db<'_> {
        #[cfg(debug_assertions)]
        self.declared.check(self.locker.keyspace(), hash);
        self.locker.db(db, hash, now_ms)
    }

    /// The keyspace.
    #[must_use]
    pub fn keyspace(&self) -> &'k Keyspace {
        self.locker.keyspace()
    }

    /// Reads several keys at once; see [`Locker::values`].
    ///
    /// # Errors
    /// When a value cannot be read from disk.
    pub fn values(
        &mut self,
        db: DbIndex,
        keys: &[Key<'_>],
        now_ms: i64,
    ) -> Result<Vec<Option<Value<'_>>>, Error> {
        self.locker.values(db, keys, now_ms)
    }

    /// Registers somebody who waits for keys; see [`Locker::wait`].
    pub fn wait(
        &mut self,
        db: DbIndex,
        keys: &[Key<'_>],
        minds_removal: bool,
        about: impl std::any::Any + Send + Sync,
    ) -> Arc<Waiter> {
        self.locker.wait(db, keys, minds_removal, about)
    }

    /// Whether the operations that follow count as uses of the keys they read or write.
    pub fn set_touch(&mut self, touch: Touch) {
        self.locker.set_touch(touch);
    }
}

/// For those whose scope is [`Stepwise`](crate::command::Scope::Stepwise) or all shards.
impl Guard<'_, '_> {
    /// Visits all keys of a database; see [`Locker::for_each`].
    pub fn for_each(&mut self, db: DbIndex, now_ms: i64, visit: impl FnMut(&Entry)) {
        self.check_all();
        self.locker.for_each(db, now_ms, visit);
    }

    /// Visits some keys of a database; see [`Locker::scan`].
    pub fn scan(
        &mut self,
        db: DbIndex,
        cursor: u64,
        count: usize,
        now_ms: i64,
        visit: impl FnMut(&Entry),
    ) -> u64 {
        self.check_all();
        self.locker.scan(db, cursor, count, now_ms, visit)
    }

    /// Any key of a database; see [`Locker::random_key`].
    pub fn random_key(&mut self, db: DbIndex, random: u64, now_ms: i64) -> Option<Vec<u8>> {
        self.check_all();
        self.locker.random_key(db, random, now_ms)
    }

    /// Removes all keys of some databases; see [`Locker::flush`].
    pub fn flush(&mut self, dbs: impl IntoIterator<Item = DbIndex>, freeing: Freeing) -> u64 {
        self.check_all();
        self.locker.flush(dbs, freeing)
    }

    /// Exchanges two databases; see [`Locker::swap`].
    pub fn swap(&mut self, a: DbIndex, b: DbIndex) {
        self.check_all();
        self.locker.swap(a, b);
    }

    fn check_all(&self) {
        #[cfg(debug_assertions)]
        self.declared.check_all();
    }
}
