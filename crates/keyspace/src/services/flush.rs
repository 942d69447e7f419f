//! Flushes and exchanges whole databases. All shards are locked for that.

use std::sync::atomic::Ordering;

use crate::access::keyspace::Keyspace;
use crate::access::saving::{keys_being_saved, save_flushed, save_swapped};
use crate::access::shard::{Held, take_db};
use crate::access::shard_locks::ShardLocks;
use crate::change::event::Event;
use crate::db_index::{DbIndex, DbSet};
use crate::error::Busy;
use crate::registries::flushed::{Flushed, FlushedData, FlushedShard, Freeing};
use crate::registries::lazy_free::LazyFreeItem;
use crate::services::events::event_of_database;
use crate::services::invalidation::invalidate_all;
use crate::services::watch::{touch_emptied, touch_swapped};

/// Removes all keys of some databases: FLUSHDB and FLUSHALL. All shards are locked meanwhile, but nothing is freed
/// under the locks. A running snapshot keeps the data that it needs, and frees them afterwards. Returns the number of
/// keys.
///
/// Under a [`MultiShardGuard`](crate::MultiShardGuard) of all shards, these stay locked, so the reaper always frees
/// the data.
///
/// # Errors
///
/// [`Busy`] if these are a worker's locks and a shard is busy, and errors of `check`, which is called when all shards
/// are locked. Nothing is removed then.
pub fn try_flush_dbs<E: From<Busy>>(
    locks: &mut ShardLocks<'_>,
    dbs: impl IntoIterator<Item = DbIndex>,
    freeing: Freeing,
    check: impl FnOnce() -> Result<(), E>,
) -> Result<u64, E> {
    let keyspace = locks.keyspace();
    let is_within = locks.is_within();
    let dbs: DbSet = dbs.into_iter().collect();
    let (mut data, mut keys) = (FlushedData::default(), 0);
    let mut all = locks.try_lock_all()?;
    check()?;
    let undo = all.locks().thread.undo.clone();
    touch_emptied(all.locks(), &dbs);
    invalidate_all(all.locks());
    let mut being_saved = keys_being_saved(keyspace, &dbs);
    // Changes under an undo log or a snapshot must handle each database separately.
    let leaves_whole = undo.is_none() && being_saved.is_empty();
    let mut emptied = DbSet::default();
    for held in all.locks().all_held() {
        // With many databases, most are in few of the shards.
        let used: Vec<DbIndex> = held.shard.used().intersection(&dbs).collect();
        let logged = |db: &&DbIndex| db.get() == 0 || held.stats.dbs.get(**db).keys.get() > 0;
        used.iter().filter(logged).for_each(|db| emptied.insert(*db));
        let has_others = !held.shard.used().is_subset(&dbs);
        if leaves_whole && !has_others && held.shard.snapshot.is_none() {
            keys += take_shard(keyspace, held, &mut data);
            keyspace.publish_next_deadline(held);
            held.stats.follow_size(&keyspace.pressure);
            continue;
        }
        for db in used.iter().copied() {
            let being_saved = being_saved.remove(&(held.index, db)).unwrap_or_default();
            if let Some(undo) = &undo {
                keys += undo.flush(held, db, being_saved) as u64;
                continue;
            }
            let (mut table, mut bytes) = take_table(keyspace, held, db);
            keys += table.len() as u64;
            for key in &being_saved {
                bytes -= save_flushed(keyspace, &mut table, key);
            }
            let table = match &mut held.shard.snapshot {
                Some(part) => part.flushed(db, table, bytes),
                None => Some(table),
            };
            if let Some(table) = table
                && !table.is_empty()
            {
                data.push_table(table, bytes);
            }
        }
        if !used.is_empty() {
            keyspace.publish_next_deadline(held);
            held.stats.follow_size(&keyspace.pressure);
        }
    }
    if let Some(batch) = all.locks().thread.effects.batch.as_ref() {
        // Most of thousands of databases have no keys, and loading locks all shards for each logged flush.
        emptied.iter().for_each(|db| batch.record_flush(db));
    }
    dbs.iter().for_each(|db| event_of_database(all.locks(), Event::Flush, db));
    note_waiters_of(all.locks(), &dbs);
    if let Some(undo) = &undo {
        undo.begin_epoch();
    }
    drop(all);
    match freeing {
        Freeing::Now if !is_within => {
            data.free_all_but_large(&mut |entry| keyspace.discard(LazyFreeItem::Entry(entry)));
        }
        _ if data.is_empty() => {}
        freeing => keyspace.discard(LazyFreeItem::Flushed(data, freeing)),
    }
    Ok(keys)
}

/// Like [`try_flush_dbs`], for threads that may wait.
pub fn flush_dbs(
    locks: &mut ShardLocks<'_>,
    dbs: impl IntoIterator<Item = DbIndex>,
    freeing: Freeing,
) -> u64 {
    try_flush_dbs(locks, dbs, freeing, || Ok::<(), Busy>(())).expect("it waits")
}

/// Exchanges two databases: SWAPDB.
pub fn swap_dbs(locks: &mut ShardLocks<'_>, a: DbIndex, b: DbIndex, now_ms: i64) {
    if a == b {
        return;
    }
    let keyspace = locks.keyspace();
    let mut all = locks.lock_all();
    let undo = all.locks().thread.undo.clone();
    touch_swapped(all.locks(), a, b, now_ms);
    invalidate_all(all.locks());
    for held in all.locks().all_held() {
        if let Some(undo) = &undo {
            undo.swap(held);
        }
        held.shard.swap(a, b);
        held.stats.dbs.swap(a, b);
        held.stats.changes.add(1);
        let latest = keyspace.version_after(held.stats.changes.get());
        held.stats.versions.renew_all(latest);
    }
    note_waiters_of(all.locks(), &DbSet::from_iter([a, b]));
    if let Some(undo) = &undo {
        undo.swapped(a, b);
    }
    save_swapped(keyspace, a, b);
    keyspace.swaps.fetch_add(1, Ordering::Relaxed);
    if let Some(batch) = all.locks().thread.effects.batch.as_ref() {
        batch.record_swap(a, b);
    }
    [a, b].into_iter().for_each(|db| event_of_database(all.locks(), Event::Swap, db));
}

/// Notes as ready all keys of some databases that have waiters. All shards are locked.
fn note_waiters_of(locks: &mut ShardLocks<'_>, dbs: &DbSet) {
    let ShardLocks { together, thread, .. } = locks;
    for held in together {
        let Some(waiters) = held.shard.waiters.as_deref() else { continue };
        for (db, key) in waiters.keys_of(dbs) {
            thread.effects.notices().ready.note(*db, key);
        }
    }
}

/// Empties a database. Returns its table and the bytes of its entries.
fn take_table(keyspace: &Keyspace, held: &mut Held<'_>, db: DbIndex) -> (Flushed, usize) {
    let (taken, _) = take_db(held, db);
    held.stats.changes.add(taken.table.len() as u64);
    let entry_bytes = taken.entry_bytes;
    (Flushed::new(keyspace.cold_store(), taken), entry_bytes)
}

/// Empties all databases of a shard. Returns the number of their keys.
fn take_shard(keyspace: &Keyspace, held: &mut Held<'_>, data: &mut FlushedData) -> u64 {
    let stats = held.stats;
    let keys = stats.dbs.reset_all();
    stats.changes.add(keys);
    for counter in [&stats.entry_bytes, &stats.index_bytes, &stats.deadline_bytes] {
        data.bytes += counter.get() as usize;
        counter.set(0);
    }
    [&stats.spilled_keys, &stats.spilled_bytes].into_iter().for_each(|counter| counter.set(0));
    let dbs = held.shard.take_all();
    if !dbs.is_empty() {
        data.shards.push(FlushedShard { dbs, store: keyspace.cold_store().cloned() });
    }
    keys
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::access::keyspace::Options;
    use crate::access::shard::LOOKUPS;
    use crate::change::log::sink::{LogSink, RecordKind};
    use crate::data::expiry::Expiry;
    use crate::registries::stats::Stats;
    use std::sync::Arc;

    #[test]
    fn a_flush_of_all_databases_visits_shards_and_no_databases() {
        const SHARDS: usize = 64;
        const DATABASES: usize = 10_000;
        let options = Options { shards: SHARDS, databases: DATABASES, ..Options::default() };
        let keyspace = Keyspace::new(options).unwrap();
        let mut locks = keyspace.locks();
        let key =
            |db: DbIndex| keyspace.key(if db.get().is_multiple_of(2) { b"even" } else { b"odd" });
        for db in keyspace.db_indices() {
            locks.db(db, key(db).hash(), 0).set(key(db), b"value", Expiry::Never).unwrap();
        }
        assert_eq!((keyspace.total_len(), keyspace.sizes(0).len()), (10_000, 10_000));
        assert!((1_000..100_000).contains(&keyspace.estimated_len()));
        for (flushes, expected) in [(1, DATABASES), (2, 0)] {
            LOOKUPS.set(0);
            assert_eq!(
                flush_dbs(&mut locks, keyspace.db_indices(), Freeing::Now),
                expected as u64,
                "flush {flushes}"
            );
            // They are removed with their shard; then the first database of each is asked for both deadlines.
            let most = 3 * SHARDS;
            assert!(LOOKUPS.get() <= most, "{} databases were visited, not {most}", LOOKUPS.get());
        }
        assert_eq!((keyspace.total_len(), keyspace.sizes(0).len()), (0, 0));
        assert_eq!(keyspace.estimated_len(), 0);
        for shard in 0..SHARDS {
            assert!(
                locks.held(shard).shard.used().iter().eq([DbIndex::ZERO]),
                "the memory is given back"
            );
            let visited = locks.held(shard).stats.dbs.used().map(|(db, _)| db);
            assert!(visited.eq([DbIndex::ZERO]), "INFO looks at no empty database");
        }
    }

    #[derive(Default)]
    struct Records(Mutex<Vec<Vec<u8>>>);

    impl LogSink for Records {
        fn append(&self, record: &[u8], _: RecordKind) {
            self.0.lock().push(record.to_vec());
        }
    }

    /// The log does not depend on whether a database once had keys, or would have had them without a rollback.
    #[test]
    fn the_log_has_flushes_of_databases_with_keys_and_of_the_first_one() {
        let records = Arc::new(Records::default());
        let log = Some(Arc::clone(&records) as Arc<dyn LogSink>);
        let options = Options { shards: 2, databases: 5, log, ..Options::default() };
        let keyspace = Keyspace::new(options).unwrap();
        keyspace.begin_logging();
        let (key, db) = (keyspace.key(b"key"), DbIndex::from_number);
        let set = |locks: &mut ShardLocks<'_>, number| {
            locks.db(db(number), key.hash(), 0).set(key, b"value", Expiry::Never).unwrap();
        };
        let mut locks = keyspace.locks();
        set(&mut locks, 1);
        set(&mut locks, 2);
        assert!(locks.db(db(2), key.hash(), 0).remove(key));
        let mut all = locks.lock_all();
        all.locks().begin_undo();
        set(all.locks(), 3);
        all.locks().rollback();
        drop(all);
        records.0.lock().clear();
        assert_eq!(flush_dbs(&mut locks, keyspace.db_indices(), Freeing::Now), 1);
        assert_eq!(flush_dbs(&mut locks, keyspace.db_indices(), Freeing::Now), 0);
        const FLUSH: u8 = 6;
        assert_eq!(*records.0.lock(), [vec![FLUSH, 0, FLUSH, 1], vec![FLUSH, 0]]);
    }

    #[test]
    fn a_flush_of_some_databases_visits_those_that_have_keys() {
        const DATABASES: usize = 1_000;
        let options = Options { shards: 1, databases: DATABASES, ..Options::default() };
        let keyspace = Keyspace::new(options).unwrap();
        let (mut locks, key) = (keyspace.locks(), keyspace.key(b"key"));
        for db in keyspace.db_indices().step_by(10) {
            locks.db(db, key.hash(), 0).set(key, b"value", Expiry::Never).unwrap();
        }
        LOOKUPS.set(0);
        assert_eq!(flush_dbs(&mut locks, keyspace.db_indices().skip(500), Freeing::Now), 50);
        // The databases that keep their keys are asked for both deadlines.
        assert_eq!(LOOKUPS.get(), 50 + 2 * 50);
        let sizes = keyspace.sizes(0).into_iter().map(|(db, stats)| (db, stats.keys));
        assert!(sizes.eq(keyspace.db_indices().step_by(10).take(50).map(|db| (db, 1))));
    }

    /// A flush of everything leaves the same state as flushing one database after the other.
    #[test]
    fn a_shard_that_leaves_as_a_whole_leaves_nothing_behind() {
        const DATABASES: usize = 40;
        let flushed = |begin_with: usize| {
            let options = Options { shards: 4, databases: DATABASES, ..Options::default() };
            let keyspace = Keyspace::new(options).unwrap();
            keyspace.lazy_free().begin_collecting();
            let mut locks = keyspace.locks();
            for db in keyspace.db_indices() {
                for number in 0..db.get() {
                    let name = number.to_string();
                    let (key, expiry) = (keyspace.key(name.as_bytes()), Expiry::At(1_000_000));
                    let expiry = if number % 3 == 0 { expiry } else { Expiry::Never };
                    locks
                        .db(db, key.hash(), 0)
                        .set(key, &vec![b'v'; number * 100], expiry)
                        .unwrap();
                }
            }
            let entries = keyspace.memory().entries;
            let mut keys = 0;
            for db in keyspace.db_indices().take(begin_with) {
                keys += flush_dbs(&mut locks, [db], Freeing::Later);
            }
            keys += flush_dbs(&mut locks, keyspace.db_indices(), Freeing::Later);
            let memory = keyspace.memory();
            assert!(memory.lazy_free >= entries, "what waits is counted");
            let next_ms = keyspace.next_deadline_ms();
            let left = [memory.entries, memory.index, memory.deadlines];
            while keyspace.lazy_free().free_one() {}
            assert_eq!(keyspace.memory().total(), 0, "and not any more");
            // The number of freed pieces may differ.
            let stats = Stats { lazily_freed: 0, ..keyspace.stats() };
            (keys, stats, keyspace.sizes(0), left, next_ms)
        };
        let whole = flushed(0);
        assert_eq!((whole.0, whole.1.changes), (780, 2 * 780));
        assert_eq!((&whole.2, whole.3, whole.4), (&Vec::new(), [0; 3], None));
        for begin_with in [1, 7, DATABASES] {
            assert_eq!(flushed(begin_with), whole, "with {begin_with} by themselves");
        }
    }
}
