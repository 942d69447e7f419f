//! The store after a crash, at every call, compared with the acknowledged writes.
//!
//! A workload runs once on the simulated disk, which keeps the moment before every call that
//! changes something. From each moment, images are made as a kill or a power cut would leave them,
//! and each image is opened and compared:
//!
//! * After a kill every completed write is there; of the one in progress, all or nothing.
//! * After a power cut every durable write is there: one with requested durability, or followed by
//!   a flush. Each other write may be there, so a key has the value of its last durable write or of
//!   a later one.
//! * Nothing else is there, and of a batch all is there or nothing.
//!
//! Recovery itself is crashed in the same way.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tierce_cask::disk::{Moment, SimDisk};
use tierce_cask::{
    Attributes, Batch, CompactionOptions, Db, Durability, IndexKind, Options, SyncPolicy,
};
use tierce_harness::{Random, effort};

const KEYS: u64 = 12;
const STEPS: u64 = 45;

fn options(seed: u64) -> Options {
    Options {
        index: if seed.is_multiple_of(2) { IndexKind::Hash } else { IndexKind::Ordered },
        shards: Some(1 + (seed % 3) as u32),
        segment_size_bytes: [400, 1024, 3000][(seed / 2 % 3) as usize],
        sync: if seed.is_multiple_of(5) { SyncPolicy::Always } else { SyncPolicy::None },
        compaction: CompactionOptions { garbage_ratio: 0.2, ..CompactionOptions::default() },
        tail_bytes: [1024, 2048][(seed / 7 % 2) as usize],
        background_threads: false,
        open_threads: 1,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, options: &Options) -> tierce_cask::Result<Db> {
    Db::open_on(Arc::new(disk.clone()), Path::new("/store"), options.clone())
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n}").into_bytes()
}

/// Returns a value that identifies its write.
fn value(write: usize, n: u64) -> Vec<u8> {
    let mut value = format!("{write}:{n}:").into_bytes();
    value.resize(value.len() + (write * 37 + n as usize * 11) % 300, b'.');
    value
}

/// A requested write: the keys it set or deleted.
#[derive(Debug)]
struct Write {
    changes: BTreeMap<u64, bool>,
    /// Number of disk calls before the write was requested, and before it returned.
    begun: u64,
    done: u64,
    /// Number of calls after which it is known to be durable.
    durable: Option<u64>,
}

/// Runs a workload and returns the requested writes.
fn run(disk: &SimDisk, seed: u64) -> Vec<Write> {
    let options = options(seed);
    let mut random = Random::new(seed);
    let mut db = open(disk, &options).unwrap();
    let mut writes: Vec<Write> = Vec::new();
    for step in 0..STEPS {
        if step % 8 == 7 {
            // A kill between two calls leaves nothing torn.
            let image = disk.now().after_kill(step);
            assert_eq!(open(&image, &options).unwrap().recovery().torn_tails, [], "seed {seed}");
        }
        let begun = disk.calls();
        match random.below(20) {
            0 => drop(db.compact().unwrap()),
            1 => {
                db.flush().unwrap();
                mark_durable(&mut writes, disk.calls());
            }
            2 if random.below(3) == 0 => {
                db.close().unwrap();
                mark_durable(&mut writes, disk.calls());
                db = open(disk, &options).unwrap();
            }
            kind => {
                let synced = random.below(4) == 0;
                let changes = write(&db, &mut random, kind, writes.len(), synced);
                let done = disk.calls();
                let durable = (synced || options.sync == SyncPolicy::Always).then_some(done);
                writes.push(Write { changes, begun, done, durable });
            }
        }
    }
    writes
}

fn write(
    db: &Db,
    random: &mut Random,
    kind: usize,
    id: usize,
    synced: bool,
) -> BTreeMap<u64, bool> {
    let durability = if synced { Durability::Synced } else { Durability::Policy };
    let n = random.below(KEYS as usize) as u64;
    match kind {
        0..5 => {
            let mut batch = Batch::new();
            let mut changes = BTreeMap::new();
            for _ in 0..1 + random.below(5) {
                let n = random.below(KEYS as usize) as u64;
                let put = random.below(4) > 0;
                match put {
                    true => batch.put(key(n), value(id, n)),
                    false => batch.delete(key(n)),
                };
                changes.insert(n, put);
            }
            db.write_with(&batch, durability).unwrap();
            changes
        }
        5..9 => {
            db.delete_with(&key(n), durability).unwrap();
            BTreeMap::from([(n, false)])
        }
        _ => {
            db.put_with(&key(n), &value(id, n), Attributes::default(), durability).unwrap();
            BTreeMap::from([(n, true)])
        }
    }
}

fn mark_durable(writes: &mut [Write], calls: u64) {
    for write in writes {
        write.durable = write.durable.or(Some(calls));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Crash {
    Kill,
    PowerCut,
}

/// Compares an opened image with the writes requested before the crash.
fn verify(db: &Db, writes: &[Write], calls: u64, crash: Crash, context: &str) {
    let asked = &writes[..writes.partition_point(|write| write.begun <= calls)];
    let certain = |write: &Write| match crash {
        Crash::Kill => write.done <= calls,
        Crash::PowerCut => write.durable.is_some_and(|durable| durable <= calls),
    };
    let mut found = BTreeMap::new();
    for item in db.iter() {
        let (key, entry) = item.unwrap_or_else(|e| panic!("{context}: {e}"));
        let text = std::str::from_utf8(&key).unwrap();
        let n: u64 = text.strip_prefix("key").unwrap().parse().unwrap();
        let id: usize =
            std::str::from_utf8(&entry.value).unwrap().split(':').next().unwrap().parse().unwrap();
        assert_eq!(*entry.value, value(id, n), "{context}: wrong bytes");
        assert!(id < asked.len() && asked[id].changes.get(&n) == Some(&true), "{context}: phantom");
        assert_eq!(found.insert(n, id), None, "{context}: {n} came twice");
        assert_eq!(*db.get(&key).unwrap().unwrap(), *entry.value, "{context}");
    }
    // A write that is certain, or that left a trace, has happened as a whole.
    let happened = |id: usize| {
        certain(&asked[id]) || asked[id].changes.keys().any(|n| found.get(n) == Some(&id))
    };
    let mut floor: BTreeMap<u64, usize> = BTreeMap::new();
    for id in (0..asked.len()).filter(|&id| happened(id)) {
        for &n in asked[id].changes.keys() {
            floor.insert(n, id);
        }
    }
    for n in 0..KEYS {
        let floor = floor.get(&n).copied();
        let deleted_since =
            (floor.unwrap_or(0)..asked.len()).any(|id| asked[id].changes.get(&n) == Some(&false));
        match found.get(&n) {
            Some(&id) => assert!(floor.is_none_or(|floor| id >= floor), "{context}: old value"),
            None => {
                assert!(floor.is_none() || deleted_since, "{context}: key {n} is lost");
                assert_eq!(db.get(&key(n)).unwrap(), None, "{context}");
            }
        }
    }
}

fn open_image(image: &SimDisk, seed: u64, context: &str) -> Db {
    open(image, &options(seed)).unwrap_or_else(|e| panic!("{context}: {e}"))
}

/// Crashes the recovery of an image at every call, too.
fn crash_recovery(image: SimDisk, writes: &[Write], calls: u64, crash: Crash, seed: u64) -> usize {
    image.record_history();
    let context = format!("seed {seed}, {crash:?} at call {calls}");
    drop(open_image(&image, seed, &context));
    let moments = image.take_history();
    for (at, moment) in moments.iter().enumerate() {
        let again = moment.after_power_cut(at as u64);
        let context = format!("{context}, power cut at recovery call {at}");
        // A power cut during recovery loses no more than one before it would.
        let db = open_image(&again, seed, &context);
        let crash = if crash == Crash::Kill { Crash::PowerCut } else { crash };
        verify(&db, writes, calls, crash, &context);
    }
    moments.len()
}

fn check_moment(moment: &Moment, writes: &[Write], seed: u64) -> usize {
    let calls = moment.calls;
    let mut images = 0;
    let variants = [(Crash::Kill, 0), (Crash::PowerCut, 1), (Crash::PowerCut, 2)];
    for (crash, salt) in variants {
        let variant = seed << 32 | calls << 2 | salt;
        let image = || match crash {
            Crash::Kill => moment.after_kill(variant),
            Crash::PowerCut => moment.after_power_cut(variant),
        };
        let context = format!("seed {seed}, {crash:?} {salt} at call {calls}");
        let disk = image();
        let db = open_image(&disk, seed, &context);
        verify(&db, writes, calls, crash, &context);
        images += 1;
        if variant.is_multiple_of(23) {
            // The store works after recovery, and closes and reopens with the same content.
            db.put(b"key0", &value(0, 0)).unwrap();
            db.delete(b"key0").unwrap();
            db.compact().unwrap();
            let before: Vec<_> = db.iter().map(|item| item.unwrap().0).collect();
            db.close().unwrap();
            let db = open_image(&disk, seed, &context);
            let after: Vec<_> = db.iter().map(|item| item.unwrap().0).collect();
            assert_eq!(before.len(), after.len(), "{context}");
        }
        if variant.is_multiple_of(29) {
            images += crash_recovery(image(), writes, calls, crash, seed);
        }
    }
    images
}

#[test]
fn nothing_acknowledged_is_lost_at_any_crash() {
    let workloads = effort(12);
    let next = std::sync::atomic::AtomicU64::new(0);
    let images = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= workloads {
                        return;
                    }
                    let disk = SimDisk::new(seed);
                    disk.record_history();
                    let writes = run(&disk, seed);
                    let count: usize = disk
                        .take_history()
                        .iter()
                        // A seventh of the moments of each workload, a different one for each seed.
                        .filter(|moment| moment.calls % 7 == seed % 7)
                        .map(|moment| check_moment(moment, &writes, seed))
                        .sum();
                    images.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    let images = images.into_inner();
    println!("{images} crash images");
    assert!(images as u64 >= workloads * 160, "only {images} images");
}
