//! A random operation of a command.

use std::num::NonZeroU64;

use tierce_collections::random::Random;
use tierce_collections::stream::{
    Keep, MessageCounts, MessageLimits, MessageName, Messages, State, StreamId, Trim, TrimPrecision,
};
use tierce_collections::{Hash, List, Set, SortedSet, Stream};

use super::world::{DBS, NOW_MS};
use crate::access::collections::Missing;
use crate::access::db::Db;
use crate::access::item::{Adjust, Condition, End, VersionFor};
use crate::access::shard_locks::ShardLocks;
use crate::change::Removal;
use crate::data::code::CodeKind;
use crate::data::collections::{Delivery, Editor};
use crate::data::entry::Marks;
use crate::data::expiry::Expiry;
use crate::data::key::{KEY_LEN_MAX, Key};
use crate::db_index::DbIndex;
use crate::error::Error;
use crate::registries::flushed::Freeing;
use crate::registries::waiters::Wakes;
use crate::services::code::CodeEditor;
use crate::services::evict::evict_key;
use crate::services::flush::{flush_dbs, swap_dbs};
use crate::services::waiters::wait_for_keys;

/// Number of key names.
pub(super) const KEYS: usize = 14;

pub(super) fn name(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// Does the operation that a number selects, with all shards locked.
pub(super) fn act(locks: &mut ShardLocks<'_>, what: u64) {
    let mut random = Random::new(what);
    // Sometimes it is later, and keys have expired.
    let now_ms = NOW_MS + if random.below(8) == 0 { random.below(60_000) as i64 } else { 0 };
    let db = DbIndex::from_number(random.below(DBS) as u16);
    match random.below(60) {
        0 if random.below(3) == 0 => {
            _ = flush_dbs(locks, [db], Freeing::Later);
        }
        1 if random.below(3) == 0 => {
            swap_dbs(locks, db, DbIndex::from_number(random.below(DBS) as u16), now_ms);
        }
        7..=8 => wait(locks, db, what),
        9 => change_code(locks, &mut random),
        2..=6 => put_elsewhere(locks, &mut random, now_ms),
        _ => {
            let name = name(random.below(KEYS));
            let key = locks.keyspace().key(&name);
            let mut db = locks.db(db, key.hash(), now_ms);
            on_key(&mut db, key, &mut random);
        }
    }
}

/// A client begins to wait, for one key or two.
fn wait(locks: &mut ShardLocks<'_>, db: DbIndex, what: u64) {
    let mut random = Random::new(what ^ 1);
    let names: Vec<Vec<u8>> = (0..=random.below(2)).map(|_| name(random.below(KEYS))).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| locks.keyspace().key(name)).collect();
    let wakes = [Wakes::Removal, Wakes::Creation, Wakes::Edit][random.below(3)];
    wait_for_keys(locks, db, &keys, wakes, what);
}

/// FUNCTION LOAD or DELETE, and the same for named scripts.
fn change_code(locks: &mut ShardLocks<'_>, random: &mut Random) {
    let kind = CodeKind::ALL[random.below(2)];
    let name = name(random.below(3));
    match random.below(3) {
        0 => _ = CodeEditor::lock(locks).remove(kind, &name),
        1 => CodeEditor::lock(locks).put(kind, &name, long(random)),
        _ => CodeEditor::lock(locks).put(kind, &name, text(random)),
    }
}

/// RENAME, MOVE or COPY. Some keys are too long.
fn put_elsewhere(locks: &mut ShardLocks<'_>, random: &mut Random, now_ms: i64) {
    let [from, mut to] = [(); 2]
        .map(|()| (DbIndex::from_number(random.below(DBS) as u16), name(random.below(KEYS))));
    let is_too_long = random.below(8) == 0;
    if is_too_long {
        to.1.resize(KEY_LEN_MAX + 1, b'x');
    }
    if from == to {
        return;
    }
    let [a, b] = [&from, &to].map(|(_, name)| locks.keyspace().key(name));
    let mut source = locks.db(from.0, a.hash(), now_ms);
    let entry = match random.below(3) {
        0 => source.duplicate(a).unwrap(),
        _ => source.take(a, Removal::Moved),
    };
    if let Some(entry) = entry {
        let put = locks.db(to.0, b.hash(), now_ms).put(b, entry);
        assert_eq!(put.is_err(), is_too_long);
    }
}

fn on_key(db: &mut Db<'_>, key: Key<'_>, random: &mut Random) {
    let deadline_ms = db.now_ms() + random.below(50_000) as i64 - 500;
    match random.below(27) {
        0 => _ = db.remove(key),
        1 => _ = db.set_deadline(key, deadline_ms),
        2 => _ = db.clear_deadline(key),
        3 => _ = db.get(key),
        4 => _ = db.touch(key),
        5 => db.set_idle_seconds(key, random.below(1000) as u64),
        6..=9 => on_string(db, key, random, deadline_ms),
        10..=11 => on_item(db, key, random),
        12..=14 => edit(db, key, random, on_list),
        15..=16 => edit(db, key, random, on_set),
        17..=18 => edit(db, key, random, on_sorted_set),
        19..=21 => edit(db, key, random, on_hash),
        22..=24 => edit(db, key, random, on_stream),
        25 => evict_key(db, key),
        _ => _ = db.exists(key),
    }
}

fn edit<T: crate::CollectionType>(
    db: &mut Db<'_>,
    key: Key<'_>,
    random: &mut Random,
    act: impl Fn(&mut Editor<'_, T>, &mut Random),
) {
    if random.below(12) == 0 {
        // Another type begins here.
        db.remove(key);
    }
    let missing = if random.below(4) == 0 { Missing::Skip } else { Missing::Create };
    let done = db.edit(key, missing, |editor| {
        for _ in 0..=random.below(4) {
            act(editor, random);
        }
        if random.below(9) == 0 { Err(Error::NotAnInteger) } else { Ok(()) }
    });
    _ = done;
}

fn text(random: &mut Random) -> Vec<u8> {
    match random.below(6) {
        0 => random.below(100_000).to_string().into_bytes(),
        1 => vec![b'x'; random.below(40)],
        _ => format!("e{}", random.below(24)).into_bytes(),
    }
}

fn texts(random: &mut Random) -> Vec<Vec<u8>> {
    (0..=random.below(4)).map(|_| text(random)).collect()
}

fn long(random: &mut Random) -> Vec<u8> {
    vec![b'a' + random.below(26) as u8; 17_000 + random.below(80_000)]
}

fn on_string(db: &mut Db<'_>, key: Key<'_>, random: &mut Random, deadline_ms: i64) {
    let expiry = match random.below(4) {
        0 => Expiry::At(deadline_ms),
        1 => Expiry::Keep,
        _ => Expiry::Never,
    };
    match random.below(9) {
        0..=2 => _ = db.set(key, &text(random), expiry),
        3 => _ = db.set(key, &long(random), expiry),
        4 => _ = db.append(key, &text(random)),
        5 => _ = db.append(key, &long(random)),
        6..=7 => {
            let offset = random.below(2) * random.below(20_000) + random.below(30);
            _ = db.set_range(key, offset as u64, &text(random));
        }
        _ => _ = db.increment(key, random.below(1000) as i64 - 500),
    }
}

fn on_item(db: &mut Db<'_>, key: Key<'_>, random: &mut Random) {
    let flags = random.below(3) as u32 * 1000;
    let version = db.version(key, VersionFor::Anybody);
    match random.below(12) {
        0 => _ = db.store(key, &text(random), flags, Expiry::Never, Condition::Always),
        1 => _ = db.store(key, &text(random), flags, Expiry::Never, Condition::Version(version)),
        2 => _ = db.item(key, VersionFor::Comparison).map(|_| ()),
        3 => _ = db.item(key, VersionFor::Anybody).map(|_| ()),
        4 => _ = db.mark(key, |marks| marks.won = !marks.won),
        5 => _ = db.mark(key, |marks| marks.fetched = true),
        6 => _ = db.make_stale(key),
        7 => _ = db.adjust(key, Adjust::Up(random.below(1000) as u64), None),
        8 => _ = db.extend(key, &text(random), End::Front, None, 1 << 20),
        9 => _ = db.extend(key, &text(random), End::Back, Some(version), 1 << 20),
        10 => {
            let marks = Marks { stale: random.below(2) == 0, won: true, fetched: false };
            _ = db.set_note(key, (flags > 0).then_some(flags), marks);
        }
        _ => _ = db.set_version(key, NonZeroU64::MIN.saturating_add(random.below(99) as u64)),
    }
}

fn on_list(list: &mut Editor<'_, List>, random: &mut Random) {
    let (index, texts) = (random.below(list.len() + 2), texts(random));
    let elements = texts.iter().map(Vec::as_slice);
    match random.below(7) {
        0 => list.push_front(elements),
        1..=2 => list.push_back(elements),
        3 => list.insert(index, elements),
        4 => _ = list.set(index, &texts[0]),
        5 => _ = list.remove(index, random.below(4)),
        _ => _ = list.remove(0, random.below(2) * random.below(20)),
    }
}

fn on_set(set: &mut Editor<'_, Set>, random: &mut Random) {
    let member =
        if random.below(2) == 0 { random.below(12).to_string().into_bytes() } else { text(random) };
    let deadline_ms = (random.below(2) == 0).then(|| NOW_MS + random.below(30_000) as i64);
    match random.below(5) {
        0 => set.remove(&member),
        1 => set.set_deadline(&member, deadline_ms),
        _ => set.add(&member),
    };
}

fn on_sorted_set(set: &mut Editor<'_, SortedSet>, random: &mut Random) {
    let member = text(random);
    match random.below(6) {
        0 => _ = set.remove(&member),
        1 => {
            let from = random.below(set.len() + 1);
            let to = (from + random.below(4)).min(set.len());
            set.remove_range(from..to, |_, _| {});
        }
        2 => set.update(&member, |old| old.map(|score| score + 0.5)),
        _ => set.update(&member, |_| Some(random.below(9) as f64)),
    }
}

fn on_hash(hash: &mut Editor<'_, Hash>, random: &mut Random) {
    let (name, value) = (text(random), text(random));
    let deadline_ms = (random.below(2) == 0).then(|| NOW_MS + random.below(30_000) as i64);
    match random.below(5) {
        0 => _ = hash.remove(&name),
        1 => _ = hash.set_deadline(&name, deadline_ms),
        2 => _ = hash.put(&name, &value, deadline_ms),
        _ => _ = hash.put(&name, &value, None),
    }
}

fn id(random: &mut Random) -> StreamId {
    StreamId::new(1 + random.below(30) as u64, random.below(2) as u64)
}

fn on_stream(stream: &mut Editor<'_, Stream>, random: &mut Random) {
    let group = [b'g', random.below(2) as u8 + b'0'];
    let consumer = [b'c', random.below(3) as u8 + b'0'];
    let ids: Vec<StreamId> = (0..random.below(4)).map(|_| id(random)).collect();
    let at = id(random);
    match random.below(16) {
        0..=3 => {
            let State { last_id, .. } = stream.state();
            let next = StreamId::new(last_id.ms + 1 + random.below(2) as u64, 0);
            let texts = texts(random);
            let fields = texts.iter().map(|text| (&text[..], &text[..]));
            stream.add(next, fields.collect::<Vec<_>>().into_iter());
        }
        4 => _ = stream.delete(at),
        5 => {
            let keep = match random.below(2) {
                0 => Keep::Newest(random.below(12)),
                _ => Keep::From(at),
            };
            let precision = match random.below(3) {
                0 => TrimPrecision::Blocks { limit: random.below(2) * random.below(9) },
                _ => TrimPrecision::Exact,
            };
            stream.trim(Trim { keep, precision });
        }
        6 => {
            let state = stream.state();
            stream.set_state(State { entries_added: state.entries_added + 3, ..state });
        }
        7 => stream.set_group(&group, at, (random.below(2) == 0).then_some(at.ms)),
        8 if random.below(3) == 0 => _ = stream.remove_group(&group),
        8 | 9 => stream.set_consumer(&group, &consumer, at.ms, Some(at.ms)),
        10 if random.below(3) == 0 => _ = stream.remove_consumer(&group, &consumer),
        10 => stream.saw_consumer(&group, &consumer, at.ms),
        11 => {
            let count = random.below(3) as u32;
            match random.below(4) {
                0 => stream.deliver(&group, b"", &ids, Delivery::given_back(count)),
                _ => stream.deliver(&group, &consumer, &ids, Delivery { at_ms: at.ms, count }),
            }
        }
        12 => _ = stream.acknowledge(&group, ids.into_iter()),
        13 if random.below(3) == 0 || stream.messages().is_none() => {
            let (duration_s, messages_max) = (1 + at.ms as u32 / 4, 1 + random.below(3) as u32);
            let counts = MessageCounts { added: at.ms, duplicates: at.seq };
            stream.set_messages(MessageLimits { duration_s, messages_max }, counts);
        }
        _ => {
            let message = [random.below(6) as u8];
            let name = MessageName { producer: &consumer, message: &message };
            let now_ms = stream.state().last_id.ms * 1000;
            if stream.find_duplicate(name, now_ms).is_none() {
                let counts = stream.messages().map(Messages::counts).unwrap_or_default();
                let added = counts.added + 1;
                let counts = MessageCounts { added, ..counts };
                stream.remember(name, stream.state().last_id, now_ms, counts);
            }
        }
    }
}
