//! A rollback leaves no memory in use: neither for the undo log, nor for the changes.

use crate::counting::held_bytes;
use tierce_collections::random::Random;
use tierce_collections::stream::{MessageCounts, MessageLimits, MessageName, StreamId};
use tierce_collections::{Hash, List, Set, SortedSet, Stream};
use tierce_keyspace::{
    CollectionType, DbIndex, Editor, Error, Expiry, Freeing, Key, Keyspace, Missing, Options,
    Removal, ShardLocks, Wakes, flush_dbs, wait_for_keys,
};

const NOW_MS: i64 = 1_700_000_000_000;

/// Keys of each kind.
const KEYS: usize = 4;

/// Elements that a large collection begins with.
const ELEMENTS: usize = 3000;

fn name(random: &mut Random) -> Vec<u8> {
    format!("element:{}", random.below(2 * ELEMENTS)).into_bytes()
}

/// One key of each kind has a large value, the others a small one.
fn filled() -> Keyspace {
    let keyspace = Keyspace::new(Options { shards: 4, ..Options::default() }).unwrap();
    let (mut locks, mut random) = (keyspace.locks(), Random::new(1));
    for number in 0..KEYS {
        let elements = if number == 0 { ELEMENTS } else { 5 };
        for kind in 0..6 {
            let name = format!("{kind}:{number}").into_bytes();
            let key = locks.keyspace().key(&name);
            for _ in 0..elements {
                write(&mut locks, key, kind, &mut random, Some(0));
            }
        }
    }
    drop(locks);
    keyspace
}

fn edit<T: CollectionType>(
    locks: &mut ShardLocks<'_>,
    key: Key<'_>,
    act: impl FnOnce(&mut Editor<'_, T>),
) {
    let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
    let edited: Result<_, Error> = db.edit(key, Missing::Create, |editor| {
        act(editor);
        Ok(())
    });
    // Another type has the key now and then.
    _ = edited;
}

/// Changes a key of a kind, in one of several ways or in this one.
fn write(
    locks: &mut ShardLocks<'_>,
    key: Key<'_>,
    kind: usize,
    random: &mut Random,
    way: Option<usize>,
) {
    let (element, way) = (name(random), way.unwrap_or_else(|| random.below(3)));
    match kind {
        0 => edit::<List>(locks, key, |list| match way {
            0 => list.push_back([&element[..]].into_iter()),
            1 => _ = list.set(random.below(list.len() + 1), &element),
            _ => _ = list.remove(random.below(list.len() + 1), 2),
        }),
        1 => edit::<Set>(locks, key, |set| match way {
            0 => _ = set.add(&element),
            _ => _ = set.remove(&element),
        }),
        2 => edit::<SortedSet>(locks, key, |set| match way {
            0 | 1 => set.update(&element, |_| Some(random.below(1000) as f64)),
            _ => _ = set.remove(&element),
        }),
        3 => edit::<Hash>(locks, key, |hash| match way {
            0 => _ = hash.put(&element, b"value", None),
            1 => _ = hash.put(&element, b"a longer value", Some(NOW_MS + 1_000_000)),
            _ => _ = hash.remove(&element),
        }),
        4 => edit::<Stream>(locks, key, |stream| match way {
            0 => {
                let id = StreamId::new(stream.state().last_id.ms + 1, 0);
                stream.add(id, [(&b"field"[..], &element[..])].into_iter());
            }
            1 if random.below(3) > 0 => {
                let limits = MessageLimits { duration_s: 10, messages_max: 3 };
                if stream.messages().is_none() || random.below(9) == 0 {
                    stream.set_messages(limits, MessageCounts::default());
                }
                let id = stream.state().last_id;
                let name = MessageName { producer: &element, message: &element };
                stream.remember(name, id, id.ms * 1000, MessageCounts::default());
            }
            1 => _ = stream.delete(StreamId::new(1 + random.below(ELEMENTS) as u64, 0)),
            _ => stream.set_group(&element, StreamId::MIN, None),
        }),
        _ => {
            let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
            _ = match way {
                0 => db.append(key, &element).map(|_| ()),
                1 => db.set_range(key, random.below(50_000) as u64, &element).map(|_| ()),
                _ => db.set(key, &element, Expiry::At(NOW_MS + 1_000_000)).map(|_| ()),
            };
        }
    }
}

/// Does something to a key that is there or is not, or to the whole database.
fn act(locks: &mut ShardLocks<'_>, random: &mut Random) {
    let kind = random.below(6);
    let name = format!("{kind}:{}", random.below(KEYS + 2)).into_bytes();
    let key = locks.keyspace().key(&name);
    let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
    match random.below(40) {
        0 => _ = flush_dbs(locks, [DbIndex::ZERO], Freeing::Later),
        1 | 2 => _ = db.remove(key),
        3 => _ = db.set_deadline(key, NOW_MS + 500_000),
        4 => {
            if let Some(entry) = db.take(key, Removal::Moved) {
                let other = locks.keyspace().key(b"another");
                locks.db(DbIndex::ZERO, other.hash(), NOW_MS).put(other, entry).unwrap();
            }
        }
        5 => drop(wait_for_keys(locks, DbIndex::ZERO, &[key], Wakes::Creation, ())),
        _ => write(locks, key, kind, random, None),
    }
}

/// A guard that is rolled back partly, and then entirely.
fn roll_back(keyspace: &Keyspace, random: &mut Random) {
    let mut locks = keyspace.locks();
    let mut all = locks.lock_all();
    let locks = all.locks();
    locks.begin_undo();
    (0..random.below(8)).for_each(|_| act(locks, random));
    let mark = locks.savepoint();
    (0..random.below(8)).for_each(|_| act(locks, random));
    if random.below(2) == 0 {
        locks.rollback_to(mark);
        (0..random.below(4)).for_each(|_| act(locks, random));
    }
    locks.rollback();
}

/// Memory that stays, and does not grow with the number of guards: grown tables, split blocks, heaps with stale
/// deadline items.
const ROOM_BYTES_MAX: isize = 64 * 1024;

/// Room for the allocator: 800 bytes for each of 5,000 guards.
const RESIDENT_GROWTH_MAX: usize = 4 << 20;

/// Memory of this process, by the system's count.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a field");
    1024 * line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number")
}

#[test]
fn ten_thousand_guards_that_were_rolled_back_leave_nothing_behind() {
    // The system counts the memory of the whole process, in which other tests run as well.
    const ALONE: &str = "TIERCE_TEST_RUNS_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "undo_memory::ten_thousand_guards_that_were_rolled_back_leave_nothing_behind";
        let program = std::env::current_exe().expect("this program");
        let run =
            std::process::Command::new(program).args(["--exact", name]).env(ALONE, "").output();
        let run = run.expect("a process");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        return;
    }
    let guards = 10_000;
    // Memory that a process allocates only once is allocated here.
    roll_back(&filled(), &mut Random::new(1));
    let begin = held_bytes();
    let keyspace = filled();
    let entries = keyspace.memory().entries;
    let mut random = Random::new(7);
    let before = held_bytes();
    let (mut at_half, mut resident_at_half) = (0, 0);
    for guard in 0..guards {
        roll_back(&keyspace, &mut random);
        if guard == guards / 2 {
            (at_half, resident_at_half) = (held_bytes(), resident_bytes());
        }
    }
    let (after, resident) = (held_bytes(), resident_bytes());
    let memory = keyspace.memory();
    assert!(after - before <= ROOM_BYTES_MAX, "{} bytes of {memory:?}", after - before);
    assert!(after - at_half <= ROOM_BYTES_MAX / 4, "{} bytes in the second half", after - at_half);
    let grown = resident.saturating_sub(resident_at_half);
    assert!(grown <= RESIDENT_GROWTH_MAX, "{grown} bytes more are resident after the second half");
    assert!(memory.entries <= entries + ROOM_BYTES_MAX as u64 / 2, "{} {entries}", memory.entries);
    drop(keyspace);
    assert_eq!(held_bytes(), begin, "all is freed");
}

/// If no table grows, no deadline is set and no block is split, the allocator has exactly the bytes from before.
#[test]
fn the_allocator_has_to_the_byte_what_it_had_before() {
    let keyspace = filled();
    let mut random = Random::new(11);
    let mut edits = |count: usize| {
        let mut locks = keyspace.locks();
        let mut all = locks.lock_all();
        let locks = all.locks();
        locks.begin_undo();
        for _ in 0..count {
            let kind = random.below(6);
            let name = format!("{kind}:{}", 1 + random.below(KEYS - 1)).into_bytes();
            let key = locks.keyspace().key(&name);
            match random.below(8) {
                0 => _ = locks.db(DbIndex::ZERO, key.hash(), NOW_MS).remove(key),
                1 => drop(wait_for_keys(locks, DbIndex::ZERO, &[key], Wakes::Removal, ())),
                _ => write(locks, key, kind, &mut random, Some(0)),
            }
        }
        locks.rollback();
    };
    // Each key is restored once, and has enough room for all later edits.
    edits(600);
    let before = held_bytes();
    (0..500).for_each(|_| edits(20));
    assert_eq!(held_bytes(), before);
}
