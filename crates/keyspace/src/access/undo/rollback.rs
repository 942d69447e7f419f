//! Rolls back steps, or makes them final.

use std::sync::atomic::Ordering;

use super::Savepoint;
use super::cover::find_any;
use super::step::{Counted, Edits, KeyAt, Moved, Step, Written};
use crate::access::accounting::Accounting;
use crate::access::db::Db;
use crate::access::notices::withdraw_waiter;
use crate::access::saving::{save_moved, save_swapped};
use crate::access::shard_locks::ShardLocks;
use crate::data::collections::convert::apply_to;
use crate::data::collections::limits::LimitCells;
use crate::data::collections::{CollectionType, with_type};
use crate::data::entry::{Attributes, Entry};
use crate::data::key::Key;
use crate::data::usage::Access;
use crate::db_index::DbIndex;
use crate::planted;

/// Time before all deadlines: a rollback expires nothing.
const NO_TIME: i64 = i64::MIN;

impl ShardLocks<'_> {
    /// Rolls back everything done since a savepoint. The undo log continues from there.
    ///
    /// # Panics
    ///
    /// Without an undo log.
    pub fn rollback_to(&mut self, to: Savepoint) {
        let (steps, mut bytes) = {
            let mut recorded = self.undo_log().recorded.borrow_mut();
            recorded.is_rolling_back = true;
            let steps: Vec<Step> = recorded.steps.drain(to.steps..).collect();
            (steps, std::mem::take(&mut recorded.bytes))
        };
        for step in steps.into_iter().rev() {
            self.take_back(step, &bytes);
        }
        bytes.truncate(to.bytes);
        {
            let mut recorded = self.undo_log().recorded.borrow_mut();
            recorded.bytes = bytes;
            recorded.kept_bytes = to.kept_bytes;
            recorded.is_rolling_back = false;
            recorded.forget_taken();
            recorded.begin_epoch();
        }
        self.thread.effects.truncate(to.effects);
    }

    /// Rolls back everything done since the undo log began, and ends it.
    ///
    /// # Panics
    ///
    /// Without an undo log.
    pub fn rollback(&mut self) {
        let begun = self.undo_log().begun;
        self.rollback_to(begun);
        self.end_undo();
    }

    /// Makes everything done since the undo log began final, and ends it. Kept values are freed, large ones by the
    /// reaper.
    ///
    /// # Panics
    ///
    /// Without an undo log.
    pub fn commit(&mut self) {
        let steps = std::mem::take(&mut self.undo_log().recorded.borrow_mut().steps);
        self.end_undo();
        for step in steps {
            self.make_final(step);
        }
    }

    fn take_back(&mut self, step: Step, bytes: &[u8]) {
        match step {
            Step::Absent(at) => self.at_key(&at).remove_any(at.key(bytes)),
            Step::Entry(at, entry) => self.at_key(&at).put_back(at.key(bytes), entry),
            Step::Value(at, value) => {
                let (key, content) = (at.key(bytes), value.into_content());
                let (none, access) = (Attributes::NONE, Access::default());
                let entry = Entry::with_attributes(key.bytes(), content, None, none, access);
                self.at_key(&at).put_back(key, entry);
            }
            Step::Shell(at, shell) => {
                self.at_key(&at).change_back(at.key(bytes), |entry| shell.put_on(entry));
            }
            Step::Access(at, access) => {
                self.at_key(&at).change_back(at.key(bytes), |entry| entry.set_access(access));
            }
            Step::Written(at, written) => {
                let write = |entry: &mut Entry| write_back(entry, &bytes[written]);
                self.at_key(&at).change_back(at.key(bytes), write);
            }
            Step::Edits(at, edits) => {
                self.at_key(&at).edit_back(at.key(bytes), &edits, bytes);
            }
            Step::Moved(moved) => self.move_back(&moved, bytes),
            Step::Counted(counted) => self.count_back(&counted),
            Step::Stripe { shard, stripe, version } => {
                self.held(shard).stats.versions.set(stripe, version);
            }
            Step::Stripes(shard, versions) => {
                let all = versions.iter().enumerate();
                let stats = self.held(shard).stats;
                all.for_each(|(stripe, version)| stats.versions.set(stripe, *version));
            }
            Step::Flushed(flushed) => {
                let keyspace = self.keyspace();
                let shard = flushed.shard();
                flushed.put_back(keyspace, self.held(shard));
            }
            Step::Swapped(a, b) => swap_back(self, a, b),
            Step::Code(kind, name, source) => {
                self.keyspace().set_code(kind, &name, source);
            }
            Step::Location(_) => {}
            Step::Waits(waiter) => withdraw_waiter(self, &waiter),
        }
    }

    fn make_final(&mut self, step: Step) {
        let keyspace = self.keyspace();
        match step {
            Step::Entry(_, entry) => keyspace.free(entry),
            Step::Value(_, value) => keyspace.free_displaced(Some(*value)),
            Step::Flushed(flushed) => {
                let shard = flushed.shard();
                flushed.free(keyspace, self.held(shard));
            }
            Step::Location(location) => keyspace.release(location),
            _ => {}
        }
    }

    fn at_key(&mut self, at: &KeyAt) -> Db<'_> {
        self.db(at.db, at.hash, NO_TIME)
    }

    fn move_back(&mut self, moved: &Moved, bytes: &[u8]) {
        let Moved { from, to, shell } = moved;
        let Some(entry) = self.at_key(to).unlink_any(to.key(bytes), true) else { return };
        let key = from.key(bytes);
        let mut entry = if entry.is_key(key.bytes()) { entry } else { entry.with_key(key.bytes()) };
        shell.put_on(&mut entry);
        if let Some(id) = entry.snapshot_id() {
            save_moved(self.keyspace(), id, from.db, &mut entry);
        }
        self.at_key(from).put_back(key, entry);
    }

    fn count_back(&mut self, counted: &Counted) {
        let keyspace = self.keyspace();
        let stats = self.held(counted.shard).stats;
        stats.hits.set(counted.hits);
        stats.misses.set(counted.misses);
        stats.expired.set(counted.expired);
        stats.evicted.set(counted.evicted);
        stats.changes.set(counted.changes);
        if !counted.has_versions {
            // Versions that were handed out under the guard are void. Later ones must be higher.
            stats.versions.renew_all(keyspace.version_after(counted.changes));
        }
    }
}

/// These methods report no changes: no listener is told.
impl Db<'_> {
    /// Puts an entry under its key, and replaces any present entry.
    fn put_back(&mut self, key: Key<'_>, entry: Entry) {
        self.before_change(key.hash());
        let at = self.at;
        let after = Accounting::of(&entry);
        if let Some(present) = find_any(self, key) {
            let before = Accounting::of(present);
            let old = std::mem::replace(present, entry);
            self.account(key.hash(), before, after);
            at.keyspace.free(old);
            return;
        }
        let hasher = &at.keyspace.hasher;
        let db = self.db();
        let index_bytes = db.table.memory_bytes();
        db.table.insert_unique(hasher.table_hash(key.hash()), entry, hasher);
        at.stats.index_bytes.follow(index_bytes, db.table.memory_bytes());
        at.counters().keys.set(db.table.len() as u64);
        self.account(key.hash(), Accounting::NONE, after);
    }

    fn remove_any(&mut self, key: Key<'_>) {
        if let Some(entry) = self.unlink_any(key, false) {
            self.at.keyspace.free(entry);
        }
    }

    fn unlink_any(&mut self, key: Key<'_>, is_moved: bool) -> Option<Entry> {
        let entry = self.unlink_where(key.hash(), |entry| entry.is_key(key.bytes()))?;
        let mut before = Accounting::of(&entry);
        before.cold.is_moved = is_moved;
        self.account(key.hash(), before, Accounting::NONE);
        Some(entry)
    }

    fn change_back(&mut self, key: Key<'_>, change: impl FnOnce(&mut Entry)) {
        self.before_change(key.hash());
        let found = find_any(self, key);
        debug_assert!(found.is_some() || planted::is_any(), "steps are taken back in order");
        let Some(entry) = found else { return };
        let before = Accounting::of(entry);
        change(entry);
        let after = Accounting::of(entry);
        self.account(key.hash(), before, after);
    }

    fn edit_back(&mut self, key: Key<'_>, edits: &Edits, bytes: &[u8]) {
        let limits = &self.at.keyspace.limits;
        self.change_back(key, |entry| {
            with_type!(edits.kind, T => edit_back::<T>(entry, edits, bytes, limits));
        });
    }
}

/// Applies the chunks of inverse edits, the last one first.
fn edit_back<T: CollectionType>(
    entry: &mut Entry,
    edits: &Edits,
    bytes: &[u8],
    limits: &LimitCells,
) {
    let found = entry.borrow_collection::<T>();
    debug_assert!(found.is_some() || planted::is_any(), "steps are taken back in order");
    let Some(mut value) = found else { return };
    let mut rest = &bytes[edits.start..edits.end];
    while let Some((before, len)) = rest.split_last_chunk::<8>() {
        let len = u64::from_le_bytes(*len) as usize;
        let (before, chunk) = before.split_at(before.len() - len);
        apply_to(&mut *value, chunk, limits).expect("edits that were recorded here");
        rest = before;
    }
    // A small value was restored from a copy instead. An edit that takes elements may have made a large list small.
    value.restore_large(edits.prefix);
}

/// Restores the old lengths and bytes of a large string, the last written part first.
fn write_back(entry: &mut Entry, mut bytes: &[u8]) {
    entry.change_blob(|blob| {
        let value = std::sync::Arc::make_mut(blob);
        while let Some((before, written, old)) = Written::split_last(bytes) {
            let Written { old_len, old_capacity, offset, len } = written;
            value.truncate(old_len);
            value[offset.min(old_len)..][..len].copy_from_slice(old);
            if value.capacity() > old_capacity {
                value.shrink_to(old_capacity);
            }
            bytes = before;
        }
    });
}

/// Exchanges two databases back.
fn swap_back(locks: &mut ShardLocks<'_>, a: DbIndex, b: DbIndex) {
    let keyspace = locks.keyspace();
    for held in locks.all_held() {
        held.shard.swap(a, b);
        held.stats.dbs.swap(a, b);
    }
    save_swapped(keyspace, a, b);
    keyspace.swaps.fetch_add(1, Ordering::Relaxed);
}
