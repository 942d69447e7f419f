//! Flags and versions: persistence and cost. No store with a version overwrites a value that its
//! client has not seen.

use proptest::prelude::*;
use tierce_harness::effort;
use tierce_keyspace::{
    Adjust, Adjusted, Condition, Db, DbIndex, End, Expiry, Freeing, Keyspace, Options, Removal,
    ShardLocks, Stored, VersionFor, flush_dbs, swap_dbs,
};

const NOW_MS: i64 = 1_700_000_000_000;

/// For changes whose result another test looks at.
fn ignore<T>(_: T) {}

fn keyspace() -> Keyspace {
    Keyspace::new(Options { shards: 4, version_base: 1 << 40, ..Options::default() })
        .expect("valid options")
}

fn with<R>(locks: &mut ShardLocks<'_>, key: &str, run: impl FnOnce(&mut Db<'_>) -> R) -> R {
    let hash = locks.keyspace().hash(key.as_bytes());
    run(&mut locks.db(DbIndex::ZERO, hash, NOW_MS))
}

fn told(locks: &mut ShardLocks<'_>, key: &str, version: VersionFor) -> u64 {
    let key_bytes = locks.keyspace().key(key.as_bytes());
    with(locks, key, |db| db.item(key_bytes, version).expect("a string").expect("there").version)
}

fn flags(locks: &mut ShardLocks<'_>, key: &str) -> u32 {
    let key_bytes = locks.keyspace().key(key.as_bytes());
    with(locks, key, |db| {
        db.item(key_bytes, VersionFor::None).expect("a string").expect("there").flags
    })
}

fn store(locks: &mut ShardLocks<'_>, key: &str, value: &str, condition: Condition) -> Stored {
    let key_bytes = locks.keyspace().key(key.as_bytes());
    with(locks, key, |db| db.store(key_bytes, value, 7, Expiry::Never, condition).expect("stored"))
}

#[test]
fn every_kind_of_change_makes_a_new_version() {
    let keyspace = keyspace();
    let mut locks = keyspace.locks();
    let key = keyspace.key(b"k");
    for asked in [VersionFor::Anybody, VersionFor::Comparison] {
        store(&mut locks, "k", "5", Condition::Always);
        let mut last = told(&mut locks, "k", asked);
        assert!(last > 1 << 40);
        type Change<'a> = (&'a str, &'a dyn Fn(&mut Db<'_>));
        let changes: &[Change<'_>] = &[
            ("set", &|db| db.set(key, "5", Expiry::Never).expect("set")),
            ("increment", &|db| ignore(db.increment(key, 1).expect("a number"))),
            ("adjust", &|db| ignore(db.adjust(key, Adjust::Up(1 << 63), None).expect("a number"))),
            ("append", &|db| ignore(db.append(key, b"x").expect("appended"))),
            ("prepend", &|db| {
                ignore(db.extend(key, b"x", End::Front, None, usize::MAX).expect("prepended"));
            }),
            ("set_range", &|db| ignore(db.set_range(key, 1, b"y").expect("written"))),
            ("make_stale", &|db| ignore(db.make_stale(key))),
            ("take and put", &|db| {
                let entry = db.take(key, Removal::Moved).expect("there");
                db.put(key, entry).expect("put");
            }),
            ("remove and set", &|db| {
                db.remove(key);
                db.set(key, "5", Expiry::Never).expect("set");
            }),
            ("store", &|db| {
                ignore(db.store(key, "5", 9, Expiry::Never, Condition::Present).expect("stored"));
            }),
        ];
        for (name, change) in changes {
            with(&mut locks, "k", |db| change(db));
            let just_stored = with(&mut locks, "k", |db| db.version_of_store(key));
            let next = told(&mut locks, "k", asked);
            assert_eq!((just_stored, told(&mut locks, "k", asked)), (next, next), "{name}");
            assert!(next > last, "{name} went from version {last} to {next}");
            last = next;
        }
        // The value is the same when the time to live changes.
        with(&mut locks, "k", |db| db.set_deadline(key, NOW_MS + 1000));
        assert_eq!(told(&mut locks, "k", asked), last);
    }
}

#[test]
fn a_version_of_one_database_does_not_fit_another() {
    let keyspace = keyspace();
    let mut locks = keyspace.locks();
    let (a, b) = (DbIndex::ZERO, keyspace.db_index(1).expect("there"));
    let key = keyspace.key(b"k");
    for db in [a, b] {
        locks.db(db, key.hash(), NOW_MS).set(key, "v", Expiry::Never).expect("set");
    }
    let before = told(&mut locks, "k", VersionFor::Anybody);
    swap_dbs(&mut locks, a, b, NOW_MS);
    assert_ne!(told(&mut locks, "k", VersionFor::Anybody), before);
    let before = told(&mut locks, "k", VersionFor::Anybody);
    flush_dbs(&mut locks, [a], Freeing::Now);
    store(&mut locks, "k", "v", Condition::Always);
    assert_ne!(told(&mut locks, "k", VersionFor::Anybody), before);
}

#[test]
fn a_neighbour_can_refuse_a_version_once_and_never_twice() {
    let keyspace = keyspace();
    let mut locks = keyspace.locks();
    store(&mut locks, "k", "v", Condition::Always);
    let version = told(&mut locks, "k", VersionFor::Anybody);
    // With 4 shards of 256 groups, some of these are neighbours.
    for index in 0..20_000 {
        store(&mut locks, &format!("other:{index}"), "v", Condition::Always);
    }
    let outcome = store(&mut locks, "k", "w", Condition::Version(version));
    assert_eq!(outcome, Stored::OtherVersion, "a neighbour has changed");
    let version = told(&mut locks, "k", VersionFor::Anybody);
    for index in 0..20_000 {
        store(&mut locks, &format!("other:{index}"), "v", Condition::Always);
    }
    assert_eq!(store(&mut locks, "k", "w", Condition::Version(version)), Stored::Done);
    assert_eq!(store(&mut locks, "k", "x", Condition::Version(version)), Stored::OtherVersion);
}

#[test]
fn flags_and_versions_cost_nothing_while_they_are_not_used() {
    let keyspace = keyspace();
    let mut locks = keyspace.locks();
    for index in 0..1000 {
        let key = format!("key:{index:012}");
        let bytes = keyspace.key(key.as_bytes());
        with(&mut locks, &key, |db| db.set(bytes, "0123456789ab", Expiry::Never)).expect("set");
    }
    let plain = keyspace.memory().entries;
    for index in 0..1000 {
        told(&mut locks, &format!("key:{index:012}"), VersionFor::Anybody);
    }
    assert_eq!(keyspace.memory().entries, plain);
    told(&mut locks, "key:000000000001", VersionFor::Comparison);
    assert_eq!(keyspace.memory().entries, plain + 16, "one class more for eight bytes more");
    store(&mut locks, "key:000000000001", "0123456789ab", Condition::Always);
    let back = keyspace.memory().entries;
    assert_eq!(back, plain + 16, "which are gone again, but now there are flags");
    let bytes = keyspace.key(b"key:000000000001");
    with(&mut locks, "key:000000000001", |db| db.set(bytes, "0123456789ab", Expiry::Never))
        .expect("set");
    assert_eq!(keyspace.memory().entries, plain);
}

#[test]
fn flags_stay_with_the_value() {
    let keyspace = keyspace();
    let mut locks = keyspace.locks();
    let key = keyspace.key(b"k");
    store(&mut locks, "k", "5", Condition::Always);
    with(&mut locks, "k", |db| {
        db.increment(key, 1).expect("a number");
        db.append(key, b"0").expect("appended");
        db.set_range(key, 0, b"1").expect("written");
        db.set_deadline(key, NOW_MS + 10);
        db.clear_deadline(key);
        db.extend(key, b"1", End::Front, None, usize::MAX).expect("there");
    });
    assert_eq!(flags(&mut locks, "k"), 7);
    let copy = with(&mut locks, "k", |db| db.duplicate(key)).unwrap().expect("there");
    let other = keyspace.key(b"other");
    with(&mut locks, "other", |db| db.put(other, copy)).expect("put");
    assert_eq!(flags(&mut locks, "other"), 7);
    with(&mut locks, "k", |db| db.set(key, "5", Expiry::Never)).expect("set");
    assert_eq!(flags(&mut locks, "k"), 0);
}

#[test]
fn numbers_are_those_of_memcached() {
    let keyspace = keyspace();
    let mut locks = keyspace.locks();
    let key = keyspace.key(b"k");
    for (text, by, expected) in [
        ("10", Adjust::Up(5), Adjusted::To(15)),
        ("10", Adjust::Down(11), Adjusted::To(0)),
        ("007", Adjust::Up(1), Adjusted::To(8)),
        ("18446744073709551615", Adjust::Up(2), Adjusted::To(1)),
        ("9223372036854775807", Adjust::Up(1), Adjusted::To(1 << 63)),
        ("18446744073709551616", Adjust::Up(1), Adjusted::NotANumber),
        ("-1", Adjust::Up(1), Adjusted::NotANumber),
        ("", Adjust::Up(1), Adjusted::NotANumber),
        ("1x", Adjust::Up(1), Adjusted::NotANumber),
    ] {
        store(&mut locks, "k", text, Condition::Always);
        let adjusted = with(&mut locks, "k", |db| db.adjust(key, by, None)).expect("a string");
        assert_eq!(adjusted, expected, "{text} {by:?}");
        if let Adjusted::To(sum) = expected {
            let value = with(&mut locks, "k", |db| {
                db.string(key).expect("a string").expect("there").to_vec()
            });
            assert_eq!(value, sum.to_string().into_bytes());
        }
    }
    with(&mut locks, "k", |db| db.remove(key));
    let adjusted = with(&mut locks, "k", |db| db.adjust(key, Adjust::Up(1), None));
    assert_eq!(adjusted, Ok(Adjusted::Absent));
}

#[derive(Debug, Clone)]
enum Step {
    Set(usize),
    Append(usize),
    Remove(usize),
    Ask(usize),
    AskInPassing(usize),
    StoreByLatest(usize),
    StoreByAny(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0usize..3;
    let step = prop_oneof![
        key.clone().prop_map(Step::Set),
        key.clone().prop_map(Step::Append),
        key.clone().prop_map(Step::Remove),
        key.clone().prop_map(Step::Ask),
        key.clone().prop_map(Step::AskInPassing),
        key.clone().prop_map(Step::StoreByLatest),
        (key, 0usize..20).prop_map(|(key, token)| Step::StoreByAny(key, token)),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    #[test]
    fn a_store_by_version_never_overwrites_what_was_not_seen(steps in steps()) {
        let keyspace = keyspace();
        let mut locks = keyspace.locks();
        let names = ["a", "b", "c"];
        // Number of changes of a key, and versions given to clients: (version, changes).
        let mut changes = [0u32; 3];
        let mut tokens: [Vec<(u64, u32)>; 3] = Default::default();
        let mut present = [false; 3];
        for step in steps {
            match step {
                Step::Set(key) => {
                    store(&mut locks, names[key], "v", Condition::Always);
                    (changes[key], present[key]) = (changes[key] + 1, true);
                }
                Step::Append(key) => {
                    let bytes = keyspace.key(names[key].as_bytes());
                    let outcome = with(&mut locks, names[key], |db| db.extend(bytes, b"x", End::Back, None, usize::MAX));
                    prop_assert_eq!(outcome == Ok(Stored::Done), present[key]);
                    changes[key] += u32::from(present[key]);
                }
                Step::Remove(key) => {
                    let bytes = keyspace.key(names[key].as_bytes());
                    with(&mut locks, names[key], |db| db.remove(bytes));
                    (changes[key], present[key]) = (changes[key] + 1, false);
                }
                Step::Ask(key) | Step::AskInPassing(key) if present[key] => {
                    let asked = if matches!(step, Step::Ask(_)) { VersionFor::Comparison } else { VersionFor::Anybody };
                    tokens[key].push((told(&mut locks, names[key], asked), changes[key]));
                }
                Step::StoreByLatest(key) if present[key] => {
                    let version = told(&mut locks, names[key], VersionFor::Comparison);
                    let outcome = store(&mut locks, names[key], "w", Condition::Version(version));
                    prop_assert_eq!(outcome, Stored::Done);
                    changes[key] += 1;
                }
                Step::StoreByAny(key, index) if !tokens[key].is_empty() => {
                    let (version, seen) = tokens[key][index % tokens[key].len()];
                    let outcome = store(&mut locks, names[key], "w", Condition::Version(version));
                    if outcome == Stored::Done {
                        prop_assert_eq!(seen, changes[key], "an old version was accepted");
                        changes[key] += 1;
                    } else {
                        prop_assert_eq!(outcome == Stored::Absent, !present[key]);
                    }
                }
                _ => {}
            }
        }
    }
}
