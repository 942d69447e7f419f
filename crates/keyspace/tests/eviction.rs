//! Eviction obeys its policy, and memory stays within the limit.
//!
//! The policy's rules are compared with the events of the evicted keys.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use tierce_harness::effort;
use tierce_keyspace::{
    Clock, Db, DbIndex, Event, EventBatch, EventClasses, EventSink, Evicted, Eviction, Expiry,
    FrequencyTuning, Key, Keyspace, ManualClock, Options, Origin, Policy, Reaper, SystemClock,
    Touch, age_uses, evict, flush_dbs,
};

const NOW_MS: i64 = 1_700_000_000_000;

/// Remembers the keys that were evicted, in order.
#[derive(Default)]
struct EvictedKeys(Mutex<Vec<Vec<u8>>>);

impl EventSink for EvictedKeys {
    fn deliver(&self, events: &EventBatch<'_>) {
        for event in events.iter() {
            assert_eq!((event.event, event.origin), (Event::Evicted, Origin::SERVER));
            self.0.lock().push(event.key.to_vec());
        }
    }
}

struct World {
    keyspace: Arc<Keyspace>,
    evicted: Arc<EvictedKeys>,
}

impl World {
    fn new(shards: usize) -> Self {
        let evicted = Arc::new(EvictedKeys::default());
        let keyspace = Keyspace::new(Options { shards, ..Options::default() }).unwrap();
        keyspace.set_event_sink(Arc::clone(&evicted));
        keyspace.set_event_classes(EventClasses::EVICTED);
        Self { keyspace: Arc::new(keyspace), evicted }
    }

    fn with<R>(
        &self,
        db: usize,
        name: &str,
        now_ms: i64,
        act: impl FnOnce(&mut Db<'_>, Key<'_>) -> R,
    ) -> R {
        let key = self.keyspace.key(name.as_bytes());
        let mut locks = self.keyspace.locks();
        let db = self.keyspace.db_index(db).unwrap();
        act(&mut locks.db(db, key.hash(), now_ms), key)
    }

    fn set(&self, name: &str, len: usize, expiry: Expiry) {
        self.with(0, name, NOW_MS, |db, key| db.set(key, &vec![b'v'; len], expiry).unwrap());
    }

    fn get(&self, name: &str) -> bool {
        self.with(0, name, NOW_MS, |db, key| db.get(key).unwrap().is_some())
    }

    fn has(&self, name: &str) -> bool {
        self.with(0, name, NOW_MS, |db, key| db.peek(key).is_some())
    }

    /// Sets the limit to the memory in use, minus this many bytes.
    fn limit_below_use(&self, policy: Policy, bytes: u64) -> u64 {
        let limit_bytes = self.used() - bytes;
        self.keyspace.set_eviction(&Eviction { limit_bytes, policy, ..Eviction::default() });
        limit_bytes
    }

    fn used(&self) -> u64 {
        let memory = self.keyspace.memory();
        memory.total() - memory.lazy_free
    }

    fn evict_all(&self) -> Evicted {
        evict(&mut self.keyspace.locks(), NOW_MS, usize::MAX)
    }

    fn evicted(&self) -> Vec<Vec<u8>> {
        self.evicted.0.lock().clone()
    }
}

fn name(number: usize) -> String {
    format!("key:{number:08}")
}

#[test]
fn without_a_policy_nothing_goes() {
    let world = World::new(4);
    (0..100).for_each(|number| world.set(&name(number), 50, Expiry::Never));
    world.limit_below_use(Policy::Noeviction, 1000);
    assert!(world.keyspace.is_short_of_memory());
    assert_eq!(world.evict_all(), Evicted::Nothing);
    assert_eq!(world.keyspace.len(DbIndex::ZERO), 100);
    world.keyspace.set_eviction(&Eviction::default());
    assert!(!world.keyspace.is_short_of_memory());
    assert_eq!(world.evict_all(), Evicted::Enough);
}

#[test]
fn volatile_policies_spare_keys_without_deadline() {
    for policy in
        [Policy::VolatileLru, Policy::VolatileLfu, Policy::VolatileRandom, Policy::VolatileTtl]
    {
        // Few keys and many keys with a deadline are found in different ways.
        for volatile_each in [2, 40] {
            let world = World::new(8);
            for number in 0..4000 {
                let is_volatile = number % volatile_each == 0;
                let deadline = Expiry::At(NOW_MS + 100_000 + number as i64);
                world.set(&name(number), 40, if is_volatile { deadline } else { Expiry::Never });
            }
            let volatile = 4000 / volatile_each;
            world.limit_below_use(policy, 40 * volatile as u64 / 2);
            assert_eq!(world.evict_all(), Evicted::Enough, "{policy:?}");
            let evicted = world.evicted();
            assert!(
                (volatile / 8..volatile).contains(&evicted.len()),
                "{policy:?}: {}",
                evicted.len()
            );
            let expires = world.keyspace.db_stats(DbIndex::ZERO, NOW_MS).expires as usize;
            assert_eq!(expires, volatile - evicted.len(), "all that went had a deadline");
            assert_eq!(world.keyspace.stats().evicted, evicted.len() as u64);
            assert_eq!(world.keyspace.stats().expired, 0);
            // When no key is left that may be evicted, the others stay.
            world.keyspace.set_eviction(&Eviction {
                limit_bytes: 1,
                policy,
                ..Eviction::default()
            });
            assert_eq!(world.evict_all(), Evicted::Nothing, "{policy:?}");
            assert_eq!(world.evicted().len(), volatile, "{policy:?}");
            let left = world.keyspace.db_stats(DbIndex::ZERO, NOW_MS);
            assert_eq!((left.keys, left.expires), ((4000 - volatile) as u64, 0));
        }
    }
}

#[test]
fn the_nearest_deadlines_go_first() {
    let world = World::new(16);
    let mut deadlines = HashMap::new();
    for number in 0..1000usize {
        let deadline_ms = NOW_MS + 1000 + (number * 7919 % 1000) as i64;
        world.set(&name(number), 20, Expiry::At(deadline_ms));
        deadlines.insert(name(number).into_bytes(), deadline_ms);
    }
    // Some near deadlines become far, and the other way round.
    for number in 0..100 {
        let moved_ms = if number % 2 == 0 { NOW_MS + 90_000 } else { NOW_MS + 500 };
        world.with(0, &name(number), NOW_MS, |db, key| db.set_deadline(key, moved_ms));
        deadlines.insert(name(number).into_bytes(), moved_ms);
    }
    world.limit_below_use(Policy::VolatileTtl, 20_000);
    assert_eq!(world.evict_all(), Evicted::Enough);
    let deadlines: Vec<_> = world.evicted().iter().map(|key| deadlines[key]).collect();
    assert!(deadlines.len() > 100);
    assert!(deadlines.is_sorted(), "{deadlines:?}");
    let latest = *deadlines.last().unwrap();
    (0..1000).for_each(|number| {
        let time = world.with(0, &name(number), NOW_MS, |db, key| db.peek(key)?.deadline_ms());
        assert!(time.is_none_or(|time_ms| time_ms >= latest));
    });
}

#[test]
fn keys_in_use_stay() {
    for policy in [Policy::AllkeysLru, Policy::AllkeysLfu, Policy::VolatileLru, Policy::VolatileLfu]
    {
        let world = World::new(16);
        world.keyspace.set_eviction(&Eviction { policy, ..Eviction::default() });
        for number in 0..5000 {
            world.set(&name(number), 40, Expiry::At(NOW_MS + 1_000_000));
        }
        let used: HashSet<_> = (0..5000).step_by(10).collect();
        for _ in 0..20 {
            used.iter().for_each(|number| assert!(world.get(&name(*number))));
        }
        let bytes = world.used() / 2;
        world.limit_below_use(policy, bytes);
        assert_eq!(world.evict_all(), Evicted::Enough);
        let evicted = world.evicted().len();
        assert!(evicted > 2000, "{policy:?}: {evicted}");
        let lost = used.iter().filter(|number| !world.has(&name(**number))).count();
        assert!(lost <= 2, "{policy:?}: {lost} keys in use were evicted, {evicted} in all");
    }
}

#[test]
fn keys_that_change_stay_though_others_are_read() {
    for policy in [Policy::AllkeysLrm, Policy::VolatileLrm] {
        let world = World::new(4);
        world.keyspace.set_eviction(&Eviction { policy, ..Eviction::default() });
        let set = |number: usize, now_ms| {
            world.with(0, &name(number), now_ms, |db, key| {
                db.set(key, b"0123456789", Expiry::At(NOW_MS + 1_000_000)).unwrap();
            });
        };
        (0..2000).for_each(|number| set(number, NOW_MS - 40_000_000));
        (0..1000).for_each(|number| set(number, NOW_MS));
        for _ in 0..5 {
            (1000..2000).for_each(|number| assert!(world.get(&name(number))));
            (1000..2000).for_each(|number| {
                assert!(world.with(0, &name(number), NOW_MS, |db, key| db.touch(key)));
            });
        }
        world.limit_below_use(policy, 10_000);
        assert_eq!(world.evict_all(), Evicted::Enough);
        let (changed, read): (Vec<_>, Vec<_>) = (0..2000).partition(|number| *number < 1000);
        let lost =
            |numbers: &[usize]| numbers.iter().filter(|number| !world.has(&name(**number))).count();
        assert_eq!(lost(&changed), 0, "{policy:?}");
        assert!(lost(&read) > 50, "{policy:?}: {}", lost(&read));
    }
}

/// It is applied at time 0, at which nothing expires.
#[test]
fn changes_in_the_stream_of_a_primary_are_new() {
    let world = World::new(4);
    let policy = Policy::AllkeysLrm;
    world.keyspace.set_eviction(&Eviction { policy, ..Eviction::default() });
    world.with(0, "k", 0, |db, key| db.set(key, b"v", Expiry::Never).unwrap());
    let idle = world.with(0, "k", SystemClock.now_ms(), |db, key| db.idle_seconds(key));
    assert!(idle.is_some_and(|seconds| seconds < 60), "{idle:?}");
}

#[test]
fn what_was_not_used_for_long_goes_first() {
    let world = World::new(4);
    world.keyspace.set_eviction(&Eviction { policy: Policy::AllkeysLru, ..Eviction::default() });
    for number in 0..2000 {
        // The first half is a day older, and was popular then.
        let is_old = number < 1000;
        let now_ms = if is_old { NOW_MS - 40_000_000 } else { NOW_MS };
        for _ in 0..if is_old { 5 } else { 1 } {
            world.with(0, &name(number), now_ms, |db, key| {
                db.set(key, b"0123456789", Expiry::Never).unwrap();
            });
        }
    }
    world.limit_below_use(Policy::AllkeysLru, 10_000);
    assert_eq!(world.evict_all(), Evicted::Enough);
    let evicted = world.evicted();
    assert!(evicted.len() > 100);
    let old = name(1000).into_bytes();
    assert!(evicted.iter().all(|key| *key < old));
}

#[test]
fn random_policies_spare_nobody() {
    for policy in [Policy::AllkeysRandom, Policy::VolatileRandom] {
        let world = World::new(4);
        (0..2000).for_each(|number| world.set(&name(number), 20, Expiry::At(NOW_MS + 1_000_000)));
        (0..1000).for_each(|number| assert!(world.get(&name(number))));
        world.limit_below_use(policy, world.used() / 2);
        assert_eq!(world.evict_all(), Evicted::Enough);
        let half = name(1000).into_bytes();
        let evicted = world.evicted();
        let used = evicted.iter().filter(|key| **key < half).count();
        let share = used as f64 / evicted.len() as f64;
        assert!((0.4..0.6).contains(&share), "{policy:?}: {share} of the evicted were in use");
    }
}

/// Keys idle for a day or a month among ten times as many that are idle for minutes. In 16 bits of seconds, and
/// in 11 of minutes, the former would look as if they had been used a minute ago.
#[test]
fn keys_idle_for_days_go_before_those_idle_for_minutes() {
    const OLD: usize = 200;
    for (policy, old_seconds, young_seconds) in [
        (Policy::AllkeysLru, (1 << 16) + 60, 3600),
        (Policy::AllkeysLru, 40 * (1 << 16) + 60, 3600),
        (Policy::AllkeysLfu, 60 * (2048 + 1), 180),
        (Policy::AllkeysLfu, 60 * (20 * 2048 + 1), 180),
    ] {
        let world = World::new(16);
        let eviction = Eviction { policy, samples: 20, ..Eviction::default() };
        world.keyspace.set_eviction(&eviction);
        let set = |number: usize, now_ms: i64| {
            world.with(0, &name(number), now_ms, |db, key| {
                db.set(key, b"0123456789", Expiry::Never).unwrap();
            });
        };
        (0..OLD).for_each(|number| set(number, NOW_MS));
        let now_ms = NOW_MS + old_seconds * 1000;
        for hour_ms in (NOW_MS..now_ms).step_by(3_600_000) {
            age_uses(&mut world.keyspace.locks(), hour_ms);
        }
        (OLD..11 * OLD).for_each(|number| set(number, now_ms - young_seconds * 1000));
        if policy == Policy::AllkeysLru {
            let idle = world.with(0, &name(0), now_ms, |db, key| db.idle_seconds(key));
            let idle = idle.expect("the key is there");
            assert!(idle.abs_diff(old_seconds as u64) <= 512, "{idle} for {old_seconds}");
        }
        let limit_bytes = world.used() + EMPTY_BYTES - 4000;
        world.keyspace.set_eviction(&Eviction { limit_bytes, ..eviction });
        assert_eq!(evict(&mut world.keyspace.locks(), now_ms, usize::MAX), Evicted::Enough);
        let evicted = world.evicted();
        let old = evicted.iter().filter(|key| **key < name(OLD).into_bytes()).count();
        assert!((50..OLD).contains(&evicted.len()), "{}", evicted.len());
        assert!(old * 10 >= evicted.len() * 9, "{policy:?}: {old} of {}", evicted.len());
    }
}

#[test]
fn idle_times_and_frequencies_are_set_where_they_are_kept() {
    let world = World::new(1);
    world.set("key", 10, Expiry::Never);
    let idle = |seconds| {
        world.with(0, "key", NOW_MS, |db, key| {
            db.set_idle_seconds(key, seconds);
            db.idle_seconds(key).unwrap()
        })
    };
    for seconds in [0, 1, 3600, 3 * 3600] {
        assert_eq!(idle(seconds), seconds);
    }
    for seconds in [32_768, 65_536, 100_000, 100 * 86_400] {
        assert!(idle(seconds).abs_diff(seconds) <= 512, "{seconds}");
    }
    assert!(idle(u64::MAX) >= 179 * 86_400);

    world.keyspace.set_eviction(&Eviction { policy: Policy::AllkeysLfu, ..Eviction::default() });
    world.with(0, "key", NOW_MS, |db, key| {
        db.set_frequency(key, 77);
        db.set_idle_seconds(key, 100_000);
        assert_eq!(db.frequency(key), Some(77), "an idle time is none of a policy that counts");
    });
}

#[test]
fn all_databases_give() {
    let world = World::new(4);
    for number in 0..3000 {
        world.with(number % 3 * 5, &name(number), NOW_MS, |db, key| {
            db.set(key, b"0123456789", Expiry::Never).unwrap();
        });
    }
    world.limit_below_use(Policy::AllkeysLru, world.used() / 2);
    assert_eq!(world.evict_all(), Evicted::Enough);
    for db in [0, 5, 10] {
        let left = world.keyspace.len(world.keyspace.db_index(db).unwrap());
        assert!((300..700).contains(&left), "{left} in {db}");
    }
}

/// A handful of keys, far fewer than shards: the choice is among all of them all the same.
#[test]
fn few_keys_are_compared_across_shards() {
    let world = World::new(256);
    world.keyspace.set_eviction(&Eviction { policy: Policy::AllkeysLru, ..Eviction::default() });
    (0..8).for_each(|number| world.set(&name(number), 10_000, Expiry::Never));
    for number in (0..8).filter(|number| *number != 3) {
        assert!(world.get(&name(number)));
    }
    world.limit_below_use(Policy::AllkeysLru, 5000);
    assert_eq!(world.evict_all(), Evicted::Enough);
    assert_eq!(world.evicted(), [name(3).into_bytes()]);
}

#[test]
fn frequencies_are_counted_and_decay() {
    let world = World::new(1);
    let decay_minutes = NonZeroU32::new(1);
    let frequency = FrequencyTuning { log_factor: 10, decay_minutes };
    let eviction = Eviction { policy: Policy::AllkeysLfu, frequency, ..Eviction::default() };
    world.keyspace.set_eviction(&eviction);
    let frequency = |now_ms| world.with(0, "k", now_ms, |db, key| db.frequency(key));
    assert_eq!(frequency(NOW_MS), None);
    world.set("k", 10, Expiry::Never);
    assert_eq!(frequency(NOW_MS), Some(5));
    assert!(world.get("k"));
    assert_eq!(frequency(NOW_MS), Some(6));
    (0..3000).for_each(|_| assert!(world.get("k")));
    let much = frequency(NOW_MS).unwrap();
    // 29 on average, with a standard deviation of less than three.
    assert!((12..47).contains(&much), "{much}");
    assert_eq!(frequency(NOW_MS + 180_000), Some(much - 3));
    // Clients that do not touch leave no trace.
    let key = world.keyspace.key(b"k");
    let mut locks = world.keyspace.locks();
    locks.set_touch(Touch::No);
    for _ in 0..1000 {
        assert!(locks.db(DbIndex::ZERO, key.hash(), NOW_MS).get(key).unwrap().is_some());
    }
    locks.release();
    assert_eq!(frequency(NOW_MS), Some(much));
}

/// Steady inserts of values of all sizes, with overwrites and deletions: memory exceeds the limit at most by the last
/// insert and the guaranteed inexactness.
#[test]
fn memory_is_bounded_under_steady_inserts() {
    for policy in
        [Policy::AllkeysLru, Policy::AllkeysLfu, Policy::AllkeysRandom, Policy::VolatileTtl]
    {
        let world = World::new(64);
        let limit_bytes = 4 << 20;
        world.keyspace.set_eviction(&Eviction { limit_bytes, policy, ..Eviction::default() });
        let mut random = 7u64;
        for number in 0..40_000usize {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let len = match random >> 60 {
                0 => 3000,
                1..4 => 300,
                _ => 20 + number % 50,
            };
            let mut locks = world.keyspace.locks();
            assert_eq!(evict(&mut locks, NOW_MS, usize::MAX), Evicted::Enough);
            drop(locks);
            world.set(&name((random >> 33) as usize % 40_000), len, Expiry::At(NOW_MS + 1_000_000));
            let used = world.used();
            assert!(used <= limit_bytes + limit_bytes / 256 + 70_000, "{used} with {policy:?}");
        }
        assert!(world.used() > limit_bytes / 10 * 9, "{} is not used", world.used());
    }
}

#[test]
fn the_reaper_brings_memory_down_to_a_new_limit() {
    let world = World::new(16);
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let reaper = Reaper::start(Arc::clone(&world.keyspace), clock).unwrap();
    for number in 0..3000 {
        let len = if number % 500 == 0 { 200_000 } else { 100 };
        world.set(&name(number), len, Expiry::Never);
    }
    world.limit_below_use(Policy::AllkeysLru, world.used() / 2);
    while world.keyspace.is_short_of_memory() {
        std::thread::yield_now();
    }
    // Large values are freed there as well, and are not waited for.
    drop(reaper);
    assert_eq!(world.keyspace.memory().lazy_free, 0);
    assert!(world.keyspace.len(DbIndex::ZERO) > 0);
}

#[derive(Debug, Clone)]
enum Step {
    Set(u8, usize, bool),
    Get(u8),
    Remove(u8),
    Limit(u64, Policy),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (any::<u8>(), 0usize..300, any::<bool>()).prop_map(|(key, len, volatile)| Step::Set(key, len, volatile)),
        4 => any::<u8>().prop_map(Step::Get),
        1 => any::<u8>().prop_map(Step::Remove),
        2 => (0u64..30_000, 0..Policy::ALL.len()).prop_map(|(limit, policy)| Step::Limit(limit, Policy::ALL[policy])),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..150)
}

#[test]
fn a_limit_is_set_by_one_who_holds_all_shards() {
    let world = World::new(4);
    for n in 0..40 {
        world.set(&format!("k{n}"), 1000, Expiry::Never);
    }
    let mut locks = world.keyspace.locks();
    let all = locks.lock_all();
    let policy = Policy::AllkeysLru;
    world.keyspace.set_eviction(&Eviction { limit_bytes: 20_000, policy, ..Eviction::default() });
    assert!(world.keyspace.is_short_of_memory());
    drop(all);
    drop(locks);
    assert_eq!(world.evict_all(), Evicted::Enough);
    assert!(world.used() <= 20_000 + 20_000 / 256 + 4);
}

/// Bytes that count without any key.
const EMPTY_BYTES: u64 = size_of::<Keyspace>() as u64;

proptest! {
    #![proptest_config(ProptestConfig { cases: effort(128), failure_persistence: None, ..ProptestConfig::default() })]

    /// The keys that are there are those that were set, less those that were removed or evicted;
    /// after an eviction memory is within the limit, or no key is left that may go.
    #[test]
    fn histories_with_evictions(steps in steps()) {
        let world = World::new(2);
        let mut model = HashMap::<String, bool>::new();
        let (mut limit_bytes, mut policy) = (0, Policy::Noeviction);
        for step in steps {
            match step {
                Step::Set(key, len, volatile) => {
                    let expiry = if volatile { Expiry::At(NOW_MS + 5000) } else { Expiry::Never };
                    world.set(&name(key.into()), len, expiry);
                    model.insert(name(key.into()), volatile);
                }
                Step::Get(key) => {
                    assert_eq!(world.get(&name(key.into())), model.contains_key(&name(key.into())));
                }
                Step::Remove(key) => {
                    let removed = world.with(0, &name(key.into()), NOW_MS, |db, key| db.remove(key));
                    assert_eq!(removed, model.remove(&name(key.into())).is_some());
                }
                Step::Limit(bytes, new) => {
                    (limit_bytes, policy) = (bytes, new);
                    world.keyspace.set_eviction(&Eviction { limit_bytes, policy, ..Eviction::default() });
                }
                Step::Flush => {
                    flush_dbs(&mut world.keyspace.locks(), [DbIndex::ZERO], tierce_keyspace::Freeing::Now);
                    model.clear();
                }
            }
            let evicted = world.evict_all();
            for key in world.evicted.0.lock().drain(..) {
                let volatile = model.remove(std::str::from_utf8(&key).unwrap());
                assert!(volatile.is_some(), "evicted once");
                assert!(volatile == Some(true) || policy.name().starts_with("allkeys"));
            }
            assert_eq!(world.keyspace.len(DbIndex::ZERO), model.len() as u64);
            assert_ne!(evicted, Evicted::Some);
            if evicted == Evicted::Nothing {
                let may_go = match policy.name().split_once('-') {
                    None => 0,
                    Some(("allkeys", _)) => model.len(),
                    Some(_) => model.values().filter(|volatile| **volatile).count(),
                };
                assert_eq!(may_go, 0, "{policy:?}");
                assert!(world.used() + EMPTY_BYTES + limit_bytes / 256 + 2 > limit_bytes);
            } else if limit_bytes > 0 {
                // Two shards, each off by a 512th at most.
                let memory = world.keyspace.memory();
                let limit_bytes = limit_bytes + limit_bytes / 256 + 2;
                assert!(world.used() <= limit_bytes, "{memory:?} {limit_bytes} {policy:?}");
            }
        }
    }
}

/// Stale deadline items are removed on the way, also by a thread that announces its locks.
#[test]
fn the_nearest_deadline_is_found_behind_one_that_has_moved() {
    let world = World::new(4);
    world.set("key", 10, Expiry::At(NOW_MS + 100));
    world.set("key", 10, Expiry::At(NOW_MS + 1000));
    world.limit_below_use(Policy::VolatileTtl, 1);
    let mut locks = world.keyspace.long_locks();
    assert_ne!(evict(&mut locks, NOW_MS, usize::MAX), Evicted::Later);
    assert_eq!(*world.evicted.0.lock(), [b"key".to_vec()]);
}
