//! Tests of threads that append at the same time, with crashes between a reservation and its publication.

use std::collections::VecDeque;
use std::sync::Arc;

use tierce_harness::{Random, effort};

use super::Wal;
use crate::disk::SimDisk;
use crate::log::options::WalOptions;
use crate::log::reservation::{Body, Reservation};

/// Opens a log with a tail of eight tiny blocks.
fn open(disk: &SimDisk, seed: u64, mut take: impl FnMut(&[u8])) -> Wal {
    let options = WalOptions {
        segment_size_bytes: [600, 1500, 5000][(seed % 3) as usize],
        tail_bytes: [1024, 4096][(seed / 3 % 2) as usize],
        background_threads: false,
        ..WalOptions::default()
    };
    let take = |record: &[u8]| {
        take(record);
        Ok(())
    };
    Wal::open_on(Arc::new(disk.clone()), "/log", options, take).unwrap().0
}

/// Returns a record with this number; some are longer than a block of the tail, and some than the tail.
fn record(number: u64) -> Vec<u8> {
    let len = if number % 23 == 22 { 2000 } else { 8 + (number % 1000 * 37) % 190 };
    let mut record = number.to_le_bytes().to_vec();
    record.resize(len as usize, number as u8);
    record
}

/// Returns the numbers of the records on a disk, whose bytes must be right.
fn numbers(disk: &SimDisk, seed: u64) -> (Wal, Vec<u64>) {
    let mut numbers = Vec::new();
    let wal = open(disk, seed, |bytes| {
        let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(bytes, record(number), "record {number}");
        numbers.push(number);
    });
    (wal, numbers)
}

/// Number of records certain at the moments after so many calls of the disk.
#[derive(Clone, Copy, Default)]
struct Certain {
    calls: u64,
    published: u64,
    durable: u64,
}

/// Writers whose steps a test chooses.
struct Writers<'a> {
    wal: &'a Wal,
    disk: &'a SimDisk,
    reserved: u64,
    certain: Certain,
    history: Vec<Certain>,
    /// Reservations not published, with their records' numbers, and true once stored.
    open: VecDeque<(u64, Reservation, bool)>,
}

impl<'a> Writers<'a> {
    fn new(wal: &'a Wal, disk: &'a SimDisk) -> Self {
        let (certain, history) = Default::default();
        Writers { wal, disk, reserved: 0, certain, history, open: VecDeque::new() }
    }

    fn note(&mut self, published: u64, durable: u64) {
        self.certain = Certain { calls: self.disk.calls(), published, durable };
        self.history.push(self.certain);
    }

    /// Reserves the range of a record, or appends it with the exclusive lock.
    fn reserve(&mut self) {
        let record = record(self.reserved);
        let len = Body::new(&record).record_len();
        if let Some((reservation, _)) = self.wal.appender().reserve(&*self.wal.log, len).unwrap() {
            self.open.push_back((self.reserved, reservation, false));
            self.reserved += 1;
            return;
        }
        self.finish();
        self.wal.append(&record).unwrap();
        self.reserved += 1;
        self.note(self.reserved, self.certain.durable);
    }

    /// Publishes all reservations. Before that, a lock of the log would wait without end.
    fn finish(&mut self) {
        while !self.open.is_empty() {
            self.store(0);
            self.publish();
        }
    }

    fn store(&mut self, at: usize) {
        let Some((number, reservation, is_stored)) = self.open.get_mut(at) else { return };
        if !std::mem::replace(is_stored, true) {
            let record = record(*number);
            let tail = self.wal.appender().tail();
            reservation.store(tail, 0, record.len(), &Body::new(&record));
        }
    }

    /// Publishes the first reservation, if its record is stored.
    fn publish(&mut self) {
        if !self.open.front().is_some_and(|(_, _, is_stored)| *is_stored) {
            return;
        }
        let (number, reservation, _) = self.open.pop_front().expect("checked above");
        let appender = self.wal.appender();
        appender.publish(&*self.wal.log, appender.tail(), &reservation);
        assert_eq!(appender.end(), reservation.end);
        self.note(number + 1, self.certain.durable);
    }

    fn step(&mut self, random: &mut Random) {
        match random.u64_below(10) {
            0..4 => self.reserve(),
            4..6 if !self.open.is_empty() => {
                self.store(random.u64_below(self.open.len() as u64) as usize);
            }
            9 if random.u64_below(4) == 0 => {
                self.wal.sync().unwrap();
                assert_eq!(self.wal.durable(), self.wal.appended());
                self.note(self.certain.published, self.certain.published);
            }
            _ => self.publish(),
        }
    }
}

/// Threads reserve, store and publish in any order. The process dies, or the power fails, at any call of the disk:
/// nothing published is lost, and nothing behind a record that was not published comes back, then or later.
#[test]
fn a_crash_ends_the_log_at_the_first_record_that_is_not_published() {
    let (mut images, mut holes) = (0, 0);
    let seeds = effort(12);
    for seed in 0..seeds {
        let (disk, mut random) = (SimDisk::new(seed), Random::new(seed));
        disk.record_history();
        let (wal, _) = numbers(&disk, seed);
        let mut writers = Writers::new(&wal, &disk);
        for _ in 0..160 {
            writers.step(&mut random);
            let is_hole = writers.open.iter().skip_while(|open| open.2).any(|open| open.2);
            holes += u64::from(is_hole);
        }
        let (moments, history) = (disk.take_history(), writers.history.clone());
        writers.finish();
        for moment in moments.iter().filter(|moment| moment.calls % 3 == seed % 3) {
            let at = history.partition_point(|certain| certain.calls <= moment.calls);
            let certain = if at == 0 { Certain::default() } else { history[at - 1] };
            for (is_kill, image) in
                [(true, moment.after_kill(seed)), (false, moment.after_power_cut(seed))]
            {
                let context = format!("seed {seed}, call {}, kill {is_kill}", moment.calls);
                let (wal, found) = numbers(&image, seed);
                let next = found.len() as u64;
                assert_eq!(found, (0..next).collect::<Vec<_>>(), "{context}");
                let least = if is_kill { certain.published } else { certain.durable };
                // The next record may have been marked, but not noted.
                let expected = least..=certain.published + 1;
                assert!(expected.contains(&next), "{context}: {next} of {expected:?}");
                wal.append(&record(next)).unwrap();
                wal.close().unwrap();
                drop(wal);
                let (_, again) = numbers(&image, seed);
                assert_eq!(again, (0..=next).collect::<Vec<_>>(), "{context}: later");
                images += 1;
            }
        }
    }
    assert!(images > 100 * seeds && holes > 10 * seeds, "{images} images, {holes} holes");
}

#[test]
fn nobody_sees_what_is_behind_a_record_that_is_not_published() {
    let disk = SimDisk::new(1);
    let (wal, _) = numbers(&disk, 2);
    wal.append(&record(0)).unwrap();
    let (end, bytes) = (wal.appended(), wal.bytes());
    let mut writers = Writers::new(&wal, &disk);
    writers.reserved = 1;
    writers.reserve();
    writers.reserve();
    assert_eq!(writers.open.len(), 2, "there is room");
    writers.store(1);
    assert_eq!((wal.appended(), wal.bytes()), (end, bytes));
    assert_eq!(wal.sync().unwrap(), end);
    assert_eq!(numbers(&disk.now().after_kill(1), 2).1, [0]);
    writers.store(0);
    writers.publish();
    writers.publish();
    let added = wal.appended() - end;
    assert_eq!(added, [1, 2].map(|number| Body::new(&record(number)).record_len()).iter().sum());
    assert_eq!(wal.bytes(), bytes + added);
    assert_eq!(numbers(&disk.now().after_kill(1), 2).1, [0, 1, 2]);
    assert_eq!(wal.sync().unwrap(), end + added);
    assert_eq!(numbers(&disk.now().after_power_cut(1), 2).1, [0, 1, 2]);
}

#[test]
fn a_rotation_waits_for_what_is_reserved() {
    let disk = SimDisk::new(1);
    let (wal, _) = numbers(&disk, 2);
    wal.append(&record(0)).unwrap();
    let mut writers = Writers::new(&wal, &disk);
    writers.reserved = 1;
    writers.reserve();
    let mark = std::thread::scope(|scope| {
        let rotation = scope.spawn(|| wal.rotate().unwrap());
        while wal.appender().head.try_lock().is_some() {
            assert!(!rotation.is_finished(), "it has not waited");
            std::thread::yield_now();
        }
        writers.store(0);
        assert!(!rotation.is_finished(), "it has not waited");
        writers.publish();
        rotation.join().unwrap()
    });
    wal.append(&record(2)).unwrap();
    wal.drop_before(&mark).unwrap();
    wal.close().unwrap();
    drop(wal);
    assert_eq!(numbers(&disk, 2).1, [2]);
}

/// Real threads append, rotate and sync. Every record is in the log from the moment on at which its append returned.
#[test]
fn records_of_all_threads_survive_a_kill_once_they_are_appended() {
    const WRITERS: u64 = 3;
    const RECORDS: u64 = 50;
    let own = |number: u64| (number / RECORDS, number % RECORDS);
    let mut images = 0;
    for seed in 0..effort(6) {
        let disk = SimDisk::new(seed);
        disk.record_history();
        let (wal, _) = numbers(&disk, seed);
        let append = |writer: u64| {
            let append = |number| {
                wal.append(&record(number)).unwrap();
                disk.calls()
            };
            (writer * RECORDS..(writer + 1) * RECORDS).map(append).collect::<Vec<_>>()
        };
        let acknowledged: Vec<_> = std::thread::scope(|scope| {
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || append(writer))).collect();
            for _ in 0..5 {
                wal.sync().unwrap();
                wal.rotate().unwrap();
            }
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        for moment in disk.take_history().iter().step_by(7) {
            let (_, found) = numbers(&moment.after_kill(seed), seed);
            let mut next = [0; WRITERS as usize];
            for (writer, number) in found.into_iter().map(own) {
                assert_eq!(number, next[writer as usize], "seed {seed}, call {}", moment.calls);
                next[writer as usize] += 1;
            }
            for (next, calls) in next.iter().zip(&acknowledged) {
                let certain = calls.partition_point(|calls| *calls <= moment.calls) as u64;
                assert!(*next >= certain, "seed {seed}, call {}", moment.calls);
            }
            images += 1;
        }
        wal.close().unwrap();
        drop(wal);
        let (_, mut found) = numbers(&disk, seed);
        found.sort_unstable();
        assert_eq!(found, (0..WRITERS * RECORDS).collect::<Vec<_>>());
    }
    println!("{images} crash images");
}
