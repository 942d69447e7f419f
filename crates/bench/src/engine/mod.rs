//! The engine: connections under load, driven by one event loop for each thread.
//!
//! An [`Engine`] connects once and can run several phases (warm-up, then the measured one) over the same connections.
//! Between phases no request is in flight.
//!
//! As in redis-benchmark, every connection sends a batch of up to `pipeline` requests, waits for all replies and
//! sends the next batch at once. Or it keeps as many requests in flight, like an asynchronous client with a window.
//! With a rate limit, batches begin at fixed times instead, and latency counts from the time when a batch was *due*:
//! a stalling server is charged for the requests that it delayed.

mod connection;
mod phase;
mod worker;

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::distribution::Distribution;
use crate::error::Error;
use crate::protocol::Protocol;
use crate::ring::Mix;
use crate::target::Target;
pub(crate) use phase::Goal;
use phase::Phase;
use worker::Worker;

/// Interval of the observer's progress reports.
const OBSERVE_EVERY: Duration = Duration::from_millis(100);

/// Shortest and longest latency of a histogram, in nanoseconds, and its precision.
const LATENCY_NS_MIN: u64 = 100;
const LATENCY_NS_MAX: u64 = 600_000_000_000;
const LATENCY_DIGITS: u8 = 3;

/// Time at which a connection sends more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// When all replies to its last batch have arrived.
    Batches,
    /// As soon as replies have made room in its window.
    Window,
}

/// The shape of a load, for any commands.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) protocol: Protocol,
    pub(crate) clients: usize,
    pub(crate) threads: usize,
    /// Number of requests of a batch, or of the window.
    pub(crate) pipeline: usize,
    pub(crate) pace: Pace,
    pub(crate) keyspace: u64,
    pub(crate) key_prefix: String,
    pub(crate) data_size: usize,
    pub(crate) distribution: Distribution,
    pub(crate) seed: u64,
    /// Requests per second of all connections together; `None` means no limit.
    pub(crate) rate: Option<f64>,
}

/// Result of a phase, for one worker or for all.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) replies: u64,
    pub(crate) errors: u64,
    /// Number of null replies, such as those to GET of an absent key.
    pub(crate) nulls: u64,
    pub(crate) first_error: Option<String>,
    /// Nanoseconds from sending a batch to reading each of its replies.
    pub(crate) latency: Histogram<u64>,
    /// Time from the start of the phase to the last reply.
    pub(crate) elapsed: Duration,
    /// CPU time of the generator's threads.
    pub(crate) own_cpu: Duration,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let latency = Histogram::new_with_bounds(LATENCY_NS_MIN, LATENCY_NS_MAX, LATENCY_DIGITS)
            .expect("the bounds are constants that the histogram accepts");
        Self {
            replies: 0,
            errors: 0,
            nulls: 0,
            first_error: None,
            latency,
            elapsed: Duration::ZERO,
            own_cpu: Duration::ZERO,
        }
    }

    fn merge(&mut self, other: Self) {
        self.replies += other.replies;
        self.errors += other.errors;
        self.nulls += other.nulls;
        self.first_error = self.first_error.take().or(other.first_error);
        self.latency.add(&other.latency).expect("all tallies have histograms of the same bounds");
        self.elapsed = self.elapsed.max(other.elapsed);
        self.own_cpu += other.own_cpu;
    }
}

/// A connected load generator.
#[derive(Debug)]
pub(crate) struct Engine {
    workers: Vec<Worker>,
    clients: usize,
    pipeline: usize,
    rate: Option<f64>,
}

impl Engine {
    /// Opens all connections and encodes the requests.
    pub(crate) fn connect(target: &Target, load: &Load, mix: &Mix) -> Result<Self, Error> {
        let threads = load.threads.min(load.clients);
        let workers = (0..threads)
            .map(|index| {
                let clients = load.clients / threads + usize::from(index < load.clients % threads);
                Worker::connect(target, load, mix, index, clients)
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { workers, clients: load.clients, pipeline: load.pipeline, rate: load.rate })
    }

    /// Runs until the goal is reached and every reply has arrived.
    ///
    /// # Errors
    /// The first failure of any connection. The engine must not be run again after a failure.
    pub(crate) fn run(
        &mut self,
        goal: Goal,
        observe: &mut dyn FnMut(u64, Duration),
    ) -> Result<Tally, Error> {
        let interval = self
            .rate
            .map(|rate| Duration::from_secs_f64(self.clients as f64 * self.pipeline as f64 / rate));
        let phase = Phase::new(goal, interval);
        let observer = thread::current();
        let results = thread::scope(|scope| {
            let handles: Vec<_> = self
                .workers
                .iter_mut()
                .map(|worker| {
                    let (phase, observer) = (&phase, &observer);
                    scope.spawn(move || {
                        let result = worker.run(phase);
                        if result.is_err() {
                            phase.abort();
                        }
                        observer.unpark();
                        result
                    })
                })
                .collect();
            while !handles.iter().all(|handle| handle.is_finished()) {
                observe(phase.claimed.load(Ordering::Relaxed), phase.start.elapsed());
                thread::park_timeout(OBSERVE_EVERY);
            }
            handles
                .into_iter()
                .map(|handle| handle.join().expect("a worker does not panic"))
                .collect::<Vec<_>>()
        });
        let mut total = Tally::new();
        for result in results {
            total.merge(result?);
        }
        Ok(total)
    }
}
