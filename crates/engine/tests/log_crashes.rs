//! Tests of a keyspace with a log on a simulated disk, with running compactions and values that go to disk and come
//! back, after kills and power cuts at many moments.
//!
//! The recovered state is that after some prefix of the changes: after a kill of all that had returned, after a power
//! cut of at least all that had been synced. Each change has an offset in a stream, and the recovered offset is that
//! of the state.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;
use tierce_harness::{Random, effort};
use tierce_keyspace::log::{Checkpoint, LogSink, Pass, RecordKind, Replay};
use tierce_keyspace::{
    Cleaning, DbIndex, Expiry, Freeing, Keyspace, Options, Removal, SpillBatch, StreamPosition,
    flush_dbs, for_each_entry, gather_cold, leave_to_disk, swap_dbs,
};
use tierce_storage::disk::SimDisk;
use tierce_storage::{ColdOptions, ColdStore, Durable, Origin, Wal, WalMark, WalOptions};

const NOW_MS: i64 = 1_000_000;
const DATABASES: usize = 2;
const STEPS: usize = 160;

/// The log sink of the keyspace; `Some` once the keyspace is loaded.
#[derive(Default)]
struct Log(RwLock<Option<Wal>>);

impl Log {
    fn with<R>(&self, act: impl FnOnce(&Wal) -> R) -> R {
        act(self.0.read().as_ref().expect("an open log"))
    }
}

impl LogSink for Log {
    fn append(&self, record: &[u8], _: RecordKind) {
        self.with(|wal| wal.append(record)).expect("the disk works");
    }
}

fn open(disk: &SimDisk, seed: u64) -> Result<(Arc<Keyspace>, Arc<Log>), tierce_storage::Error> {
    let log = Arc::<Log>::default();
    let sink = Some(Arc::clone(&log) as Arc<dyn LogSink>);
    let options =
        Options { shards: 4, databases: DATABASES, seed, log: sink, ..Options::default() };
    let keyspace = Arc::new(Keyspace::new(options).expect("sound options"));
    keyspace.set_following(true);
    let cold_options = ColdOptions { segment_size_bytes: 4 * 4096, open_files_max: 3 };
    let cold = ColdStore::open(Arc::new(disk.clone()), Path::new("/cold"), cold_options)?;
    let cold = Arc::new(cold);
    keyspace.set_cold_store(Arc::clone(&cold));
    let mut replay = Replay::start(Arc::clone(&keyspace), 1, NOW_MS).expect("a thread");
    let options = WalOptions {
        segment_size_bytes: [700, 2000, 6000][(seed % 3) as usize],
        tail_bytes: 1024,
        background_threads: false,
        ..WalOptions::default()
    };
    let take = |record: &[u8]| replay.record(record).map_err(|error| error.to_string());
    let (wal, _) = Wal::open_on(Arc::new(disk.clone()), Path::new("/log"), options, take)?;
    let _ = replay.finish();
    cold.finish_recovery()?;
    *log.0.write() = Some(wal);
    keyspace.begin_logging();
    Ok((keyspace, log))
}

type State = BTreeMap<(usize, Vec<u8>), (Vec<u8>, Option<i64>)>;

fn state(keyspace: &Keyspace) -> State {
    let mut state = State::new();
    for db in keyspace.db_indices() {
        let mut keys = Vec::new();
        let add = |entry: &tierce_keyspace::Entry| {
            keys.push((entry.key().to_vec(), entry.deadline_ms()));
        };
        for_each_entry(&mut keyspace.locks(), db, NOW_MS, add);
        for (name, deadline_ms) in keys {
            let (key, mut locks) = (keyspace.key(&name), keyspace.locks());
            let mut shard = locks.db(db, key.hash(), NOW_MS);
            let value = shard.string(key).expect("what is on disk can be read").expect("is there");
            state.insert((db.get(), name.clone()), (value.to_vec(), deadline_ms));
        }
    }
    state
}

/// Moves some values to disk.
fn spill(keyspace: &Keyspace, rounds: u64) {
    let (mut batch, mut locks) = (SpillBatch::default(), keyspace.locks());
    for _ in 0..rounds {
        gather_cold(&mut locks, &mut batch, NOW_MS);
    }
    write(keyspace, &mut batch);
}

fn write(keyspace: &Keyspace, batch: &mut SpillBatch) {
    let store = keyspace.cold_store().expect("a store");
    let positions =
        store.write(batch.values(), Durable::Yes, Origin::Memory).expect("the disk works");
    leave_to_disk(&mut keyspace.locks(), batch, &positions, NOW_MS);
    batch.clear(0);
}

/// Moves values together, and removes dead segments, in the order that the server keeps.
fn clean(keyspace: &Keyspace, log: &Log) {
    let store = keyspace.cold_store().expect("a store");
    let (mut batch, mut cleaning) = (SpillBatch::default(), Cleaning::begin(store.sparse(0.6)));
    while cleaning.step(keyspace, &mut batch, 2000).expect("what is on disk can be read") {
        write(keyspace, &mut batch);
    }
    write(keyspace, &mut batch);
    let dead = store.dead();
    keyspace.locks().pass_all_shards();
    log.with(Wal::sync).expect("the disk works");
    store.remove(&dead).expect("the disk works");
}

/// Changes a key, or several as one change, with this offset in a stream.
fn change(keyspace: &Keyspace, random: &mut Random, offset: u64) {
    let db = keyspace.db_index(random.u64_below(DATABASES as u64) as usize).expect("a database");
    let names = [[b'k', random.u64_below(12) as u8], [b'k', random.u64_below(12) as u8]];
    let [key, other] = [keyspace.key(&names[0]), keyspace.key(&names[1])];
    let mut locks = keyspace.locks();
    locks.lead_to(StreamPosition { stream: [b'a'; 40], offset, db: DbIndex::ZERO });
    match random.u64_below(16) {
        0 => _ = locks.db(db, key.hash(), NOW_MS).remove(key),
        1 => _ = locks.db(db, key.hash(), NOW_MS).append(key, b"+more").expect("short"),
        2 => _ = locks.db(db, key.hash(), NOW_MS).increment(key, 5),
        3 => {
            let deadline_ms = NOW_MS + 1 + random.u64_below(1000) as i64;
            locks.db(db, key.hash(), NOW_MS).set_deadline(key, deadline_ms);
        }
        4 => _ = locks.db(db, key.hash(), NOW_MS).clear_deadline(key),
        5 | 6 => {
            let mut both = locks.lock_many(&[key.hash(), other.hash()]);
            let entry = both.db(db, key.hash(), NOW_MS).take(key, Removal::Moved);
            if let Some(entry) = entry {
                both.db(db, other.hash(), NOW_MS).put(other, entry).expect("a short key");
            }
        }
        7 | 8 => {
            let mut both = locks.lock_many(&[key.hash(), other.hash()]);
            let value = random.u64_below(1000).to_string();
            for key in [key, other] {
                let mut db = both.db(db, key.hash(), NOW_MS);
                db.set(key, &value, Expiry::Never).expect("short");
            }
        }
        9 if random.u64_below(4) == 0 => _ = flush_dbs(&mut locks, [db], Freeing::Now),
        10 if random.u64_below(3) == 0 => {
            let all: Vec<_> = keyspace.db_indices().collect();
            swap_dbs(&mut locks, all[0], all[1], NOW_MS);
        }
        11..=13 => {
            let value = vec![b'x'; 300 + random.u64_below(1500) as usize];
            locks.db(db, key.hash(), NOW_MS).set(key, &value, Expiry::Keep).expect("short");
        }
        _ => {
            let value = random.u64_below(1_000_000).to_string();
            locks.db(db, key.hash(), NOW_MS).set(key, &value, Expiry::Never).expect("short");
        }
    }
}

/// The state after each step, and its guarantees.
struct History {
    states: Vec<State>,
    /// For each step: the number of disk calls when it returned, and the last step that was synced then.
    returned: Vec<(u64, usize)>,
}

fn run(disk: &SimDisk, seed: u64) -> History {
    let mut random = Random::new(seed);
    let (keyspace, log) = open(disk, seed).expect("a sound disk");
    let mut history = History { states: vec![State::new()], returned: vec![(disk.calls(), 0)] };
    let mut pass: Option<(WalMark, Checkpoint<'_>)> = None;
    let mut synced = 0;
    for step in 1..=STEPS {
        match random.u64_below(13) {
            10 | 11 => spill(&keyspace, 1 + random.u64_below(6)),
            12 => {
                clean(&keyspace, &log);
                synced = step - 1;
            }
            0 => {
                log.with(Wal::sync).expect("the disk works");
                synced = step - 1;
            }
            1 if pass.is_none() => {
                let mark = log.with(Wal::rotate).expect("the disk works");
                pass = Some((mark, Checkpoint::begin(&keyspace)));
            }
            2..=4 if pass.is_some() => {
                let Some((mark, mut checkpoint)) = pass.take() else { continue };
                if checkpoint.step().1 == Pass::Complete {
                    log.with(Wal::sync).expect("the disk works");
                    log.with(|wal| wal.drop_before(&mark)).expect("the disk works");
                    synced = step - 1;
                } else {
                    pass = Some((mark, checkpoint));
                }
            }
            _ => change(&keyspace, &mut random, step as u64),
        }
        history.states.push(state(&keyspace));
        history.returned.push((disk.calls(), synced));
    }
    history
}

/// Checks an image taken when the disk had completed `calls`.
fn check(
    image: &SimDisk,
    history: &History,
    calls: u64,
    is_power_cut: bool,
    context: &str,
    seed: u64,
) {
    let (keyspace, log) = open(image, seed).unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = state(&keyspace);
    let done = history.returned.partition_point(|(returned, _)| *returned <= calls).max(1) - 1;
    let certain = if is_power_cut { history.returned[done].1 } else { done };
    let latest = (done + 1).min(STEPS);
    assert!(
        history.states[certain..=latest].contains(&found),
        "{context}: {found:?} is no state of the steps {certain} to {latest}"
    );
    let offset = keyspace.stream_position().map_or(0, |position| position.offset);
    assert_eq!(found, history.states[offset as usize], "{context}: the place is {offset}");
    // The server continues, through another crash.
    let mut random = Random::new(calls);
    change(&keyspace, &mut random, 1000);
    let before = state(&keyspace);
    log.with(Wal::sync).expect("the disk works");
    let (again, _) = open(&image.now().after_power_cut(seed), seed)
        .unwrap_or_else(|error| panic!("{context}, again: {error}"));
    assert_eq!(state(&again), before, "{context}, again");
}

#[test]
fn what_comes_back_is_a_prefix_of_what_was_done() {
    let workloads = effort(6);
    let mut images = 0;
    for seed in 0..workloads {
        let disk = SimDisk::new(seed);
        disk.record_history();
        let history = run(&disk, seed);
        for moment in disk.take_history() {
            if moment.calls % 23 != seed % 23 {
                continue;
            }
            let context = |what| format!("seed {seed}, {what} at call {}", moment.calls);
            let salt = seed << 32 | moment.calls;
            check(&moment.after_kill(salt), &history, moment.calls, false, &context("kill"), seed);
            let cut = moment.after_power_cut(salt);
            check(&cut, &history, moment.calls, true, &context("power cut"), seed);
            images += 2;
        }
    }
    println!("{images} crash images");
    assert!(images >= workloads * 15, "only {images} images");
}
