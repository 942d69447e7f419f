//! The properties of rollbacks and commits.

#[cfg(feature = "planted-faults")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tierce_collections::List;
use tierce_collections::random::Random;
use tierce_harness::effort;

use super::act::act;
use super::world::{DBS, NOW_MS, State, World, recount};
use crate::access::collections::Missing;
use crate::access::keyspace::{Keyspace, Options};
use crate::access::shard_locks::ShardLocks;
use crate::change::log::sink::Sizes;
use crate::data::collections::Editor;
use crate::db_index::DbIndex;
use crate::error::Error;
use crate::random::mix;
use crate::registries::policy::Policy;
use crate::registries::pressure::Eviction;
use crate::registries::stats::Memory;
use crate::services::checkpoint::{Checkpoint, Pass};
use crate::services::evict::evict;
use crate::services::replay::Replay;
use crate::services::scan::for_each_entry;

/// Policies that track the use of keys differently.
const POLICIES: [Policy; 4] =
    [Policy::AllkeysLru, Policy::AllkeysLfu, Policy::VolatileTtl, Policy::AllkeysLrm];

fn some_steps(locks: &mut ShardLocks<'_>, random: &mut Random, most: usize) {
    for _ in 0..random.below(most) {
        act(locks, random.word());
    }
}

/// Goes back to savepoints and to the beginning, and compares.
fn check_rollbacks(seed: u64, world: &World) {
    let mut random = Random::new(mix(seed));
    let logged = world.records.0.lock().len();
    let mut locks = world.keyspace.locks();
    let mut all = locks.lock_all();
    let locks = all.locks();
    let before = World::state(locks);
    locks.begin_undo();
    let mut marks = Vec::new();
    for _ in 0..12 {
        some_steps(locks, &mut random, 12);
        if marks.is_empty() || random.below(2) == 0 {
            marks.push((locks.savepoint(), World::state(locks)));
        } else {
            let to = random.below(marks.len());
            marks.truncate(to + 1);
            let (mark, state) = &marks[to];
            locks.rollback_to(*mark);
            World::state(locks).is_as(state, &format!("seed {seed}, savepoint {to}"));
            recount(locks);
        }
    }
    locks.rollback();
    assert!(!locks.has_undo());
    World::state(locks).is_as(&before, &format!("seed {seed}, all"));
    recount(locks);
    drop(all);
    assert_eq!(world.records.0.lock().len(), logged, "seed {seed}: nothing reaches the log");
}

/// Rolls guards back while memory is at its limit, and evicts keys in between.
fn check_at_the_limit(seed: u64) {
    let world = World::new(seed, 150);
    let keyspace = &world.keyspace;
    let mut evicted = 0;
    for round in 0..4 {
        let Memory { entries, index, deadlines, .. } = keyspace.memory();
        let limit_bytes = (entries + index + deadlines) / 8 * 7;
        let policy = POLICIES[round % POLICIES.len()];
        keyspace.set_eviction(&Eviction { policy, limit_bytes, ..Eviction::default() });
        let mut locks = keyspace.locks();
        evict(&mut locks, NOW_MS, 5);
        drop(locks);
        let memory = keyspace.memory();
        check_rollbacks(mix(seed) ^ round as u64, &world);
        let after = keyspace.memory();
        let room = after.entries.saturating_sub(memory.entries);
        assert!(room <= 64 * 1024, "seed {seed}: {room} bytes, of tables that have grown");
        evicted = keyspace.stats().evicted;
    }
    assert!(evicted > 0, "seed {seed}: keys were evicted between the guards");
}

#[test]
fn a_rollback_restores_everything_at_the_memory_limit() {
    (0..seeds() / 3).for_each(check_at_the_limit);
}

/// Commits some steps and rolls others back; another keyspace does only the committed ones, without an undo log.
fn check_commits(seed: u64, [undoing, plain]: [&World; 2]) {
    let mut random = Random::new(mix(seed));
    let mut locks = [undoing, plain].map(|world| world.keyspace.locks());
    let [a, b] = &mut locks;
    let (mut undoing_all, mut plain_all) = (a.lock_all(), b.lock_all());
    let (a, b) = (undoing_all.locks(), plain_all.locks());
    a.begin_undo();
    for _ in 0..10 {
        let mark = a.savepoint();
        let is_taken_back = random.below(3) == 0;
        for _ in 0..random.below(8) {
            let what = random.word();
            act(a, what);
            if !is_taken_back {
                act(b, what);
            }
        }
        if is_taken_back {
            a.rollback_to(mark);
        }
    }
    a.commit();
    recount(a);
    let [of_a, of_b] = [World::state(a), World::state(b)];
    // A value from disk starts with new usage data, and records say which values are on disk: both depend on chance.
    // A table of few elements comes back from disk as a compact value, in another order.
    let spills = undoing.keyspace.cold_store().is_some();
    if spills {
        let [a, b] = [of_a, of_b].map(|state| state.values_in_any_order());
        assert_eq!(a, b, "seed {seed}, commit");
    } else {
        of_a.is_as(&of_b, &format!("seed {seed}, commit"));
    }
    drop((undoing_all, plain_all));
    drop(locks);
    let [a, b] = [undoing, plain].map(|world| Arc::clone(&world.records));
    if !spills {
        assert_eq!(*a.0.lock(), *b.0.lock(), "seed {seed}: records");
    }
}

fn seeds() -> u64 {
    if cfg!(miri) { 1 } else { effort(100) }
}

/// Its elements would fit a single block, but a list only becomes one if it shrinks to half a block. Reverting the
/// edits makes it grow again.
#[test]
fn a_large_list_that_becomes_small_is_large_again() {
    let world = World::new(1, 0);
    let key = world.keyspace.key(b"list");
    let edit = |locks: &mut ShardLocks<'_>, act: &dyn Fn(&mut Editor<'_, List>)| {
        let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
        let edited: Result<_, Error> = db.edit(key, Missing::Create, |list| {
            act(list);
            Ok(())
        });
        edited.unwrap();
    };
    let remove = |list: &mut Editor<'_, List>| _ = list.remove(0, 3);
    let mut locks = world.keyspace.locks();
    let mut all = locks.lock_all();
    let locks = all.locks();
    edit(locks, &|list| list.push_back([&b"element"[..]; 7].into_iter()));
    edit(locks, &remove);
    let before = World::state(locks);
    assert!(before.kinds().eq(["Collection quicklist"]));
    locks.begin_undo();
    let mark = locks.savepoint();
    edit(locks, &remove);
    assert!(World::state(locks).kinds().eq(["Collection listpack"]));
    locks.rollback_to(mark);
    World::state(locks).is_as(&before, "taken back");
    recount(locks);
}

fn spilling(seed: u64) -> World {
    World::with(seed, 150, Sizes::default(), true)
}

#[test]
fn a_rollback_restores_everything() {
    (0..seeds()).for_each(|seed| check_rollbacks(seed, &World::new(seed, 150)));
}

#[test]
fn a_rollback_restores_values_on_disk() {
    (0..seeds() / 3).for_each(|seed| check_rollbacks(seed, &spilling(seed)));
}

/// For worlds where versions have been handed out: the first request of a client creates another version.
fn check_all_commits(begin: impl Fn(u64) -> World) {
    for seed in (0..seeds()).filter(|seed| seed % 3 == 2) {
        let [undoing, plain] = [(); 2].map(|()| begin(seed));
        check_commits(seed, [&undoing, &plain]);
    }
}

#[test]
fn what_stays_is_what_it_is_without_an_undo_log() {
    check_all_commits(|seed| World::new(seed, 150));
}

#[test]
fn what_stays_gives_up_on_disk_what_it_does_without_an_undo_log() {
    check_all_commits(spilling);
}

/// A log that begins with all keys, while some guards are rolled back, has the committed state.
fn check_log(seed: u64) {
    let sizes = Sizes { piece_len: 90, large_bytes_min: 100, part_bytes: 60 };
    let world = World::with(seed, 150, sizes, false);
    let mut random = Random::new(mix(seed));
    let begin = world.records.0.lock().len();
    let mut checkpoint = Checkpoint::begin(&world.keyspace);
    let mut locks = world.keyspace.locks();
    while checkpoint.step().1 == Pass::Underway {
        let mut all = locks.lock_all();
        all.locks().begin_undo();
        some_steps(all.locks(), &mut random, 4);
        let mark = all.locks().savepoint();
        some_steps(all.locks(), &mut random, 8);
        all.locks().rollback_to(mark);
        if random.below(2) == 0 {
            all.locks().commit();
        }
        drop(all);
        drop(locks.take_ready());
        locks.release();
    }
    drop(locks);
    let options = Options { shards: 2, databases: DBS, ..Options::default() };
    let again = Arc::new(Keyspace::new(options).unwrap());
    let mut replay = Replay::start(Arc::clone(&again), 1, NOW_MS).unwrap();
    for record in &world.records.0.lock()[begin..] {
        replay.record(record).unwrap();
    }
    replay.finish().unwrap();
    let [logged, expected] = [&again, &world.keyspace].map(|keyspace| {
        let mut locks = keyspace.locks();
        for db in keyspace.db_indices() {
            // Expired keys are not in the log.
            for_each_entry(&mut locks, db, NOW_MS, |_| {});
        }
        World::state(locks.lock_all().locks()).values_in_any_order()
    });
    assert_eq!(logged, expected, "seed {seed}");
}

#[test]
fn a_log_has_what_stays() {
    (0..seeds()).for_each(check_log);
}

#[test]
fn worlds_have_values_of_all_kinds() {
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let state: State = World::new(seed, 150).lasting_state();
        kinds.extend(state.kinds().map(str::to_owned));
    }
    for kind in [
        "Blob raw",
        "Int int",
        "Embedded embstr",
        "Raw raw",
        "Collection listpack",
        "Collection quicklist",
        "Collection intset",
        "Collection hashtable",
        "Collection skiplist",
        "Collection listpackex",
        "Collection stream",
    ] {
        assert!(kinds.contains(kind), "{kind} of {kinds:?}");
    }
}

#[test]
fn the_end_of_a_guard_takes_back_what_was_not_committed() {
    let world = World::new(1, 150);
    let logged = world.records.0.lock().len();
    let mut locks = world.keyspace.locks();
    let before = World::state(locks.lock_all().locks());
    let mut all = locks.lock_all();
    all.locks().begin_undo();
    (0..50).for_each(|what| act(all.locks(), mix(what)));
    drop(all);
    assert_eq!(world.records.0.lock().len(), logged);
    World::state(locks.lock_all().locks()).is_as(&before, "dropped");
}

/// Every planted fault in a rollback is found.
#[cfg(feature = "planted-faults")]
#[test]
fn planted_faults_are_found() {
    use crate::planted::{Fault, plant};
    for fault in Fault::OF_UNDO {
        plant(Some(fault));
        // Some are found late; the search ends there.
        let is_found = (0..1000).any(|seed| {
            let check = || match fault {
                Fault::UndoOfLocations => {
                    let [undoing, plain] = [(); 2].map(|()| spilling(seed * 3 + 1));
                    check_commits(seed, [&undoing, &plain]);
                }
                _ => check_rollbacks(seed, &World::new(seed, 150)),
            };
            catch_unwind(AssertUnwindSafe(check)).is_err()
        });
        plant(None);
        assert!(is_found, "{fault:?}");
    }
}
