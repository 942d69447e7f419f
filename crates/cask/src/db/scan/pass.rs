//! Which windows are in memory, and who loads them.
//!
//! A *pass* is a sequence of windows. Ranges that begin within a window of each other share one pass; the first
//! plans the windows ahead, the others find them there. The first window of a pass is small and each next one
//! [`GROWTH`] times larger, up to a quarter of the budget, so a short range loads little more than it needs;
//! loading ahead starts with the second.
//!
//! * All windows stay within the budget, except for the last record of a window, values that decompress to
//!   more than their size on disk, and the blocks that ranges are in.
//! * A window goes when no range of its pass is in it or before it. If memory is still short, a range waits for
//!   the others, at most [`PATIENCE`] since one of them last moved and at most [`WAIT_MAX`] in all; then it
//!   reads alone.
//! * The last range to leave frees everything.
//! * No lock is held while reading; no thread waits for a range while it holds a lock.

use super::block::Block;
use super::copy::copy_leaf;
use super::cut::Cut;
use super::plan::Plan;
use super::window::{Audience, ScanWindow, WindowId};
use crate::db::snapshot::View;
use crate::db::store::Store;
use crate::disk::span::ReadBuf;
use crate::index::ordered::{Run, Side};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a range may stand still before its window can be taken away. With 64 busy threads on
/// two cores, a thread may have to wait 100 ms for its turn.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);
/// How long a range waits for memory at most.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How long it sleeps before it looks again.
const WAIT_STEP: Duration = Duration::from_millis(10);
/// Memory of the first window of a pass.
const FIRST_BYTES: usize = 64 << 10;
/// How much larger the next window is.
const GROWTH: usize = 4;
/// A window takes at most this part of the budget: one is read from, one is loaded, one lies
/// ready between them, and one is for those who are behind.
const WINDOWS: usize = 4;
/// Windows that are loaded ahead.
const AHEAD: u64 = 2;
/// Reads in flight at a time, beside those of waiting ranges.
const THREADS_MAX: usize = 24;
/// Reads for which one more thread is worth waking.
const READS_A_THREAD: usize = 2;
/// A thread that had nothing to do for so long ends.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// All passes over a store.
pub(crate) struct Passes {
    budget: usize,
    threads_max: usize,
    patience: Duration,
    begun: Instant,
    state: Mutex<Windows>,
    /// Told when there may be room, or a thread less.
    freed: Condvar,
    /// Told when there is something to load.
    work: Condvar,
    /// One plan at a time, so that no two ranges plan the same.
    planning: Mutex<()>,
}

#[derive(Default)]
struct Windows {
    windows: Vec<Arc<ScanWindow>>,
    bytes: usize,
    /// Buffers of blocks that are gone, for new ones: given back to the allocator by one thread
    /// and asked for by another, they would come to take several times the budget.
    spares: Vec<Vec<u8>>,
    passes: u64,
    ranges: usize,
    threads: usize,
    idle: usize,
    stopped: bool,
}

/// What a range needs.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) store: &'a Store,
    pub(crate) view: Option<&'a View>,
    pub(crate) audience: Audience,
    /// What the range has not met yet lies between these.
    pub(crate) lower: &'a Cut,
    pub(crate) upper: &'a Cut,
    /// The window it comes from.
    pub(crate) after: Option<(WindowId, usize)>,
}

impl<'a> Request<'a> {
    /// Where the range stands.
    pub(crate) fn position(&self) -> &'a Cut {
        match self.audience.side {
            Side::Lower => self.lower,
            Side::Upper => self.upper,
        }
    }
}

/// What became of asking for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    Made,
    /// Ranges need what is there.
    Short,
}

/// What may be taken away to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Force {
    /// What no range needs.
    Unneeded,
    /// Also what ranges need that do not move.
    Stale,
}

impl Passes {
    /// Passes within a budget of memory; with none, ranges read alone.
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

    /// Memory of all windows.
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

    /// The window that a range finds its next keys in, which it is in from now on. `None` when
    /// there are no more keys, or no memory.
    pub(crate) fn enter(self: &Arc<Self>, request: &Request<'_>) -> Option<Arc<ScanWindow>> {
        let begun = Instant::now();
        let size = self.next_size(request.after);
        loop {
            if let Some(found) = self.find(request) {
                return Some(found);
            }
            {
                let _planning = self.planning.lock();
                if let Some(found) = self.find(request) {
                    return Some(found);
                }
                if self.make_room(&mut self.state.lock(), size, Force::Stale) == Room::Made {
                    let window = self.plan(request, size)?;
                    window.visitors.fetch_add(1, Ordering::Relaxed);
                    self.insert(window.clone());
                    return Some(window);
                }
            }
            if begun.elapsed() >= WAIT_MAX {
                return None;
            }
            self.freed.wait_for(&mut self.state.lock(), WAIT_STEP);
        }
    }

    /// A range has left a window.
    pub(crate) fn leave(&self, window: &ScanWindow) {
        if window.visitors.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.freed.notify_all();
        }
    }

    /// Has what follows a window loaded, as far as there is room and the range will need it.
    pub(crate) fn load_ahead(self: &Arc<Self>, window: &Arc<ScanWindow>, request: &Request<'_>) {
        if self.threads_max == 0 || window.id.number == 0 {
            return;
        }
        let mut last = window.clone();
        for _ in 0..AHEAD {
            let (mut lower, mut upper) = (request.lower, request.upper);
            match request.audience.side {
                Side::Lower => lower = &last.upper,
                Side::Upper => upper = &last.lower,
            }
            if lower >= upper {
                return;
            }
            let request = Request { lower, upper, after: Some((last.id, last.bytes)), ..*request };
            let Some(next) = self.find_or_plan_ahead(&request) else { return };
            last = next;
        }
    }

    fn find_or_plan_ahead(self: &Arc<Self>, request: &Request<'_>) -> Option<Arc<ScanWindow>> {
        if let Some(there) = self.state.lock().find(request) {
            return Some(there);
        }
        // Another range is at it; one is enough.
        let _planning = self.planning.try_lock()?;
        let size = self.next_size(request.after);
        {
            let mut state = self.state.lock();
            if let Some(there) = state.find(request) {
                return Some(there);
            }
            if self.make_room(&mut state, size, Force::Unneeded) == Room::Short {
                return None;
            }
        }
        let window = self.plan(request, size)?;
        self.insert(window.clone());
        Some(window)
    }

    fn next_size(&self, after: Option<(WindowId, usize)>) -> usize {
        let grown = after.map_or(FIRST_BYTES, |(_, bytes)| bytes.saturating_mul(GROWTH));
        grown.max(FIRST_BYTES).min(self.budget / WINDOWS).max(1)
    }

    fn find(&self, request: &Request<'_>) -> Option<Arc<ScanWindow>> {
        let state = self.state.lock();
        let found = state.find(request)?;
        found.visitors.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    fn insert(self: &Arc<Self>, window: Arc<ScanWindow>) {
        window.touch(self.now_ms());
        // The first window is small and perhaps the only one: threads are not worth waking.
        let reads = match window.id.number {
            0 => 0,
            _ => window.work().map_or(0, |plan| plan.read_count()),
        };
        let mut state = self.state.lock();
        state.bytes += window.bytes;
        state.windows.push(window);
        self.wake(&mut state, reads);
    }

    fn make_room(&self, state: &mut Windows, need: usize, force: Force) -> Room {
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

    /// Copies keys from the index and plans to load their records.
    fn plan(&self, request: &Request<'_>, size: usize) -> Option<Arc<ScanWindow>> {
        // Read before the index is: what was applied by then is seen. Acquire, so that it is.
        let stamp = request.store.applied.load(Ordering::Acquire);
        let copied = copy(request, size);
        let (lower, upper) = match request.audience.side {
            Side::Lower => (request.lower.clone(), copied.end),
            Side::Upper => (copied.end, request.upper.clone()),
        };
        let record_len_max = (self.budget / WINDOWS / 2) as u64;
        let mut spares = std::mem::take(&mut self.state.lock().spares);
        let (blocks, bytes) = blocks_of(&copied.runs, &lower, &upper, record_len_max, &mut spares);
        self.state.lock().take_back(spares, self.budget.saturating_sub(bytes));
        if blocks.is_empty() {
            return None;
        }
        let seq_max = request.view.map_or(u64::MAX, |view| view.seq);
        let plan = Plan::new(request.store, blocks, seq_max, record_len_max);
        let id = match request.after {
            Some((before, _)) => WindowId { pass: before.pass, number: before.number + 1 },
            None => {
                let mut state = self.state.lock();
                state.passes += 1;
                WindowId { pass: state.passes, number: 0 }
            }
        };
        let audience = Audience { stamp, ..request.audience };
        Some(Arc::new(ScanWindow::new(audience, id, lower, upper, bytes, plan)))
    }

    /// Gets threads to work, as many as are worth it. Without any, ranges load for themselves.
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

    /// What a thread does: load whatever is to be loaded, oldest first.
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
    fn find(&self, request: &Request<'_>) -> Option<Arc<ScanWindow>> {
        // The newest first: it is the one most others are near.
        let position = request.position();
        let mut newest = self.windows.iter().rev();
        newest.find(|window| window.serves(&request.audience, position)).cloned()
    }

    /// A window that all ranges of its pass have left behind.
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

    /// The window that was not touched for the longest time, if not after `before_ms`.
    fn stale(&self, before_ms: u64) -> Option<usize> {
        let touched = |at: &usize| self.windows[*at].touched_ms.load(Ordering::Relaxed);
        (0..self.windows.len())
            .filter(|&at| !self.windows[at].is_loading())
            .min_by_key(touched)
            .filter(|at| touched(at) <= before_ms)
    }

    /// Keeps spare buffers as far as they fit into the budget with everything else.
    fn take_back(&mut self, spares: Vec<Vec<u8>>, budget: usize) {
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

/// Keys copied for a window.
struct Copied {
    /// In the order of the keys.
    runs: Vec<Run>,
    /// How far they go, from where the range stands.
    end: Cut,
}

/// Copies keys until their records take `size`, or up to where another log's records begin: the
/// records of one log lie together, so a window of one whole log is read from end to end.
fn copy(request: &Request<'_>, size: usize) -> Copied {
    let side = request.audience.side;
    let (mut lower, mut upper) = (request.lower.clone(), request.upper.clone());
    let mut runs = Vec::new();
    let mut bytes = 0;
    let mut home = None;
    loop {
        let mut run = Run::default();
        copy_leaf(request.store, request.view, (&lower, &upper), side, &mut run);
        if run.len() == 0 {
            // There is nothing up to the other end.
            std::mem::swap(&mut lower, &mut upper);
            break;
        }
        let mut taken = 0;
        while taken < run.len() && bytes < size {
            let at = match side {
                Side::Lower => taken,
                Side::Upper => run.len() - 1 - taken,
            };
            let (key, location) = run.get(at);
            let lane = request.store.home_lane(key);
            // A log's worth of keys should not be divided among windows.
            if lane != std::mem::replace(&mut home, lane) && bytes >= size / 2 {
                break;
            }
            bytes += Block::cost(key, location.len_bound() as usize);
            taken += 1;
        }
        if taken == 0 {
            break;
        }
        let is_cut = taken < run.len();
        match side {
            Side::Lower => {
                run.keep(0..taken);
                lower = Cut::after(run.get(taken - 1).0);
            }
            Side::Upper => {
                run.keep(run.len() - taken..run.len());
                upper = Cut::before(run.get(0).0);
            }
        }
        runs.push(run);
        if is_cut || bytes >= size {
            break;
        }
    }
    if side == Side::Upper {
        runs.reverse();
    }
    Copied { runs, end: if side == Side::Lower { lower } else { upper } }
}

/// Divides copied keys into blocks, and says how much memory they will take.
fn blocks_of(
    runs: &[Run],
    lower: &Cut,
    upper: &Cut,
    record_len_max: u64,
    spares: &mut Vec<Vec<u8>>,
) -> (Vec<Block>, usize) {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut records, mut bytes) = (usize::MAX, 0);
    let mut last: &[u8] = &[];
    for (key, location) in runs.iter().flat_map(|run| (0..run.len()).map(|at| run.get(at))) {
        if blocks.last().is_none_or(|block| block.is_full(records)) {
            let from = if blocks.is_empty() { lower.clone() } else { Cut::after(last) };
            if let Some(full) = blocks.last_mut() {
                full.upper = from.clone();
                full.reserve(records, spares);
            }
            blocks.push(Block::new(from));
            records = 0;
        }
        let len = location.len_bound();
        let len = if len <= record_len_max { len as usize } else { 0 };
        records += len;
        bytes += Block::cost(key, len);
        blocks.last_mut().expect("one was pushed above").push(key, location);
        last = key;
    }
    if let Some(block) = blocks.last_mut() {
        block.upper = upper.clone();
        block.reserve(records, spares);
    }
    (blocks, bytes)
}
