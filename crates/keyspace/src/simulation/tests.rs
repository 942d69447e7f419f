use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tierce_harness::effort;

use super::{Course, Simulation};
use crate::access::keyspace::{Keyspace, Options};
use crate::db_index::DbIndex;
use crate::interleaving::{self, Condvar};

const STEPS_MAX: u64 = 100_000;

/// Runs threads that increment a number by a read and a write. With `locks`, a shard's lock excludes the others.
fn count(seed: u64, locks: bool) -> (Course, i64) {
    let options = Options { shards: 1, ..Options::default() };
    let keyspace = Arc::new(Keyspace::new(options).unwrap());
    let number = Arc::new(Mutex::new(0));
    let mut simulation = Simulation::new(seed, STEPS_MAX);
    for name in ["a", "b", "c"] {
        let (keyspace, number) = (Arc::clone(&keyspace), Arc::clone(&number));
        simulation.spawn(name, move || {
            for _ in 0..5 {
                let mut held = keyspace.locks();
                if locks {
                    held.db(DbIndex::ZERO, keyspace.hash(b"key"), 1);
                }
                let read = *number.lock();
                interleaving::pass("between");
                *number.lock() = read + 1;
            }
        });
    }
    let course = simulation.run().unwrap();
    let number = *number.lock();
    (course, number)
}

#[test]
fn a_seed_determines_the_run() {
    let seeds = effort(20_u64);
    let runs = || (0..seeds).map(|seed| count(seed, false)).collect::<Vec<_>>();
    let first = runs();
    assert_eq!(first, runs());
    assert!(first.iter().any(|(_, number)| *number < 15), "threads come in between");
    assert!((0..seeds).all(|seed| count(seed, true).1 == 15), "and not while a shard is locked");
}

#[test]
fn what_nobody_wakes_is_found() {
    let mut simulation = Simulation::new(1, STEPS_MAX);
    simulation.spawn("waits", || Condvar::new().wait(&mut Mutex::new(()).lock()));
    let failure = simulation.run().unwrap_err();
    assert!(failure.starts_with("all threads wait"), "{failure}");
}

#[test]
fn what_goes_on_for_ever_is_found() {
    let mut simulation = Simulation::new(1, STEPS_MAX);
    simulation.spawn("looks", || {
        loop {
            interleaving::sleep(Duration::from_millis(1));
        }
    });
    assert!(simulation.run().unwrap_err().starts_with("no end after"));
}

#[test]
fn a_wait_takes_simulated_time() {
    let mut simulation = Simulation::new(1, STEPS_MAX);
    simulation.spawn("waits", || {
        let begun = interleaving::now();
        let (condvar, mutex) = (Condvar::new(), Mutex::new(()));
        assert!(!condvar.wait_for(&mut mutex.lock(), Duration::from_secs(3600)));
        assert!(interleaving::now() - begun >= Duration::from_secs(3600));
    });
    simulation.run().unwrap();
}
