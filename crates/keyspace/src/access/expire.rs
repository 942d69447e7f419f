//! Key deadlines of a database: maintains their heap, and removes expired keys.

use crate::access::context::Context;
use crate::access::db::Db;
use crate::change::Removal;
use crate::data::db_counters::DbCounters;
use crate::data::key::KeyHash;
use crate::data::shard_db::ShardDb;

/// Takes the earliest item of the deadline heap, and removes its keys if their deadlines have come.
pub(crate) fn expire_next(db: &mut Db<'_>) {
    remove_next(db, db.at.now_ms);
}

/// Handles the earliest item of the deadline heap, whether or not it has expired. Returns true if
/// that has removed a key.
pub(crate) fn evict_next_deadline(db: &mut Db<'_>) -> bool {
    remove_next(db, i64::MAX)
}

/// Removes the keys of the earliest heap item, if that is due at `until_ms`. Returns true if there
/// were any.
///
/// A key with a later deadline than its item gets a new item, even if that deadline has passed as
/// well: other keys may be due before it.
fn remove_next(db: &mut Db<'_>, until_ms: i64) -> bool {
    let Context { thread, now_ms, stats, .. } = db.at;
    let keyspace = thread.keyspace;
    let data = db.db();
    let heap_bytes = data.deadlines.memory_bytes();
    let Some((item_ms, hash)) = data.deadlines.pop_due(until_ms) else { return false };
    let why = if item_ms <= now_ms { Removal::Expired } else { Removal::Evicted };
    let mut removed = false;
    stats.deadline_bytes.follow(heap_bytes, data.deadlines.memory_bytes());
    let later_ms = loop {
        let mut later_ms = None::<i64>;
        let expired = db.unlink_where(hash, |entry| {
            let Some(deadline_ms) = entry.deadline_ms() else { return false };
            if keyspace.hash(entry.key()) != hash {
                return false;
            }
            if deadline_ms > item_ms {
                later_ms = Some(later_ms.map_or(deadline_ms, |time| time.min(deadline_ms)));
            }
            deadline_ms <= item_ms
        });
        match expired {
            Some(entry) => {
                removed = true;
                db.forget(hash, entry, why);
            }
            None => break later_ms,
        }
    };
    if let Some(deadline_ms) = later_ms {
        arm(db, deadline_ms, hash);
    }
    stats.follow_size(&keyspace.pressure);
    removed
}

/// Updates the figures and the heap for an entry whose deadline has changed.
pub(super) fn account_deadline(
    db: &mut Db<'_>,
    hash: KeyHash,
    before: Option<i64>,
    after: Option<i64>,
) {
    let counters = db.at.counters();
    if let Some(deadline_ms) = before {
        counters.deadline_sum.sub(DbCounters::summand(deadline_ms));
    }
    if let Some(deadline_ms) = after {
        counters.deadline_sum.add(DbCounters::summand(deadline_ms));
    }
    match (before, after) {
        // Its item comes back at the new time.
        (Some(before_ms), Some(after_ms)) if after_ms >= before_ms => return,
        (None, Some(_)) => counters.expires.add(1),
        (Some(_), None) => counters.expires.sub(1),
        _ => {}
    }
    if let Some(deadline_ms) = after {
        arm(db, deadline_ms, hash);
    }
    let live = db.at.counters().expires.get() as usize;
    if db.db().deadlines.is_crowded(live) {
        rebuild_deadlines(db);
    }
}

fn arm(db: &mut Db<'_>, deadline_ms: i64, hash: KeyHash) {
    let at = db.at;
    let deadlines = &mut db.db().deadlines;
    let heap_bytes = deadlines.memory_bytes();
    deadlines.arm(deadline_ms, hash);
    at.stats.deadline_bytes.follow(heap_bytes, deadlines.memory_bytes());
    at.publish_deadline(deadline_ms);
}

#[cold]
fn rebuild_deadlines(db: &mut Db<'_>) {
    let at = db.at;
    let ShardDb { table, deadlines, .. } = db.db();
    let heap_bytes = deadlines.memory_bytes();
    deadlines.rebuild(|hash| {
        let mut earliest_ms = None::<i64>;
        table.find(at.keyspace.hasher.table_hash(hash), |entry| {
            if let Some(deadline_ms) = entry.deadline_ms()
                && at.keyspace.hash(entry.key()) == hash
            {
                let earliest = earliest_ms.map_or(deadline_ms, |time| time.min(deadline_ms));
                earliest_ms = Some(earliest);
            }
            // Never matches, so that every candidate is visited.
            false
        });
        earliest_ms
    });
    at.stats.deadline_bytes.follow(heap_bytes, deadlines.memory_bytes());
}
