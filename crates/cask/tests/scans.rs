//! Ranges that share loaded data, compared with a `BTreeMap`: alone, together, during writes,
//! stopped midway, short of memory, and with damage.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tierce_cask::disk::{Fault, SimDisk};
use tierce_cask::{
    CompactionOptions, Compression, Db, Error, IndexKind, Options, Placement, Range, SyncPolicy,
};
use tierce_harness::effort;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(memory: usize) -> Options {
    Options {
        index: IndexKind::Ordered,
        shards: Some(3),
        segment_size_bytes: 8 << 10,
        sync: SyncPolicy::None,
        scan_memory_bytes: memory,
        compaction: CompactionOptions { garbage_ratio: 0.3, ..CompactionOptions::default() },
        background_threads: false,
        open_threads: 1,
        ..Options::default()
    }
}

fn open_with(disk: &SimDisk, options: Options) -> Db {
    Db::open_on(Arc::new(disk.clone()), Path::new("/store"), options).unwrap()
}

fn key(n: u16) -> Vec<u8> {
    // Spread over all first bytes, of several lengths.
    let mut key = n.wrapping_mul(0x9e37).to_be_bytes().to_vec();
    key.extend(std::iter::repeat_n(b'k', usize::from(n % 7)));
    key
}

fn value(n: u16, version: u32) -> Vec<u8> {
    // Some compress, one in a hundred is too long to be shared.
    let len = if n % 100 == 99 { 20_000 } else { usize::from(n % 300) };
    let mut value = vec![version as u8; len];
    value.extend_from_slice(&version.to_le_bytes());
    value
}

/// Items that a range under test may still return.
struct Watched {
    range: Range,
    forward: bool,
    /// Every value each key had since the range began, `None` for absence.
    possible: BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>,
    last: Option<Vec<u8>>,
    ended: bool,
}

impl Watched {
    fn new(range: Range, model: &Model, forward: bool) -> Self {
        let possible = model.iter().map(|(key, value)| (key.clone(), vec![Some(value.clone())]));
        Watched { range, forward, possible: possible.collect(), last: None, ended: false }
    }

    fn note(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.possible.entry(key.to_vec()).or_insert_with(|| vec![None]).push(value);
    }

    fn step(&mut self) {
        if self.ended {
            return;
        }
        let item = if self.forward { self.range.next() } else { self.range.next_back() };
        let item = item.map(|item| item.unwrap());
        let between = |passed: &[u8]| {
            let is_ahead = |than: &Option<Vec<u8>>| match than {
                None => true,
                Some(than) if self.forward => passed > &than[..],
                Some(than) => passed < &than[..],
            };
            is_ahead(&self.last)
                && item.as_ref().is_none_or(|(key, _)| {
                    if self.forward { passed < &key[..] } else { passed > &key[..] }
                })
        };
        for (passed, values) in &self.possible {
            // A key that existed throughout is not skipped.
            assert!(!between(passed) || values.contains(&None), "{passed:?} was left out");
        }
        let Some((key, entry)) = item else {
            self.ended = true;
            return;
        };
        if let Some(last) = &self.last {
            assert!(if self.forward { key > *last } else { key < *last }, "{key:?} out of order");
        }
        let found = Some(entry.value.to_vec());
        assert!(self.possible.get(&key).is_some_and(|values| values.contains(&found)), "{key:?}");
        self.last = Some(key);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16),
    Delete(u16),
    Compact,
    Begin(bool),
    BeginSnapshot(bool),
    Advance(u8, u8),
    Abandon(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u16..700).prop_map(Step::Put),
        2 => (0u16..700).prop_map(Step::Delete),
        1 => Just(Step::Compact),
        3 => any::<bool>().prop_map(Step::Begin),
        2 => any::<bool>().prop_map(Step::BeginSnapshot),
        12 => (any::<u8>(), 1u8..120).prop_map(|(which, count)| Step::Advance(which, count)),
        1 => any::<u8>().prop_map(Step::Abandon),
    ];
    prop::collection::vec(step, 20..120)
}

fn check(memory: usize, placement: Placement, steps: Vec<Step>) {
    let disk = SimDisk::new(5);
    let db = open_with(&disk, Options { placement, ..options(memory) });
    let mut model = Model::new();
    for n in 0..600 {
        db.put(&key(n), &value(n, 0)).unwrap();
        model.insert(key(n), value(n, 0));
    }
    // Ranges under test, with true for those of now (which may see changes), false for those of a
    // snapshot.
    let mut ranges: Vec<(Watched, bool)> = Vec::new();
    for (version, step) in (1..).zip(steps) {
        let changed = match step {
            Step::Put(n) => {
                db.put(&key(n), &value(n, version)).unwrap();
                model.insert(key(n), value(n, version));
                Some(n)
            }
            Step::Delete(n) => {
                db.delete(&key(n)).unwrap();
                model.remove(&key(n));
                Some(n)
            }
            Step::Compact => {
                db.compact().unwrap();
                None
            }
            Step::Begin(forward) => {
                let range = db.range(b"", b"").unwrap();
                ranges.push((Watched::new(range, &model, forward), true));
                None
            }
            Step::BeginSnapshot(forward) => {
                let range = db.snapshot().unwrap().range(b"", b"").unwrap();
                ranges.push((Watched::new(range, &model, forward), false));
                None
            }
            Step::Advance(which, count) => {
                let which = usize::from(which) % ranges.len().max(1);
                if let Some((watched, _)) = ranges.get_mut(which) {
                    (0..count).for_each(|_| watched.step());
                }
                None
            }
            Step::Abandon(which) => {
                if !ranges.is_empty() {
                    ranges.swap_remove(usize::from(which) % ranges.len());
                }
                None
            }
        };
        if let Some(n) = changed {
            let value = model.get(&key(n)).cloned();
            let current = ranges.iter_mut().filter(|(_, is_current)| *is_current);
            current.for_each(|(watched, _)| watched.note(&key(n), value.clone()));
        }
        let memory_now = db.stats().scan_bytes as usize;
        // A window is planned for a quarter, and exceeds that by less than a record.
        assert!(memory_now <= memory + memory / 4 + 100, "{memory_now} of {memory}");
    }
    for (watched, _) in &mut ranges {
        while !watched.ended {
            watched.step();
        }
    }
    drop(ranges);
    assert_eq!(db.stats().scan_bytes, 0, "with the last range everything goes");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(16)))]
    #[test]
    fn ranges_that_share_behave_like_a_map(
        memory in prop::sample::select(vec![0usize, 1, 3000, 40_000, 400_000, 64 << 20]),
        ordered in any::<bool>(),
        steps in steps(),
    ) {
        check(memory, if ordered { Placement::Ordered } else { Placement::Hashed }, steps);
    }

    #[test]
    fn ends_that_meet_give_every_key_once(
        memory in prop::sample::select(vec![0usize, 3000, 40_000, 64 << 20]),
        turns in prop::collection::vec((any::<bool>(), 1usize..300), 1..30),
        bounds in prop::option::of((0u16..600, 0u16..600)),
    ) {
        let db = open_with(&SimDisk::new(1), options(memory));
        let mut model = Model::new();
        for n in 0..600 {
            db.put(&key(n), &value(n, 0)).unwrap();
            model.insert(key(n), value(n, 0));
        }
        let (lower, upper) = bounds.map_or((Vec::new(), Vec::new()), |(a, b)| (key(a), key(b)));
        let inside = |key: &&Vec<u8>| **key >= lower && (upper.is_empty() || **key < upper);
        let mut expected: std::collections::VecDeque<_> = model.keys().filter(inside).collect();
        let mut range = db.range(&lower, &upper).unwrap();
        for (from_front, count) in turns.into_iter().chain([(true, 700)]) {
            for _ in 0..count {
                let (found, expected) = match from_front {
                    true => (range.next(), expected.pop_front()),
                    false => (range.next_back(), expected.pop_back()),
                };
                let found = found.map(|item| item.unwrap());
                prop_assert_eq!(found.as_ref().map(|(key, _)| key), expected);
                if let Some((key, entry)) = found {
                    prop_assert_eq!(&*entry.value, &model[&key][..]);
                }
            }
        }
        prop_assert!(expected.is_empty());
    }
}

fn filled(disk: &SimDisk, options: Options, count: u16) -> (Db, Model) {
    let db = open_with(disk, options);
    let mut model = Model::new();
    for n in 0..count {
        db.put(&key(n), &value(n, 7)).unwrap();
        model.insert(key(n), value(n, 7));
    }
    (db, model)
}

#[test]
fn visiting_is_the_same_as_iterating() {
    for compression in [Compression::None, Compression::Snappy, Compression::Lz4] {
        let disk = SimDisk::new(1);
        let (db, model) = filled(&disk, Options { compression, ..options(1 << 20) }, 2000);
        let mut visited = Vec::new();
        db.scan(b"", b"", |key, value| {
            visited.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert!(visited.iter().map(|(k, v)| (k, v)).eq(&model), "{compression:?}");
        // Breaking off keeps the range's position.
        let mut range = db.range(b"", b"").unwrap();
        let mut left = 300;
        range
            .visit(|_, _| {
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        let next = range.next().unwrap().unwrap().0;
        assert_eq!(Some(&next), model.keys().nth(300));
    }
}

#[test]
fn damage_is_told_to_each_range_at_its_key() {
    let disk = SimDisk::new(1);
    let plain = || Options { compression: Compression::None, ..options(1 << 20) };
    let (db, model) = filled(&disk, plain(), 600);
    db.close().unwrap();
    drop(db);
    // Inside the value of one record.
    let needle = value(250, 7);
    let (path, at) = disk
        .paths()
        .into_iter()
        .find_map(|path| {
            let content = disk.content(&path)?;
            let hay = [&key(250)[..], &needle].concat();
            let at = content.windows(hay.len()).position(|window| window == hay)?;
            Some((path, at + 40))
        })
        .expect("a segment holds the record");
    let image = disk.now().after_kill(0);
    image.flip_bit(&path, at as u64 * 8);
    let db = open_with(&image, plain());
    let mut ranges: Vec<_> = (0..3).map(|_| db.range(b"", b"").unwrap()).collect();
    let mut backward = db.range(b"", b"").unwrap();
    let mut found = vec![0; ranges.len()];
    for expected in model.keys() {
        for (range, found) in ranges.iter_mut().zip(&mut found) {
            match range.next().unwrap() {
                Ok((key, _)) => assert_eq!(key, *expected),
                Err(Error::Corrupt { path: named, .. }) => {
                    assert_eq!((named, expected), (path.clone(), &key(250)));
                    *found += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(found, [1, 1, 1]);
    let place = model.keys().rev().position(|k| *k == key(250)).unwrap();
    let items: Vec<_> = backward.by_ref().rev().collect();
    assert_eq!(items.iter().position(Result::is_err), Some(place));
    assert_eq!(items.len(), model.len());
}

#[test]
fn failing_reads_hurt_no_more_than_one_key() {
    for skip in 0..60 {
        let disk = SimDisk::new(skip);
        let (db, model) = filled(&disk, options(100_000), 600);
        disk.inject(Fault::Read, skip);
        let mut ranges: Vec<_> = (0..2).map(|_| db.range(b"", b"").unwrap()).collect();
        let mut failed = 0;
        for (key, value) in &model {
            for range in &mut ranges {
                match range.next().unwrap() {
                    Ok((found, entry)) => assert_eq!((&found, &*entry.value), (key, &value[..])),
                    Err(Error::Io { .. }) => failed += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        // A failed shared read is made up for by each range; a failed read of a range itself is an
        // error.
        assert!(failed <= 1, "{failed} failures after {skip} reads");
        assert!(ranges.iter_mut().all(|range| range.next().is_none()));
    }
}

#[test]
fn a_range_sees_what_was_written_before_it_began() {
    let disk = SimDisk::new(1);
    let (db, mut model) = filled(&disk, options(64 << 20), 600);
    // Keeps its loaded data in memory the whole time.
    let mut first = db.range(b"", b"").unwrap();
    first.by_ref().take(100).for_each(|item| drop(item.unwrap()));
    for n in 0..40 {
        db.put(&key(n * 15), &value(n * 15, 8)).unwrap();
        model.insert(key(n * 15), value(n * 15, 8));
        db.delete(&key(n * 15 + 1)).unwrap();
        model.remove(&key(n * 15 + 1));
        let seen: Model = db
            .range(b"", b"")
            .unwrap()
            .map(|item| item.map(|(key, entry)| (key, entry.value.into_vec())).unwrap())
            .collect();
        assert_eq!(seen, model);
    }
}

/// Threads scan, stop midway and restart while others write, with little memory.
#[test]
fn scanners_in_threads_agree_while_others_write() {
    const KEYS: u16 = 600;
    for memory in [20_000, 300_000, 8 << 20] {
        let disk = SimDisk::new(9);
        let options =
            Options { background_threads: true, segment_size_bytes: 64 << 10, ..options(memory) };
        let (db, model) = filled(&disk, options, KEYS);
        let stop = AtomicBool::new(false);
        let stalled = std::sync::Mutex::new(db.range(b"", b"").unwrap());
        stalled.lock().unwrap().by_ref().take(100).for_each(|item| drop(item.unwrap()));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut version = 100;
                while !stop.load(Ordering::Relaxed) {
                    // Only the even keys change, and all keys stay.
                    let n = (version * 14 % u32::from(KEYS)) as u16 & !1;
                    db.put(&key(n), &value(n, version)).unwrap();
                    version += 1;
                    std::thread::yield_now();
                }
            });
            let scanners: Vec<_> = (0..6u64)
                .map(|scanner| {
                    let (db, model) = (&db, &model);
                    scope.spawn(move || {
                        let snapshot = db.snapshot().unwrap();
                        for pass in 0..3u64 {
                            let range = match pass {
                                1 => snapshot.range(b"", b"").unwrap(),
                                _ => db.range(b"", b"").unwrap(),
                            };
                            let most = if scanner == pass { 300 } else { usize::MAX };
                            let items = range.take(most).map(|item| item.unwrap());
                            for ((found, entry), (key, value)) in items.zip(model) {
                                assert_eq!(found, *key);
                                assert_eq!(entry.value.len(), value.len());
                            }
                        }
                        let odd = |k: &Vec<u8>, v: &[u8]| {
                            v.ends_with(&7u32.to_le_bytes()) || {
                                (0..KEYS).step_by(2).any(|n| key(n) == *k)
                            }
                        };
                        let mut count = 0;
                        for item in db.range(b"", b"").unwrap().rev() {
                            let (key, entry) = item.unwrap();
                            assert!(count % 50 != 0 || odd(&key, &entry.value));
                            count += 1;
                        }
                        assert_eq!(count, KEYS);
                    })
                })
                .collect();
            scanners.into_iter().for_each(|scanner| scanner.join().unwrap());
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap();
        });
        // A range that made no progress all the time continues from its position.
        let rest: Vec<_> = stalled.into_inner().unwrap().map(|item| item.unwrap().0).collect();
        assert!(rest.iter().eq(model.keys().skip(100)));
        db.close().unwrap();
    }
}
