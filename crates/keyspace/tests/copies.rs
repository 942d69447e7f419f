//! Copies of values in slices: their contents, and when they become outdated.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tierce_collections::{Collection, Hash, List, Set, SortedSet};
use tierce_keyspace::{
    CopyRoom, DbIndex, Expiry, Key, Keyspace, Missing, Options, Removal, Touch, Value, ValueCopy,
    expire_due, swap_dbs,
};

const ZERO: DbIndex = DbIndex::ZERO;
const NOW: i64 = 1_700_000_000_000;
/// Enough elements for many slices.
const MANY: usize = 20_000;

fn keyspace() -> Keyspace {
    Keyspace::new(Options { shards: 1, ..Options::default() }).unwrap()
}

/// A list of the numbers up to `MANY` in their order.
fn fill_list(keyspace: &Keyspace, key: Key<'_>) {
    let mut locks = keyspace.locks();
    let mut db = locks.db(ZERO, key.hash(), NOW);
    db.edit::<List, _, tierce_keyspace::Error>(key, Missing::Create, |list| {
        for number in 0..MANY {
            list.push_back(std::iter::once(number.to_string().as_bytes()));
        }
        Ok(())
    })
    .unwrap();
}

fn copy(keyspace: &Keyspace, key: Key<'_>) -> Option<ValueCopy> {
    ValueCopy::make(keyspace, ZERO, key, NOW, Touch::Yes).unwrap()
}

fn is_current(keyspace: &Keyspace, copy: &ValueCopy, key: Key<'_>) -> bool {
    copy.is_current(&mut keyspace.locks().db(ZERO, key.hash(), NOW), key)
}

fn numbers(copy: &ValueCopy) -> Vec<usize> {
    let Some(Value::Collection(collection)) = copy.value() else { panic!("a list") };
    let Collection::List(list) = &*collection else { panic!("a list") };
    list.iter().map(|item| String::from_utf8(item.to_vec()).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_copy_holds_all_that_the_key_holds() {
    let keyspace = keyspace();
    let (list, set, scores, hash) = (b"list", b"set", b"scores", b"hash");
    fill_list(&keyspace, keyspace.key(list));
    let names: Vec<String> = (0..MANY).map(|number| format!("member:{number}")).collect();
    {
        let limits = keyspace.limits();
        let (mut members, mut scored, mut fields) = (Set::new(), SortedSet::new(), Hash::new());
        for (number, name) in names.iter().enumerate() {
            members.add(name.as_bytes(), limits.set);
            scored.insert(name.as_bytes(), number as f64, &limits.sorted_set);
            let deadline_ms = (number % 3 == 0).then_some(NOW + 1 + number as i64);
            fields.put(name.as_bytes(), b"value", deadline_ms, limits.hash);
        }
        let mut locks = keyspace.locks();
        for (key, collection) in [
            (&set[..], Collection::Set(members)),
            (scores, Collection::SortedSet(scored)),
            (hash, Collection::Hash(fields)),
        ] {
            let key = keyspace.key(key);
            let mut db = locks.db(ZERO, key.hash(), NOW);
            assert_eq!(db.put_collection(key, collection, Some(NOW + 5000)), Ok(true));
        }
    }
    assert_eq!(
        numbers(&copy(&keyspace, keyspace.key(list)).unwrap()),
        (0..MANY).collect::<Vec<_>>()
    );
    for name in [&set[..], scores, hash] {
        let copy = copy(&keyspace, keyspace.key(name)).unwrap();
        let Some(Value::Collection(collection)) = copy.value() else { panic!("a collection") };
        assert_eq!(collection.len(), MANY);
        for (number, name) in names.iter().enumerate() {
            let is_there = match &*collection {
                Collection::Set(set) => set.contains(name.as_bytes()),
                Collection::SortedSet(set) => set.score(name.as_bytes()) == Some(number as f64),
                Collection::Hash(hash) => hash.get(name.as_bytes(), NOW).is_some_and(|field| {
                    field.deadline_ms == (number % 3 == 0).then_some(NOW + 1 + number as i64)
                }),
                _ => false,
            };
            assert!(is_there, "{name}");
        }
        assert_eq!(copy.into_entry().unwrap().deadline_ms(), Some(NOW + 5000));
    }
    assert!(copy(&keyspace, keyspace.key(b"nosuchkey")).unwrap().value().is_none());
}

/// Otherwise a reader whose time is before the deadline would get the rest in the middle of its
/// copy.
#[test]
fn a_copy_is_out_of_date_when_fields_are_removed_whose_deadline_has_come() {
    for len in [2, MANY] {
        let keyspace = keyspace();
        let key = keyspace.key(b"hash");
        let mut fields = Hash::new();
        for number in 0..len {
            let deadline_ms = (number % 2 == 0).then_some(NOW + 1);
            let limits = keyspace.limits();
            fields.put(format!("{number}").as_bytes(), b"value", deadline_ms, limits.hash);
        }
        let put = |mut locks: tierce_keyspace::ShardLocks<'_>| {
            let mut db = locks.db(ZERO, key.hash(), NOW);
            db.put_collection(key, Collection::Hash(fields), None)
        };
        assert_eq!(put(keyspace.locks()), Ok(true));
        let copy = copy(&keyspace, key).unwrap();
        expire_due(&mut keyspace.locks(), NOW);
        assert!(is_current(&keyspace, &copy, key));
        expire_due(&mut keyspace.locks(), NOW + 1);
        assert!(!is_current(&keyspace, &copy, key));
    }
}

#[test]
fn a_copy_is_current_until_its_key_changes() {
    let keyspace = keyspace();
    let (key, other) = (keyspace.key(b"list"), keyspace.key(b"other"));
    let one = keyspace.db_indices().nth(1).unwrap();
    fill_list(&keyspace, key);
    let edit = |db: &mut tierce_keyspace::Db<'_>, key| {
        db.edit::<List, _, tierce_keyspace::Error>(key, Missing::Skip, |list| {
            list.set(0, b"x");
            Ok(())
        })
        .unwrap();
    };
    type Change<'c> = &'c dyn Fn(&mut tierce_keyspace::ShardLocks<'_>);
    let steps: [(&str, bool, Change<'_>); 8] = [
        ("nothing", true, &|_| {}),
        ("another key", true, &|locks| {
            locks.db(ZERO, other.hash(), NOW).set(other, "x", Expiry::Never).unwrap();
        }),
        ("a read", true, &|locks| {
            locks.db(ZERO, key.hash(), NOW).get(key).unwrap();
        }),
        ("an edit", false, &|locks| edit(&mut locks.db(ZERO, key.hash(), NOW), key)),
        ("a deadline", false, &|locks| {
            locks.db(ZERO, key.hash(), NOW).set_deadline(key, NOW + 1000);
        }),
        ("the same value anew", false, &|locks| {
            let mut db = locks.db(ZERO, key.hash(), NOW);
            let entry = db.take(key, Removal::Moved).unwrap();
            db.put(key, entry).unwrap();
        }),
        ("an exchange of databases", false, &|locks| {
            swap_dbs(locks, ZERO, one, NOW);
            swap_dbs(locks, ZERO, one, NOW);
        }),
        ("its end", false, &|locks| {
            locks.db(ZERO, key.hash(), NOW).remove(key);
        }),
    ];
    for (what, stays, change) in steps {
        let copy = copy(&keyspace, key).unwrap();
        assert!(is_current(&keyspace, &copy, key), "before {what}");
        change(&mut keyspace.locks());
        assert_eq!(is_current(&keyspace, &copy, key), stays, "{what}");
    }
    let absent = copy(&keyspace, key).unwrap();
    assert!(is_current(&keyspace, &absent, key));
    fill_list(&keyspace, key);
    assert!(!is_current(&keyspace, &absent, key), "it came to be");
}

#[test]
fn a_copy_is_of_one_moment_while_others_write() {
    let keyspace = keyspace();
    let key = keyspace.key(b"list");
    fill_list(&keyspace, key);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Rotates the list, so that neighbours stay neighbours.
            while !ends.load(Relaxed) {
                let mut locks = keyspace.locks();
                let mut db = locks.db(ZERO, key.hash(), NOW);
                db.edit::<List, _, tierce_keyspace::Error>(key, Missing::Skip, |list| {
                    let first = list.get(0).expect("it is never empty").to_vec();
                    list.remove(0, 1);
                    list.push_back(std::iter::once(&first[..]));
                    Ok(())
                })
                .unwrap();
                drop(locks);
                std::thread::yield_now();
            }
        });
        for _ in 0..50 {
            let Some(copy) = copy(&keyspace, key) else { continue };
            let numbers = numbers(&copy);
            assert_eq!(numbers.len(), MANY);
            assert!(numbers.windows(2).all(|two| two[1] == (two[0] + 1) % MANY));
        }
        ends.store(true, Relaxed);
    });
}

#[test]
fn copies_take_no_more_room_than_there_is() {
    let keyspace = keyspace();
    let half = CopyRoom::take(&keyspace, 600 << 20).unwrap();
    assert!(CopyRoom::take(&keyspace, 600 << 20).is_none());
    assert_eq!(keyspace.memory().copies, 600 << 20);
    drop(half);
    assert_eq!(keyspace.memory().copies, 0);
    let limit = tierce_keyspace::Eviction { limit_bytes: 1 << 20, ..Default::default() };
    keyspace.set_eviction(&limit);
    assert!(CopyRoom::take(&keyspace, 2 << 20).is_none());
    assert!(CopyRoom::take(&keyspace, 1 << 19).is_some());
}
