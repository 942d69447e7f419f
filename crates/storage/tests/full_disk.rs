//! Tests of small and full disks: they are used almost completely, and are usable again later.

use std::path::Path;
use std::sync::Arc;
use tierce_storage::disk::{Fault, SimDisk};
use tierce_storage::{
    ColdBatch, ColdBuffer, ColdLocation, ColdOptions, ColdStore, Durable, Origin, Wal, WalOptions,
};

const MIB: u64 = 1 << 20;

fn small_disk(capacity: u64) -> SimDisk {
    let disk = SimDisk::new(capacity);
    disk.set_capacity(Some(capacity));
    disk
}

#[test]
fn a_log_uses_a_small_disk_to_nearly_its_end() {
    for capacity in [3 * MIB, 18 * MIB, 60 * MIB] {
        let disk = small_disk(capacity);
        let options = WalOptions { background_threads: false, ..WalOptions::default() };
        let (log, _) = Wal::open_on(Arc::new(disk.clone()), "/log", options, |_| Ok(())).unwrap();
        let record = vec![7; 10_000];
        let mut appended = 0;
        let refused = loop {
            match log.append(&record) {
                Ok(()) => appended += record.len() as u64,
                Err(error) => break error,
            }
        };
        assert!(refused.is_no_space(), "{refused}");
        assert!(appended > capacity / 10 * 8, "{appended} of {capacity}");
        // The log may reserve only a part of the free space at once.
        disk.set_capacity(Some(capacity + MIB));
        log.append(&record).unwrap();
        let image = disk.now().after_kill(1);
        let mut bytes = 0;
        let take = |record: &[u8]| {
            bytes += record.len() as u64;
            Ok(())
        };
        Wal::open_on(Arc::new(image), "/log", WalOptions::default(), take).unwrap();
        assert_eq!(bytes, appended + record.len() as u64);
    }
}

#[test]
fn spilled_values_use_a_small_disk_to_nearly_its_end() {
    for capacity in [3 * MIB, 18 * MIB, 60 * MIB] {
        let disk = small_disk(capacity);
        let options = ColdOptions::default();
        let store = ColdStore::open(Arc::new(disk.clone()), "/cold", options).unwrap();
        let value = vec![7; 200_000];
        let write = |len: usize| {
            let mut batch = ColdBatch::default();
            batch.push(|out| out.extend_from_slice(&value[..len])).unwrap();
            store.write(&mut batch, Durable::Yes, Origin::Memory).map(|locations| locations[0])
        };
        let mut locations = Vec::new();
        let refused = loop {
            match write(200_000) {
                Ok(location) => locations.push(location),
                Err(error) => break error,
            }
        };
        assert!(refused.is_no_space(), "{refused}");
        let written = locations.len() as u64 * 200_000;
        // The reserve of the smallest disk is a quarter of it.
        let part = if capacity < 4 * MIB { 7 } else { 8 };
        assert!(written > capacity / 10 * part, "{written} of {capacity}");
        // Refused writes leave neither files nor segments.
        let (files, figures) = (disk.paths().len(), store.figures());
        assert!((0..20).all(|_| write(200_000).is_err()));
        assert_eq!((disk.paths().len(), store.figures()), (files, figures));
        // Something shorter may still fit, and existing values can be read.
        locations.extend(write(100));
        let mut buffer = ColdBuffer::default();
        for location in &locations {
            let found = store.read(*location, &mut buffer).unwrap();
            assert!(value.starts_with(found));
        }
        // Once there is space again, writes succeed.
        disk.set_capacity(Some(capacity + 4 * MIB));
        write(200_000).unwrap();
    }
}

const VALUE_LEN: usize = 20_000;

fn open_cold(disk: &SimDisk) -> ColdStore {
    ColdStore::open(Arc::new(disk.clone()), "/cold", ColdOptions::default()).unwrap()
}

/// Writes some values of [`VALUE_LEN`] bytes.
fn write(
    store: &ColdStore,
    count: usize,
    origin: Origin,
) -> tierce_storage::Result<Vec<ColdLocation>> {
    let mut batch = ColdBatch::default();
    for _ in 0..count {
        batch.push(|out| out.resize(out.len() + VALUE_LEN, 7)).unwrap();
    }
    store.write(&mut batch, Durable::Yes, origin)
}

/// Moves the values of sparse segments, as many as there is room for, and removes the segments. Returns true if there
/// were any.
fn clean(store: &ColdStore, locations: &mut [ColdLocation]) -> bool {
    let movable = store.movable(&store.sparse(0.5));
    for location in locations.iter_mut().filter(|at| movable.contains(&at.segment)) {
        let moved = write(store, 1, Origin::Segments).unwrap()[0];
        store.release(std::mem::replace(location, moved));
    }
    store.remove(&store.dead()).unwrap();
    store.restore_reserve().unwrap();
    !movable.is_empty()
}

/// On a full disk, nine of ten values are released, spread over all segments. The others can then be moved together to
/// free space, even after a start.
#[test]
fn spilled_values_are_moved_together_on_a_full_disk() {
    for (capacity, restarts) in [(3 * MIB, false), (18 * MIB, false), (60 * MIB, true)] {
        let disk = small_disk(capacity);
        let mut store = open_cold(&disk);
        let mut locations = Vec::new();
        while let Ok(written) = write(&store, 10, Origin::Memory) {
            locations.extend(written);
        }
        let (kept, released): (Vec<_>, Vec<_>) =
            locations.iter().enumerate().partition(|(index, _)| index % 10 == 0);
        released.into_iter().for_each(|(_, location)| store.release(*location));
        let mut kept: Vec<_> = kept.into_iter().map(|(_, location)| *location).collect();
        let disk = if restarts { disk.now().after_kill(1) } else { disk };
        if restarts {
            // No byte is left except the reserve.
            disk.set_capacity(Some(disk.used()));
            store = open_cold(&disk);
            kept.iter().for_each(|location| store.hold(*location));
            store.finish_recovery().unwrap();
        }
        while clean(&store, &mut kept) {}
        let figures = store.figures();
        assert!(figures.bytes < 2 * figures.live_bytes + 2 * MIB, "{figures:?} of {capacity}");
        write(&store, 10, Origin::Memory).unwrap();
        let mut buffer = ColdBuffer::default();
        for location in &kept {
            assert!(store.read(*location, &mut buffer).unwrap().iter().all(|byte| *byte == 7));
        }
    }
}

/// Frees so many bytes on a full disk.
fn make_free(disk: &SimDisk, bytes: u64) {
    disk.set_capacity(Some(disk.used() + bytes));
}

/// The disk was filled by an older version, or the process was killed while the reserve was in use.
#[test]
fn a_start_without_the_reserve_leaves_others_their_space() {
    let disk = SimDisk::new(4);
    let locations = write(&open_cold(&disk), 400, Origin::Memory).unwrap();
    let disk = disk.now().after_kill(1);
    disk.erase(Path::new("/cold/RESERVE"));
    make_free(&disk, 3 * MIB);
    let store = open_cold(&disk);
    locations.iter().for_each(|location| store.hold(*location));
    store.finish_recovery().unwrap();
    let free = || store.space().unwrap().free;
    assert_eq!(free(), 3 * MIB);
    store.leave_free(2 * MIB);
    store.restore_reserve().unwrap();
    assert_eq!(free(), 2 * MIB);
    assert!(write(&store, 1, Origin::Memory).unwrap_err().is_no_space());
    assert_eq!(free(), 2 * MIB);
}

#[test]
fn new_values_leave_others_their_space_when_the_reserve_is_lent() {
    let disk = SimDisk::new(5);
    let store = open_cold(&disk);
    write(&store, 400, Origin::Memory).unwrap();
    make_free(&disk, 40 * MIB);
    write(&store, 100, Origin::Segments).unwrap();
    let left_free = store.space().unwrap().free - MIB;
    store.leave_free(left_free);
    assert!(write(&store, 10, Origin::Memory).unwrap_err().is_no_space());
    assert_eq!(store.space().unwrap().free, left_free + MIB);
}

#[test]
fn a_new_segment_leaves_others_their_space() {
    let disk = SimDisk::new(6);
    let store = open_cold(&disk);
    write(&store, 2000, Origin::Memory).unwrap();
    make_free(&disk, 40 * MIB);
    let left_free = store.space().unwrap().free - MIB / 2;
    store.leave_free(left_free);
    write(&store, 10, Origin::Memory).unwrap();
    assert!(store.space().unwrap().free >= left_free);
}

#[test]
fn values_are_spilled_though_no_file_could_be_made_at_the_start() {
    let disk = SimDisk::new(7);
    disk.inject_os_error(Fault::Open, 0, libc::ENOSPC);
    let store = open_cold(&disk);
    write(&store, 10, Origin::Memory).unwrap();
    assert!(disk.content(Path::new("/cold/RESERVE")).is_some_and(|reserve| !reserve.is_empty()));
}

/// Values that are rewritten repeatedly take about twice their size.
#[test]
fn a_few_values_take_little_space_however_often_they_are_written() {
    let disk = SimDisk::new(3);
    let store = open_cold(&disk);
    let mut locations = write(&store, 250, Origin::Memory).unwrap();
    for round in 0..40 {
        for at in (0..250).step_by(25) {
            let range = at..at + 25;
            let written = write(&store, 25, Origin::Memory).unwrap();
            for (location, written) in locations[range].iter_mut().zip(written) {
                store.release(std::mem::replace(location, written));
            }
        }
        while clean(&store, &mut locations) {}
        let figures = store.figures();
        assert!(figures.bytes < 2 * figures.live_bytes + 2 * MIB, "round {round}: {figures:?}");
    }
}

/// Records can be read even on a full disk; writes are accepted again when there is space.
#[test]
fn a_log_opens_on_a_full_disk_and_takes_records_when_there_is_space() {
    let disk = small_disk(3 * MIB);
    let options = || WalOptions { background_threads: false, ..WalOptions::default() };
    let (log, _) = Wal::open_on(Arc::new(disk.clone()), "/log", options(), |_| Ok(())).unwrap();
    let record = vec![7; 10_000];
    let mut appended = 0;
    while log.append(&record).is_ok() {
        appended += 1;
    }
    let mut image = disk.now().after_kill(1);
    drop(log);
    for round in 0..4 {
        // Not even the manifest fits.
        image.set_capacity(Some(image.used()));
        let mut found = 0;
        let take = |_: &[u8]| {
            found += 1;
            Ok(())
        };
        let (log, _) = Wal::open_on(Arc::new(image.clone()), "/log", options(), take).unwrap();
        assert_eq!(found, appended, "round {round}");
        if round % 2 == 1 {
            image.set_capacity(None);
            log.append(&record).unwrap();
            appended += 1;
        }
        let next = image.now().after_kill(round);
        drop(log);
        image = next;
    }
}
