//! Events are delivered after the changes are in the log, in the order of the changes, and not
//! before.

use std::mem;
use std::sync::{Arc, Mutex};

use tierce_keyspace::log::{LogSink, RecordKind};
use tierce_keyspace::{
    Adjust, Condition, DbIndex, End, Event, EventBatch, EventClasses, EventSink, Eviction, Expiry,
    Freeing, Keyspace, Missing, Options, Origin, Policy, ShardLocks, Source, evict, expire_due,
    flush_dbs, has_events, swap_dbs,
};

const NOW_MS: i64 = 1_700_000_000_000;

/// Events and log records between them, in order.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl EventSink for Heard {
    fn deliver(&self, events: &EventBatch<'_>) {
        self.0.lock().unwrap().extend(events.iter().map(|event| {
            let by = match event.origin {
                Origin::SERVER => String::new(),
                Origin { source, client } => format!(" by {source:?} {client}"),
            };
            let (db, name, key) = (event.db.get(), event.event.name(), event.key.escape_ascii());
            format!("{db} {name} {key}{by}")
        }));
    }
}

impl LogSink for Heard {
    fn append(&self, _record: &[u8], _: RecordKind) {
        self.0.lock().unwrap().push("record".to_owned());
    }
}

impl Heard {
    fn take(&self) -> Vec<String> {
        mem::take(&mut *self.0.lock().unwrap())
    }
}

fn keyspace(log: bool) -> (Keyspace, Arc<Heard>) {
    let heard = Arc::<Heard>::default();
    let sink = log.then(|| Arc::clone(&heard) as Arc<dyn LogSink>);
    let options = Options { shards: 4, log: sink, ..Options::default() };
    let keyspace = Keyspace::new(options).unwrap();
    keyspace.begin_logging();
    keyspace.set_event_sink(Arc::clone(&heard));
    keyspace.set_event_classes(EventClasses::ALL);
    (keyspace, heard)
}

fn set(locks: &mut ShardLocks<'_>, name: &str, expiry: Expiry) {
    let key = locks.keyspace().key(name.as_bytes());
    let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
    db.set(key, "value", expiry).unwrap();
    db.event_of_store(key, expiry);
}

#[test]
fn events_come_when_their_record_is_in_the_log() {
    let (keyspace, heard) = keyspace(true);
    let mut locks = keyspace.locks();
    set(&mut locks, "a", Expiry::Never);
    set(&mut locks, "a", Expiry::At(NOW_MS + 1));
    assert!(heard.take().is_empty() && has_events(&mut locks), "the shard is locked");
    locks.release();
    assert_eq!(heard.take(), ["record", "0 new a", "0 set a", "0 set a", "0 expire a"]);
    assert!(!has_events(&mut locks));
}

#[test]
fn events_of_a_guard_come_together() {
    let (keyspace, heard) = keyspace(true);
    let mut locks = keyspace.locks();
    let hashes = ["x", "y", "z"].map(|name| keyspace.hash(name.as_bytes()));
    let mut many = locks.lock_many(&hashes);
    for name in ["z", "x", "y", "x"] {
        set(many.locks(), name, Expiry::Never);
    }
    assert!(heard.take().is_empty());
    drop(many);
    let expected = "record,0 new z,0 set z,0 new x,0 set x,0 new y,0 set y,0 set x";
    assert_eq!(heard.take().join(","), expected, "in the order of the changes");
}

#[test]
fn classes_that_nobody_wants_are_not_collected() {
    let (keyspace, heard) = keyspace(false);
    keyspace.set_event_classes(EventClasses::GENERIC | EventClasses::NEW);
    let mut locks = keyspace.locks();
    set(&mut locks, "a", Expiry::At(NOW_MS + 1));
    // Only when the next shard is locked.
    keyspace.set_event_classes(EventClasses::NONE);
    set(&mut locks, "a", Expiry::At(NOW_MS + 1));
    locks.release();
    assert_eq!(heard.take(), ["0 new a", "0 expire a", "0 expire a"]);
    set(&mut locks, "b", Expiry::Never);
    assert!(!has_events(&mut locks));
}

#[test]
fn who_does_it_is_told_but_what_happens_by_itself_does_nobody() {
    let (keyspace, heard) = keyspace(false);
    let mut locks = keyspace.locks();
    locks.set_origin(Origin { source: Source::Resp, client: 7 });
    set(&mut locks, "a", Expiry::At(NOW_MS + 1));
    locks.set_origin(Origin { source: Source::Memcached, client: 8 });
    let key = keyspace.key(b"a");
    let found = locks.db(DbIndex::ZERO, key.hash(), NOW_MS + 1).string(key).unwrap().is_some();
    assert!(!found);
    drop(locks);
    let expected = [
        "0 new a by Resp 7",
        "0 set a by Resp 7",
        "0 expire a by Resp 7",
        "0 expired a",
        "0 keymiss a by Memcached 8",
    ];
    assert_eq!(heard.take(), expected);
}

#[test]
fn what_the_server_removes_says_so() {
    let (keyspace, heard) = keyspace(false);
    let mut locks = keyspace.locks();
    for (name, after_ms) in [("c", 3), ("a", 1), ("b", 2)] {
        set(&mut locks, name, Expiry::At(NOW_MS + after_ms));
    }
    locks.release();
    heard.take();
    for after_ms in [1, 3] {
        expire_due(&mut locks, NOW_MS + after_ms);
    }
    let mut expired = heard.take();
    assert_eq!(expired.remove(0), "0 expired a");
    expired.sort();
    assert_eq!(expired, ["0 expired b", "0 expired c"]);
    set(&mut locks, "d", Expiry::Never);
    locks.release();
    heard.take();
    let policy = Policy::AllkeysRandom;
    keyspace.set_eviction(&Eviction { limit_bytes: 1, policy, ..Eviction::default() });
    evict(&mut locks, NOW_MS, 10);
    assert_eq!(heard.take(), ["0 evicted d"]);
}

#[test]
fn fields_that_expire_say_so_and_then_the_hash_is_deleted() {
    let (keyspace, heard) = keyspace(true);
    let mut locks = keyspace.locks();
    let key = keyspace.key(b"hash");
    let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
    db.edit(
        key,
        Missing::Create,
        |hash: &mut tierce_keyspace::Editor<'_, tierce_collections::Hash>| {
            hash.put(b"soon", b"1", Some(NOW_MS + 1));
            hash.put(b"later", b"1", Some(NOW_MS + 2));
            Ok::<_, tierce_keyspace::Error>(())
        },
    )
    .unwrap();
    locks.release();
    heard.take();
    expire_due(&mut locks, NOW_MS + 1);
    assert_eq!(heard.take(), ["record", "0 hexpired hash"]);
    expire_due(&mut locks, NOW_MS + 2);
    assert_eq!(heard.take(), ["record", "0 hexpired hash", "0 del hash"]);
}

#[test]
fn whole_databases_have_events_without_a_key() {
    let (keyspace, heard) = keyspace(false);
    let mut locks = keyspace.locks();
    swap_dbs(&mut locks, DbIndex::ZERO, keyspace.db_index(3).unwrap(), NOW_MS);
    flush_dbs(&mut locks, [DbIndex::ZERO, keyspace.db_index(2).unwrap()], Freeing::Now);
    assert_eq!(heard.take(), ["0 swapdb ", "3 swapdb ", "0 flushdb ", "2 flushdb "]);
}

#[test]
fn what_memcached_does_has_the_names_of_redis() {
    let (keyspace, heard) = keyspace(false);
    let mut locks = keyspace.locks();
    let key = keyspace.key(b"k");
    let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
    for (condition, expiry) in [
        (Condition::Always, Expiry::Never),
        (Condition::Absent, Expiry::Never),
        (Condition::Present, Expiry::At(NOW_MS + 1)),
        (Condition::Present, Expiry::At(NOW_MS - 1)),
        (Condition::Always, Expiry::Never),
    ] {
        db.store(key, "1", 0, expiry, condition).unwrap();
    }
    db.adjust(key, Adjust::Up(1), None).unwrap();
    db.adjust(key, Adjust::Down(1), None).unwrap();
    db.extend(key, b"x", End::Back, None, 100).unwrap();
    db.extend(key, b"x", End::Front, None, 100).unwrap();
    db.adjust(key, Adjust::Up(1), None).unwrap();
    assert_eq!(db.make_stale(key), Ok(true));
    drop(locks);
    let names = heard.take();
    let names: Vec<&str> = names.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    let first = ["new", "set", "set", "expire", "set", "expire", "expired", "new", "set"];
    assert_eq!(names[..9], first);
    assert_eq!(names[9..], ["incrby", "incrby", "append", "set", "stale"]);
}

#[test]
fn events_of_one_key_are_in_the_order_of_its_changes_whoever_makes_them() {
    const THREADS: usize = 4;
    const ROUNDS: usize = if cfg!(miri) { 10 } else { 500 };
    let (keyspace, heard) = keyspace(false);
    keyspace.set_event_classes(EventClasses::STRING | EventClasses::GENERIC);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let keyspace = &keyspace;
            scope.spawn(move || {
                let key = keyspace.key(b"counter");
                let origin = Origin { source: Source::Library, client: number as u64 };
                for _ in 0..ROUNDS {
                    let mut locks = keyspace.locks();
                    locks.set_origin(origin);
                    let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
                    // The thread that makes the number even removes the key.
                    let sum = db.increment(key, 1).unwrap();
                    db.event(Event::IncrBy, key);
                    if sum % 2 == 0 {
                        assert!(db.remove(key));
                        db.event(Event::Del, key);
                    }
                }
            });
        }
    });
    let names = heard.take();
    assert_eq!(names.len(), THREADS * ROUNDS * 3 / 2);
    for three in names.chunks(3) {
        let name = |at: usize| three[at].split(' ').nth(1).unwrap();
        assert_eq!([name(0), name(1), name(2)], ["incrby", "incrby", "del"]);
        let by = |at: usize| three[at].split("by ").last().unwrap();
        assert_eq!(by(1), by(2), "the one that made it even has removed it");
    }
}

/// As CONFIG SET in a transaction has it.
#[test]
fn classes_that_are_set_under_a_guard_count_for_what_follows() {
    let (keyspace, heard) = keyspace(true);
    let mut locks = keyspace.locks();
    let mut all = locks.lock_all();
    set(all.locks(), "a", Expiry::Never);
    keyspace.set_event_classes(EventClasses::STRING);
    all.locks().look_for_event_classes();
    set(all.locks(), "b", Expiry::At(NOW_MS + 1));
    keyspace.set_event_classes(EventClasses::NONE);
    all.locks().look_for_event_classes();
    set(all.locks(), "c", Expiry::Never);
    drop(all);
    assert_eq!(heard.take(), ["record", "0 new a", "0 set a", "0 set b"]);
}
