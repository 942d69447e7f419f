//! Notes the watched keys of databases that are emptied or exchanged.

use crate::access::shard_locks::ShardLocks;
use crate::data::key::{Key, KeyHash};
use crate::db_index::{DbIndex, DbSet};

/// Notes the watched keys of databases that are going to be emptied: those that exist. All shards are locked.
pub(crate) fn touch_emptied(locks: &mut ShardLocks<'_>, dbs: &DbSet) {
    let keyspace = locks.keyspace();
    let ShardLocks { together, thread, .. } = locks;
    for held in together.iter().filter(|held| held.stats.watched_keys.get() > 0) {
        for (db, hash, key) in held.shard.observers.watched.keys_of(dbs) {
            let (table, table_hash) = (&held.shard.db(db).table, keyspace.hasher.table_hash(hash));
            if table.find(table_hash, |entry| entry.is_key(key)).is_some() {
                thread.effects.notices().touched.note(held.index, db, hash, key);
            }
        }
    }
}

/// Notes the watched keys of two databases that are going to be exchanged: those that exist in either. All
/// shards are locked.
pub(crate) fn touch_swapped(locks: &mut ShardLocks<'_>, a: DbIndex, b: DbIndex, now_ms: i64) {
    for index in 0..locks.keyspace().shard_count() {
        if locks.held(index).stats.watched_keys.get() > 0 {
            touch_swapped_in(locks, index, a, b, now_ms);
            touch_swapped_in(locks, index, b, a, now_ms);
        }
    }
}

fn touch_swapped_in(
    locks: &mut ShardLocks<'_>,
    index: usize,
    watched: DbIndex,
    other: DbIndex,
    now_ms: i64,
) {
    let dbs = DbSet::from_iter([watched]);
    let keys = locks.held(index).shard.observers.watched.keys_of(&dbs);
    let keys: Vec<(KeyHash, Box<[u8]>)> = keys.map(|(_, hash, key)| (hash, key.into())).collect();
    for (hash, bytes) in keys {
        let key = Key::new(&bytes, hash);
        // An expired key is removed here: a later removal would be a change of the other database.
        let was_there = locks.shard_db(index, watched, now_ms).peek(key).is_some();
        let will_be_there = locks.shard_db(index, other, now_ms).peek(key).is_some();
        if was_there || will_be_there {
            locks.thread.effects.notices().touched.note(index, watched, hash, &bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::keyspace::{Keyspace, Options};
    use crate::data::expiry::Expiry;
    use crate::services::watch::{Watch, watch_key};

    #[test]
    fn what_is_rolled_back_is_told_to_nobody() {
        let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap();
        let keys = [b"first", b"other"].map(|name| keyspace.key(name));
        let mut locks = keyspace.locks();
        let [first, other] = keys.map(|key| {
            let mut watch = Watch::new(&keyspace);
            watch_key(&mut locks, &mut watch, DbIndex::ZERO, key, 0);
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
            watch_key(&mut locks, watch, DbIndex::ZERO, key, 0);
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
        watch_key(all.locks(), &mut watches[2], DbIndex::ZERO, keys[2], 0);
        all.locks().rollback_to(savepoint);
        all.locks().commit();
        drop(all);
        assert_eq!(watches.each_ref().map(|watch| watch.is_dirty(0)), [true, false, false]);
    }
}
