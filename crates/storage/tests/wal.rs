//! Tests of a log of records after crashes at every call, with its beginning dropped from time to time.
//!
//! The recovered records are always a contiguous run of the appended ones. It begins at an allowed record,
//! and ends at or after the last guaranteed one.

use std::path::Path;
use std::sync::Arc;

use tierce_harness::{Random, TempDir, effort};
use tierce_storage::disk::{Fault, Moment, OsDisk, SimDisk};
use tierce_storage::{
    Error, Wal, WalOptions, check_cold, check_files, is_in_use, repair, repair_on,
};

fn options(seed: u64) -> WalOptions {
    WalOptions {
        segment_size_bytes: [600, 1500, 5000][(seed % 3) as usize],
        tail_bytes: [1024, 4096][(seed / 3 % 2) as usize],
        background_threads: false,
        ..WalOptions::default()
    }
}

/// Opens the log and returns the numbers of its records.
fn open(disk: &SimDisk, seed: u64) -> tierce_storage::Result<(Wal, Vec<u64>)> {
    open_in(disk, "/log", seed)
}

fn open_in(disk: &SimDisk, dir: &str, seed: u64) -> tierce_storage::Result<(Wal, Vec<u64>)> {
    let mut numbers = Vec::new();
    let take = |record: &[u8]| {
        let number = u64::from_le_bytes(record[..8].try_into().map_err(|_| "short".to_owned())?);
        if record != self::record(number) {
            return Err(format!("record {number} has other bytes"));
        }
        numbers.push(number);
        Ok(())
    };
    let disk = Arc::new(disk.clone());
    let (wal, recovery) = Wal::open_on(disk, Path::new(dir), options(seed), take)?;
    assert_eq!(recovery.records, numbers.len() as u64);
    Ok((wal, numbers))
}

/// Returns a record with this number; some are longer than the tail.
fn record(number: u64) -> Vec<u8> {
    let len = if number % 17 == 16 { 2000 } else { 8 + (number % 1000 * 37) % 90 };
    let mut record = number.to_le_bytes().to_vec();
    record.resize(len.max(8) as usize, number as u8);
    record
}

/// Bounds of the log's content after so many calls of the disk.
#[derive(Clone, Copy, Debug)]
struct State {
    calls: u64,
    /// Records before this number are dropped.
    dropped: u64,
    /// Records before this number may be dropped.
    may_drop: u64,
    appended: u64,
    durable: u64,
}

/// Runs a workload. Returns the states after each step; each was known before the next step.
fn run(disk: &SimDisk, seed: u64) -> Vec<State> {
    let mut random = Random::new(seed);
    let (mut wal, numbers) = open(disk, seed).unwrap();
    assert!(numbers.is_empty());
    let mut state = State { calls: disk.calls(), dropped: 0, may_drop: 0, appended: 0, durable: 0 };
    let mut mark = None;
    let mut states = vec![state];
    for _ in 0..90 {
        match random.u64_below(12) {
            0 => {
                wal.sync().unwrap();
                state.durable = state.appended;
                assert_eq!(wal.durable(), wal.appended());
            }
            1 => mark = Some((wal.rotate().unwrap(), state.appended)),
            2 => {
                if let Some((mark, at)) = mark.take() {
                    // While this is running, the beginning may still exist or not.
                    state.may_drop = at;
                    states.push(State { calls: disk.calls(), ..state });
                    wal.drop_before(&mark).unwrap();
                    state.durable = state.appended;
                    state.dropped = at;
                }
            }
            3 if random.u64_below(3) == 0 => {
                wal.close().unwrap();
                drop(wal);
                state.durable = state.appended;
                let (again, numbers) = open(disk, seed).unwrap();
                assert_eq!(numbers, (state.dropped..state.appended).collect::<Vec<_>>());
                wal = again;
                mark = None;
            }
            _ => {
                wal.append(&record(state.appended)).unwrap();
                state.appended += 1;
            }
        }
        state.calls = disk.calls();
        states.push(state);
    }
    states
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Crash {
    Kill,
    PowerCut,
}

fn check(numbers: &[u64], states: &[State], calls: u64, crash: Crash, context: &str) {
    let at = states.partition_point(|state| state.calls <= calls).saturating_sub(1);
    let (before, after) = (states[at], states[(at + 1).min(states.len() - 1)]);
    let first = numbers.first().copied().unwrap_or(before.dropped);
    let last = numbers.last().map_or(first, |last| last + 1);
    assert_eq!(numbers, (first..last).collect::<Vec<_>>(), "{context}: a hole");
    let certain = if crash == Crash::Kill { before.appended } else { before.durable };
    assert!(
        last >= certain || (numbers.is_empty() && certain <= after.may_drop),
        "{context}: {last} < {certain}"
    );
    assert!(last <= after.appended, "{context}: {last} > {}", after.appended);
    if !numbers.is_empty() {
        let latest = after.may_drop.max(after.dropped);
        assert!(
            (before.dropped..=latest).contains(&first),
            "{context}: begins with {first}: {before:?} {after:?}"
        );
    }
}

fn check_moment(moment: &Moment, states: &[State], seed: u64) -> usize {
    let variants = [(Crash::Kill, 0), (Crash::PowerCut, 1), (Crash::PowerCut, 2)];
    for (crash, salt) in variants {
        let variant = seed << 32 | moment.calls << 2 | salt;
        let image = match crash {
            Crash::Kill => moment.after_kill(variant),
            Crash::PowerCut => moment.after_power_cut(variant),
        };
        let context = format!("seed {seed}, {crash:?} {salt} at call {}", moment.calls);
        let (wal, numbers) = open(&image, seed).unwrap_or_else(|e| panic!("{context}: {e}"));
        check(&numbers, states, moment.calls, crash, &context);
        // The log continues at its end.
        let next = numbers.last().map_or(0, |last| last + 1);
        wal.append(&record(next)).unwrap();
        wal.close().unwrap();
        let (_, again) = open(&image, seed).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_eq!(again[..numbers.len()], numbers, "{context}");
        assert_eq!(again[numbers.len()..], [next], "{context}");
    }
    variants.len()
}

#[test]
fn what_comes_back_is_a_run_of_what_was_appended() {
    let workloads = effort(6);
    let mut images = 0;
    for seed in 0..workloads {
        let disk = SimDisk::new(seed);
        disk.record_history();
        let states = run(&disk, seed);
        let moments = disk.take_history();
        let chosen = moments.iter().filter(|moment| moment.calls % 3 == seed % 3);
        images += chosen.map(|moment| check_moment(moment, &states, seed)).sum::<usize>();
    }
    println!("{images} crash images");
    assert!(images as u64 > workloads * 66, "only {images} images");
}

/// Records longer than a block of the tail and shorter than the tail: they are partly in the segment and
/// partly in the tail when the slots of their first blocks are reused.
#[test]
fn a_record_across_the_edge_of_what_was_flushed_survives_a_kill_at_any_call() {
    let mut images = 0;
    let seeds = effort(20);
    for seed in 0..seeds {
        let (disk, mut random) = (SimDisk::new(seed), Random::new(seed));
        disk.record_history();
        let (wal, _) = open(&disk, seed).unwrap();
        let mut appended = vec![(0, 0)];
        for _ in 0..30 {
            let records: u64 = appended.len() as u64;
            let mut record = records.to_le_bytes().to_vec();
            record.resize(8 + random.u64_below(500) as usize, records as u8);
            wal.append(&record).unwrap();
            appended.push((disk.calls(), records));
        }
        for moment in disk.take_history() {
            let image = moment.after_kill(moment.calls);
            let mut last = 0;
            let take = |record: &[u8]| {
                last = u64::from_le_bytes(record[..8].try_into().expect("at least 8 bytes"));
                Ok(())
            };
            Wal::open_on(Arc::new(image), Path::new("/log"), options(seed), take).unwrap();
            let certain = appended.partition_point(|(calls, _)| *calls <= moment.calls).max(1) - 1;
            let context = format!("seed {seed}, call {}", moment.calls);
            assert!(last >= appended[certain].1, "{context}: {last} of {:?}", appended[certain]);
            images += 1;
        }
    }
    assert!(images > 100 * seeds, "only {images} images");
}

#[test]
fn a_full_disk_refuses_records_and_loses_none() {
    for seed in 0..6 {
        let disk = SimDisk::new(seed);
        let (wal, _) = open(&disk, seed).unwrap();
        let mut appended = 0;
        while appended < 20 {
            wal.append(&record(appended)).unwrap();
            appended += 1;
        }
        disk.set_capacity(Some(disk.used()));
        let refused = loop {
            match wal.append(&record(appended)) {
                Ok(()) => appended += 1,
                Err(error) => break error,
            }
            assert!(appended < 1000, "the disk is full");
        };
        assert!(refused.is_no_space(), "{refused}");
        let (_, numbers) = open(&disk.now().after_kill(seed), seed).unwrap();
        assert_eq!(numbers, (0..appended).collect::<Vec<_>>());
        disk.set_capacity(None);
        wal.append(&record(appended)).unwrap();
        wal.sync().unwrap();
        let (_, numbers) = open(&disk.now().after_power_cut(seed), seed).unwrap();
        assert_eq!(numbers, (0..=appended).collect::<Vec<_>>());
    }
}

/// A start on a full disk finds all records, or fails at any of its calls, and removes nothing: once there is
/// space again, everything is there.
#[test]
fn a_start_on_a_full_disk_loses_nothing() {
    for seed in 0..24 {
        let disk = SimDisk::new(seed);
        let (wal, _) = open(&disk, seed).unwrap();
        // The second half of the seeds has a spare segment without records.
        let records = if seed < 12 { 30 } else { 0 };
        (0..records).for_each(|number| wal.append(&record(number)).unwrap());
        let dead = disk.now();
        for left in (0..2000).step_by(50) {
            let image = dead.after_kill(seed);
            image.set_capacity(Some(image.used() + left));
            let expected: Vec<_> = (0..records).collect();
            if let Ok((_, numbers)) = open(&image, seed) {
                assert_eq!(numbers, expected, "seed {seed}, {left} bytes left");
            }
            image.set_capacity(None);
            let (_, numbers) = open(&image, seed).unwrap();
            assert_eq!(numbers, expected, "seed {seed}, after {left} bytes were left");
        }
    }
}

#[test]
fn a_failed_sync_ends_writing_until_the_log_is_opened_again() {
    let disk = SimDisk::new(1);
    let (wal, _) = open(&disk, 1).unwrap();
    wal.append(&record(0)).unwrap();
    wal.sync().unwrap();
    wal.append(&record(1)).unwrap();
    disk.inject(Fault::Sync, 0);
    wal.sync().unwrap_err();
    assert!(matches!(wal.append(&record(2)), Err(Error::ReadOnly { .. })));
    let (_, numbers) = open(&disk.now().after_power_cut(1), 1).unwrap();
    assert!(numbers == [0] || numbers == [0, 1], "{numbers:?}");
}

#[test]
fn a_record_the_caller_does_not_know_is_an_error_with_its_place() {
    let disk = SimDisk::new(1);
    let (wal, _) = open(&disk, 1).unwrap();
    wal.append(b"not a number of mine").unwrap();
    wal.close().unwrap();
    drop(wal);
    let Err(error) = open(&disk, 1).map(drop) else { panic!("accepted") };
    assert!(matches!(&error, Error::Rejected { path, .. } if path.starts_with("/log")), "{error}");
}

/// A repaired log has all records of the damaged one except the damaged ones, and accepts new ones.
#[test]
fn a_damaged_log_is_repaired_to_one_that_opens() {
    for seed in 0..6 {
        let disk = SimDisk::new(seed);
        let (wal, _) = open(&disk, seed).unwrap();
        (0..40).for_each(|number| wal.append(&record(number)).unwrap());
        // Make a log with a dropped beginning, and segments in another order than their names.
        let mark = wal.rotate().unwrap();
        (40..120).for_each(|number| wal.append(&record(number)).unwrap());
        wal.drop_before(&mark).unwrap();
        wal.close().unwrap();
        drop(wal);
        let is_segment = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "seg");
        for path in disk.paths().into_iter().filter(is_segment) {
            for (loses_manifest, bit) in [(false, 100 * 8), (true, 100 * 8 + 3)] {
                let image = disk.now().after_kill(seed);
                image.flip_bit(&path, bit);
                if loses_manifest {
                    image.erase(Path::new("/log/MANIFEST"));
                } else {
                    assert!(open(&image, seed).is_err());
                }
                let shared = Arc::new(image.clone());
                let (old, new) = (Path::new("/log"), Path::new("/new"));
                let report = repair_on(shared, old, new, |_| {}).unwrap();
                assert!(report.problems.is_empty(), "{report:?}");
                // Without the manifest, a tail may still have the data that is damaged in the segments.
                let is_told = report.bytes_skipped > 0 || loses_manifest && report.records == 80;
                assert!(is_told, "{report:?}");
                let (wal, numbers) = open_in(&image, "/new", seed).unwrap();
                let context = format!("seed {seed}, {}, {loses_manifest}", path.display());
                assert_eq!(numbers.len() as u64, report.records, "{context}");
                assert!(numbers.is_sorted() && numbers.len() >= 79, "{context}: {numbers:?}");
                wal.append(&record(1000)).unwrap();
                wal.close().unwrap();
                drop(wal);
                let (_, again) = open_in(&image, "/new", seed).unwrap();
                assert_eq!(again[..numbers.len()], numbers, "{context}");
                assert_eq!(again.last(), Some(&1000), "{context}");
                let shared = Arc::new(image.now().after_kill(seed));
                let checked = check_files(shared, new, |_, _, _| false, |_| {}).unwrap();
                assert!(checked.problems.is_empty(), "{context}: {checked:?}");
                assert_eq!(checked.hints_missing, 0, "a log has none");
            }
        }
    }
}

/// A check by root must leave no lock file that keeps the server's user out.
#[test]
fn a_check_creates_no_lock_file_and_a_used_log_is_refused() {
    let scratch = TempDir::new();
    let log = scratch.path().join("log");
    let (wal, _) = Wal::open_on(Arc::new(OsDisk), &log, options(0), |_| Ok(())).unwrap();
    wal.append(b"record").unwrap();
    let check = || check_files(Arc::new(OsDisk), &log, |_, _, _| false, |_| {});
    assert!(is_in_use(&log) && matches!(check(), Err(Error::Locked { .. })));
    wal.close().unwrap();
    drop(wal);
    let lock = log.join("LOCK");
    std::fs::remove_file(&lock).unwrap();
    assert!(!is_in_use(&log));
    assert_eq!(check().unwrap().records, 1);
    repair(&log, scratch.path().join("new"), |_| {}).unwrap();
    check_cold(&log, |_| {}).unwrap();
    assert!(!lock.exists());
}
