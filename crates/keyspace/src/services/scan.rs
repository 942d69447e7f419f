//! Going through the keys of a database, and drawing one.
//!
//! A scan cursor is a point on the axis of the hash: the shard above, the position in its table,
//! which has [`POSITION_BITS`], below. Everything before the point was visited and nothing after
//! it. Shards never change their number and a table keeps its order while it grows and shrinks, so
//! a key that is there from the first to the last call is visited exactly once.

use crate::access::shard_locks::ShardLocks;
use crate::change::Removal;
use crate::data::entry::Entry;
use crate::db_index::DbIndex;
use crate::error::Busy;
use crate::random::mix;

/// Bits of a position in a table.
const POSITION_BITS: u32 = 48;

/// So many keys whose deadline has come are drawn on a replica before one is returned, if there may be no others.
const EXPIRED_SEEN_MAX: u32 = 100;

/// Visits some keys of a database and returns where to go on: SCAN. Begins at cursor 0, and
/// the cursor 0 is returned after the last key.
///
/// Visits at least `count` keys unless it comes to the end, and then goes on to the end of a
/// bucket, a dozen keys more. Keys whose deadline has come are left out. The lock of a shard is
/// held while its keys are visited.
///
/// Ends before a busy shard, if the locks are a worker's.
///
/// # Errors
///
/// [`Busy`] if it is the first one; then nothing was visited.
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
    // A cursor that no scan has returned may name a shard that does not exist: that is the end.
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

/// Does what [`try_scan`] does, for threads that may wait.
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

/// Visits at least `count` keys of a database in one shard, from a position on, and returns
/// where to go on, 0 after the last key. The shard stays locked.
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

/// Visits all keys of a database: KEYS. One shard after the other is locked, so that this is no
/// picture of one moment, unless all shards are locked already.
///
/// # Errors
///
/// [`Busy`] if the locks are a worker's and comes upon a busy shard; some keys were visited then.
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

/// Does what [`try_for_each_entry`] does, for threads that may wait.
pub fn for_each_entry(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    now_ms: i64,
    visit: impl FnMut(&Entry),
) {
    try_for_each_entry(locks, db, now_ms, visit).expect("it waits");
}

/// A key of the database, each about equally likely if `random` is a random number: RANDOMKEY.
/// `None` if there is no key. While another server decides what expires, and all keys have deadlines, a key whose
/// deadline has come is returned after a hundred of them, as in Redis.
///
/// # Errors
///
/// [`Busy`] if the locks are a worker's and the key would be in a busy shard.
pub fn try_random_key(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    random: u64,
    now_ms: i64,
) -> Result<Option<Vec<u8>>, Busy> {
    let mut random = random;
    let mut expired_seen = 0;
    // Every turn ends the search, or removes a key that has expired, or was too late for one
    // that another thread removed. Where nothing is removed, it finds a key without a deadline in the end.
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

/// Does what [`try_random_key`] does, for threads that may wait.
pub fn random_key(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    random: u64,
    now_ms: i64,
) -> Option<Vec<u8>> {
    try_random_key(locks, db, random, now_ms).expect("it waits")
}

/// A shard, each with a probability in proportion to its keys.
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
    // Only when keys went away between the sum and the search.
    last
}
