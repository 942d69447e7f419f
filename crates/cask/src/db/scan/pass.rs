//! The windows in memory, and the threads that load them.
//!
//! A *pass* is a sequence of windows. Ranges that begin within a window of each other share one pass; the first range
//! plans the windows ahead, the others find them there. The first window of a pass is small and each next one a few
//! times larger, up to a quarter of the budget, so a short range loads little more than it needs; loading ahead starts
//! with the second.
//!
//! * All windows stay within the budget, except for the last record of a window, values that decompress to more than
//!   their size on disk, and the blocks that ranges are in.
//! * A window is dropped when no range of its pass is in it or before it. If memory is still short, a range waits for
//!   the others, at most [`PATIENCE`] since one of them last moved and not without limit; then it reads alone.
//! * The last range to leave frees everything.
//! * No lock is held while reading; no thread waits for a range while it holds a lock.

use super::cut::Cut;
use super::window::{Audience, ScanWindow};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tierce_storage::disk::span::ReadBuf;

/// Time without progress after which a range's window can be dropped. With 64 busy threads on two cores, a thread may
/// have to wait 100 ms for its turn.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);
/// Fraction of the budget that a window may take. Of the four windows, one is read, one is loaded, one is ready
/// between them, and one is for ranges that lag behind.
pub(super) const WINDOWS: usize = 4;
/// Reads in flight at a time, in addition to those of waiting ranges.
const THREADS_MAX: usize = 24;
/// Number of reads for which one more thread is woken.
const READS_A_THREAD: usize = 2;
/// Idle time after which a thread ends.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// All passes over a store.
pub(crate) struct Passes {
    pub(super) budget: usize,
    pub(super) threads_max: usize,
    patience: Duration,
    begun: Instant,
    pub(super) state: Mutex<Windows>,
    /// Signalled when memory may be free, or a thread has ended.
    pub(super) freed: Condvar,
    /// Signalled when there is something to load.
    work: Condvar,
    /// Held during planning, so that no two ranges plan the same window.
    pub(super) planning: Mutex<()>,
}

#[derive(Default)]
pub(super) struct Windows {
    windows: Vec<Arc<ScanWindow>>,
    bytes: usize,
    /// Buffers of dropped blocks, reused for new blocks. Buffers freed by one thread and allocated by another would
    /// come to take several times the budget.
    pub(super) spares: Vec<Vec<u8>>,
    pub(super) passes: u64,
    ranges: usize,
    threads: usize,
    idle: usize,
    stopped: bool,
}

/// Result of a request for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Made,
    /// Ranges need all windows in memory.
    Short,
}

/// Windows that may be dropped to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Force {
    /// Windows that no range needs.
    Unneeded,
    /// Also windows of ranges that do not move.
    Stale,
}

impl Passes {
    /// Creates the passes within a memory budget; with a budget of 0, ranges read alone.
    pub(crate) fn new(budget: usize, with_threads: bool) -> Self {
        Passes {
            budget,
            threads_max: if with_threads { THREADS_MAX } else { 0 },
            // Without threads nothing depends on time.
            patience: if with_threads { PATIENCE } else { Duration::ZERO },
            begun: Instant::now(),
            state: Mutex::default(),
            freed: Condvar::new(),
            work: Condvar::new(),
            planning: Mutex::new(()),
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.budget > 0
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// Returns the memory of all windows.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.state.lock().bytes
    }

    pub(crate) fn register(&self) {
        self.state.lock().ranges += 1;
    }

    pub(crate) fn unregister(&self) {
        let mut state = self.state.lock();
        state.ranges -= 1;
        if state.ranges == 0 {
            state.clear();
        }
        drop(state);
        self.freed.notify_all();
    }

    /// Notes that a range has left a window.
    pub(crate) fn leave(&self, window: &ScanWindow) {
        if window.visitors.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.freed.notify_all();
        }
    }

    pub(super) fn insert(self: &Arc<Self>, window: Arc<ScanWindow>) {
        window.touch(self.now_ms());
        // The first window is small and perhaps the only one: not worth waking threads.
        let reads = match window.id.number {
            0 => 0,
            _ => window.work().map_or(0, |plan| plan.read_count()),
        };
        let mut state = self.state.lock();
        state.bytes += window.bytes;
        state.windows.push(window);
        self.wake(&mut state, reads);
    }

    pub(super) fn make_room(&self, state: &mut Windows, need: usize, force: Force) -> Room {
        while state.bytes + need > self.budget && !state.windows.is_empty() {
            let stale = self.now_ms().saturating_sub(self.patience.as_millis() as u64);
            let victim = state.unneeded().or_else(|| match force {
                Force::Unneeded => None,
                Force::Stale => state.stale(stale),
            });
            match victim {
                Some(victim) => state.remove(victim),
                None => return Room::Short,
            }
        }
        Room::Made
    }

    /// Wakes or starts threads, as many as the reads are worth. Without threads, ranges load for themselves.
    fn wake(self: &Arc<Self>, state: &mut MutexGuard<'_, Windows>, reads: usize) {
        let wanted = (reads / READS_A_THREAD).min(self.threads_max);
        for _ in 0..wanted.min(state.idle) {
            self.work.notify_one();
        }
        let missing = wanted.saturating_sub(state.idle).min(self.threads_max - state.threads);
        for _ in 0..missing {
            if state.stopped {
                return;
            }
            let passes = self.clone();
            let thread = std::thread::Builder::new().name("cask-scan".to_owned());
            if thread.spawn(move || passes.run()).is_err() {
                return;
            }
            state.threads += 1;
        }
    }

    /// Main loop of a thread: loads the planned windows, oldest first.
    fn run(&self) {
        let mut buf = ReadBuf::default();
        let mut state = self.state.lock();
        while !state.stopped {
            let work = state.windows.iter().find_map(|s| Some((s.clone(), s.work()?)));
            if let Some((window, plan)) = work {
                MutexGuard::unlocked(&mut state, || {
                    window.load(&plan, &mut buf);
                    drop(plan);
                });
                continue;
            }
            state.idle += 1;
            let bored = self.work.wait_for(&mut state, IDLE_MAX).timed_out();
            state.idle -= 1;
            if bored {
                break;
            }
        }
        state.threads -= 1;
        drop(state);
        self.freed.notify_all();
    }

    /// Ends all threads and frees everything.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        self.work.notify_all();
        while state.threads > 0 {
            self.freed.wait(&mut state);
        }
        state.clear();
    }
}

impl Windows {
    pub(super) fn find(&self, audience: &Audience, position: &Cut) -> Option<Arc<ScanWindow>> {
        // The newest first: most ranges are near it.
        let mut newest = self.windows.iter().rev();
        newest.find(|window| window.serves(audience, position)).cloned()
    }

    /// Returns a window that all ranges of its pass have left behind.
    fn unneeded(&self) -> Option<usize> {
        self.windows.iter().position(|window| {
            let is_needed_by = |other: &Arc<ScanWindow>| {
                other.id.pass == window.id.pass
                    && other.id.number <= window.id.number
                    && other.visitors.load(Ordering::Relaxed) > 0
            };
            !self.windows.iter().any(is_needed_by) && !window.is_loading()
        })
    }

    /// Returns the window that was not touched for the longest time, unless that was after `before_ms`.
    fn stale(&self, before_ms: u64) -> Option<usize> {
        let touched = |at: &usize| self.windows[*at].touched_ms.load(Ordering::Relaxed);
        (0..self.windows.len())
            .filter(|&at| !self.windows[at].is_loading())
            .min_by_key(touched)
            .filter(|at| touched(at) <= before_ms)
    }

    /// Keeps spare buffers as far as they fit into the budget.
    pub(super) fn take_back(&mut self, spares: Vec<Vec<u8>>, budget: usize) {
        let mut free = budget.saturating_sub(self.bytes);
        let fits = |spare: &Vec<u8>| {
            let fits = spare.capacity() <= free;
            free = free.saturating_sub(spare.capacity());
            fits
        };
        self.spares.extend(spares.into_iter().take_while(fits));
    }

    fn remove(&mut self, at: usize) {
        let gone = self.windows.remove(at);
        self.bytes -= gone.bytes;
        self.spares.extend(gone.clear());
    }

    fn clear(&mut self) {
        self.bytes = 0;
        self.windows.drain(..).for_each(|window| drop(window.clear()));
        self.spares = Vec::new();
    }
}
