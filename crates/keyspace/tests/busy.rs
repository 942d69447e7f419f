//! Shards that are locked for long: a worker is refused, and woken later.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tierce_harness::wait_until;
use tierce_keyspace::{
    Busy, Clock, DbIndex, Evicted, Eviction, Expiry, Freed, Freeing, Keyspace, ManualClock,
    Options, Policy, Reaper, ShardLocks, Wakes, Watch, evict, forget_waiter, remember_reader,
    try_flush_dbs, try_for_each_entry, try_random_key, try_scan, wait_for_keys, watch_key,
};

const NOW_MS: i64 = 1_000_000;
const DB: DbIndex = DbIndex::ZERO;
const SHARDS: usize = 8;
const WORKER: u16 = 3;

/// Returns a keyspace, and the wake-ups of its worker.
fn keyspace() -> (Arc<Keyspace>, Receiver<(u16, Freed)>) {
    let options = Options { shards: SHARDS, databases: 2, ..Options::default() };
    let keyspace = Arc::new(Keyspace::new(options).unwrap());
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    keyspace.on_freed(move |worker, freed| sender.lock().unwrap().send((worker, freed)).unwrap());
    (keyspace, receiver)
}

/// A key of each shard.
fn names(keyspace: &Keyspace) -> Vec<String> {
    let of = |shard| {
        let mut names = (0..).map(|number: u32| format!("key:{number}"));
        names.find(|name| keyspace.shard_of(keyspace.hash(name.as_bytes())) == shard).unwrap()
    };
    (0..SHARDS).map(of).collect()
}

fn set(locks: &mut ShardLocks<'_>, name: &str) {
    let key = locks.keyspace().key(name.as_bytes());
    locks.db(DB, key.hash(), NOW_MS).set(key, b"value", Expiry::Never).unwrap();
}

/// A thread that keeps the shards of some keys locked for long, until it is told to stop.
struct Holder {
    ends: Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Holder {
    fn start(keyspace: &Arc<Keyspace>, names: &[&str]) -> Self {
        let hashes: Vec<_> = names.iter().map(|name| keyspace.hash(name.as_bytes())).collect();
        let (keyspace, (ends, end)) = (Arc::clone(keyspace), mpsc::channel());
        let (holds, held) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut locks = keyspace.long_locks();
            let many = locks.lock_many(&hashes);
            holds.send(()).unwrap();
            end.recv().unwrap();
            drop(many);
            locks.release();
        });
        held.recv().unwrap();
        Self { ends, thread }
    }

    fn end(self) {
        self.ends.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

#[test]
fn a_worker_is_refused_a_busy_shard_and_woken_when_it_is_free() {
    let (keyspace, woken) = keyspace();
    let names = names(&keyspace);
    let hash = |shard: usize| keyspace.hash(names[shard].as_bytes());
    let mut worker = keyspace.worker_locks(WORKER);
    let holder = Holder::start(&keyspace, &[&names[2], &names[5]]);

    assert_eq!(worker.reach(hash(2)), Err(Busy { shard: 2 }));
    assert_eq!(worker.reach(hash(5)), Err(Busy { shard: 5 }));
    assert!(!worker.try_reach(hash(5)));
    assert_eq!(worker.reach(hash(1)), Ok(()));
    set(&mut worker, &names[1]);
    let several = [0, 5, 6].map(hash);
    assert_eq!(worker.try_lock_many(&several).err(), Some(Busy { shard: 5 }));
    assert_eq!(worker.try_lock_all().err(), Some(Busy { shard: 2 }));
    assert!(!worker.is_within(), "all or none");
    assert!(!keyspace.long_locks().try_reach(hash(5)), "it does not wait, as others of its kind");
    let mut other = keyspace.worker_locks(WORKER + 1);
    assert!([0, 1, 3, 4, 6, 7].iter().all(|shard| other.reach(hash(*shard)).is_ok()));
    drop(other);

    assert!(woken.try_recv().is_err());
    holder.end();
    let (who, freed) = woken.recv().unwrap();
    assert_eq!(who, WORKER);
    assert!((0..SHARDS).all(|shard| freed.contains(shard) == [2, 5].contains(&shard)));
    assert!(woken.try_recv().is_err(), "one wake-up, however often it was refused");
    set(&mut worker, &names[1]);
    assert!(worker.try_lock_all().is_ok());
}

#[test]
fn what_goes_through_all_shards_stops_at_a_busy_one() {
    let (keyspace, woken) = keyspace();
    let names = names(&keyspace);
    names.iter().for_each(|name| set(&mut keyspace.locks(), name));
    let holder = Holder::start(&keyspace, &[&names[3]]);
    let mut worker = keyspace.worker_locks(WORKER);

    let mut seen = 0;
    let cursor = try_scan(&mut worker, DB, 0, 100, NOW_MS, |_| seen += 1).unwrap();
    assert_eq!(seen, 3, "the keys before it");
    assert_eq!(
        try_scan(&mut worker, DB, cursor, 100, NOW_MS, |_| seen += 1),
        Err(Busy { shard: 3 })
    );
    assert_eq!(try_for_each_entry(&mut worker, DB, NOW_MS, |_| ()), Err(Busy { shard: 3 }));
    assert!(try_flush_dbs(&mut worker, [DB], Freeing::Now, || Ok::<(), Busy>(())).is_err());
    let random = (0..100_u64).map(|turn| turn << 57);
    let draws: Vec<_> =
        random.map(|random| try_random_key(&mut worker, DB, random, NOW_MS)).collect();
    assert!(draws.contains(&Err(Busy { shard: 3 })) && draws.iter().any(Result::is_ok));
    worker.release();

    holder.end();
    woken.recv().unwrap();
    assert_eq!(try_scan(&mut worker, DB, cursor, 100, NOW_MS, |_| seen += 1), Ok(0));
    assert_eq!(seen, SHARDS);
}

#[test]
fn eviction_passes_over_busy_shards() {
    let (keyspace, _woken) = keyspace();
    let names = names(&keyspace);
    names.iter().for_each(|name| set(&mut keyspace.locks(), name));
    keyspace.set_eviction(&Eviction { limit_bytes: 1, ..Eviction::default() });
    let holder = Holder::start(&keyspace, &[&names[0]]);
    assert_eq!(evict(&mut keyspace.worker_locks(WORKER), NOW_MS, usize::MAX), Evicted::Nothing);
    holder.end();
    let policies = [Policy::AllkeysLru, Policy::VolatileTtl];
    for policy in policies {
        let eviction = Eviction { policy, limit_bytes: 1, ..Eviction::default() };
        keyspace.set_eviction(&eviction);
        if policy == Policy::VolatileTtl {
            for name in &names {
                let key = keyspace.key(name.as_bytes());
                let mut locks = keyspace.locks();
                let mut db = locks.db(DB, key.hash(), NOW_MS);
                db.set(key, b"", Expiry::At(NOW_MS + 1000)).unwrap();
            }
        }
        let holder = Holder::start(&keyspace, &[&names[0], &names[7]]);
        let mut worker = keyspace.worker_locks(WORKER);
        assert_eq!(evict(&mut worker, NOW_MS, usize::MAX), Evicted::Later, "{policy:?}");
        assert_eq!(keyspace.len(DB), 2);
        holder.end();
        // An empty keyspace exceeds this limit.
        assert_eq!(evict(&mut worker, NOW_MS, usize::MAX), Evicted::Nothing);
        assert_eq!(keyspace.len(DB), 0);
    }
}

/// An unlocked shard for which another thread waits is refused as well.
#[test]
fn eviction_passes_over_shards_that_others_wait_for() {
    let (keyspace, _woken) = keyspace();
    let names = names(&keyspace);
    let deadline = Expiry::At(NOW_MS + 1000);
    let key = keyspace.key(names[1].as_bytes());
    keyspace.locks().db(DB, key.hash(), NOW_MS).set(key, b"", deadline).unwrap();
    let holder = Holder::start(&keyspace, &[&names[5]]);
    let second = thread::spawn({
        let (keyspace, names) = (Arc::clone(&keyspace), [names[1].clone(), names[5].clone()]);
        move || Holder::start(&keyspace, &[&names[0], &names[1]]).end()
    });
    let mut locks = keyspace.long_locks();
    while locks.try_reach(key.hash()) {
        locks.release();
        thread::yield_now();
    }
    for policy in [Policy::AllkeysLru, Policy::VolatileTtl, Policy::VolatileLru] {
        keyspace.set_eviction(&Eviction { policy, limit_bytes: 1, ..Eviction::default() });
        assert_eq!(evict(&mut locks, NOW_MS, usize::MAX), Evicted::Later, "{policy:?}");
    }
    assert_eq!(keyspace.len(DB), 1);
    holder.end();
    second.join().unwrap();
}

#[test]
fn a_thread_that_may_wait_holds_nothing_meanwhile() {
    let (keyspace, _woken) = keyspace();
    let names = names(&keyspace);
    let holder = Holder::start(&keyspace, &[&names[7]]);
    let (starts, started) = mpsc::channel();
    let all = thread::spawn({
        let keyspace = Arc::clone(&keyspace);
        move || {
            starts.send(()).unwrap();
            drop(keyspace.locks().lock_all());
        }
    });
    started.recv().unwrap();
    // In either state of the other thread, all shards but one are available.
    for round in 0..1000 {
        let mut worker = keyspace.worker_locks(WORKER);
        let hash = keyspace.hash(names[round % 7].as_bytes());
        assert!(worker.try_reach(hash));
    }
    assert!(!all.is_finished());
    holder.end();
    all.join().unwrap();
}

#[test]
fn two_that_hold_the_same_shards_for_long_take_turns_with_workers() {
    let (keyspace, woken) = keyspace();
    let names = names(&keyspace);
    let hash = keyspace.hash(names[0].as_bytes());
    let first = Holder::start(&keyspace, &[&names[0]]);
    let mut worker = keyspace.worker_locks(WORKER);
    assert!(worker.reach(hash).is_err());
    let second = thread::spawn({
        let (keyspace, name) = (Arc::clone(&keyspace), names[0].clone());
        move || {
            let mut locks = keyspace.long_locks();
            set(&mut locks, &name);
            locks.release();
        }
    });
    first.end();
    let (_, freed) = woken.recv().unwrap();
    let key = keyspace.key(names[0].as_bytes());
    drop(freed);
    second.join().unwrap();
    assert_eq!(worker.reach(hash), Ok(()));
    assert!(worker.db(DB, hash, NOW_MS).exists(key));
}

#[test]
fn a_shard_that_is_held_for_long_stays_so_while_it_is_locked_with_no_other() {
    let (keyspace, woken) = keyspace();
    let names = names(&keyspace);
    let [hash, other] = [0, 1].map(|shard: usize| keyspace.hash(names[shard].as_bytes()));
    let mut long = keyspace.long_locks();
    set(&mut long, &names[0]);
    let mut worker = keyspace.worker_locks(WORKER);
    assert!(worker.reach(hash).is_err());
    for _ in 0..2 {
        drop(long.lock_many(&[hash]));
        assert!(woken.try_recv().is_err(), "no other thread comes in between");
        assert!(worker.reach(hash).is_err());
    }
    drop(long.lock_many(&[hash, other]));
    assert!(woken.recv().unwrap().1.contains(0), "it waited for the other, and held nothing");
    assert!(worker.reach(hash).is_ok());
}

#[test]
fn a_waiter_in_a_busy_shard_is_forgotten_later() {
    let (keyspace, _woken) = keyspace();
    let names = names(&keyspace);
    let keys = [&names[1], &names[4], &names[5]].map(|name| keyspace.key(name.as_bytes()));
    let hashes = keys.map(|key| key.hash());
    let waiter = wait_for_keys(
        keyspace.locks().lock_many(&hashes).locks(),
        DB,
        &keys,
        Wakes::Removal,
        "a client",
    );
    let holder = Holder::start(&keyspace, &[&names[4]]);
    forget_waiter(&mut keyspace.worker_locks(WORKER), &waiter);
    assert_eq!(keyspace.awaited_keys(), (1, 1), "those of the shards that are free are");
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(NOW_MS));
    let _reaper = Reaper::start(Arc::clone(&keyspace), clock).unwrap();
    holder.end();
    while keyspace.awaited_keys() != (0, 0) {
        thread::yield_now();
    }
}

/// Each of the reaper's duties meets the busy shard: an answered waiter, a dropped watch, due keys, too many cached
/// keys, and the first round of aging.
#[test]
fn the_reaper_passes_by_a_shard_that_is_held_without_end() {
    let (keyspace, _woken) = keyspace();
    let names = names(&keyspace);
    let key = |shard: usize| keyspace.key(names[shard].as_bytes());
    let mut locks = keyspace.worker_locks(WORKER);
    keyspace.limit_cached_keys(10);
    for (shard, after_ms) in [(4, 10), (5, 10), (7, 30)] {
        let mut db = locks.db(DB, key(shard).hash(), NOW_MS);
        db.set(key(shard), b"value", Expiry::At(NOW_MS + after_ms)).unwrap();
    }
    for shard in [4, 6] {
        remember_reader(&mut locks, DB, key(shard), 1, NOW_MS);
    }
    let waiter = wait_for_keys(&mut locks, DB, &[key(4)], Wakes::Removal, ());
    let mut watch = Watch::new(&keyspace);
    watch_key(&mut locks, &mut watch, DB, key(4), NOW_MS);
    drop(locks);
    let holder = Holder::start(&keyspace, &[&names[4]]);
    forget_waiter(&mut keyspace.worker_locks(WORKER), &waiter);
    drop(watch);
    keyspace.limit_cached_keys(0);
    let clock = Arc::new(ManualClock::new(NOW_MS + 20));
    let reaper = Reaper::start(Arc::clone(&keyspace), clock.clone()).unwrap();
    let left = || {
        let (watched, cached) = (keyspace.watching().1, keyspace.cached_keys().0);
        (keyspace.len(DB), keyspace.awaited_keys().0, watched, cached)
    };
    wait_until("the others go", || left() == (2, 1, 1, 1));
    clock.set(NOW_MS + 40);
    reaper.wake();
    wait_until("it has passed by, and comes again", || left() == (1, 1, 1, 1));
    holder.end();
    wait_until("all is done", || left() == (0, 0, 0, 0));
}

/// Without a deadline that would wake the reaper again.
#[test]
fn the_reaper_comes_again_for_what_it_has_left_in_a_busy_shard() {
    static PASSES: AtomicUsize = AtomicUsize::new(0);
    fn pass() {
        PASSES.fetch_add(1, Ordering::Relaxed);
    }
    for duty in ["waiter", "watch", "cached key", "eviction"] {
        let (keyspace, _woken) = keyspace();
        let names = names(&keyspace);
        let key = keyspace.key(names[4].as_bytes());
        let mut locks = keyspace.worker_locks(WORKER);
        keyspace.limit_cached_keys(10);
        let mut watch = Watch::new(&keyspace);
        let mut waiter = None;
        match duty {
            "waiter" => waiter = Some(wait_for_keys(&mut locks, DB, &[key], Wakes::Removal, ())),
            "watch" => watch_key(&mut locks, &mut watch, DB, key, NOW_MS),
            "cached key" => remember_reader(&mut locks, DB, key, 1, NOW_MS),
            _ => set(&mut locks, &names[4]),
        }
        drop(locks);
        let left = || {
            let waiting = keyspace.awaited_keys().0 + keyspace.watching().1;
            waiting + keyspace.cached_keys().0 + keyspace.len(DB)
        };
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let reaper = Reaper::start(Arc::clone(&keyspace), clock).unwrap();
        let twice = || {
            for _ in 0..2 {
                let before = PASSES.load(Ordering::Relaxed);
                reaper.call(pass);
                wait_until("it comes by", || PASSES.load(Ordering::Relaxed) > before);
            }
        };
        // The first round of aging is over then.
        twice();
        let holder = Holder::start(&keyspace, &[&names[4]]);
        if let Some(waiter) = waiter {
            forget_waiter(&mut keyspace.worker_locks(WORKER), &waiter);
        }
        drop(watch);
        keyspace.limit_cached_keys(0);
        let limit = Eviction { limit_bytes: 1, policy: Policy::AllkeysLru, ..Eviction::default() };
        keyspace.set_eviction(&limit);
        twice();
        assert_eq!(left(), 1, "{duty}");
        holder.end();
        wait_until(duty, || left() == 0);
    }
}

#[test]
fn an_impatient_thread_gives_up_what_others_hold_for_long_and_lets_those_behind_it_go_on() {
    let (keyspace, _woken) = keyspace();
    let names = names(&keyspace);
    let hash = |shard: usize| keyspace.hash(names[shard].as_bytes());
    let holder = Holder::start(&keyspace, &[&names[2]]);
    let mut impatient = keyspace.impatient_long_locks(Duration::from_millis(1));
    assert_eq!(impatient.try_lock_all().err(), Some(Busy { shard: 2 }));
    assert_eq!(impatient.reach(hash(2)), Err(Busy { shard: 2 }));
    assert_eq!(impatient.try_lock_many(&[hash(1), hash(2)]).err(), Some(Busy { shard: 2 }));
    // It holds none, and waits in no queue.
    Holder::start(&keyspace, &[&names[1], &names[3]]).end();
    assert_eq!(impatient.reach(hash(1)), Ok(()));
    impatient.release();
    holder.end();
    assert!(impatient.try_lock_all().is_ok());
    impatient.release();
    let mut worker = keyspace.worker_locks(WORKER);
    assert_eq!(worker.reach(hash(2)), Ok(()));
}
