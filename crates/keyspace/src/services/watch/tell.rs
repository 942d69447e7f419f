//! Telling watchers, and noting the watched keys of databases that are emptied or exchanged.

use crate::access::db::Db;
use crate::access::shard::Held;
use crate::access::shard_locks::ShardLocks;
use crate::data::key::{Key, KeyHash};
use crate::db_index::{DbIndex, DbSet};
use crate::registries::watch::touched::TouchedKey;

impl Db<'_> {
    /// Counts as a change of a key for those who watch or cache it, whether or not anything has changed: so do some
    /// commands of Redis.
    pub fn touch_watchers(&self, key: Key<'_>) {
        self.at.touch_observers(key);
    }
}

impl ShardLocks<'_> {
    /// Tells the watchers of keys that have changed; to be called before their shards are unlocked.
    #[inline]
    pub(crate) fn tell_watchers(&mut self) {
        if self.thread.effects.noted().is_some_and(|notices| !notices.touched.is_empty()) {
            self.tell_watchers_of_all();
        }
    }

    #[cold]
    fn tell_watchers_of_all(&mut self) {
        let touched = &mut self.thread.effects.notices_mut().touched;
        for TouchedKey { shard, db, hash, key } in std::mem::take(touched.0.get_mut()) {
            self.held(shard).tell(db, hash, &key);
        }
    }

    /// Notes the watched keys of databases that are going to be emptied: those that exist. All shards are locked.
    pub(crate) fn touch_emptied(&mut self, dbs: &DbSet) {
        let keyspace = self.keyspace();
        let Self { together, thread, .. } = self;
        for held in together.iter().filter(|held| held.stats.watched_keys.get() > 0) {
            for (db, hash, key) in held.shard.observers.watched.keys_of(dbs) {
                let (table, table_hash) =
                    (&held.shard.db(db).table, keyspace.hasher.table_hash(hash));
                if table.find(table_hash, |entry| entry.is_key(key)).is_some() {
                    thread.effects.notices().touched.note(held.index, db, hash, key);
                }
            }
        }
    }

    /// Notes the watched keys of two databases that are going to be exchanged: those that exist in either. All
    /// shards are locked.
    pub(crate) fn touch_swapped(&mut self, a: DbIndex, b: DbIndex, now_ms: i64) {
        for index in 0..self.keyspace().shard_count() {
            if self.held(index).stats.watched_keys.get() > 0 {
                self.touch_swapped_in(index, a, b, now_ms);
                self.touch_swapped_in(index, b, a, now_ms);
            }
        }
    }

    fn touch_swapped_in(&mut self, index: usize, watched: DbIndex, other: DbIndex, now_ms: i64) {
        let dbs = DbSet::from_iter([watched]);
        let keys = self.held(index).shard.observers.watched.keys_of(&dbs);
        let keys: Vec<(KeyHash, Box<[u8]>)> =
            keys.map(|(_, hash, key)| (hash, key.into())).collect();
        for (hash, bytes) in keys {
            let key = Key::new(&bytes, hash);
            // A key whose deadline has come is removed here: later that would be a change of the other database.
            let was_there = self.shard_db(index, watched, now_ms).peek(key).is_some();
            let will_be_there = self.shard_db(index, other, now_ms).peek(key).is_some();
            if was_there || will_be_there {
                self.thread.effects.notices().touched.note(index, watched, hash, &bytes);
            }
        }
    }
}

impl Held<'_> {
    fn tell(&mut self, db: DbIndex, hash: KeyHash, key: &[u8]) {
        let watchers = self.shard.observers.watched.take(db, hash, key);
        self.note_watched();
        watchers.iter().for_each(|watcher| watcher.mark());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::keyspace::{Keyspace, Options};
    use crate::data::expiry::Expiry;
    use crate::services::watch::Watch;

    #[test]
    fn what_is_rolled_back_is_told_to_nobody() {
        let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap();
        let keys = [b"first", b"other"].map(|name| keyspace.key(name));
        let mut locks = keyspace.locks();
        let [first, other] = keys.map(|key| {
            let mut watch = Watch::new(&keyspace);
            locks.watch(&mut watch, DbIndex::ZERO, key, 0);
            watch
        });
        let mut all = locks.lock_all();
        let set = |key: Key<'_>, locks: &mut ShardLocks<'_>| {
            let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
            db.set(key, "value", Expiry::Never).unwrap();
        };
        set(keys[0], all.locks());
        let savepoint = all.locks().thread.effects.notices().touched.len();
        set(keys[1], all.locks());
        all.locks().thread.effects.notices_mut().touched.truncate(savepoint);
        drop(all);
        assert!(first.is_dirty(0));
        assert!(!other.is_dirty(0));
    }

    /// The last key is watched after the changes of the others.
    #[test]
    fn who_watches_under_an_undo_log_tells_nobody_of_what_may_be_rolled_back() {
        let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap();
        let keys = [b"first", b"other", b"third"].map(|name| keyspace.key(name));
        let mut locks = keyspace.locks();
        let mut watches = keys.map(|_| Watch::new(&keyspace));
        for (watch, key) in watches.iter_mut().zip(keys).take(2) {
            locks.watch(watch, DbIndex::ZERO, key, 0);
        }
        let mut all = locks.lock_all();
        all.locks().begin_undo();
        let set = |key: Key<'_>, locks: &mut ShardLocks<'_>| {
            let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
            db.set(key, "value", Expiry::Never).unwrap();
        };
        set(keys[0], all.locks());
        let savepoint = all.locks().savepoint();
        set(keys[1], all.locks());
        all.locks().watch(&mut watches[2], DbIndex::ZERO, keys[2], 0);
        all.locks().rollback_to(savepoint);
        all.locks().commit();
        drop(all);
        assert_eq!(watches.each_ref().map(|watch| watch.is_dirty(0)), [true, false, false]);
    }
}
