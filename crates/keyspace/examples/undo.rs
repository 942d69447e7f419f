//! Cost of rolling back a thousand edits of a large collection.
//!
//! `cargo run --release -p tierce-keyspace --example undo`
//!
//! A collection of a million elements; separate edits of random elements, as commands make them. Prints microseconds
//! for all edits, best of some rounds: without an undo log, with one, and with the rollback. First for elements
//! untouched since the last round, as a transaction finds them; then for elements that were just edited and restored,
//! so that all of them are in the processor's caches.

use std::time::{Duration, Instant};

use mimalloc::MiMalloc;
use tierce_collections::random::Random;
use tierce_collections::stream::StreamId;
use tierce_collections::{Hash, List, Set, SortedSet, Stream};
use tierce_keyspace::{
    CollectionType, DbIndex, Editor, Error, Key, Keyspace, Missing, Options, ShardLocks,
};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const ELEMENTS: usize = 1_000_000;
const EDITS: usize = 1000;
const ROUNDS: usize = 60;
/// Content of the pieces of a large string.
const PIECE: [u8; 64] = [b'p'; 64];

fn main() {
    println!("{:12} {:^32} {:^32}", "us", "elements untouched before", "in the caches");
    let head = format!("{:>7} {:>7} {:>9} {:>6}", "edits", "logged", "restored", "ratio");
    println!("{:12} {head} {head}", "");
    measure::<List>(
        "list",
        |list, number| list.push_back([&name(number)[..]].into_iter()),
        |list, number| match number % 4 {
            0 => list.push_front([&b"new"[..]].into_iter()),
            1 => _ = list.remove(0, 1),
            2 => _ = list.set(number % list.len(), b"other"),
            _ => list.push_back([&b"new"[..]].into_iter()),
        },
    );
    measure::<Hash>(
        "hash",
        |hash, number| _ = hash.put(&name(number), b"value", None),
        |hash, number| match number % 3 {
            0 => _ = hash.remove(&name(number)),
            1 => _ = hash.put(&name(number), b"other", None),
            _ => _ = hash.put(&name(number + ELEMENTS), b"value", None),
        },
    );
    measure::<Set>(
        "set",
        |set, number| _ = set.add(&name(number)),
        |set, number| match number % 2 {
            0 => _ = set.remove(&name(number)),
            _ => _ = set.add(&name(number + ELEMENTS)),
        },
    );
    measure::<SortedSet>(
        "sorted set",
        |set, number| set.update(&name(number), |_| Some(number as f64)),
        |set, number| match number % 3 {
            0 => _ = set.remove(&name(number)),
            1 => set.update(&name(number), |old| Some(old.unwrap_or(0.0) + 1.5)),
            _ => set.update(&name(number + ELEMENTS), |_| Some(number as f64)),
        },
    );
    measure::<Stream>("stream", add, |stream, number| match number % 2 {
        0 => _ = stream.delete(StreamId::new(number as u64 + 1, 0)),
        _ => add(stream, number),
    });
    measure_with(
        "string",
        |locks| {
            let bytes = vec![b'v'; ELEMENTS * PIECE.len()];
            let (key, mut db) = open(locks);
            db.set(key, &bytes, tierce_keyspace::Expiry::Never).expect("a short key");
        },
        |locks, number| {
            let (key, mut db) = open(locks);
            let offset = (number * PIECE.len()) as u64;
            _ = db.set_range(key, offset, &PIECE).expect("within the limits");
        },
    );
}

/// The name of an element. Made quickly, as the time for it counts.
fn name(number: usize) -> [u8; 16] {
    let mut name = *b"element:00000000";
    for digit in 0..8 {
        name[15 - digit] = b"0123456789abcdef"[number >> (4 * digit) & 15];
    }
    name
}

fn add(stream: &mut Editor<'_, Stream>, _number: usize) {
    let id = StreamId::new(stream.state().last_id.ms + 1, 0);
    stream.add(id, [(&b"field"[..], &b"value"[..])].into_iter());
}

fn measure<T: CollectionType>(
    what: &str,
    fill: impl Fn(&mut Editor<'_, T>, usize),
    edit: impl Fn(&mut Editor<'_, T>, usize),
) {
    let on = |locks: &mut ShardLocks<'_>, act: &dyn Fn(&mut Editor<'_, T>)| {
        let (key, mut db) = open(locks);
        let done: Result<_, Error> = db.edit(key, Missing::Create, |editor| {
            act(editor);
            Ok(())
        });
        done.expect("a short key");
    };
    measure_with(
        what,
        |locks| (0..ELEMENTS).for_each(|number| on(locks, &|editor| fill(editor, number))),
        |locks, number| on(locks, &|editor| edit(editor, number)),
    );
}

fn open<'a>(locks: &'a mut ShardLocks<'_>) -> (Key<'static>, tierce_keyspace::Db<'a>) {
    let key = locks.keyspace().key(b"collection");
    (key, locks.db(DbIndex::ZERO, key.hash(), 1))
}

fn measure_with(
    what: &str,
    fill: impl Fn(&mut ShardLocks<'_>),
    edit: impl Fn(&mut ShardLocks<'_>, usize),
) {
    let keyspace = Keyspace::new(Options { shards: 1, ..Options::default() }).expect("options");
    let (mut locks, mut random) = (keyspace.locks(), Random::new(7));
    fill(&mut locks);
    let mut best = [[Duration::MAX; 3]; 2];
    for _ in 0..ROUNDS {
        let mut all = locks.lock_all();
        let locks = all.locks();
        let mut draw = || -> Vec<usize> { (0..EDITS).map(|_| random.below(ELEMENTS)).collect() };
        // Edits without an undo log stay; the next round draws other elements.
        run(locks, &draw(), &edit, false);
        let alone = run(locks, &draw(), &edit, false);
        let undone = run(locks, &draw(), &edit, true);
        note(&mut best[0], alone, undone);
        let again = draw();
        run(locks, &again, &edit, true);
        let undone = run(locks, &again, &edit, true);
        note(&mut best[1], run(locks, &again, &edit, false), undone);
    }
    print!("{what:12}");
    for times in best {
        let [alone, logged, restored] = times.map(|time| time.as_secs_f64() * 1e6);
        print!(" {alone:7.0} {logged:7.0} {restored:9.0} {:6.2}", restored / alone);
    }
    println!();
}

fn note(best: &mut [Duration; 3], [alone, _]: [Duration; 2], [logged, restored]: [Duration; 2]) {
    for (best, time) in best.iter_mut().zip([alone, logged, restored]) {
        *best = time.min(*best);
    }
}

/// Returns the time of the edits, and the time with the subsequent step.
fn run(
    locks: &mut ShardLocks<'_>,
    numbers: &[usize],
    edit: &impl Fn(&mut ShardLocks<'_>, usize),
    with_undo: bool,
) -> [Duration; 2] {
    if with_undo {
        locks.begin_undo();
    }
    let begin = Instant::now();
    numbers.iter().for_each(|number| edit(locks, *number));
    let edited = begin.elapsed();
    if with_undo {
        locks.rollback();
    }
    [edited, begin.elapsed()]
}
