//! Tests that create, compact, heal and close the log, on a disk that fails at any one of all operations, of every
//! kind. After a crash at any moment the start finds every acknowledged write.

mod disk;
mod world;

use std::sync::Arc;
use std::time::Duration;

use disk::{FaultyDisk, Mishap};
use tierce_engine::durability::{Next, NotCompacted, Switched};
use tierce_harness::effort;
use tierce_keyspace::{DbIndex, Expiry};
use tierce_storage::disk::{Fault, Moment, SimDisk};
use world::{World, contents, found, start};

/// Returns a disk with a log that has a large list.
fn prepared() -> Moment {
    let disk = SimDisk::new(1);
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("an empty disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
    world.fill();
    for _ in 0..20 {
        assert!(world.write());
    }
    world.durable_log.sync().expect("the disk works");
    disk.now()
}

/// Makes the WAL manager do all its work, with writes between its steps.
fn live(world: &mut World<'_>, mut look: impl FnMut(&World<'_>)) {
    const STEPS_MAX: usize = 400;
    for wish in ["compact", "off", "on", "off", "on and end"] {
        match wish {
            "compact" => _ = world.durable_log.compact(),
            "off" => _ = world.durable_log.switch(false),
            _ => _ = world.durable_log.switch(true),
        }
        if wish == "on and end" {
            world.durable_log.request_end();
        }
        for _ in 0..STEPS_MAX {
            world.write();
            if !world.step() {
                break;
            }
            look(world);
        }
        look(world);
    }
}

/// Returns the interval of the tested operations: every ninth, or with more effort every third.
fn stride() -> usize {
    9 / effort(1).min(3)
}

/// Runs with one failure, and checks the contents that a crash would leave right after it and at the end. Returns
/// `false` if there are fewer operations.
fn survives(prepared: &Moment, at: u64, mishap: Mishap, syncs: bool) -> bool {
    let context = format!("{mishap:?} at operation {at}, syncs: {syncs}");
    let disk = FaultyDisk::new(prepared.after_kill(at));
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), syncs);
    disk.fail_at(disk.operations() + at, mishap);
    let mut is_checked = false;
    live(&mut world, |world| {
        if !is_checked && !disk.is_unharmed() {
            is_checked = true;
            world.check(&disk.inner, at, &context);
        }
    });
    if disk.is_unharmed() {
        return false;
    }
    if mishap == Mishap::Death {
        // A start cannot know what happened since then.
        return true;
    }
    world.check(&disk.inner, at, &context);
    if mishap != Mishap::Broken {
        // The failure was transient, and its effects have ended.
        assert!(
            !world.durable_log.has_write_error(),
            "{context}: {:#?}",
            world.program.told.lock()
        );
    }
    true
}

#[test]
fn one_mishap_at_any_operation_loses_nothing_that_was_acknowledged() {
    let prepared = prepared();
    for mishap in [Mishap::NoSpace, Mishap::NoDescriptor, Mishap::Broken, Mishap::Death] {
        let first = 1 + mishap as u64 % stride() as u64;
        let operations = (first..)
            .step_by(stride())
            .take_while(|at| survives(&prepared, *at, mishap, at % 2 == 0))
            .count();
        assert!(operations * stride() > 200, "only {operations} operations");
    }
}

/// A start is itself a series of operations. One that fails leaves everything for the next one.
#[test]
fn a_start_that_fails_removes_nothing() {
    let prepared = prepared();
    // A disk in the middle of a switch, with all the leftovers that a start must handle.
    let disk = prepared.after_kill(1);
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
    disk.record_history();
    live(&mut world, |_| {});
    let moments = disk.take_history();
    for moment in moments.iter().step_by(57) {
        let expected = found(&moment.after_kill(1));
        for mishap in [Mishap::NoSpace, Mishap::Broken, Mishap::Death] {
            for at in (1..).step_by(stride()) {
                let disk = FaultyDisk::new(moment.after_kill(1));
                disk.fail_at(at, mishap);
                let _ = start(Arc::new(disk.clone()));
                if disk.is_unharmed() {
                    break;
                }
                let image = disk.inner.now().after_kill(at);
                let context = format!("call {}, {mishap:?} at operation {at}", moment.calls);
                let found = start(Arc::new(image)).map(|(keyspace, _)| contents(&keyspace));
                assert!(
                    found.unwrap_or_else(|e| panic!("{context}: {e}")) == expected,
                    "{context}"
                );
            }
        }
    }
}

/// While the disk is full nothing is acknowledged and the cause stays the same, whatever else fails. Once there is
/// space writes are accepted again, without a restart.
#[test]
fn a_disk_that_fills_up_and_stays_full_heals_when_there_is_space() {
    let disk = prepared().after_kill(1);
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
    for round in 0..3 {
        disk.set_capacity(Some(disk.used() + 20_000));
        while world.write() {
            world.step();
        }
        let cause = world.durable_log.write_error().expect("a cause");
        assert!(cause.contains("no space left"), "{cause}");
        // Attempts begin and fail, some of them for another reason.
        for step in 0..200 {
            if step % 40 == 0 {
                disk.inject(Fault::Sync, 0);
            }
            world.step();
            assert!(!world.write(), "acknowledged on a full disk");
            assert_eq!(world.durable_log.write_error().as_ref(), Some(&cause));
            if step % 20 == 0 {
                world.check(&disk, step, "full");
            }
        }
        // The begin is reported once per cause, however many attempts there are.
        let mut told = std::mem::take(&mut *world.program.told.lock());
        told.retain(|line| line.contains("is begun"));
        assert_eq!(told.len(), 1, "{told:?}");
        disk.set_capacity(None);
        let steps =
            (0..).take_while(|_| world.step() && world.durable_log.has_write_error()).count();
        assert!(steps < 1000 && world.write(), "{steps} steps, {:?}", world.program.told.lock());
        world.check(&disk, round, "healed");
    }
}

/// A failed sync leaves unknown contents on the device, and only the operator decides what to do.
#[test]
fn a_sync_that_failed_heals_by_off_and_on_only() {
    let disk = prepared().after_kill(1);
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
    disk.inject(Fault::Sync, 0);
    assert!(!world.write());
    for _ in 0..20 {
        world.step();
        world.now += Duration::from_secs(60);
    }
    assert!(world.durable_log.has_write_error());
    let switch_id = world.durable_log.switch(false);
    assert!(world.run(100));
    let is_off = Switched { switch_id, is_on: false, failure: None };
    assert_eq!(world.answer(), Some(is_off));
    assert!(!world.durable_log.is_on() && world.write());
    world.durable_log.switch(true);
    assert!(world.run(1000) && world.write());
    world.check(&disk, 1, "on again");
}

/// A failed switch is answered with the cause, and can be tried again.
#[test]
fn a_log_that_could_not_be_begun_can_be_asked_for_again() {
    let disk = prepared().after_kill(1);
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
    world.durable_log.switch(false);
    assert!(world.run(100));
    disk.set_capacity(Some(disk.used()));
    for _ in 0..3 {
        let switch_id = world.durable_log.switch(true);
        assert!(world.run(100));
        let answer = world.answer().expect("an answer");
        assert_eq!((answer.switch_id, answer.is_on), (switch_id, false));
        assert!(answer.failure.is_some_and(|cause| cause.contains("no space left")));
        assert!(!world.durable_log.is_on() && !world.durable_log.is_wanted());
        world.check(&disk, switch_id, "as it was left");
    }
    disk.set_capacity(None);
    let switch_id = world.durable_log.switch(true);
    assert!(world.run(1000));
    assert_eq!(world.answer(), Some(Switched { switch_id, is_on: true, failure: None }));
    assert!(world.write());
    world.check(&disk, 9, "on");
}

/// Neither a running pass nor the shutdown makes the WAL manager forget that a log is wanted.
#[test]
fn a_switch_that_is_queued_is_not_lost_at_the_end() {
    let disk = prepared().after_kill(1);
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
    world.durable_log.switch(false);
    assert!(world.run(100));
    world.write();
    world.durable_log.switch(true);
    world.durable_log.request_end();
    assert!(world.run(1000));
    world.check(&disk, 1, "at the end");
    assert_eq!(world.kept, world.memory, "the log counts");
}

/// Making a new log authoritative fails between its steps. It is tried again, without another pass, and the
/// half-done steps destroy nothing.
#[test]
fn completing_a_log_is_tried_again() {
    for fault in [Fault::Open, Fault::SyncDir] {
        for ends_in_off in [false, true] {
            let disk = prepared().after_kill(1);
            let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
            let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
            world.durable_log.switch(false);
            assert!(world.run(100));
            world.durable_log.switch(true);
            let passes = world.durable_log.compaction_figures().passes;
            while world.durable_log.compaction_figures().passes == passes {
                assert!(world.step());
            }
            disk.inject(fault, 0);
            assert!(world.step());
            assert!(world.durable_log.compaction_figures().is_incomplete, "{fault:?}");
            world.check(&disk, 1, "between the steps");
            if ends_in_off {
                world.durable_log.switch(false);
                assert!(world.run(100));
                // It is as if the new log had never been created.
                assert_ne!(world.kept, world.memory);
                assert_eq!(found(&disk.now().after_power_cut(3)), world.kept);
            } else {
                assert!(world.run(100));
                let figures = world.durable_log.compaction_figures();
                assert_eq!((figures.passes, figures.failures_in_a_row), (passes + 1, 0));
                assert_eq!(world.kept, world.memory);
                assert_eq!(found(&disk.now().after_power_cut(3)), world.memory);
            }
        }
    }
}

/// The new log fails while it is being made authoritative, which takes a moment. It does not count as working
/// then.
#[test]
fn a_log_that_fails_while_it_is_completed_is_no_log() {
    let disk = FaultyDisk::new(prepared().after_kill(1));
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, Arc::clone(&durable_log), Arc::new(disk.clone()), true);
    world.durable_log.switch(false);
    assert!(world.run(100));
    world.durable_log.switch(true);
    let (others, full) = (Arc::clone(&keyspace), disk.inner.clone());
    disk.at_completion(move || {
        full.set_capacity(Some(full.used()));
        let key = others.key(b"of another");
        while !durable_log.has_write_error() {
            let mut locks = others.locks();
            let mut db = locks.db(DbIndex::ZERO, key.hash(), 0);
            db.set(key, &[b'v'; 5000], Expiry::Never).expect("short");
        }
        full.set_capacity(None);
    });
    world.run(1000);
    world.memory.insert(b"of another".to_vec(), vec![vec![b'v'; 5000]]);
    for _ in 0..20 {
        world.write();
        world.step();
    }
    assert!(world.write(), "there is space again: {:#?}", world.program.told.lock());
    world.check(&disk.inner, 1, "after what was acknowledged");
}

/// When all keys are in the log again, only the older part remains to be dropped. Only this is tried again, not
/// the whole pass, which would take space on a full disk.
#[test]
fn a_pass_that_cannot_drop_what_is_older_is_not_begun_anew() {
    let prepared = prepared();
    let pass = |fails_at: Option<u64>| {
        let disk = FaultyDisk::new(prepared.after_kill(1));
        let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
        let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
        let before = disk.operations();
        fails_at.into_iter().for_each(|at| disk.fail_at(before + at, Mishap::NoSpace));
        world.durable_log.compact().expect("no pass is underway");
        while world.durable_log.compaction_figures().passes == 0 && disk.operations() < 10_000 {
            world.step();
        }
        let figures = world.durable_log.compaction_figures();
        assert!(!world.durable_log.has_write_error());
        (disk.operations() - before, figures.passes, figures.bytes_written)
    };
    let (operations, passes, written) = pass(None);
    assert_eq!(passes, 1);
    // The last operations are those that list and remove the old segments.
    for at in [operations - 3, operations - 2] {
        let (_, passes, written_then) = pass(Some(at));
        assert_eq!((passes, written_then), (1, written), "operation {at} of {operations}");
    }
}

/// On a disk of three times the live data, this data can be overwritten forever, with any settings.
#[test]
fn a_disk_of_three_times_the_live_data_is_never_full() {
    let disk = prepared().after_kill(1);
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), false);
    (0..200).for_each(|_| assert!(world.overwrite()));
    disk.set_capacity(Some(3 * keyspace.memory().entries));
    let before = world.durable_log.appended();
    for _ in 0..3000 {
        assert!(
            world.overwrite(),
            "{:?} {:#?}",
            world.durable_log.write_error(),
            world.program.told.lock()
        );
        world.step();
    }
    assert!(world.durable_log.appended() - before > 10 * keyspace.memory().entries);
    world.check(&disk, 1, "full of garbage");
    // When writes stop, no endless pass is left behind.
    assert!((0..1000).any(|_| !world.step()), "it comes to rest");
}

/// Writers wait for a pass that needs the rest of the disk, and the device fails for good. The pass then ends, and
/// no thread waits for it any more.
#[test]
fn a_write_error_that_does_not_heal_ends_a_pass_and_the_waiting_for_it() {
    let disk = prepared().after_kill(1);
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), false);
    (0..200).for_each(|_| assert!(world.overwrite()));
    disk.set_capacity(Some(3 * keyspace.memory().entries));
    while world.durable_log.compaction_figures().running.is_none() {
        assert!(world.overwrite());
        world.step();
    }
    world.step();
    while !world.durable_log.keeps_room() {
        assert!(world.overwrite());
    }
    assert!(world.durable_log.compaction_figures().running.is_some(), "they wait for the pass");
    disk.inject(Fault::Sync, 0);
    world.durable_log.sync().expect_err("the device fails");
    assert!(!world.durable_log.keeps_room(), "writers hear of the failure at once");
    while world.wal_manager.step(world.now) == Next::Now {}
    assert!(world.durable_log.has_write_error());
    assert!(world.durable_log.compaction_figures().running.is_none(), "INFO tells of a pass");
    let refused = world.durable_log.compact().expect_err("no device error heals by itself");
    assert!(matches!(refused, NotCompacted::Failed(cause) if cause.contains("sync")));
}

/// Returns how many lines with this text the operator was told.
fn count_of(world: &World<'_>, text: &str) -> usize {
    world.program.told.lock().iter().filter(|line| line.contains(text)).count()
}

/// During a write error, BGREWRITEAOF heals it without waiting for the next attempt. If that is impossible, it
/// returns an error.
#[test]
fn a_pass_that_is_asked_for_heals_a_write_error_or_is_refused() {
    let disk = prepared().after_kill(1);
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
    disk.set_capacity(Some(disk.used() + 20_000));
    while world.write() {
        world.step();
    }
    // Step until an attempt has failed.
    while world.wal_manager.step(world.now) == Next::Now {}
    let told = |world: &World<'_>| count_of(world, "could not be rewritten: ");
    assert_eq!(told(&world), 1);
    world.durable_log.compact().expect("an attempt");
    while world.wal_manager.step(world.now) == Next::Now {}
    assert_eq!(told(&world), 2, "the one who asked had the usual reply");
    disk.set_capacity(None);
    let Next::After(_) = world.wal_manager.step(world.now) else {
        panic!("the next one comes later")
    };
    world.durable_log.compact().expect("an attempt");
    for _ in 0..1000 {
        // The clock stands still.
        world.wal_manager.step(world.now);
    }
    assert!(!world.durable_log.has_write_error() && world.write());

    disk.inject(Fault::Sync, 0);
    assert!(!world.write());
    let refused = world.durable_log.compact().expect_err("no device error heals by itself");
    assert!(matches!(refused, NotCompacted::Failed(cause) if cause.contains("sync")));
}

/// A pass that does not fit on the disk would fail the log. It is not begun, and the log continues.
#[test]
fn a_pass_without_room_costs_nothing_but_itself() {
    let disk = prepared().after_kill(1);
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
    disk.set_capacity(Some(disk.used() + 20_000));
    world.durable_log.compact().expect("no pass is underway");
    world.run(20);
    let figures = world.durable_log.compaction_figures();
    assert!(figures.failures_in_a_row > 0);
    assert!(figures.running.is_none() && figures.bytes_written == 0);
    assert!(!world.durable_log.keeps_room(), "writers wait for nothing");
    assert_eq!(count_of(&world, "could not be compacted: "), 1, "only the one that was asked for");
    world.durable_log.compact().expect("no pass is underway");
    world.run(20);
    assert_eq!(count_of(&world, "could not be compacted: "), 2, "each that was asked for");
    assert!(!world.durable_log.has_write_error() && world.write());
    disk.set_capacity(None);
    world.durable_log.compact().expect("no pass is underway");
    assert!(world.run(1000));
    let figures = world.durable_log.compaction_figures();
    assert_eq!((figures.passes, figures.failures_in_a_row), (1, 0));
}

/// A script may keep a shard locked without end. The pass waits for it, but the WAL manager does not: it can close the
/// log meanwhile, and the pass continues when the shard is free.
#[test]
fn a_busy_shard_delays_the_pass_and_nothing_else() {
    for closes in [false, true] {
        let disk = prepared().after_kill(1);
        let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
        let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
        let mut script = keyspace.long_locks();
        let shard = script.lock_many(&[keyspace.key(b"list").hash()]);
        world.durable_log.compact().expect("no pass is underway");
        for _ in 0..10 {
            world.step();
        }
        assert_eq!(world.durable_log.compaction_figures().passes, 0);
        assert!(world.durable_log.compaction_figures().running.is_some());
        if closes {
            world.durable_log.switch(false);
            while world.step() {}
            assert!(!world.durable_log.is_on());
        }
        drop(shard);
        drop(script);
        assert!(world.run(1000));
        assert_eq!(world.durable_log.compaction_figures().passes, u64::from(!closes));
        world.check(&disk, 1, "after the script");
    }
}

/// At the end, a log that is not complete yet is completed, even if the last attempt met a busy shard.
#[test]
fn a_log_is_completed_at_the_end_although_a_shard_was_busy() {
    let disk = prepared().after_kill(1);
    let (keyspace, durable_log) = start(Arc::new(disk.clone())).expect("a sound disk");
    let mut world = World::new(&keyspace, durable_log, Arc::new(disk.clone()), true);
    world.durable_log.switch(false);
    assert!(world.run(100));
    world.write();
    let mut script = keyspace.long_locks();
    let shard = script.lock_many(&[keyspace.key(b"list").hash()]);
    world.durable_log.switch(true);
    for _ in 0..10 {
        world.step();
    }
    for _ in 0..2 {
        world.now += Duration::from_secs(6);
        world.step();
    }
    let told = world.program.told.lock().join("\n");
    assert_eq!(told.matches("keeps keys locked").count(), 1, "{told}");
    world.durable_log.request_end();
    drop(shard);
    drop(script);
    while world.step() {}
    world.check(&disk, 1, "at the end");
    assert_eq!(world.kept, world.memory, "the new log is authoritative");
}
