//! Access of a command to the data: databases in the locked shards.

use std::sync::Arc;

use tierce_keyspace::{
    Busy, CodeEditor, Db, DbIndex, Entry, Error, Freeing, Key, KeyHash, Keyspace, ShardLocks,
    Touch, Value, ValueType, Waiter, Wakes, Watch, adopt_broadcast, deliver_events,
    remember_reader, swap_dbs, try_flush_dbs, try_for_each_entry, try_random_key, try_scan,
    unwatch, wait_for_keys, watch_key,
};

/// Databases in the shards that a command has declared. The guard itself neither locks, unlocks nor waits: the caller
/// does so, according to the [`Scope`](crate::command::Scope).
///
/// Operations on all shards lock them one after the other, or find them all locked.
pub struct Guard<'a, 'k> {
    /// For the kernel alone.
    pub(super) locks: &'a mut ShardLocks<'k>,
    #[cfg(debug_assertions)]
    pub(super) declared: super::declared::Declared,
}

impl<'a, 'k> Guard<'a, 'k> {
    /// Creates a guard over shards that the caller has locked for several commands, or locks for one.
    #[inline]
    pub fn new(locks: &'a mut ShardLocks<'k>) -> Self {
        Self {
            locks,
            #[cfg(debug_assertions)]
            declared: super::declared::Declared::default(),
        }
    }

    /// Returns the part of database `db` in the shard of `hash`.
    #[inline]
    pub fn db(&mut self, db: DbIndex, hash: KeyHash, now_ms: i64) -> Db<'_> {
        #[cfg(debug_assertions)]
        self.declared.check(self.locks.keyspace(), hash);
        self.locks.db(db, hash, now_ms)
    }

    /// Returns the unlocked shards, for operations on all data instead of keys. `None` if shards are locked for
    /// several commands.
    pub fn unlocked(&mut self) -> Option<&mut ShardLocks<'k>> {
        (!self.locks.is_within()).then_some(&mut *self.locks)
    }

    /// Locks the shard of a key, and unlocks that of the key before.
    ///
    /// # Errors
    /// [`Busy`] if another thread has locked it for long.
    #[inline]
    pub fn reach(&mut self, hash: KeyHash) -> Result<(), Busy> {
        self.locks.reach(hash)
    }

    /// Returns true if no shards are locked for the command, so that opening a key locks its shard.
    #[must_use]
    pub fn takes_turns(&self) -> bool {
        !self.locks.is_within()
    }

    /// Unlocks the shard of the last key in that case, to let others in.
    pub fn end_turn(&mut self) {
        if let Some(locks) = self.unlocked() {
            locks.release();
        }
    }

    /// Returns the keyspace.
    #[must_use]
    pub fn keyspace(&self) -> &'k Keyspace {
        self.locks.keyspace()
    }

    /// Reads several keys at once; see [`ShardLocks::values`].
    ///
    /// # Errors
    /// When a value cannot be read from disk.
    pub fn values(
        &mut self,
        db: DbIndex,
        keys: &[Key<'_>],
        now_ms: i64,
        fits: impl Fn(ValueType) -> bool,
    ) -> Result<Vec<Option<Value<'_>>>, Error> {
        self.locks.values(db, keys, now_ms, fits)
    }

    /// Registers a client that waits for keys; see [`wait_for_keys`].
    pub fn wait(
        &mut self,
        db: DbIndex,
        keys: &[Key<'_>],
        wakes: Wakes,
        about: impl std::any::Any + Send + Sync,
    ) -> Arc<Waiter> {
        wait_for_keys(self.locks, db, keys, wakes, about)
    }

    /// Adds a key to a watch; see [`watch_key`].
    pub fn watch(&mut self, watch: &mut Watch, db: DbIndex, key: Key<'_>, now_ms: i64) {
        #[cfg(debug_assertions)]
        self.declared.check(self.locks.keyspace(), key.hash());
        watch_key(self.locks, watch, db, key, now_ms);
    }

    /// Registers a client that reads a key; see [`remember_reader`].
    pub fn remember_reader(&mut self, db: DbIndex, key: Key<'_>, reader: u64, now_ms: i64) {
        remember_reader(self.locks, db, key, reader, now_ms);
    }

    /// Has later changes sent to clients that have begun to track keys; see [`adopt_broadcast`].
    pub fn adopt_broadcast(&mut self) {
        adopt_broadcast(self.locks);
    }

    /// Selects another database in the stream of a primary; see [`ShardLocks::select_in_lead`].
    pub fn select_in_lead(&mut self, db: DbIndex) {
        self.locks.select_in_lead(db);
    }

    /// Ends a watch; see [`unwatch`].
    pub fn unwatch(&mut self, watch: Watch) {
        unwatch(self.locks, watch);
    }

    /// Delivers the events so far, before a message; see [`deliver_events`].
    pub fn deliver_events(&mut self) {
        deliver_events(self.locks, usize::MAX);
    }

    /// Sets if later operations update the access times of keys.
    pub fn set_touch(&mut self, touch: Touch) {
        self.locks.set_touch(touch);
    }
}

/// For commands with the scope [`Stepwise`](crate::command::Scope::Stepwise) or with all shards.
impl Guard<'_, '_> {
    /// Visits all keys of a database; see [`try_for_each_entry`].
    ///
    /// # Errors
    /// [`Busy`] if another thread has locked a shard for long.
    pub fn for_each(
        &mut self,
        db: DbIndex,
        now_ms: i64,
        visit: impl FnMut(&Entry),
    ) -> Result<(), Busy> {
        self.check_all();
        try_for_each_entry(self.locks, db, now_ms, visit)
    }

    /// Visits some keys of a database; see [`try_scan`].
    ///
    /// # Errors
    /// As [`Guard::for_each`].
    pub fn scan(
        &mut self,
        db: DbIndex,
        cursor: u64,
        count: usize,
        now_ms: i64,
        visit: impl FnMut(&Entry),
    ) -> Result<u64, Busy> {
        self.check_all();
        try_scan(self.locks, db, cursor, count, now_ms, visit)
    }

    /// Returns a random key of a database; see [`try_random_key`].
    ///
    /// # Errors
    /// As [`Guard::for_each`].
    pub fn random_key(
        &mut self,
        db: DbIndex,
        random: u64,
        now_ms: i64,
    ) -> Result<Option<Vec<u8>>, Busy> {
        self.check_all();
        try_random_key(self.locks, db, random, now_ms)
    }

    /// Removes all keys of some databases; see [`try_flush_dbs`].
    ///
    /// # Errors
    /// As [`Guard::for_each`], and those of `check`.
    pub fn flush<E: From<Busy>>(
        &mut self,
        dbs: impl IntoIterator<Item = DbIndex>,
        freeing: Freeing,
        check: impl FnOnce() -> Result<(), E>,
    ) -> Result<u64, E> {
        self.check_all();
        try_flush_dbs(self.locks, dbs, freeing, check)
    }

    /// Exchanges two databases; see [`swap_dbs`].
    pub fn swap(&mut self, a: DbIndex, b: DbIndex, now_ms: i64) {
        self.check_all();
        swap_dbs(self.locks, a, b, now_ms);
    }

    /// Changes libraries of functions or named scripts, with all shards locked.
    ///
    /// # Errors
    /// As [`Guard::for_each`], and those of `check`. Nothing has changed then.
    pub fn change_code<R, E: From<Busy>>(
        &mut self,
        check: impl FnOnce() -> Result<(), E>,
        change: impl FnOnce(&mut CodeEditor<'_, '_>) -> R,
    ) -> Result<R, E> {
        self.check_all();
        let mut editor = CodeEditor::try_lock(self.locks)?;
        check()?;
        Ok(change(&mut editor))
    }

    fn check_all(&self) {
        #[cfg(debug_assertions)]
        self.declared.check_all();
    }
}
