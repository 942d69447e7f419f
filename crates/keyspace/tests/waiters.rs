//! The queues of waiters for keys: their order. No waiter is skipped, whatever is added and removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use tierce_collections::stream::StreamId;
use tierce_collections::{List, Stream};
use tierce_harness::effort;
use tierce_keyspace::{
    Db, DbIndex, Delivery, Editor, Error, Expiry, Key, Keyspace, Missing, Options, Returned,
    Sequence, ShardLocks, WaitKey, Waiter, Wakes, claim_waiter, forget_waiter, leave_unserved,
    take_unserved, wait_for_keys,
};

const NOW_MS: i64 = 1_000_000;
const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];

fn keyspace() -> Keyspace {
    Keyspace::new(Options { shards: 4, ..Options::default() }).unwrap()
}

fn wait_for(keyspace: &Keyspace, names: &[&[u8]], wakes: Wakes) -> Arc<Waiter> {
    let keys: Vec<Key<'_>> = names.iter().map(|name| keyspace.key(name)).collect();
    let hashes: Vec<_> = keys.iter().map(|key| key.hash()).collect();
    let mut locks = keyspace.locks();
    wait_for_keys(locks.lock_many(&hashes).locks(), DbIndex::ZERO, &keys, wakes, ())
}

fn wait_key(name: &[u8]) -> WaitKey {
    (DbIndex::ZERO, name.into())
}

fn set(locks: &mut ShardLocks<'_>, name: &[u8]) {
    let key = locks.keyspace().key(name);
    locks.db(DbIndex::ZERO, key.hash(), NOW_MS).set(key, b"v", Expiry::Never).unwrap();
}

/// Claims, and returns the claim at once.
fn pass_over(locks: &mut ShardLocks<'_>, name: &[u8], after: Option<Sequence>) -> Option<Sequence> {
    let waiter = claim_waiter(locks, &wait_key(name), after, NOW_MS, |_| true)?;
    assert_eq!(waiter.state.give_back(), Returned::Waiting);
    Some(waiter.sequence())
}

/// A change of a stream.
fn edit(change: impl Fn(&mut Editor<'_, Stream>)) -> impl Fn(&mut Db<'_>, Key<'_>) {
    move |db, key| {
        let change = |stream: &mut Editor<'_, Stream>| {
            change(stream);
            Ok::<_, Error>(())
        };
        db.edit(key, Missing::Create, change).unwrap();
    }
}

#[test]
fn who_leaves_while_the_queue_is_served_does_not_hide_another() {
    let keyspace = keyspace();
    let [first, second, third] = [(); 3].map(|()| wait_for(&keyspace, &[b"a"], Wakes::Creation));
    let mut locks = keyspace.locks();
    set(&mut locks, b"a");
    let passed = pass_over(&mut locks, b"a", None);
    assert_eq!(passed, Some(first.sequence()));
    first.state.done();
    forget_waiter(&mut locks, &first);
    let passed = pass_over(&mut locks, b"a", passed);
    assert_eq!(passed, Some(second.sequence()));
    let passed = pass_over(&mut locks, b"a", passed);
    assert_eq!(passed, Some(third.sequence()));
    assert_eq!(pass_over(&mut locks, b"a", passed), None);
}

/// A key whose shard is locked for long is left until it is free. Waiters for other keys are served meanwhile.
#[test]
fn a_key_in_a_busy_shard_does_not_hide_those_that_are_handed_over() {
    let keyspace = keyspace();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    keyspace.on_unserved(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    leave_unserved(&mut keyspace.locks(), wait_key(b"a"));
    let _waiter = wait_for(&keyspace, &[b"b"], Wakes::Creation);
    for round in 1..=2 {
        for _ in 0..2 {
            set(&mut keyspace.locks(), b"b");
            assert_eq!(told.load(Ordering::Relaxed), round, "once for all until they are taken");
        }
        let mut locks = keyspace.locks();
        take_unserved(&mut locks);
        let left = (round == 1).then(|| wait_key(b"a"));
        let keys: Vec<_> = left.into_iter().chain([wait_key(b"b")]).collect();
        assert_eq!(locks.take_ready(), keys);
    }
}

#[test]
fn only_those_who_mind_learn_that_a_key_is_gone() {
    let keyspace = keyspace();
    let _patient = wait_for(&keyspace, &[b"a"], Wakes::Creation);
    let wakes = wait_for(&keyspace, &[b"a"], Wakes::Removal);
    let mut locks = keyspace.locks();
    assert_eq!(pass_over(&mut locks, b"a", None), Some(wakes.sequence()));
    assert_eq!(pass_over(&mut locks, b"a", Some(wakes.sequence())), None);
}

/// A change that serves no client makes none check.
#[test]
fn a_key_is_ready_when_it_comes_or_gains_what_is_waited_for() {
    let keyspace = keyspace();
    let _waiter = wait_for(&keyspace, &[b"a"], Wakes::Creation);
    let mut locks = keyspace.locks();
    let mut is_ready = |change: &dyn Fn(&mut Db<'_>, Key<'_>)| {
        let key = keyspace.key(b"a");
        change(&mut locks.db(DbIndex::ZERO, key.hash(), NOW_MS), key);
        locks.release();
        !locks.take_ready().is_empty()
    };
    let id = |ms| StreamId { ms, seq: 0 };
    assert!(is_ready(&edit(|stream| _ = stream.add(id(1), [(&b"f"[..], &b"v"[..])].into_iter()))));
    assert!(is_ready(&edit(|stream| _ = stream.add(id(2), [(&b"f"[..], &b"v"[..])].into_iter()))));
    assert!(!is_ready(&edit(|stream| stream.set_group(b"g", id(0), None))));
    assert!(!is_ready(&edit(|stream| stream.set_consumer(b"g", b"c", 1, None))));
    assert!(!is_ready(&edit(|stream| stream.set_group(b"g", id(2), None))));
    let delivery = Delivery { at_ms: 1, count: 1 };
    assert!(!is_ready(&edit(|stream| stream.deliver(b"g", b"c", &[id(1)], delivery))));
    assert!(!is_ready(&edit(|stream| _ = stream.acknowledge(b"g", [id(1)].into_iter()))));
    assert!(!is_ready(&edit(|stream| _ = stream.delete(id(1)))));
    assert!(!is_ready(&|db, key| _ = db.set_deadline(key, NOW_MS + 1000)));
    assert!(is_ready(&edit(|stream| stream.set_group(b"g", id(0), None))), "it begins again");
    assert!(is_ready(&edit(|stream| _ = stream.remove_group(b"g"))), "it is gone");
    assert!(is_ready(&|db, key| _ = db.set(key, b"v", Expiry::Never)), "it is replaced");
}

/// A client may wait until a list is long enough.
#[test]
fn a_key_is_ready_when_it_is_edited_while_a_client_waits_for_that() {
    let keyspace = keyspace();
    let key = keyspace.key(b"a");
    let is_ready_after = |change: &dyn Fn(&mut Db<'_>)| {
        let mut locks = keyspace.locks();
        change(&mut locks.db(DbIndex::ZERO, key.hash(), NOW_MS));
        locks.release();
        !locks.take_ready().is_empty()
    };
    let push = |db: &mut Db<'_>| {
        let push = |list: &mut Editor<'_, List>| {
            list.push_back(std::iter::once(&b"v"[..]));
            Ok::<_, Error>(())
        };
        db.edit(key, Missing::Create, push).unwrap();
    };
    let _patient = wait_for(&keyspace, &[b"a"], Wakes::Creation);
    assert!(is_ready_after(&push));
    assert!(!is_ready_after(&push));
    let waiter = wait_for(&keyspace, &[b"a", b"a"], Wakes::Edit);
    assert!(is_ready_after(&push));
    assert!(!is_ready_after(&|db| _ = db.set_deadline(key, NOW_MS + 1000)));
    waiter.state.done();
    forget_waiter(&mut keyspace.locks(), &waiter);
    assert!(!is_ready_after(&push));
}

/// On a replica, an expired key is hidden until the primary removes it.
#[test]
fn a_deadline_may_show_a_key_to_a_server_that_follows() {
    let keyspace = keyspace();
    let _waiter = wait_for(&keyspace, &[b"a"], Wakes::Creation);
    let mut locks = keyspace.locks();
    set(&mut locks, b"a");
    let key = keyspace.key(b"a");
    for follows in [false, true] {
        keyspace.set_following(follows);
        drop(locks.take_ready());
        locks.db(DbIndex::ZERO, key.hash(), NOW_MS).set_deadline(key, NOW_MS + 1000);
        locks.release();
        assert_eq!(locks.has_ready(), follows);
    }
}

/// A script may write to two such keys in turns.
#[test]
fn a_key_is_noted_once() {
    let keyspace = keyspace();
    let _waiter = wait_for(&keyspace, &[b"a", b"b"], Wakes::Creation);
    let mut locks = keyspace.locks();
    (0..10).for_each(|_| [b"a", b"b"].iter().for_each(|name| set(&mut locks, *name)));
    assert_eq!(locks.take_ready(), [wait_key(b"a"), wait_key(b"b")]);
}

#[test]
fn keys_are_noted_while_somebody_waits_in_their_shard_and_no_longer() {
    let keyspace = keyspace();
    let mut locks = keyspace.locks();
    set(&mut locks, b"a");
    assert!(!locks.has_ready());
    drop(locks);
    let waiter = wait_for(&keyspace, &[b"a", b"b", b"a"], Wakes::Creation);
    let mut locks = keyspace.locks();
    set(&mut locks, b"a");
    assert_eq!(locks.take_ready(), [wait_key(b"a")]);
    waiter.state.done();
    forget_waiter(&mut locks, &waiter);
    forget_waiter(&mut locks, &waiter);
    set(&mut locks, b"a");
    set(&mut locks, b"b");
    assert!(!locks.has_ready());
}

#[derive(Debug, Clone)]
enum Step {
    Wait {
        keys: Vec<usize>,
    },
    Leave {
        who: usize,
    },
    /// Claims for a key, continues after that waiter the next time, and answers it or returns the claim.
    Serve {
        key: usize,
        answer: bool,
    },
    Restart {
        key: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..NAMES.len();
    prop_oneof![
        3 => prop::collection::vec(key.clone(), 1..4).prop_map(|keys| Step::Wait { keys }),
        2 => (0..20usize).prop_map(|who| Step::Leave { who }),
        6 => (key.clone(), any::<bool>()).prop_map(|(key, answer)| Step::Serve { key, answer }),
        1 => key.prop_map(|key| Step::Restart { key }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    #[test]
    fn everybody_is_found_in_the_order_of_arrival(steps in prop::collection::vec(step(), 1..80)) {
        let keyspace = keyspace();
        let mut locks = keyspace.locks();
        NAMES.iter().for_each(|name| set(&mut locks, name));
        drop(locks);
        // All waiters, in order, and the number of the last one served for each key.
        let mut model: Vec<(usize, Arc<Waiter>, Vec<usize>)> = Vec::new();
        let mut after: [Option<(usize, Sequence)>; NAMES.len()] = [None; NAMES.len()];
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Wait { keys } => {
                    let names: Vec<&[u8]> = keys.iter().map(|key| NAMES[*key]).collect();
                    model.push((number, wait_for(&keyspace, &names, Wakes::Creation), keys));
                }
                Step::Leave { who } if who < model.len() => {
                    let (_, waiter, _) = model.remove(who);
                    waiter.state.done();
                    forget_waiter(&mut keyspace.locks(), &waiter);
                }
                Step::Leave { .. } => {}
                Step::Restart { key } => after[key] = None,
                Step::Serve { key, answer } => {
                    let last = after[key];
                    let expected = model.iter().position(|(number, _, keys)| {
                        keys.contains(&key) && last.is_none_or(|last| *number > last.0)
                    });
                    let mut locks = keyspace.locks();
                    let last = last.map(|last| last.1);
                    let claimed = claim_waiter(&mut locks, &wait_key(NAMES[key]), last, NOW_MS, |_| true);
                    prop_assert_eq!(claimed.is_some(), expected.is_some());
                    let (Some(claimed), Some(expected)) = (claimed, expected) else { continue };
                    prop_assert!(Arc::ptr_eq(&claimed, &model[expected].1));
                    after[key] = Some((model[expected].0, claimed.sequence()));
                    if answer {
                        claimed.state.done();
                        forget_waiter(&mut locks, &claimed);
                        model.remove(expected);
                    } else {
                        prop_assert_eq!(claimed.state.give_back(), Returned::Waiting);
                    }
                }
            }
        }
    }
}
