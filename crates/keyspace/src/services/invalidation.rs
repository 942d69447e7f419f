//! Registers the readers of keys, forgets keys beyond the limit, and handles changes of whole databases.

use crate::access::hash_deadlines::deadline_of;
use crate::access::keyspace::Keyspace;
use crate::access::notices::note_table;
use crate::access::shard::Held;
use crate::access::shard_locks::ShardLocks;
use crate::change::event::Origin;
use crate::data::key::Key;
use crate::db_index::DbIndex;
use crate::random::mix;
use crate::registries::cached::table::Added;
use crate::registries::lazy_free::LazyFreeItem;
use crate::registries::reaper_wakeup::Left;

/// Maximum number of excess keys removed under one lock.
const TRIM_BATCH: usize = 64;

/// Registers a client that is about to read a key, so that it is told of the next change. Locks the shard as
/// [`ShardLocks::db`] does.
pub fn remember_reader(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    key: Key<'_>,
    reader: u64,
    now_ms: i64,
) {
    let keyspace = locks.keyspace();
    // Removes expired data now, so that the read does not.
    deadline_of(&mut locks.db(db, key.hash(), now_ms), key);
    let held = locks.held(keyspace.shard_of(key.hash()));
    let cached = held.shard.observers.cached.get_mut();
    let sink = keyspace.cached.sink.get();
    let still_reads = |reader| sink.is_none_or(|sink| sink.still_reads(reader));
    let added = cached.add(&keyspace.hasher, db, key, reader, still_reads);
    match added {
        Added::Nothing => return,
        Added::Reader { gone } => {
            keyspace.cached.add(0, 1);
            keyspace.cached.sub(0, gone);
        }
        Added::Key => keyspace.cached.add(1, 1),
    }
    note_cached(keyspace, held);
    if added != Added::Key {
        return;
    }
    if keyspace.cached.exceeds_limit() {
        forget_cached_key(locks, keyspace.shard_of(key.hash()), key.hash().0);
    }
}

/// Applies the current [`Keyspace::set_broadcast`] mode to later changes under the present locks.
pub fn adopt_broadcast(locks: &mut ShardLocks<'_>) {
    locks.thread.effects.adopt_broadcast(locks.thread.keyspace);
}

/// Reports changes now, as unlocking would. Not for use under a [`MultiShardGuard`](crate::MultiShardGuard), whose
/// changes are reported together.
#[inline]
pub fn tell_invalidated(locks: &mut ShardLocks<'_>) {
    if locks.thread.effects.noted().is_some_and(|notices| !notices.invalidated.is_empty()) {
        locks.commit_effects();
    }
}

/// Removes a cached key of a locked shard, and tells its readers as if it had changed. Returns true if there was one.
fn forget_cached_key(locks: &mut ShardLocks<'_>, shard: usize, random: u64) -> bool {
    let keyspace = locks.keyspace();
    let held = locks.held(shard);
    let cached = held.shard.observers.cached.get_mut();
    let Some(taken) = cached.take_any(&keyspace.hasher, mix(random)) else { return false };
    note_cached(keyspace, held);
    keyspace.cached.sub(1, taken.readers_len());
    locks.thread.effects.notices().invalidated.push(taken, Origin::SERVER.client, false);
    true
}

/// Removes some of the keys beyond the limit.
pub(crate) fn trim_cached_keys(locks: &mut ShardLocks<'_>) -> Left {
    let keyspace = locks.keyspace();
    if !keyspace.cached.exceeds_limit() {
        return Left::Nothing;
    }
    let mut left = Left::Busy;
    for shard in 0..keyspace.shard_count() {
        if !locks.try_reach_shard(shard) {
            continue;
        }
        let mut taken = 0;
        while taken < TRIM_BATCH
            && keyspace.cached.exceeds_limit()
            && forget_cached_key(locks, shard, taken as u64)
        {
            taken += 1;
        }
        if taken == TRIM_BATCH {
            left = Left::Something;
        }
        locks.release();
    }
    if keyspace.cached.exceeds_limit() { left } else { Left::Nothing }
}

/// Makes changes that are reported to clients as one change of all keys, however many keys change. All shards are
/// locked.
pub fn invalidate_at_once<'k, T>(
    locks: &mut ShardLocks<'k>,
    change: impl FnOnce(&mut ShardLocks<'k>) -> T,
) -> T {
    locks.thread.effects.notices_mut().invalidated.is_quiet = true;
    let changed = change(locks);
    locks.thread.effects.notices_mut().invalidated.is_quiet = false;
    invalidate_all(locks);
    changed
}

/// Reports that whole databases change: clients must drop everything they have cached. All shards are locked.
pub(crate) fn invalidate_all(locks: &mut ShardLocks<'_>) {
    let keyspace = locks.keyspace();
    if keyspace.cached.sink.get().is_none() {
        return;
    }
    let mut tables = Vec::new();
    for held in locks.all_held() {
        let table = std::mem::take(held.shard.observers.cached.get_mut());
        if table.len() > 0 {
            note_cached(keyspace, held);
            keyspace.cached.sub(table.len(), table.readers_len());
            tables.push(table);
        }
    }
    locks.thread.effects.notices_mut().invalidated.all = true;
    if !tables.is_empty() {
        keyspace.discard(LazyFreeItem::Cached(tables));
    }
}

/// Updates the statistics of a table that has changed.
fn note_cached(keyspace: &Keyspace, held: &mut Held<'_>) {
    note_table(keyspace, held.stats, held.shard.observers.cached.get_mut());
}
