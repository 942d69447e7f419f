//! One database in a locked shard: operations common to all value types.
//!
//! Invariants:
//! - A key is invisible once its deadline has passed at this handle's time, or the deadlines of all fields of its
//!   hash. It is removed and counted when an operation finds it.
//! - Every change passes [`Context::changed`], and the figures of the shard are correct whenever a method returns.

use std::ptr::NonNull;

use tierce_storage::ColdLocation;

use crate::access::accounting::{Accounting, CollectionAccounting};
use crate::access::cold::{account_cold, fetch};
use crate::access::context::Context;
use crate::access::expire::account_deadline;
use crate::access::hash_deadlines::account_fields;
use crate::access::saving::{save_before_change, save_moved};
use crate::access::shard::Shard;
use crate::access::undo::cover;
use crate::change::event::{Event, EventClasses};
use crate::change::interest::Interest;
use crate::change::{Change, Removal};
use crate::data::entry::{Attributes, Entry};
use crate::data::expiry::{DeadlineSet, Expiry, Ttl};
use crate::data::key::{KEY_LEN_MAX, Key, KeyHash};
use crate::data::shard_db::ShardDb;
use crate::data::stamp::Stamp;
use crate::data::usage::{Frequency, Tracking};
use crate::data::value::{Value, ValueType};
use crate::db_index::DbIndex;
use crate::error::{Error, Result};

/// The part of one database in the shard that is locked.
///
/// Methods that take a [`Key`] expect a key of this shard: the one whose hash the handle was made for, or another of
/// the same shard.
pub struct Db<'a> {
    shard: &'a mut Shard,
    pub(crate) at: Context<'a>,
}

impl Context<'_> {
    /// Lets `edit` change an entry that was found by `find_to_change`, and reports the change. Returns the entry's
    /// accounting before and after, for [`Db::account`]. An edit that fails must not change the entry.
    #[inline]
    pub(crate) fn edit<R>(
        &self,
        hash: KeyHash,
        entry: &mut Entry,
        change: Change,
        edit: impl FnOnce(&mut Entry) -> Result<R>,
    ) -> Result<(R, Accounting, Accounting)> {
        let before = Accounting::of(entry);
        let result = edit(entry)?;
        self.used(entry);
        let change = before.cold.change(entry, change);
        self.changed(hash, entry, change);
        Ok((result, before, Accounting::of(entry)))
    }
}

impl<'a> Db<'a> {
    #[inline]
    pub(crate) fn new(shard: &'a mut Shard, at: Context<'a>) -> Self {
        Self { shard, at }
    }

    /// Returns the number of this database.
    #[inline]
    pub fn index(&self) -> DbIndex {
        self.at.db
    }

    /// Switches to another database. The keys of this shard are locked there as well.
    #[inline]
    pub fn switch(&mut self, db: DbIndex) {
        self.at.db = db;
    }

    /// Returns the time of this handle, with which deadlines are compared.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.at.now_ms
    }

    /// Reads a key: counts a hit or a miss, and a use of the key.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`].
    #[inline]
    pub fn get(&mut self, key: Key<'_>) -> Result<Option<Value<'_>>> {
        let now_ms = self.at.now_ms;
        Ok(self.read(key)?.map(|entry| entry.value_as_of(now_ms)))
    }

    /// Reads a key in order to change it. Counts nothing: a write is no miss.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`].
    pub fn value_to_change(&mut self, key: Key<'_>) -> Result<Option<Value<'_>>> {
        let now_ms = self.at.now_ms;
        Ok(self.find_value(key)?.map(|entry| entry.value_as_of(now_ms)))
    }

    /// Counts a hit or a miss for a key that was read without counting.
    pub fn count_read(&self, key: Key<'_>, found: bool) {
        self.at.count_read(key, found);
    }

    /// Counts a hit or a miss for an access that is no read: no miss event is published.
    pub fn count_look(&self, found: bool) {
        self.at.count_look(found);
    }

    /// Reads a key without counting anything.
    #[inline]
    pub fn peek(&mut self, key: Key<'_>) -> Option<&Entry> {
        self.find(key).map(|entry| &*entry)
    }

    /// Returns true if a key exists. Counts a hit or a miss, but no use of the key.
    #[inline]
    pub fn exists(&mut self, key: Key<'_>) -> bool {
        let found = self.find(key).is_some();
        self.at.count_read(key, found);
        found
    }

    /// Returns true if a key exists. Counts as a use of it, whatever [`Touch`](crate::Touch) says, but not as a change.
    pub fn touch(&mut self, key: Key<'_>) -> bool {
        let at = self.at;
        let entry = self.find(key);
        let found = entry.is_some();
        if let Some(entry) = entry
            && at.tracking != Tracking::Changes
        {
            at.track(entry);
        }
        at.count_read(key, found);
        found
    }

    /// Returns the type of a key's value.
    pub fn value_type(&mut self, key: Key<'_>) -> Option<ValueType> {
        self.peek(key).map(Entry::value_type)
    }

    /// Returns the name of the encoding of a key's value, as OBJECT ENCODING does.
    pub fn encoding(&mut self, key: Key<'_>) -> Option<&'static str> {
        self.peek(key).map(Entry::encoding)
    }

    /// Returns the location of a key's value, if it is only on disk.
    #[inline]
    pub fn spilled_at(&mut self, key: Key<'_>) -> Option<ColdLocation> {
        self.find(key)?.spilled().map(|spilled| spilled.location)
    }

    /// Returns the seconds since a key was last used: exact up to three hours, then within 512 seconds, and at most
    /// 180 days; see [`age_uses`](crate::age_uses). `None` under a policy that counts frequencies.
    pub fn idle_seconds(&mut self, key: Key<'_>) -> Option<u64> {
        let now_ms = self.at.now_ms;
        self.peek(key).map(|entry| entry.access().stamp.idle_seconds(now_ms).into())
    }

    /// Returns the use frequency of a key, as a logarithmic counter up to 255. Known only under a
    /// [`Policy`](crate::Policy) that counts frequencies.
    pub fn frequency(&mut self, key: Key<'_>) -> Option<u8> {
        let (tuning, now_ms) = (self.at.keyspace.pressure.frequency(), self.at.now_ms);
        self.peek(key).map(|entry| Frequency::of(entry.access()).counter(&tuning, now_ms))
    }

    /// Sets the idle time of a key, with the exactness of [`Db::idle_seconds`]. Does nothing under a policy that
    /// counts frequencies.
    pub fn set_idle_seconds(&mut self, key: Key<'_>, seconds: u64) {
        let at = self.at;
        if at.tracking == Tracking::Frequency {
            return;
        }
        cover(self, key);
        if let Some(entry) = self.find(key) {
            entry.touch(Stamp::of_idle(seconds, at.now_ms));
        }
    }

    /// Sets the frequency counter of a key; see [`Db::frequency`]. Does nothing under a policy that does not count
    /// frequencies.
    pub fn set_frequency(&mut self, key: Key<'_>, counter: u8) {
        let (at, tuning) = (self.at, self.at.keyspace.pressure.frequency());
        if at.tracking != Tracking::Frequency {
            return;
        }
        cover(self, key);
        if let Some(entry) = self.find(key) {
            entry.set_access(Frequency::with_counter(counter, &tuning, at.now_ms).to_access());
        }
    }

    /// Returns the bytes of memory of a key: its entry and its part of the index.
    pub fn memory_bytes(&mut self, key: Key<'_>) -> Option<usize> {
        let entry_bytes = self.peek(key)?.allocated_bytes();
        let table = &self.db().table;
        Some(entry_bytes + table.memory_bytes().div_ceil(table.len()))
    }

    /// Returns the time to live of a key.
    pub fn ttl(&mut self, key: Key<'_>) -> Ttl {
        match self.peek(key).map(Entry::deadline_ms) {
            None => Ttl::Absent,
            Some(None) => Ttl::Persistent,
            Some(Some(deadline_ms)) => Ttl::Until(deadline_ms),
        }
    }

    /// Gives a key a deadline, or deletes it if the deadline has passed.
    pub fn set_deadline(&mut self, key: Key<'_>, deadline_ms: i64) -> DeadlineSet {
        self.set_deadline_if(key, deadline_ms, |_| true)
    }

    /// Like [`Db::set_deadline`], if `is_wanted` in view of the present deadline. Otherwise it does nothing, as without
    /// such a key.
    pub fn set_deadline_if(
        &mut self,
        key: Key<'_>,
        deadline_ms: i64,
        is_wanted: impl FnOnce(Option<i64>) -> bool,
    ) -> DeadlineSet {
        let at = self.at;
        let Some(entry) = self.find_to_change(key) else { return DeadlineSet::Absent };
        if !is_wanted(entry.deadline_ms()) {
            return DeadlineSet::Absent;
        }
        if deadline_ms <= at.now_ms {
            self.remove(key);
            return DeadlineSet::Deleted;
        }
        let before = Accounting::of(entry);
        entry.set_deadline(Some(deadline_ms));
        at.used(entry);
        at.changed(key.hash(), entry, Change::Deadline);
        let bytes = entry.allocated_bytes();
        self.account(
            key.hash(),
            before,
            Accounting { bytes, deadline_ms: Some(deadline_ms), ..before },
        );
        DeadlineSet::Done
    }

    /// Removes a key's deadline; `false` if there is no such key, or it had none.
    pub fn clear_deadline(&mut self, key: Key<'_>) -> bool {
        if self.peek(key).and_then(Entry::deadline_ms).is_none() {
            return false;
        }
        let clear = |entry: &mut Entry| {
            entry.set_deadline(None);
            Ok(())
        };
        self.modify(key, Change::Deadline, clear) == Ok(Some(()))
    }

    /// Deletes a key; `false` if there is none. The reaper frees a large value.
    pub fn remove(&mut self, key: Key<'_>) -> bool {
        let Some(entry) = self.unlink(key, Removal::Deleted) else { return false };
        self.discard(entry);
        true
    }

    /// Takes a key with its value and deadline out of the database. Under an undo log, an entry with
    /// [`Removal::Moved`] must be put under another key immediately.
    pub fn take(&mut self, key: Key<'_>, why: Removal) -> Option<Entry> {
        if why == Removal::Moved {
            cover(self, key);
        }
        let entry = self.unlink(key, why)?;
        if why == Removal::Moved
            && let Some(undo) = self.at.undo()
        {
            undo.taken(self.at.db, key, &entry);
        }
        Some(entry)
    }

    /// Returns a copy of a key's value and deadline, for [`Db::put`].
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`].
    pub fn duplicate(&mut self, key: Key<'_>) -> Result<Option<Entry>> {
        let access = self.at.first_access();
        Ok(self.find_value(key)?.map(|entry| entry.duplicate(key.bytes(), access)))
    }

    /// Puts an entry, with its value and deadline, under a key, and replaces any old entry.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`].
    pub fn put(&mut self, key: Key<'_>, entry: Entry) -> Result<()> {
        if self.put_entry(key, entry)? {
            // For listeners, the old key is gone, and this is another one.
            self.at.event(Event::New, key.bytes());
        }
        Ok(())
    }

    /// Like [`Db::put`], without the event of a new key. Returns true if the key was there before.
    pub(crate) fn put_entry(&mut self, key: Key<'_>, entry: Entry) -> Result<bool> {
        let undo = self.at.undo().filter(|undo| undo.is_taken(entry.address()));
        if let Err(error) = self.check_key(key) {
            self.let_go(entry);
            return Err(error);
        }
        if let Some(batch) = self.at.batch() {
            batch.prepare_put(&entry);
        }
        let mut entry = if entry.is_key(key.bytes()) { entry } else { entry.with_key(key.bytes()) };
        if let Some(id) = entry.snapshot_id() {
            save_moved(self.at.keyspace, id, self.at.db, &mut entry);
        }
        let mut entry = Some(entry);
        let swap = |present: &mut Entry| {
            let entry = entry.take().expect("the closure runs at most once");
            Ok(std::mem::replace(present, entry))
        };
        let replaced = self.modify(key, Change::Stored, swap)?;
        if let Some(entry) = entry.take() {
            self.insert(key, entry);
        }
        let is_replacement = replaced.is_some();
        replaced.into_iter().for_each(|old| self.discard(old));
        if let Some(undo) = undo {
            undo.moved(self.at.db, key);
        }
        Ok(is_replacement)
    }

    /// Discards an entry that was taken out and cannot be put under any key.
    #[cold]
    fn let_go(&self, entry: Entry) {
        match self.at.undo() {
            None => self.at.keyspace.let_go(&entry),
            Some(undo) => undo.let_go(entry),
        }
    }

    /// Returns the live entry of a key. Removes it if it has expired.
    #[inline]
    pub(crate) fn find(&mut self, key: Key<'_>) -> Option<&mut Entry> {
        let mut found = self.look_up(key)?;
        // SAFETY: the pointer is from a mutable borrow of the table in `self`, which nothing has
        // used since, and the returned reference borrows `self` again.
        Some(unsafe { found.as_mut() })
    }

    /// Like [`Db::find`], for an entry whose value is needed. A value on disk is fetched synchronously, unless it was
    /// fetched before.
    #[inline]
    pub(crate) fn find_value(&mut self, key: Key<'_>) -> Result<Option<&mut Entry>> {
        let Some(mut found) = self.look_up(key) else { return Ok(None) };
        // SAFETY: as in `find`; where `self` is used again, this reference is not.
        let entry = unsafe { found.as_mut() };
        if entry.is_spilled() {
            return fetch(self, key);
        }
        Ok(Some(entry))
    }

    /// Like [`Db::find`], but returns a pointer, which several branches can return.
    #[inline]
    pub(crate) fn look_up(&mut self, key: Key<'_>) -> Option<NonNull<Entry>> {
        let now_ms = self.at.now_ms;
        debug_assert_eq!(self.at.keyspace.hasher.shard(key.hash()), self.at.shard_index);
        let hash = self.at.keyspace.hasher.table_hash(key.hash());
        let table = &mut self.present().table;
        let mut found = NonNull::from(table.find_mut(hash, |entry| entry.is_key(key.bytes()))?);
        // The borrow checker would treat the entry as borrowed in both branches because one returns it, so it goes
        // through a pointer.
        // SAFETY: the pointer is from a mutable borrow of the table in `self`, which nothing has
        // used since.
        if self.at.keyspace.expiry_of(unsafe { found.as_mut() }, now_ms).is_some() {
            if !self.at.keyspace.is_following() {
                self.expire(key);
            }
            return None;
        }
        Some(found)
    }

    /// Like [`Db::find`], for an entry that is going to be changed.
    #[inline]
    pub(crate) fn find_to_change(&mut self, key: Key<'_>) -> Option<&mut Entry> {
        self.before_change(key.hash());
        cover(self, key);
        self.find(key)
    }

    /// Like [`Db::find_value`], for an entry that is going to be changed.
    #[inline]
    pub(crate) fn find_value_to_change(&mut self, key: Key<'_>) -> Result<Option<&mut Entry>> {
        self.before_change(key.hash());
        cover(self, key);
        self.find_value(key)
    }

    /// Called before every change of a key, see [`crate::change`].
    #[inline]
    pub(crate) fn before_change(&mut self, hash: KeyHash) {
        if self.shard.snapshot.is_some() {
            let hasher = &self.at.keyspace.hasher;
            save_before_change(self.shard, self.at.db, hasher.table_hash(hash), hasher);
        }
    }

    /// Like [`Db::find_value`], and counts a read.
    #[inline(always)]
    pub(crate) fn read(&mut self, key: Key<'_>) -> Result<Option<&Entry>> {
        let Some(mut found) = self.look_up(key) else {
            self.at.count_read(key, false);
            return Ok(None);
        };
        // SAFETY: the pointer is from a mutable borrow of the table in `self.shard`, which nothing has used
        // since, nor is it used below; where `self` is used as a whole, this reference is not.
        let entry = unsafe { found.as_mut() };
        if entry.is_spilled() {
            return self.read_spilled(key);
        }
        self.at.count_read(key, true);
        self.at.used(entry);
        Ok(Some(entry))
    }

    #[cold]
    fn read_spilled(&mut self, key: Key<'_>) -> Result<Option<&Entry>> {
        let at = self.at;
        let found = fetch(self, key)?;
        at.count_read(key, found.is_some());
        let Some(entry) = found else { return Ok(None) };
        at.used(entry);
        Ok(Some(entry))
    }

    /// Lets `edit` change the entry of a key, if there is one. An edit that fails must not change the entry.
    pub(crate) fn modify<R>(
        &mut self,
        key: Key<'_>,
        change: Change,
        edit: impl FnOnce(&mut Entry) -> Result<R>,
    ) -> Result<Option<R>> {
        let at = self.at;
        let Some(entry) = self.find_to_change(key) else { return Ok(None) };
        let (result, before, after) = at.edit(key.hash(), entry, change, edit)?;
        self.account(key.hash(), before, after);
        Ok(Some(result))
    }

    /// Changes the attributes of a key's entry. This is not a change of the key; the caller logs what the log needs.
    /// `false` if there is no such key.
    pub(crate) fn annotate(&mut self, key: Key<'_>, edit: impl FnOnce(&mut Attributes)) -> bool {
        cover(self, key);
        let Some(entry) = self.find(key) else { return false };
        let mut attributes = entry.attributes();
        edit(&mut attributes);
        let before = Accounting::of(entry);
        entry.set_attributes(attributes);
        let after = Accounting::of(entry);
        self.account(key.hash(), before, after);
        true
    }

    /// Adds the entry of a key that is known to be absent.
    pub(crate) fn insert(&mut self, key: Key<'_>, entry: Entry) {
        if self.at.keyspace.is_following() {
            // An expired key stays for the other server, hidden from a caller that began before the server followed
            // it. Each key has one entry.
            self.expire(key);
        }
        self.before_change(key.hash());
        let at = self.at;
        if let Some(undo) = at.undo() {
            undo.added(at.db, key);
        }
        let hasher = &at.keyspace.hasher;
        let account = Accounting::of(&entry);
        let db = self.db();
        let index_bytes = db.table.memory_bytes();
        let entry = db.table.insert_unique(hasher.table_hash(key.hash()), entry, hasher);
        at.event(Event::New, key.bytes());
        at.changed(key.hash(), entry, Change::Stored);
        at.stats.index_bytes.follow(index_bytes, db.table.memory_bytes());
        at.counters().keys.set(db.table.len() as u64);
        self.account(key.hash(), Accounting::NONE, account);
    }

    /// Frees an entry. The reaper frees a large one, and a snapshot keeps one until it is saved.
    pub(crate) fn discard(&self, entry: Entry) {
        let Context { thread, db, .. } = self.at;
        let keyspace = thread.keyspace;
        let not_needed = match &thread.undo {
            None => Some(entry),
            Some(undo) => undo.keep(db, keyspace.hash(entry.key()), entry),
        };
        if let Some(entry) = not_needed {
            keyspace.free(entry);
        }
    }

    /// Publishes the event of a change to a key.
    #[inline]
    pub fn event(&self, event: Event, key: Key<'_>) {
        #[cfg(debug_assertions)]
        self.at.effects.naming.named(self.at.db, key.bytes());
        self.at.event(event, key.bytes());
    }

    /// Publishes that a string was stored with this expiry. If the deadline has already passed, a delete event
    /// follows, since no key remains.
    #[inline]
    pub fn event_of_store(&self, key: Key<'_>, expiry: Expiry) {
        self.event(Event::Set, key);
        if let Expiry::At(deadline_ms) = expiry {
            self.event(Event::Expire, key);
            if deadline_ms <= self.now_ms() {
                self.at.event_of_itself(Event::Expired, key.bytes());
            }
        }
    }

    /// Publishes the event of a key that was given a deadline.
    pub fn event_of_deadline(&self, key: Key<'_>, set: DeadlineSet) {
        match set {
            DeadlineSet::Absent => {}
            DeadlineSet::Done => self.event(Event::Expire, key),
            DeadlineSet::Deleted => self.event(Event::Del, key),
        }
    }

    /// Like [`Db::event`], for an edit of a collection. If the edit has removed the last element, [`Event::Del`]
    /// follows.
    #[inline]
    pub fn event_of_edit(&mut self, event: Event, key: Key<'_>) {
        self.event(event, key);
        let generic = Interest::of_classes(EventClasses::GENERIC);
        if self.at.effects.interest().includes(generic) && self.peek(key).is_none() {
            self.at.event(Event::Del, key.bytes());
        }
    }

    /// Reports a key as changed to clients that watch or cache it, even if nothing has changed: some Redis commands
    /// do so.
    pub fn touch_watchers(&self, key: Key<'_>) {
        self.at.touch_observers(key);
    }

    /// Makes the reply of this command wait as that of a write, although nothing changes: it tells that an earlier
    /// change is done, perhaps to a client that has lost the first reply while the change was not durable yet.
    pub fn confirm_earlier(&self) {
        if self.at.batch().is_some() {
            self.at.effects.notices().tells_of_logged.set(true);
        }
    }

    pub(crate) fn check_key(&self, key: Key<'_>) -> Result<()> {
        let len = key.bytes().len();
        if len > KEY_LEN_MAX {
            return Err(Error::KeyTooLong { len, max: KEY_LEN_MAX });
        }
        Ok(())
    }

    /// Returns the database, and creates it if it was never used. Readers use [`Db::present`].
    #[inline]
    pub(crate) fn db(&mut self) -> &mut ShardDb {
        self.shard.db_mut(self.at.db)
    }

    /// Returns the database, for callers that add nothing.
    #[inline]
    pub(crate) fn present(&mut self) -> &mut ShardDb {
        self.shard.present_mut(self.at.db)
    }

    /// Removes a key that was found expired.
    #[cold]
    fn expire(&mut self, key: Key<'_>) {
        let live = self.unlink(key, Removal::Expired);
        debug_assert!(live.is_none(), "only called for a key whose deadline has come");
    }

    /// Takes a live key out. An expired key is removed as well, but not returned.
    fn unlink(&mut self, key: Key<'_>, why: Removal) -> Option<Entry> {
        let entry = self.unlink_where(key.hash(), |entry| entry.is_key(key.bytes()))?;
        if let Some(expiry) = self.at.keyspace.expiry_of(&entry, self.at.now_ms) {
            self.forget(key.hash(), entry, expiry);
            return None;
        }
        self.removed(key.hash(), &entry, why);
        Some(entry)
    }

    pub(crate) fn unlink_where(
        &mut self,
        hash: KeyHash,
        eq: impl FnMut(&Entry) -> bool,
    ) -> Option<Entry> {
        self.before_change(hash);
        let at = self.at;
        let hasher = &at.keyspace.hasher;
        let db = self.present();
        let index_bytes = db.table.memory_bytes();
        let entry = db.table.remove(hasher.table_hash(hash), eq, hasher)?;
        at.stats.index_bytes.follow(index_bytes, db.table.memory_bytes());
        at.counters().keys.set(db.table.len() as u64);
        Some(entry)
    }

    pub(crate) fn forget(&mut self, hash: KeyHash, entry: Entry, why: Removal) {
        self.removed(hash, &entry, why);
        self.discard(entry);
    }

    /// Updates the figures for an entry that was unlinked.
    fn removed(&mut self, hash: KeyHash, entry: &Entry, why: Removal) {
        match why {
            Removal::Expired | Removal::Emptied => self.at.stats.expired.add(1),
            Removal::Evicted => self.at.stats.evicted.add(1),
            Removal::Deleted | Removal::Moved => {}
        }
        self.at.removed(entry, why);
        let mut before = Accounting::of(entry);
        if why == Removal::Moved {
            before.cold.is_moved = true;
        }
        self.account(hash, before, Accounting::NONE);
    }

    /// Updates the figures and the deadline heap for an entry that has changed.
    #[inline]
    pub(crate) fn account(&mut self, hash: KeyHash, before: Accounting, after: Accounting) {
        if before.bytes != after.bytes {
            self.account_bytes(before.bytes, after.bytes);
        }
        if before.deadline_ms != after.deadline_ms {
            account_deadline(self, hash, before.deadline_ms, after.deadline_ms);
        }
        if before.elements != after.elements {
            account_fields(self, hash, before.elements, after.elements);
        }
        if before.cold != after.cold {
            account_cold(self, before.cold, after.cold);
        }
        self.at.stats.follow_size(&self.at.keyspace.pressure);
    }

    /// Like [`Db::account`], for an edit of a collection, which usually does not change its memory. Always inlined:
    /// two comparisons, where a call would take 25 instructions.
    #[inline(always)]
    pub(crate) fn account_edit(
        &mut self,
        hash: KeyHash,
        before: CollectionAccounting,
        after: CollectionAccounting,
    ) {
        if before.bytes != after.bytes {
            self.account_bytes(before.bytes, after.bytes);
            self.at.stats.follow_size(&self.at.keyspace.pressure);
        }
        if before.elements != after.elements {
            account_fields(self, hash, before.elements, after.elements);
            self.at.stats.follow_size(&self.at.keyspace.pressure);
        }
    }

    #[inline]
    fn account_bytes(&mut self, before: usize, after: usize) {
        self.at.stats.entry_bytes.follow(before, after);
        let db = self.db();
        db.entry_bytes = db.entry_bytes - before + after;
    }
}
