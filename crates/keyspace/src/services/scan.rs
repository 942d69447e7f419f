//! Visits the keys of a database, and draws random ones.
//!
//! A scan cursor is a position in the order of the hash: the shard in the upper bits, the position in its table in
//! the lower [`POSITION_BITS`]. Everything before it was visited, and nothing after it. Shards never change their
//! number, and a table keeps its order while it grows and shrinks. So a key that exists from the first to the last
//! call is visited exactly once.

use crate::access::shard_locks::ShardLocks;
use crate::change::Removal;
use crate::data::entry::Entry;
use crate::db_index::DbIndex;
use crate::error::Busy;
use crate::random::mix;

/// Bits of a position in a table.
const POSITION_BITS: u32 = 48;

/// Number of expired keys drawn on a replica before one is returned, if there may be no others.
const EXPIRED_SEEN_MAX: u32 = 100;

/// Visits some keys of a database and returns the next cursor: SCAN. Begins at cursor 0, and returns 0 after the last
/// key.
///
/// Visits at least `count` keys, unless it reaches the end, and continues to the end of a bucket, up to a dozen keys
/// more. Expired keys are skipped. A shard is locked while its keys are visited.
///
/// Stops before a busy shard, if these are a worker's locks.
///
/// # Errors
///
/// [`Busy`] if the first shard is busy; then nothing was visited.
pub fn try_scan(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    cursor: u64,
    count: usize,
    now_ms: i64,
    mut visit: impl FnMut(&Entry),
) -> Result<u64, Busy> {
    let keyspace = locks.keyspace();
    let mut position = cursor & ((1 << POSITION_BITS) - 1);
    let mut visited = 0;
    // A cursor that no scan has returned may name a shard that does not exist: treat it as the end.
    for index in (cursor >> POSITION_BITS) as usize..keyspace.shard_count() {
        match locks.reach_shard(index) {
            Err(_) if visited > 0 => return Ok((index as u64) << POSITION_BITS),
            reached => reached?,
        }
        let table = &locks.held(index).shard.db(db).table;
        loop {
            position = table.scan(position, &keyspace.hasher, |entry| {
                visited += 1;
                if keyspace.expiry_of(entry, now_ms).is_none() {
                    visit(entry);
                }
            });
            if position == 0 {
                break;
            }
            if visited >= count {
                return Ok((index as u64) << POSITION_BITS | position);
            }
        }
        if visited >= count && index + 1 < keyspace.shard_count() {
            return Ok((index as u64 + 1) << POSITION_BITS);
        }
    }
    Ok(0)
}

/// Like [`try_scan`], for threads that may wait.
pub fn scan(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    cursor: u64,
    count: usize,
    now_ms: i64,
    visit: impl FnMut(&Entry),
) -> u64 {
    try_scan(locks, db, cursor, count, now_ms, visit).expect("it waits")
}

/// Visits at least `count` keys of a database in one shard from a position on. Returns the next position, 0 after the
/// last key. The shard stays locked.
pub(crate) fn scan_shard(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    index: usize,
    position: u64,
    count: usize,
    mut visit: impl FnMut(&Entry),
) -> u64 {
    let hasher = &locks.keyspace().hasher;
    let table = &locks.held(index).shard.db(db).table;
    let (mut position, mut visited) = (position, 0);
    loop {
        position = table.scan(position, hasher, |entry| {
            visited += 1;
            visit(entry);
        });
        if position == 0 || visited >= count {
            return position;
        }
    }
}

/// Visits all keys of a database: KEYS. Locks one shard after the other, so the result is not as of one moment,
/// unless all shards are already locked.
///
/// # Errors
///
/// [`Busy`] if these are a worker's locks and a shard is busy; some keys were visited then.
pub fn try_for_each_entry(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    now_ms: i64,
    mut visit: impl FnMut(&Entry),
) -> Result<(), Busy> {
    let keyspace = locks.keyspace();
    for index in 0..keyspace.shard_count() {
        locks.reach_shard(index)?;
        let table = &locks.held(index).shard.db(db).table;
        let is_live = |entry: &&Entry| keyspace.expiry_of(entry, now_ms).is_none();
        table.iter().filter(is_live).for_each(&mut visit);
    }
    locks.end_steps();
    Ok(())
}

/// Like [`try_for_each_entry`], for threads that may wait.
pub fn for_each_entry(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    now_ms: i64,
    visit: impl FnMut(&Entry),
) {
    try_for_each_entry(locks, db, now_ms, visit).expect("it waits");
}

/// Returns a random key of the database, each about equally likely: RANDOMKEY. `None` if there is no key. While
/// another server decides about expiry and all keys have deadlines, an expired key is returned after a hundred
/// attempts, as in Redis.
///
/// # Errors
///
/// [`Busy`] if these are a worker's locks and the key would be in a busy shard.
pub fn try_random_key(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    random: u64,
    now_ms: i64,
) -> Result<Option<Vec<u8>>, Busy> {
    let mut random = random;
    let mut expired_seen = 0;
    // Every turn ends the search, removes an expired key, or was too late for a key that another thread removed. If
    // nothing is removed, it eventually finds a key without a deadline.
    loop {
        let Some(index) = random_shard(locks, db, random) else { return Ok(None) };
        let keyspace = locks.keyspace();
        random = mix(random);
        locks.reach_shard(index)?;
        if let Some(entry) = locks.held(index).shard.db(db).table.sample(random) {
            let key = entry.key().to_vec();
            if keyspace.expiry_of(entry, now_ms).is_none() {
                return Ok(Some(key));
            }
            expired_seen += 1;
            if locks.keyspace().is_following() {
                if expired_seen >= EXPIRED_SEEN_MAX && locks.keyspace().all_expire(db) {
                    return Ok(Some(key));
                }
                continue;
            }
            let key = locks.keyspace().key(&key);
            _ = locks.shard_db(index, db, now_ms).take(key, Removal::Expired);
        }
    }
}

/// Like [`try_random_key`], for threads that may wait.
pub fn random_key(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    random: u64,
    now_ms: i64,
) -> Option<Vec<u8>> {
    try_random_key(locks, db, random, now_ms).expect("it waits")
}

/// Returns a random shard, with a probability in proportion to its keys.
fn random_shard(locks: &ShardLocks<'_>, db: DbIndex, random: u64) -> Option<usize> {
    let counts = locks.keyspace().slots.iter().map(|slot| slot.stats.dbs.get(db).keys.get());
    let total: u64 = counts.clone().sum();
    let mut rank = ((u128::from(random) * u128::from(total)) >> u64::BITS) as u64;
    let mut last = None;
    for (index, count) in counts.enumerate().filter(|(_, count)| *count > 0) {
        if rank < count {
            return Some(index);
        }
        rank -= count;
        last = Some(index);
    }
    // Only if keys were removed between the sum and the search.
    last
}
