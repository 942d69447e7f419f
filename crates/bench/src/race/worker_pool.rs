//! Threads that start together, count their work, and all stop when one fails.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::error::RaceError;

/// Interval of progress reports.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Count of one thread, on its own cache line so that counting costs nothing.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// A thread of the pool.
#[derive(Debug)]
pub(super) struct PoolWorker<'a> {
    /// Index of the thread, from 0.
    pub(super) number: usize,
    count: &'a Count,
    is_over: &'a AtomicBool,
}

impl PoolWorker<'_> {
    /// Counts finished work.
    pub(super) fn count(&self, more: u64) {
        // There is only one writer, so a load and a store are equivalent to an addition.
        let sum = self.count.0.load(Ordering::Relaxed) + more;
        self.count.0.store(sum, Ordering::Relaxed);
    }

    /// Returns true if another thread failed, so that further work is useless.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Runs `work` in this many threads and returns the time from the common start to the end of the
/// last one. Calls `tell` with the progress at intervals.
pub(super) fn run(
    threads: usize,
    work: impl Fn(&PoolWorker<'_>) -> Result<(), RaceError> + Sync,
    mut tell: impl FnMut(u64, Duration),
) -> Result<Duration, RaceError> {
    let counts: Vec<Count> = (0..threads).map(|_| Count::default()).collect();
    let is_over = AtomicBool::new(false);
    let barrier = Barrier::new(threads + 1);
    let (ended, ends) = mpsc::channel();
    thread::scope(|scope| {
        for (number, count) in counts.iter().enumerate() {
            let (work, is_over, barrier, ended) = (&work, &is_over, &barrier, ended.clone());
            scope.spawn(move || {
                let worker = PoolWorker { number, count, is_over };
                barrier.wait();
                let result = work(&worker);
                let has_failed = result.is_err();
                // Sent before the others stop, so that the first error is the one that caused it.
                // The receiver lives as long as any of these threads.
                let _ = ended.send((Instant::now(), result));
                is_over.fetch_or(has_failed, Ordering::Relaxed);
            });
        }
        // If a thread panics, dropping the last sender ends the loop below.
        drop(ended);
        // Taken before the barrier: with more threads than cores, this may be the last to continue.
        let start = Instant::now();
        barrier.wait();
        let (mut last, mut first_error) = (start, None);
        loop {
            match ends.recv_timeout(TOLD_EVERY) {
                Ok((end, result)) => {
                    last = last.max(end);
                    first_error = first_error.or(result.err());
                }
                Err(RecvTimeoutError::Timeout) => {
                    let done = counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum();
                    tell(done, start.elapsed());
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        first_error.map_or(Ok(last - start), Err)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_work_and_one_failure_ends_all() {
        let sum = AtomicU64::new(0);
        let work = |worker: &PoolWorker<'_>| {
            worker.count(1);
            sum.fetch_add(worker.number as u64, Ordering::Relaxed);
            Ok(())
        };
        assert!(run(8, work, |_, _| ()).is_ok());
        assert_eq!(sum.into_inner(), 28);

        let fails = |worker: &PoolWorker<'_>| {
            if worker.number == 3 {
                return Err(RaceError::Void("three".into()));
            }
            while !worker.is_over() {
                thread::yield_now();
            }
            Ok(())
        };
        assert!(matches!(run(4, fails, |_, _| ()), Err(RaceError::Void(_))));
    }
}
