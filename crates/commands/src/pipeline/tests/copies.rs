//! Long commands compute from copies: their keys are free meanwhile, and changes by others count.

use std::cell::Cell;

use tierce_keyspace::{DbIndex, Key, Keyspace, Value};
use tierce_wire::resp::Proto;

use super::bench::{Bench, NOW_MS, Way};
use super::calls::Call;
use crate::error::Interrupt;
use crate::pipeline::{Context, Guard, Then};

const DB: DbIndex = DbIndex::ZERO;

fn words(line: &str) -> Call {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Sets a key from another thread, unless its shard is locked.
fn set(keyspace: &Keyspace, key: Key<'_>, value: &str) -> bool {
    let other = || {
        let mut locks = keyspace.worker_locks(0);
        let is_free = locks.try_reach(key.hash());
        if is_free {
            let mut db = locks.db(DB, key.hash(), NOW_MS);
            db.set(key, value, tierce_keyspace::Expiry::Never).expect("it is short");
        }
        is_free
    };
    std::thread::scope(|scope| scope.spawn(other).join()).expect("it does not panic")
}

fn text(value: &Option<Value<'_>>) -> String {
    text_of(value.as_ref())
}

fn text_of(value: Option<&Value<'_>>) -> String {
    match value {
        Some(Value::Str(text)) => String::from_utf8(text.to_vec()).expect("a text"),
        _ => String::new(),
    }
}

/// Returns a string of some elements, which differs from call to call.
fn long(turn: usize) -> String {
    format!("{turn}:{}", "x".repeat(1000))
}

#[test]
fn the_keys_are_free_while_a_command_computes() {
    let mut bench = Bench::new(Proto::Resp2);
    let made = bench.with_long(&words("BITOP NOT to string"), |ctx| {
        let (keyspace, keys) = (&ctx.kernel.keyspace, keys(ctx));
        assert!(set(keyspace, keys[1], &long(0)));
        ctx.compute(
            &keys[1..],
            |values| {
                assert!(set(keyspace, keys[0], "unlocked"));
                Ok(text(&values[0]))
            },
            |_, made| {
                assert!(keys.iter().all(|key| !set(keyspace, *key, "locked")));
                Ok(made)
            },
        )
    });
    assert_eq!(made, Ok(long(0)));
}

#[test]
fn a_command_starts_over_when_a_source_changes() {
    let mut bench = Bench::new(Proto::Resp2);
    let turns = Cell::new(0);
    let made = bench.with_long(&words("BITOP OR to string other"), |ctx| {
        let (keyspace, keys) = (&ctx.kernel.keyspace, keys(ctx));
        keys.iter().for_each(|key| assert!(set(keyspace, *key, &long(0))));
        ctx.compute(
            &keys[1..],
            |values| {
                turns.set(turns.get() + 1);
                // One of the two.
                assert!(turns.get() > 2 || set(keyspace, keys[turns.get()], &long(turns.get())));
                Ok(values.iter().map(text).collect::<Vec<_>>())
            },
            |_, made| Ok(made),
        )
    });
    assert_eq!((made, turns.get()), (Ok(vec![long(1), long(2)]), 3));
}

#[test]
fn a_command_whose_sources_change_all_the_time_holds_them_in_the_end() {
    let mut bench = Bench::new(Proto::Resp2);
    let (changes, turns) = (Cell::new(0), Cell::new(0));
    let made = bench.with_long(&words("BITOP NOT to string"), |ctx| {
        let (keyspace, keys) = (&ctx.kernel.keyspace, keys(ctx));
        assert!(set(keyspace, keys[1], &long(0)));
        ctx.compute(
            &keys[1..],
            |values| {
                turns.set(turns.get() + 1);
                changes
                    .set(changes.get() + usize::from(set(keyspace, keys[1], &long(turns.get()))));
                Ok(text(&values[0]))
            },
            |_, made| Ok(made),
        )
    });
    assert_eq!((made, turns.get(), changes.get()), (Ok(long(3)), 4, 3));
}

#[test]
fn a_command_that_only_reads_sees_one_moment_and_replies_without_locks() {
    let mut bench = Bench::new(Proto::Resp2);
    let seen = bench.with_long(&words("LCS string other"), |ctx| {
        let (keyspace, keys) = (&ctx.kernel.keyspace, keys(ctx));
        keys.iter().for_each(|key| assert!(set(keyspace, *key, &long(0))));
        ctx.read(&keys, |values, _| {
            assert!(keys.iter().all(|key| set(keyspace, *key, &long(1))));
            Ok(values.iter().map(text).collect::<Vec<_>>())
        })
    });
    assert_eq!(seen, Ok(vec![long(0), long(0)]));
}

#[test]
fn a_copy_is_stored_only_while_it_is_current() {
    let mut bench = Bench::new(Proto::Resp2);
    bench.with_long(&words("COPY list0 to"), |ctx| {
        let source = keys(ctx)[0];
        ctx.duplicate(source, |ctx, entry| {
            assert!(entry.is_some() && !set(&ctx.kernel.keyspace, source, "locked"));
            Ok(())
        })
        .expect("it is there");
    });
}

#[test]
fn a_command_stores_nothing_when_writes_were_paused_while_it_computed() {
    let mut bench = Bench::new(Proto::Resp2);
    let paused = bench.with_long(&words("BITOP NOT to string"), |ctx| {
        let (kernel, keys) = (ctx.kernel, keys(ctx));
        assert!(set(&kernel.keyspace, keys[1], &long(0)));
        ctx.compute(
            &keys[1..],
            |_| {
                kernel.pause.hold();
                Ok(())
            },
            |_, ()| Ok(()),
        )
    });
    assert_eq!(paused, Err(Interrupt::Admission.into()));
    let copied = bench.with_long(&words("COPY list0 to"), |ctx| {
        let source = keys(ctx)[0];
        ctx.duplicate(source, |_, _| Ok(()))
    });
    assert_eq!(copied, Err(Interrupt::Admission.into()));
    let changes = bench.changes();
    let writes =
        ["DEL list0 list1", "LPOP list0 2", "XTRIM stream0 MAXLEN 0", "FLUSHALL", "FLUSHDB"];
    for line in writes {
        let locked = bench.with_long(&words(line), |ctx| ctx.run_late());
        assert_eq!((locked, bench.changes()), (Some(Interrupt::Admission), changes), "{line}");
    }
    // Reads are not paused.
    let read = bench.with_long(&words("LCS string0 string1"), |ctx| ctx.run_late());
    assert_eq!(read, None);
    bench.kernel.pause.let_go();
    for line in writes {
        assert_eq!(bench.with_long(&words(line), |ctx| ctx.run_late()), None, "{line}");
    }
    assert_eq!(bench.kernel.keyspace.estimated_len(), 0);
}

/// Returns a key for each shard.
fn key_of_each_shard(keyspace: &Keyspace) -> Vec<String> {
    let of = |shard| {
        let mut names = (0..).map(|number: u32| format!("weight_{number}"));
        names.find(|name| keyspace.shard_of(keyspace.hash(name.as_bytes())) == shard)
    };
    (0..keyspace.shard_count()).filter_map(of).collect()
}

#[test]
fn other_keys_are_looked_up_in_turns() {
    let mut bench = Bench::new(Proto::Resp2);
    let sort = words("SORT list BY weight_* STORE to");
    bench.with_long(&sort, |ctx| {
        let keyspace = &ctx.kernel.keyspace;
        let names = key_of_each_shard(keyspace);
        assert!(names.len() > 2);
        let others: Vec<Key<'_>> = names.iter().map(|name| keyspace.key(name.as_bytes())).collect();
        let all_are_free = || others.iter().all(|key| set(keyspace, *key, "free"));
        let (source, destination) = (keys(ctx)[0], keys(ctx)[1]);
        let load = |_: Option<&Value<'_>>| Ok(all_are_free());
        let look_up = |_, guard: &mut Guard<'_, '_>| {
            for key in &others {
                assert!(guard.takes_turns());
                assert!(guard.db(DB, key.hash(), NOW_MS).exists(*key));
                let shard = |key: &Key<'_>| keyspace.shard_of(key.hash());
                assert!(
                    others.iter().all(|it| set(keyspace, *it, "x") != (shard(it) == shard(key)))
                );
            }
            guard.end_turn();
            Ok(all_are_free())
        };
        let stored = ctx.compute_with_lookups(source, Then::Store, load, look_up, |_, was_free| {
            // After that, it locks its own keys, and no others.
            let held = [source, destination].map(|key| keyspace.shard_of(key.hash()));
            let is_held = |key: &Key<'_>| held.contains(&keyspace.shard_of(key.hash()));
            assert!(others.iter().all(|key| set(keyspace, *key, "stored") != is_held(key)));
            Ok(was_free)
        });
        assert_eq!(stored, Ok(true));
        let replied =
            ctx.compute_with_lookups(source, Then::Reply, load, look_up, |_, _| Ok(all_are_free()));
        assert_eq!(replied, Ok(true));
    });
}

#[test]
fn what_is_stored_is_made_of_the_source_as_it_is_then() {
    for (then, changes_max, expected) in
        [(Then::Reply, 9, (1, 1)), (Then::Store, 2, (3, 2)), (Then::Store, 9, (4, 3))]
    {
        let mut bench = Bench::new(Proto::Resp2);
        let (changes, turns, are_held) = (Cell::new(0), Cell::new(0), Cell::new(false));
        let made = bench.with_long(&words("SORT string BY weight_* STORE to"), |ctx| {
            let (keyspace, source, other) =
                (&ctx.kernel.keyspace, keys(ctx)[0], ctx.kernel.keyspace.key(b"other"));
            assert!(set(keyspace, source, &long(0)));
            let load = |value: Option<&Value<'_>>| {
                turns.set(turns.get() + 1);
                Ok(text_of(value))
            };
            let make = |loaded, guard: &mut Guard<'_, '_>| {
                are_held.set(!guard.takes_turns() && !set(keyspace, other, "unlocked"));
                if changes.get() < changes_max {
                    let has_changed = set(keyspace, source, &long(changes.get() + 1));
                    changes.set(changes.get() + usize::from(has_changed));
                }
                Ok(loaded)
            };
            ctx.compute_with_lookups(source, then, load, make, |_, made| Ok(made))
        });
        assert_eq!((turns.get(), changes.get()), expected);
        let current = if then == Then::Reply { 0 } else { changes.get() };
        assert_eq!(made, Ok(long(current)));
        // If the source always changes, the last attempt locks all keys.
        assert_eq!(are_held.get(), turns.get() == 4);
    }
}

#[test]
fn sort_looks_up_the_same_on_either_thread() {
    let mut bench = Bench::new(Proto::Resp2);
    for number in 0..40 {
        bench.succeed(&words(&format!("RPUSH numbers {number}")));
        if number % 3 > 0 {
            bench.succeed(&words(&format!("SET by_{number} {}", (number * 7) % 11)));
        }
        match number % 4 {
            0 => bench.succeed(&words(&format!(
                "HSET about_{number} name n{number} size {}",
                number % 5
            ))),
            1 => bench.succeed(&words(&format!("SADD about_{number} other"))),
            _ => {}
        }
    }
    for options in [
        "BY by_*",
        "BY about_*->size DESC",
        "BY by_* LIMIT 5 20 GET # GET about_*->name GET about_*->size GET by_*",
        "BY about_*->name ALPHA GET # GET about_* GET constant",
        "BY nosort GET about_*->name GET #",
        "GET about_*->size BY by_* STORE to",
    ] {
        let sort = words(&format!("SORT numbers {options}"));
        let short = bench.run(Way::Alone, std::slice::from_ref(&sort));
        let stored = bench.dump(b"to");
        assert!(!short[0].is_error(), "{short:?}");
        assert_eq!(bench.run(Way::Long, std::slice::from_ref(&sort)), short, "{options}");
        assert_eq!(bench.dump(b"to"), stored, "{options}");
    }
}

/// Returns the keys of the call.
fn keys<'a>(ctx: &Context<'a, '_>) -> Vec<Key<'a>> {
    let args = ctx.call.args();
    let keys = ctx.command.spec.key_indexes(args);
    keys.map(|index| ctx.kernel.keyspace.key(args.at(index))).collect()
}
