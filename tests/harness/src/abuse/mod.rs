//! Random abuse of all protocols, while well-behaved clients of each verify their data.
//!
//! ```text
//! abusers     threads that attack, each with connections that it keeps open: a few hundred together
//! witnesses   one for each protocol and kind of listener, with its own keys and a model of them
//! ```
//!
//! [`run`] starts them, lets the abusers attack, and requires three things: a witness never gets a reply that
//! contradicts its model; the server keeps running; when the abusers have disconnected, none of their connections is
//! left, and the memory of the server is the same as after a first round of attacks.
//!
//! The seed determines the bytes of each abuser and how they are split. The system determines how the connections
//! interleave in the server.

mod abuser;
mod attack;
mod bytes;
mod memory;
mod target;
mod witness;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::abuser::Abuser;
use self::memory::{Memory, Observer};
use self::target::Target;
use crate::{LIMIT, Launch, takes_up_to_seconds};

/// Parameters of an abuse of a server.
#[derive(Clone, Copy, Debug)]
pub struct Abuse {
    /// Seed of everything that is sent.
    pub seed: u64,
    /// Number of attacking threads.
    pub abusers: usize,
    /// Number of connections that each of them keeps open, in addition to the attacking one.
    pub parked_each: usize,
    /// Amount of abuse.
    pub extent: Extent,
}

/// End of the abuse.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// After this number of attacks of each abuser.
    Attacks(usize),
    /// After so much time.
    Time(Duration),
}

/// Results of an abuse.
#[derive(Debug)]
pub struct Report {
    /// Number of attacks of each kind.
    pub attacks: BTreeMap<&'static str, usize>,
    /// Number of replies that each witness has verified.
    pub verified: BTreeMap<&'static str, usize>,
    /// Memory of the server after a first round of abuse, a tenth of all, and after all of it.
    pub memory: [Memory; 2],
}

impl Abuse {
    /// Returns another round with equal parameters and different bytes.
    fn round(self, number: u64, extent: Extent) -> Self {
        Self { seed: self.seed ^ (number << 48), extent, ..self }
    }
}

impl Extent {
    /// Allows the calling thread the time of both rounds.
    fn allow_time(self) {
        if let Self::Time(time) = self {
            takes_up_to_seconds(time.as_secs() * 2 + LIMIT.as_secs());
        }
    }

    /// Returns a first part of the abuse. After it, all caches and pools have their sizes.
    fn first(self) -> Self {
        match self {
            Self::Attacks(count) => Self::Attacks(count.div_ceil(10)),
            Self::Time(time) => Self::Time(time / 10),
        }
    }

    fn is_over(self, attacks: usize, start: Instant) -> bool {
        match self {
            Self::Attacks(count) => attacks >= count,
            Self::Time(time) => start.elapsed() >= time,
        }
    }
}

/// Starts a server with all protocols, abuses it, and verifies its replies.
///
/// # Panics
/// If a witness got a wrong reply, the server has panicked or ended, or its memory has grown.
#[must_use]
pub fn run(launch: Launch, abuse: Abuse) -> Report {
    abuse.extent.allow_time();
    let target = Target::start(launch);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let witnesses = witness::start_all(scope, &target, abuse, &done);
        // The witnesses end, even after a failure.
        let end = EndOnDrop(&done);
        let mut observer = Observer::new(&target);
        let mut attacks = attack(&target, abuse.round(1, abuse.extent.first()));
        let first = observer.settled();
        for (kind, count) in attack(&target, abuse.round(2, abuse.extent)) {
            *attacks.entry(kind).or_insert(0) += count;
        }
        let last = observer.settled();
        drop(end);
        let verified = witnesses.into_iter().map(|(name, thread)| {
            let witnessed =
                thread.join().unwrap_or_else(|_| panic!("the witness of {name} failed"));
            (name, witnessed.audit(&target))
        });
        let report = Report { attacks, verified: verified.collect(), memory: [first, last] };
        last.assert_no_more_than(first);
        report
    })
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs all abusers to their end, and counts their attacks.
fn attack(target: &Target, abuse: Abuse) -> BTreeMap<&'static str, usize> {
    let mut total = BTreeMap::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..abuse.abusers)
            .map(|number| {
                scope.spawn(move || {
                    abuse.extent.allow_time();
                    Abuser::new(target, &abuse, number).attack(abuse.extent)
                })
            })
            .collect();
        for thread in threads {
            for (kind, count) in thread.join().expect("an abuser takes whatever comes") {
                *total.entry(kind).or_insert(0) += count;
            }
        }
    });
    total
}
