//! Tests of the store of cold values against a model, through crashes, on full disks and with
//! damage.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tierce_harness::effort;
use tierce_storage::disk::{Disk, Fault, OsDisk, SimDisk};
use tierce_storage::{
    ColdBatch, ColdBuffer, ColdLocation, ColdOptions, ColdStore, Durable, Error, Origin,
    check_cold_on,
};

const DIR: &str = "/cold";

fn options() -> ColdOptions {
    ColdOptions { segment_size_bytes: 5 * 4096, open_files_max: 2 }
}

fn open(disk: &SimDisk) -> ColdStore {
    open_on(Arc::new(disk.clone()), Path::new(DIR))
}

fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> ColdStore {
    ColdStore::open(disk, dir, options()).unwrap()
}

/// Returns bytes derived from a number.
fn value(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (number.wrapping_mul(31) + at * 7) as u8).collect()
}

fn write(store: &ColdStore, values: &[Vec<u8>]) -> tierce_storage::Result<Vec<ColdLocation>> {
    let mut batch = ColdBatch::default();
    for value in values {
        batch.push(|out| out.extend_from_slice(value)).unwrap();
    }
    assert_eq!(batch.len(), values.len());
    store.write(&mut batch, Durable::Yes, Origin::Memory)
}

fn read(store: &ColdStore, location: ColdLocation) -> tierce_storage::Result<Vec<u8>> {
    store.read(location, &mut ColdBuffer::default()).map(<[u8]>::to_vec)
}

/// A user of the store, with the values that are live.
struct User {
    store: ColdStore,
    live: BTreeMap<u64, (ColdLocation, Vec<u8>)>,
    next: u64,
}

impl User {
    fn write(&mut self, lens: &[usize]) {
        let numbers: Vec<u64> = (self.next..).take(lens.len()).collect();
        self.next += lens.len() as u64;
        let values: Vec<_> = numbers.iter().zip(lens).map(|(n, len)| value(*n, *len)).collect();
        let locations = write(&self.store, &values).unwrap();
        for ((number, location), value) in numbers.into_iter().zip(locations).zip(values) {
            self.live.insert(number, (location, value));
        }
    }

    fn release(&mut self, number: usize) {
        if let Some(number) = self.live.keys().nth(number % self.live.len().max(1)).copied() {
            let (location, _) = self.live.remove(&number).unwrap();
            self.store.release(location);
        }
    }

    fn remove_dead(&self) {
        self.store.remove(&self.store.dead()).unwrap();
    }

    /// Moves the remaining values of sparse segments.
    fn clean(&mut self) {
        let sparse = self.store.sparse(0.5);
        for (location, value) in self.live.values_mut() {
            if sparse.contains(&location.segment) {
                let moved = write(&self.store, std::slice::from_ref(value)).unwrap()[0];
                self.store.release(std::mem::replace(location, moved));
            }
        }
        self.remove_dead();
    }

    fn check(&self) {
        for (location, value) in self.live.values() {
            assert_eq!(read(&self.store, *location).unwrap(), *value);
        }
        let live: u64 = self.live.values().map(|(location, _)| location.stored_len()).sum();
        assert_eq!(self.store.figures().live_bytes, live);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<usize>),
    Release(usize),
    RemoveDead,
    Clean,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![6 => 0..1500usize, 1 => 3000..30_000usize];
    prop_oneof![
        4 => proptest::collection::vec(len, 1..12).prop_map(Step::Write),
        8 => any::<usize>().prop_map(Step::Release),
        1 => Just(Step::RemoveDead),
        1 => Just(Step::Clean),
        1 => Just(Step::Reopen),
    ]
}

fn hold_live(store: &ColdStore, live: &BTreeMap<u64, (ColdLocation, Vec<u8>)>) {
    live.values().for_each(|(location, _)| store.hold(*location));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: effort(60), ..ProptestConfig::default() })]

    #[test]
    fn values_come_back_from_where_they_are_said_to_be(steps in proptest::collection::vec(step(), 1..60)) {
        let disk = SimDisk::new(1);
        let mut user = User { store: open(&disk), live: BTreeMap::new(), next: 0 };
        for step in steps {
            match step {
                Step::Write(lens) => user.write(&lens),
                Step::Release(number) => user.release(number),
                Step::RemoveDead => user.remove_dead(),
                Step::Clean => user.clean(),
                Step::Reopen => {
                    let User { store, live, next } = user;
                    drop(store);
                    let store = open(&disk);
                    hold_live(&store, &live);
                    store.finish_recovery().unwrap();
                    user = User { store, live, next };
                }
            }
            user.check();
        }
        // Disk space follows the live data: no segment but the last is empty.
        user.remove_dead();
        let figures = user.store.figures();
        prop_assert!(figures.segments <= user.live.len() as u64 + 1);
    }
}

#[test]
fn what_was_handed_out_survives_a_power_cut_at_any_call() {
    for seed in 0..effort(3) {
        let disk = SimDisk::new(seed);
        disk.record_history();
        let mut user = User { store: open(&disk), live: BTreeMap::new(), next: 0 };
        // Live values from this many calls on.
        let mut states = vec![(disk.calls(), BTreeMap::new())];
        for step in 0..40u64 {
            match (step * 7 + seed) % 5 {
                0 | 1 => user.write(&[100 + step as usize * 50, 2000, 9]),
                2 => (0..3).for_each(|n| user.release(n * 5 + step as usize)),
                3 => user.clean(),
                _ => user.remove_dead(),
            }
            states.push((disk.calls(), user.live.clone()));
        }
        for moment in disk.take_history() {
            // During a step, values are live that are live before and after it.
            let after = states.iter().position(|(calls, _)| *calls > moment.calls);
            let after = after.unwrap_or(states.len() - 1);
            let (before, after) = (&states[after.saturating_sub(1)].1, &states[after].1);
            let image = match moment.calls % 2 {
                0 => moment.after_power_cut(seed ^ moment.calls),
                _ => moment.after_kill(seed ^ moment.calls),
            };
            let store = open(&image);
            let live = before.iter().filter(|(number, value)| after.get(number) == Some(value));
            let live = live.map(|(number, value)| (*number, value.clone())).collect();
            hold_live(&store, &live);
            store.finish_recovery().unwrap();
            let mut user = User { store, live, next: 1000 };
            user.check();
            user.write(&[700; 20]);
            user.check();
        }
    }
}

#[test]
fn places_that_were_let_go_may_be_gone() {
    let disk = SimDisk::new(3);
    let store = open(&disk);
    let locations = write(&store, &[value(1, 100), value(2, 100)]).unwrap();
    drop(store);
    let path = disk.paths().into_iter().find(|path| path.extension().is_some()).unwrap();
    disk.erase(&path);
    // As in replaying a log: the key was spilled, and overwritten later.
    let store = open(&disk);
    store.hold(locations[0]);
    store.release(locations[0]);
    store.finish_recovery().unwrap();
    // A segment number is never reused.
    assert!(write(&store, &[value(3, 10)]).unwrap()[0].segment > locations[0].segment);
    drop(store);
    let store = open(&disk);
    store.hold(locations[1]);
    assert!(matches!(store.finish_recovery(), Err(Error::Missing { .. })));
}

#[test]
fn a_segment_that_is_too_short_is_noticed() {
    let disk = SimDisk::new(4);
    let store = open(&disk);
    let location = write(&store, &[value(1, 9000)]).unwrap()[0];
    drop(store);
    let path = disk.paths().into_iter().find(|path| path.extension().is_some()).unwrap();
    let mut content = disk.content(&path).unwrap();
    content.truncate(8192);
    disk.set_content(&path, content);
    let store = open(&disk);
    store.hold(location);
    assert!(matches!(store.finish_recovery(), Err(Error::Corrupt { .. })));
}

#[test]
fn every_flipped_bit_of_a_value_is_noticed() {
    let disk = SimDisk::new(5);
    let store = open(&disk);
    let location = write(&store, &[value(1, 40)]).unwrap()[0];
    let path = disk.paths().into_iter().find(|path| path.extension().is_some()).unwrap();
    for bit in 4096 * 8..(4096 + 48) * 8 {
        disk.flip_bit(&path, bit);
        assert!(matches!(read(&store, location), Err(Error::Corrupt { .. })), "bit {bit}");
        disk.flip_bit(&path, bit);
    }
    assert_eq!(read(&store, location).unwrap(), value(1, 40));
}

#[test]
fn a_batch_that_fails_leaves_what_was_there() {
    let disk = SimDisk::new(6);
    let store = open(&disk);
    let first = write(&store, &[value(1, 40)]).unwrap()[0];
    disk.set_capacity(Some(disk.used()));
    assert!(write(&store, &[value(2, 60_000)]).unwrap_err().is_no_space());
    disk.set_capacity(None);
    disk.inject(Fault::Sync, 0);
    assert!(write(&store, &[value(3, 40)]).is_err());
    let second = write(&store, &[value(4, 40)]).unwrap()[0];
    assert_eq!(read(&store, first).unwrap(), value(1, 40));
    assert_eq!(read(&store, second).unwrap(), value(4, 40));
    store.release(first);
    store.remove(&store.dead()).unwrap();
    assert_eq!(store.figures().segments, 1);
    assert!(matches!(read(&store, first), Err(Error::Missing { .. })));
}

#[test]
fn the_real_disk_does_it_too() {
    let dir = std::env::temp_dir().join(format!("tierce-cold-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let mut user = User { store: open_on(Arc::new(OsDisk), &dir), live: BTreeMap::new(), next: 0 };
    for round in 0..20 {
        user.write(&[100, 5000, round * 900, 1]);
        user.release(round * 3);
        user.clean();
    }
    user.check();
    let User { store, live, next } = user;
    let locked = ColdStore::open(Arc::new(OsDisk), &dir, options());
    assert!(matches!(locked, Err(Error::Locked { .. })));
    drop(store);
    let store = open_on(Arc::new(OsDisk), &dir);
    hold_live(&store, &live);
    store.finish_recovery().unwrap();
    User { store, live, next }.check();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_check_finds_all_values_and_every_damage() {
    let disk = SimDisk::new(11);
    let store = open(&disk);
    let mut locations = Vec::new();
    for round in 0..12 {
        let lens = [1, 700, 1000, 3000, 4088, 5000 + round * 100];
        let values: Vec<_> = lens.iter().map(|len| value(round as u64, *len)).collect();
        locations.extend(write(&store, &values).unwrap());
    }
    let check = || check_cold_on(Arc::new(disk.clone()), Path::new(DIR), |_| {});
    assert!(matches!(check(), Err(Error::Locked { .. })));
    drop(store);
    let report = check().unwrap();
    assert_eq!(report.values, locations.len() as u64);
    assert!(report.segments > 2 && report.problems.is_empty(), "{:?}", report.problems);
    let files = disk.paths().into_iter().filter(|path| path.extension().is_some());
    let files: Vec<_> = files.filter(|path| path.to_string_lossy().ends_with(".cold")).collect();
    assert_eq!(files.len(), report.segments);
    // Flip a bit of any record of the last file, and of its header.
    let last = locations.last().unwrap().segment;
    let path = files.iter().max().unwrap();
    for location in locations.iter().filter(|location| location.segment == last) {
        let bit = u64::from(location.stored_order()) * 64 + 8 * 8;
        disk.flip_bit(path, bit);
        let damaged = check().unwrap();
        assert!(damaged.problems.len() == 1 && damaged.values < report.values);
        disk.flip_bit(path, bit);
    }
    disk.flip_bit(path, 3);
    assert_eq!(check().unwrap().problems.len(), 1);
    disk.flip_bit(path, 3);
    // Replace a page of records by zeros.
    let mut content = disk.content(path).unwrap();
    content[4096..8192].fill(0);
    disk.set_content(path, content);
    assert_eq!(check().unwrap().problems.len(), 1);
}
