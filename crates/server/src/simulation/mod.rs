//! A server whose threads run one at a time, in an order that a seed determines.
//!
//! Workers, threads for long commands and for programs, the reaper and a caller outside of the workers are those of the
//! server. Only the other ends of sockets, clocks and the order of threads are simulated (`interleaving` of the
//! keyspace). The random choices of SPOP come from the seed. Threads can switch at every lock and wake-up. A few
//! clients call commands on few keys: blocking ones, some with later results, long ones, transactions with WATCH, and
//! scripts that undo their changes, access more keys, or never end. Some publish messages, and others subscribe and
//! leave.
//!
//! A run fails if
//! - no sequential order of the calls explains the replies (`explain`),
//! - a client still waits for keys at the end although one has something for it,
//! - a subscriber does not get each message once, in an order that its publishers can explain (`messages`),
//! - a call is not answered in time, or threads deadlock.
//!
//! `TIERCE_SIMULATION_SEED` runs one seed alone.

mod clients;
mod explain;
mod messages;
mod model;
mod requests;
mod world;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use tierce_harness::effort;
use tierce_keyspace::planted::Fault;
use tierce_keyspace::simulation::Course;

use self::requests::{ENDLESS_EACH, MESSAGES_EACH};
use self::world::run;

/// Variable with the only seed to run.
const SEED: &str = "TIERCE_SIMULATION_SEED";

/// Number of seeds of an ordinary run.
const SEEDS: u64 = 120;

/// Number of seeds within which an injected fault must be found; some tens are enough.
const SEEDS_FOR_FAULT: u64 = 2_000;

fn of_seed(seed: u64, fault: Option<Fault>) -> Result<(Course, String), String> {
    run(seed, fault).map_err(|failure| {
        format!(
            "{failure}\nto repeat it: {SEED}={seed} cargo test -p tierce-server --lib simulation"
        )
    })
}

/// Returns the requested seed, or those of an ordinary run.
fn seeds() -> Range<u64> {
    match std::env::var(SEED) {
        Ok(seed) => {
            let seed = seed.parse().expect("a seed is a number");
            seed..seed + 1
        }
        Err(_) => 0..effort(SEEDS),
    }
}

/// Runs two seeds at a time.
#[test]
fn replies_are_those_of_some_order_and_nobody_waits_in_vain() {
    let (all, next) = (seeds(), AtomicU64::new(seeds().start));
    let failure = || {
        let seeds = std::iter::repeat_with(|| next.fetch_add(1, Relaxed));
        let mut seeds = seeds.take_while(|seed| all.contains(seed));
        seeds.find_map(|seed| of_seed(seed, None).err())
    };
    let failures = thread::scope(|scope| {
        [(); 2].map(|()| scope.spawn(failure)).map(|half| half.join().expect("it only reports"))
    });
    if let Some(failure) = failures.into_iter().flatten().next() {
        panic!("{failure}");
    }
}

#[test]
fn a_seed_determines_the_run() {
    for seed in 0..effort(8) {
        assert_eq!(of_seed(seed, None), of_seed(seed, None), "seed {seed}");
    }
}

/// Returns the first failure with an injected fault, trying every `each`-th seed.
fn found(fault: Fault, each: u64) -> String {
    let mut seeds = (0..SEEDS_FOR_FAULT).step_by(each as usize);
    seeds.find_map(|seed| of_seed(seed, Some(fault)).err()).expect("the fault is found")
}

/// Part of the changes that scripts undo stays.
#[test]
fn replies_that_no_order_explains_are_found() {
    let failure = found(Fault::UndoOfEntries, 1);
    assert!(failure.contains("no order of calls"), "{failure}");
}

#[test]
fn a_client_that_is_never_woken_is_found() {
    let failure = found(Fault::BusyKeysStayUnserved, ENDLESS_EACH);
    assert!(failure.contains("waits in vain"), "{failure}");
}

#[test]
fn messages_that_are_lost_are_found() {
    let failure = found(Fault::CommandsDropMessages, MESSAGES_EACH);
    let is_told = ["subscribers hear of", "never hears of"].iter().any(|it| failure.contains(it));
    assert!(is_told, "{failure}");
}

#[test]
fn messages_that_do_not_follow_the_order_of_changes_are_found() {
    let failure = found(Fault::MessagesWithoutLocks, MESSAGES_EACH);
    assert!(failure.contains("out of order"), "{failure}");
}

#[test]
fn a_script_that_stalls_long_commands_is_found() {
    let failure = found(Fault::LongThreadsWait, ENDLESS_EACH);
    assert!(failure.contains("is not answered"), "{failure}");
}
