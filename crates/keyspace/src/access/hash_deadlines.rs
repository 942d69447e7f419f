//! Deadlines of hash fields and of members of sets in a database: maintains their heap, and removes what has expired.
//! Everything said of fields holds for members.
//!
//! An expired field is invisible, even if it has not been removed. So its removal is not a change, and has its own
//! event; only copies of the hash in progress end. The removal is logged, as for an expired key, because a reader may
//! find only the later records of the hash. A hash that loses its last field is removed like an expired key.
//!
//! Invariant: for each hash or set with such deadlines, the heap of its database has an item that is not later than the
//! earliest of them. This heap is separate from that of the key deadlines, because eviction draws from the latter.

use std::ptr::NonNull;

use tierce_collections::CollectionKind;

use crate::access::accounting::{Accounting, ColdAccounting, ElementDeadline};
use crate::access::context::Context;
use crate::access::db::Db;
use crate::change::event::Event;
use crate::change::log::batch::Recording;
use crate::change::{Change, Removal};
use crate::data::collections::sealed::Sealed;
use crate::data::collections::{CollectionType, with_type};
use crate::data::entry::Entry;
use crate::data::key::{Key, KeyHash};
use crate::data::shard_db::ShardDb;

/// Maximum number of fields removed in one step: some microseconds.
const FIELDS_PER_STEP: usize = 32;

/// Handles the earliest item of the heap if it is due: removes expired fields of its hash, and the hash if no field
/// is left.
pub(crate) fn expire_next_fields(db: &mut Db<'_>) {
    let now_ms = db.at.now_ms;
    let stats = db.at.stats;
    let heap = &mut db.db().field_deadlines;
    let heap_bytes = heap.memory_bytes();
    let Some((_, hash)) = heap.pop_due(now_ms) else { return };
    stats.deadline_bytes.follow(heap_bytes, heap.memory_bytes());
    db.before_change(hash);
    while let Some(mut found) = find_with_due_fields(db, hash) {
        // SAFETY: the pointer is from a mutable borrow of the table, which nothing has used since.
        let entry = unsafe { found.as_mut() };
        let before = Accounting::of(entry);
        let is_empty = reap(hash, entry, db.at);
        let (after, address) = (Accounting::of(entry), entry.address());
        let is_still_due = entry.next_field_deadline_ms().is_some_and(|at| at <= now_ms);
        db.account(hash, before, after);
        if is_empty {
            let emptied = db.unlink_where(hash, |entry| entry.address() == address);
            emptied.into_iter().for_each(|entry| db.forget(hash, entry, Removal::Emptied));
        } else if is_still_due {
            // The remaining fields are handled after other hashes.
            break;
        }
    }
    arm_fields_again(db, hash);
}

/// Returns the earliest expiry time of the live fields of a key.
fn next_expiry_of_fields(db: &mut Db<'_>, key: Key<'_>) -> Option<i64> {
    let now_ms = db.at.now_ms;
    let entry = db.find(key)?;
    entry.next_field_deadline_ms()?;
    let before = Accounting::of(entry);
    let (form, _) = entry.raw_collection()?;
    let next_ms =
        with_type!(form.kind(), T => entry.borrow_collection::<T>()?.deadline_after(now_ms));
    let after = Accounting::of(entry);
    db.account(key.hash(), before, after);
    next_ms
}

/// Returns the earliest expiry time of a key or its fields. Removes a key that has expired.
pub(crate) fn deadline_of(db: &mut Db<'_>, key: Key<'_>) -> i64 {
    let fields_ms = next_expiry_of_fields(db, key);
    let Some(entry) = db.peek(key) else { return i64::MAX };
    [entry.deadline_ms(), fields_ms].into_iter().flatten().min().unwrap_or(i64::MAX)
}

/// Returns an entry of this hash with expired fields.
fn find_with_due_fields(db: &mut Db<'_>, hash: KeyHash) -> Option<NonNull<Entry>> {
    let (keyspace, now_ms) = (db.at.keyspace, db.at.now_ms);
    let has_due = |entry: &Entry| {
        entry.next_field_deadline_ms().is_some_and(|at| at <= now_ms)
            && keyspace.hash(entry.key()) == hash
    };
    let table_hash = keyspace.hasher.table_hash(hash);
    db.db().table.find_mut(table_hash, has_due).map(NonNull::from)
}

/// Adds an item for the fields of this key, whose previous item was taken.
fn arm_fields_again(db: &mut Db<'_>, hash: KeyHash) {
    let keyspace = db.at.keyspace;
    let table_hash = keyspace.hasher.table_hash(hash);
    let earliest_ms = earliest(db.db(), table_hash, |entry| keyspace.hash(entry.key()) == hash);
    if let Some(deadline_ms) = earliest_ms {
        arm_fields(db, deadline_ms, hash);
    }
}

/// Updates the heap for a hash whose earliest field deadline has changed.
pub(super) fn account_fields(
    db: &mut Db<'_>,
    hash: KeyHash,
    before: Option<ElementDeadline>,
    after: Option<ElementDeadline>,
) {
    let data = db.db();
    if let Some(before) = before {
        *volatile(data, before.kind) -= 1;
    }
    if let Some(after) = after {
        *volatile(data, after.kind) += 1;
    }
    if let Some(after) = after
        && before.is_none_or(|before| after.ms < before.ms)
    {
        arm_fields(db, after.ms, hash);
    }
    let data = db.db();
    if data.field_deadlines.is_crowded(data.volatile_hashes + data.volatile_sets) {
        rebuild_field_deadlines(db);
    }
}

/// Returns the number of collections of this type with deadlines of elements.
fn volatile(data: &mut ShardDb, kind: CollectionKind) -> &mut usize {
    match kind {
        CollectionKind::Set => &mut data.volatile_sets,
        _ => &mut data.volatile_hashes,
    }
}

fn arm_fields(db: &mut Db<'_>, deadline_ms: i64, hash: KeyHash) {
    let at = db.at;
    let heap = &mut db.db().field_deadlines;
    let heap_bytes = heap.memory_bytes();
    heap.arm(deadline_ms, hash);
    at.stats.deadline_bytes.follow(heap_bytes, heap.memory_bytes());
    at.publish_field_deadline(deadline_ms);
}

#[cold]
fn rebuild_field_deadlines(db: &mut Db<'_>) {
    let (keyspace, stats) = (db.at.keyspace, db.at.stats);
    let data = db.db();
    let mut heap = std::mem::take(&mut data.field_deadlines);
    let heap_bytes = heap.memory_bytes();
    heap.rebuild(|hash| {
        let table_hash = keyspace.hasher.table_hash(hash);
        earliest(data, table_hash, |entry| keyspace.hash(entry.key()) == hash)
    });
    stats.deadline_bytes.follow(heap_bytes, heap.memory_bytes());
    data.field_deadlines = heap;
}

/// Removes some expired fields of a hash, and records that for the log. Returns true if no field is left; then the
/// caller records the removal.
fn reap(hash: KeyHash, entry: &mut Entry, at: Context<'_>) -> bool {
    let copied = ColdAccounting::of(entry);
    let mut recording = at.batch().map(|batch| batch.record_edits(at.db, entry.key()));
    let Some((form, _)) = entry.raw_collection() else { return false };
    let (has_changed, is_empty) = with_type!(form.kind(), T => {
        let mut elements = entry.borrow_collection::<T>().expect("it has the type of its form");
        let edits = recording.as_deref_mut();
        (Sealed::reap(&mut *elements, at.now_ms, FIELDS_PER_STEP, edits), elements.is_empty())
    });
    // The known deadline of a hash may belong to a field that was removed since.
    if is_empty || !has_changed {
        return is_empty;
    }
    at.event_of_itself(Event::of_reaped(entry.value_type()), entry.key());
    at.reaped(hash, entry);
    match copied.change(entry, Change::Edited) {
        Change::Edited => recording.into_iter().for_each(Recording::keep),
        whole => {
            drop(recording);
            at.batch().into_iter().for_each(|batch| batch.record_change(at.db, entry, whole));
        }
    }
    false
}

/// Returns the earliest field deadline of all hashes with this hash.
fn earliest(db: &ShardDb, table_hash: u64, is_key: impl Fn(&Entry) -> bool) -> Option<i64> {
    let mut earliest_ms = None::<i64>;
    db.table.find(table_hash, |entry| {
        if let Some(deadline_ms) = entry.next_field_deadline_ms()
            && is_key(entry)
        {
            earliest_ms = Some(earliest_ms.map_or(deadline_ms, |time| time.min(deadline_ms)));
        }
        // Never matches, so that every candidate is visited.
        false
    });
    earliest_ms
}
