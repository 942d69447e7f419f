//! Tests of asynchronous reads of cold values, by the ring and by threads: all results are right,
//! whatever the disk does meanwhile.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, poll};
use tierce_storage::disk::{
    Disk, DiskFile, DiskLock, DiskMap, OpenMode, OsDisk, ReadDriver, SimDisk,
};
use tierce_storage::{
    ColdBatch, ColdLocation, ColdOptions, ColdReads, ColdStore, Durable, Error, Origin,
};

/// Runs a test for each driver that works here.
fn with_each_driver(test: impl Fn(ReadDriver)) {
    test(ReadDriver::Threads);
    match ReadDriver::probe_ring() {
        Ok(()) => test(ReadDriver::Ring),
        Err(error) => eprintln!("without io_uring: {error}"),
    }
}

/// A directory that is removed when this is dropped.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tierce-reads-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        Home(std::env::temp_dir().join(name))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns bytes derived from a number.
fn value(number: usize) -> Vec<u8> {
    let len = match number % 10 {
        0 => 20_000 + number * 7,
        1 => number,
        _ => 900 + number % 300,
    };
    (0..len).map(|at| (number * 31 + at * 7) as u8).collect()
}

fn open(disk: Arc<dyn Disk>, dir: &Path) -> Arc<ColdStore> {
    let options = ColdOptions { segment_size_bytes: 1 << 20, open_files_max: 2 };
    Arc::new(ColdStore::open(disk, dir, options).unwrap())
}

fn fill(store: &ColdStore, count: usize) -> Vec<ColdLocation> {
    let mut locations = Vec::new();
    for first in (0..count).step_by(50) {
        let mut batch = ColdBatch::default();
        for number in first..count.min(first + 50) {
            batch.push(|out| out.extend_from_slice(&value(number))).unwrap();
        }
        locations.extend(store.write(&mut batch, Durable::Yes, Origin::Memory).unwrap());
    }
    locations
}

fn await_readable(descriptor: BorrowedFd<'_>) {
    // An interruption is as good as an event: the kernel interrupts when it begins to watch a ring.
    let _ = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], None);
}

/// Takes results until no reads are left, sleeping in between.
fn take_all<T>(reads: &mut ColdReads<T>, mut each: impl FnMut(T, Result<&[u8], Error>)) {
    loop {
        while !reads.submit(true) {}
        let is_continued = reads.take(&mut each);
        if reads.is_empty() {
            return;
        }
        if !reads.has_waiting() && !is_continued {
            await_readable(reads.descriptor());
        }
    }
}

#[test]
fn all_values_come_back_and_each_once() {
    with_each_driver(|driver| {
        let home = Home::new();
        for disk in [Arc::new(OsDisk) as Arc<dyn Disk>, Arc::new(SimDisk::new(1))] {
            let store = open(disk, &home.0);
            let locations = fill(&store, 500);
            let mut reads = store.reads(driver).unwrap();
            let mut seen = HashMap::new();
            for round in 0..3 {
                for (number, location) in locations.iter().enumerate() {
                    reads.add(*location, (round, number));
                    if number % 37 == 0 {
                        reads.submit(true);
                    }
                }
                take_all(&mut reads, |(round, number), bytes| {
                    assert!(bytes.unwrap() == value(number), "{driver:?} {number}");
                    *seen.entry((round, number)).or_insert(0) += 1;
                });
            }
            assert!(seen.len() == 3 * locations.len() && seen.values().all(|times| *times == 1));
        }
    });
}

#[test]
fn what_is_not_there_or_damaged_is_an_error_for_its_read_alone() {
    with_each_driver(|driver| {
        let home = Home::new();
        let store = open(Arc::new(OsDisk), &home.0);
        let locations = fill(&store, 900);
        let files = |segment: u32| home.0.join(format!("{segment:08}.cold"));
        let last = locations.last().unwrap().segment;
        assert!(last > locations[0].segment + 1, "several segments");
        // The first segment is truncated, and one bit of the last is flipped. The first is read while
        // it is open, and after it was closed and opened again.
        let cut =
            std::fs::OpenOptions::new().write(true).open(files(locations[0].segment)).unwrap();
        cut.set_len(6000).unwrap();
        let mut bytes = std::fs::read(files(last)).unwrap();
        let in_last = locations.iter().position(|location| location.segment == last).unwrap();
        bytes[4096 + 100] ^= 1;
        std::fs::write(files(last), bytes).unwrap();
        let nowhere = ColdLocation::decode(&[9, 9, 9, 0, 0, 2, 0, 0, 1, 0, 0, 0]);
        let mut reads = store.reads(driver).unwrap();
        reads.add(nowhere, usize::MAX);
        locations.iter().enumerate().for_each(|(number, location)| reads.add(*location, number));
        let (mut good, mut bad) = (0, 0);
        take_all(&mut reads, |number, bytes| match bytes {
            Ok(bytes) => {
                assert!(bytes == value(number));
                good += 1;
            }
            Err(Error::Missing { .. }) => assert_eq!(number, usize::MAX),
            Err(Error::Corrupt { .. }) => {
                let is_cut = locations[number].segment == locations[0].segment;
                assert!(is_cut || number == in_last, "{number}");
                bad += 1;
            }
            Err(error) => panic!("{error}"),
        });
        assert_eq!(good + bad, locations.len());
        assert!(bad >= 2 && good > 100, "{good} good, {bad} bad");
    });
}

/// The real disk, with files that can be made unreadable.
#[derive(Clone, Default)]
struct Failing(Arc<AtomicBool>);

struct FailingFile {
    file: Arc<dyn DiskFile>,
    /// A file that is not open for reading.
    other: std::fs::File,
    fails: Arc<AtomicBool>,
}

impl Disk for Failing {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = OsDisk.open(path, mode)?;
        let other = std::fs::OpenOptions::new().write(true).open(path)?;
        Ok(Arc::new(FailingFile { file, other, fails: Arc::clone(&self.0) }))
    }
    fn map(&self, path: &Path, len: usize) -> io::Result<Arc<dyn DiskMap>> {
        OsDisk.map(path, len)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        OsDisk.list(dir)
    }
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        OsDisk.create_dir_all(dir)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        OsDisk.remove_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        OsDisk.sync_dir(dir)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        OsDisk.lock(path)
    }
    fn entropy(&self) -> u64 {
        OsDisk.entropy()
    }
}

impl DiskFile for FailingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.fails.load(Relaxed) {
            true => Err(io::Error::from_raw_os_error(5)),
            false => self.file.read_at(buf, offset),
        }
    }
    fn write_all_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bufs, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }
    fn reserve(&self, len: u64) -> io::Result<()> {
        self.file.reserve(len)
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self.fails.load(Relaxed) {
            true => Some(self.other.as_fd()),
            false => self.file.descriptor(),
        }
    }
}

#[test]
fn a_read_that_fails_fails_alone() {
    with_each_driver(|driver| {
        let home = Home::new();
        let disk = Failing::default();
        let store = open(Arc::new(disk.clone()), &home.0);
        let locations = fill(&store, 100);
        let mut reads = store.reads(driver).unwrap();
        for fails in [false, true, false] {
            disk.0.store(fails, Relaxed);
            locations
                .iter()
                .enumerate()
                .for_each(|(number, location)| reads.add(*location, number));
            let mut count = 0;
            take_all(&mut reads, |number, bytes| {
                match bytes {
                    Ok(bytes) => assert!(!fails && bytes == value(number)),
                    Err(Error::Io { .. }) => assert!(fails),
                    Err(error) => panic!("{error}"),
                }
                count += 1;
            });
            assert_eq!(count, locations.len());
        }
    });
}

#[test]
fn segments_may_go_and_queues_end_with_reads_under_way() {
    with_each_driver(|driver| {
        let home = Home::new();
        let store = open(Arc::new(OsDisk), &home.0);
        let locations = fill(&store, 200);
        for taken in [0, 1, 64] {
            let mut reads = store.reads(driver).unwrap();
            locations.iter().for_each(|location| reads.add(*location, ()));
            reads.submit(true);
            let mut count = 0;
            while count < taken {
                await_readable(reads.descriptor());
                reads.submit(false);
                reads.take(|(), bytes| {
                    assert!(bytes.is_ok());
                    count += 1;
                });
            }
        }
        // A file that is removed during a read can be read to the end.
        let mut reads = store.reads(driver).unwrap();
        locations[..100]
            .iter()
            .enumerate()
            .for_each(|(number, location)| reads.add(*location, number));
        reads.submit(true);
        locations.iter().for_each(|location| store.release(*location));
        store.remove(&store.dead()).unwrap();
        take_all(&mut reads, |number, bytes| match bytes {
            Ok(bytes) => assert!(bytes == value(number)),
            Err(error) => panic!("{number}: {error}"),
        });
    });
}
