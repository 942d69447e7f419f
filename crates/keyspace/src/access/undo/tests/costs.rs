//! An undo log keeps what was changed, and not more.

use tierce_collections::stream::StreamId;
use tierce_collections::{Hash, List, Set, SortedSet, Stream};

use crate::access::collections::Missing;
use crate::access::keyspace::{Keyspace, Options};
use crate::access::shard_locks::ShardLocks;
use crate::data::collections::{CollectionType, Editor};
use crate::data::expiry::Expiry;
use crate::db_index::DbIndex;
use crate::error::Error;

const EDITS: usize = 1000;

/// Bytes of the undo log after a thousand edits of a collection with this many elements.
fn bytes_of_edits<T: CollectionType>(
    len: usize,
    add: impl Fn(&mut Editor<'_, T>, usize),
    edit: impl Fn(&mut Editor<'_, T>, usize),
) -> usize {
    let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap();
    let key = keyspace.key(b"key");
    let mut locks = keyspace.locks();
    let mut all = locks.lock_all();
    let locks = all.locks();
    let with = |locks: &mut ShardLocks<'_>, act: &dyn Fn(&mut Editor<'_, T>)| {
        let mut db = locks.db(DbIndex::ZERO, key.hash(), 1);
        let done: Result<_, Error> = db.edit(key, Missing::Create, |editor| {
            act(editor);
            Ok(())
        });
        done.unwrap();
    };
    with(locks, &|editor| (0..len).for_each(|number| add(editor, number)));
    locks.begin_undo();
    for number in 0..EDITS {
        with(locks, &|editor| edit(editor, number));
    }
    let bytes = locks.undo_bytes();
    locks.rollback();
    bytes
}

/// The bytes depend on the edits: ten times as many elements make no difference, and a thousand edits take a hundred
/// bytes each at most.
fn check<T: CollectionType>(
    what: &str,
    add: impl Fn(&mut Editor<'_, T>, usize),
    edit: impl Fn(&mut Editor<'_, T>, usize),
) {
    let [few, many] = [3_000, 30_000].map(|len| bytes_of_edits::<T>(len, &add, &edit));
    assert!(few <= EDITS * 100, "{what}: {few} bytes");
    assert!(many <= few + EDITS * 4, "{what}: {many} bytes for more elements, {few} for fewer");
}

fn name(number: usize) -> Vec<u8> {
    format!("element:{number}").into_bytes()
}

#[test]
fn an_undo_log_grows_with_the_edits_alone() {
    check::<List>(
        "list",
        |list, number| list.push_back([&name(number)[..]].into_iter()),
        |list, number| match number % 3 {
            0 => list.push_front([&b"new"[..]].into_iter()),
            1 => _ = list.set(number, b"other"),
            _ => _ = list.remove(number / 2, 1),
        },
    );
    check::<Set>(
        "set",
        |set, number| _ = set.add(&name(number)),
        |set, number| _ = set.remove(&name(number)),
    );
    check::<SortedSet>(
        "sorted set",
        |set, number| set.update(&name(number), |_| Some(number as f64)),
        |set, number| set.update(&name(number), |_| Some(0.5)),
    );
    check::<Hash>(
        "hash",
        |hash, number| _ = hash.put(&name(number), b"value", None),
        |hash, number| _ = hash.put(&name(number), b"other", Some(1 << 40)),
    );
    check::<Stream>(
        "stream",
        |stream, number| _ = stream.add(id(number), [(&b"a"[..], &b"b"[..])].into_iter()),
        |stream, number| _ = stream.delete(id(number)),
    );
}

fn id(number: usize) -> StreamId {
    StreamId::new(number as u64 + 1, 0)
}

#[test]
fn a_part_of_a_large_string_costs_its_bytes() {
    let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap();
    let key = keyspace.key(b"key");
    let mut locks = keyspace.locks();
    let mut all = locks.lock_all();
    let locks = all.locks();
    let set = |locks: &mut ShardLocks<'_>, value: &[u8]| {
        locks.db(DbIndex::ZERO, key.hash(), 1).set(key, value, Expiry::Never).unwrap();
    };
    set(locks, &vec![b'a'; 1 << 20]);
    let memory = keyspace.memory();
    locks.begin_undo();
    let mut db = locks.db(DbIndex::ZERO, key.hash(), 1);
    db.set_range(key, 1000, b"text").unwrap();
    // Zero bytes are added up to there, and removed again.
    db.set_range(key, 1 << 22, b"text").unwrap();
    assert!(locks.undo_bytes() < 1000);
    locks.rollback();
    assert_eq!(keyspace.memory(), memory);
    locks.begin_undo();
    // Keeping values from before costs nothing. Their replacements are freed, and do not count.
    for _ in 0..100 {
        set(locks, &vec![b'b'; 1 << 16]);
    }
    assert!(locks.undo_bytes() < 1000);
    // Except if a savepoint may have to restore them.
    locks.savepoint();
    set(locks, b"short");
    assert!(locks.undo_bytes() > 1 << 16);
    locks.rollback();
    assert_eq!(keyspace.memory(), memory);
    let value = locks.db(DbIndex::ZERO, key.hash(), 1).string(key).unwrap().unwrap().to_vec();
    assert_eq!(value, vec![b'a'; 1 << 20]);
}

#[test]
fn what_an_undo_log_takes_grows_and_goes() {
    let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap();
    let key = keyspace.key(b"key");
    let mut locks = keyspace.locks();
    let mut all = locks.lock_all();
    let locks = all.locks();
    locks.begin_undo();
    let mark = locks.savepoint();
    let mut pushed = 0;
    while locks.undo_bytes() <= 5000 {
        let mut db = locks.db(DbIndex::ZERO, key.hash(), 1);
        db.append(key, b"some bytes").unwrap();
        db.remove(key);
        locks.savepoint();
        pushed += 1;
    }
    assert!((5..1000).contains(&pushed), "{pushed}");
    locks.rollback_to(mark);
    assert!(locks.undo_bytes() <= 5000);
    locks.rollback();
    assert!(keyspace.is_empty(DbIndex::ZERO));
}
