//! The queues of those who wait for keys: their order, and that nobody in them is passed over whoever
//! comes and goes.

use std::sync::Arc;

use proptest::prelude::*;
use tierce_keyspace::{
    DbIndex, Expiry, Key, Keyspace, Locker, Options, Returned, Ticket, WaitKey, Waiter,
};

const NOW_MS: i64 = 1_000_000;
const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];

fn keyspace() -> Keyspace {
    Keyspace::new(Options { shards: 4, ..Options::default() }).unwrap()
}

fn wait_for(keyspace: &Keyspace, names: &[&[u8]], minds_removal: bool) -> Arc<Waiter> {
    let keys: Vec<Key<'_>> = names.iter().map(|name| keyspace.key(name)).collect();
    let hashes: Vec<_> = keys.iter().map(|key| key.hash()).collect();
    let mut locker = keyspace.locker();
    locker.lock_many(&hashes).locker().wait(DbIndex::ZERO, &keys, minds_removal, ())
}

fn wait_key(name: &[u8]) -> WaitKey {
    (DbIndex::ZERO, name.into())
}

fn set(locker: &mut Locker<'_>, name: &[u8]) {
    let key = locker.keyspace().key(name);
    locker.db(DbIndex::ZERO, key.hash(), NOW_MS).set(key, b"v", Expiry::Never).unwrap();
}

/// Claims, and gives back at once.
fn pass_over(locker: &mut Locker<'_>, name: &[u8], after: Option<Ticket>) -> Option<Ticket> {
    let waiter = locker.claim_waiter(&wait_key(name), after, NOW_MS)?;
    assert_eq!(waiter.claim.give_back(), Returned::Waiting);
    Some(waiter.ticket())
}

#[test]
fn who_leaves_while_the_queue_is_served_does_not_hide_another() {
    let keyspace = keyspace();
    let [first, second, third] = [(); 3].map(|()| wait_for(&keyspace, &[b"a"], false));
    let mut locker = keyspace.locker();
    set(&mut locker, b"a");
    let passed = pass_over(&mut locker, b"a", None);
    assert_eq!(passed, Some(first.ticket()));
    first.claim.done();
    locker.forget_waiter(&first);
    let passed = pass_over(&mut locker, b"a", passed);
    assert_eq!(passed, Some(second.ticket()));
    let passed = pass_over(&mut locker, b"a", passed);
    assert_eq!(passed, Some(third.ticket()));
    assert_eq!(pass_over(&mut locker, b"a", passed), None);
}

#[test]
fn only_those_who_mind_learn_that_a_key_is_gone() {
    let keyspace = keyspace();
    let _patient = wait_for(&keyspace, &[b"a"], false);
    let minds = wait_for(&keyspace, &[b"a"], true);
    let mut locker = keyspace.locker();
    assert_eq!(pass_over(&mut locker, b"a", None), Some(minds.ticket()));
    assert_eq!(pass_over(&mut locker, b"a", Some(minds.ticket())), None);
}

#[test]
fn keys_are_noted_while_somebody_waits_in_their_shard_and_no_longer() {
    let keyspace = keyspace();
    let mut locker = keyspace.locker();
    set(&mut locker, b"a");
    assert!(!locker.has_ready());
    drop(locker);
    let waiter = wait_for(&keyspace, &[b"a", b"b", b"a"], false);
    let mut locker = keyspace.locker();
    set(&mut locker, b"a");
    assert_eq!(locker.take_ready(), [wait_key(b"a")]);
    waiter.claim.done();
    locker.forget_waiter(&waiter);
    locker.forget_waiter(&waiter);
    set(&mut locker, b"a");
    set(&mut locker, b"b");
    assert!(!locker.has_ready());
}

#[derive(Debug, Clone)]
enum Step {
    Wait {
        keys: Vec<usize>,
    },
    Leave {
        who: usize,
    },
    /// Claims for a key, goes on behind that waiter the next time, and answers it or gives it back.
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
    #[test]
    fn everybody_is_found_in_the_order_of_arrival(steps in prop::collection::vec(step(), 1..80)) {
        let keyspace = keyspace();
        let mut locker = keyspace.locker();
        NAMES.iter().for_each(|name| set(&mut locker, name));
        drop(locker);
        // All who wait, in their order, and the number of the last that was served for each key.
        let mut model: Vec<(usize, Arc<Waiter>, Vec<usize>)> = Vec::new();
        let mut after: [Option<(usize, Ticket)>; NAMES.len()] = [None; NAMES.len()];
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Wait { keys } => {
                    let names: Vec<&[u8]> = keys.iter().map(|key| NAMES[*key]).collect();
                    model.push((number, wait_for(&keyspace, &names, false), keys));
                }
                Step::Leave { who } if who < model.len() => {
                    let (_, waiter, _) = model.remove(who);
                    waiter.claim.done();
                    keyspace.locker().forget_waiter(&waiter);
                }
                Step::Leave { .. } => {}
                Step::Restart { key } => after[key] = None,
                Step::Serve { key, answer } => {
                    let last = after[key];
                    let expected = model.iter().position(|(number, _, keys)| {
                        keys.contains(&key) && last.is_none_or(|last| *number > last.0)
                    });
                    let mut locker = keyspace.locker();
                    let last = last.map(|last| last.1);
                    let claimed = locker.claim_waiter(&wait_key(NAMES[key]), last, NOW_MS);
                    prop_assert_eq!(claimed.is_some(), expected.is_some());
                    let (Some(claimed), Some(expected)) = (claimed, expected) else { continue };
                    prop_assert!(Arc::ptr_eq(&claimed, &model[expected].1));
                    after[key] = Some((model[expected].0, claimed.ticket()));
                    if answer {
                        claimed.claim.done();
                        locker.forget_waiter(&claimed);
                        model.remove(expected);
                    } else {
                        prop_assert_eq!(claimed.claim.give_back(), Returned::Waiting);
                    }
                }
            }
        }
    }
}
