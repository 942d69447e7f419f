//! A model checker runs every interleaving of threads that append to a log, and of others that read it or lock it: they
//! see only records that are stored.
//!
//! The crate's counter is compiled again on top of the checker's atomics. A record is a word, which its writer stores
//! after it has reserved a range under the lock, as `reservation` does.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

#[path = "../src/log/published.rs"]
mod published;

/// Primitives of `published`.
mod primitives {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

    /// Fewer than writers, so that two of them have one slot.
    pub(super) const OFFERS: usize = 2;
    /// A thread that waits offers its range at once.
    pub(super) const SPINS: u32 = 0;

    pub(super) fn pause(_: u32) {
        loom::thread::yield_now();
    }
}

use published::{Published, Stored};

/// Length of a record.
const WORD: u64 = 8;
/// Number of records in a log.
const RECORDS: usize = 3;

#[derive(Default)]
struct Log {
    /// End of the reserved part, behind the log's lock.
    reserved: Mutex<u64>,
    published: Published,
    words: [AtomicU64; RECORDS],
    /// End that is marked for recovery.
    marked: AtomicU64,
}

impl Log {
    fn append(&self) {
        let start = {
            let mut reserved = self.reserved.lock().unwrap();
            *reserved += 1;
            *reserved - 1
        };
        self.words[start as usize].store(start + 1, Ordering::Relaxed);
        let stored = Stored { start: start * WORD, end: (start + 1) * WORD, seq: start };
        let Some(to) = self.published.await_turn(stored) else {
            assert!(self.published.end() > stored.start, "published by another thread");
            return;
        };
        self.mark(start, to / WORD);
        self.published.set(to);
    }

    /// Moves the mark from `start`, as only one thread at a time may. What it covers is stored.
    fn mark(&self, start: u64, to: u64) {
        assert_eq!(self.marked.load(Ordering::Relaxed), start, "marks follow each other");
        self.check_up_to(to);
        self.marked.store(to, Ordering::Relaxed);
    }

    /// Checks that everything published is stored. Returns its end.
    fn check(&self) -> u64 {
        let end = self.published.end() / WORD;
        self.check_up_to(end);
        end
    }

    fn check_up_to(&self, end: u64) {
        for (word, at) in self.words.iter().zip(0..end) {
            assert_eq!(word.load(Ordering::Relaxed), at + 1, "published, but not stored");
        }
    }

    /// Appends with the exclusive lock.
    fn append_exclusively(&self) {
        let mut reserved = self.reserved.lock().unwrap();
        self.published.wait_for(*reserved * WORD);
        assert_eq!(self.check(), *reserved);
        self.words[*reserved as usize].store(*reserved + 1, Ordering::Relaxed);
        self.mark(*reserved, *reserved + 1);
        *reserved += 1;
        self.published.set(*reserved * WORD);
    }
}

/// Runs all interleavings in which no thread is interrupted more often than this, besides waiting.
fn explore(run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.max_branches = 20_000;
    model.check(run);
}

#[test]
fn a_reader_sees_only_records_that_are_stored() {
    explore(|| {
        let log = Arc::new(Log::default());
        let writers =
            [(); 2].map(|()| Arc::clone(&log)).map(|log| thread::spawn(move || log.append()));
        log.check();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(log.check(), 2);
    });
}

#[test]
fn the_exclusive_lock_waits_for_all_reservations() {
    explore(|| {
        let log = Arc::new(Log::default());
        let writers =
            [(); 2].map(|()| Arc::clone(&log)).map(|log| thread::spawn(move || log.append()));
        log.append_exclusively();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(log.check(), 3);
    });
}
