//! Finds the window that a range needs in memory, or creates it.

use super::block::Block;
use super::copy::copy_leaf;
use super::cut::Cut;
use super::pass::{Force, Passes, Room, WINDOWS};
use super::plan::Plan;
use super::window::{Audience, ScanWindow, WindowId};
use crate::db::store::Store;
use crate::db::view::View;
use crate::index::ordered::{Run, Side};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Maximum time that a range waits for memory.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(1);
/// Interval at which it checks again.
const WAIT_STEP: Duration = Duration::from_millis(10);
/// Memory of the first window of a pass.
const FIRST_BYTES: usize = 64 << 10;
/// Growth factor from one window to the next.
pub(super) const GROWTH: usize = 4;
/// Number of windows that are loaded ahead.
const AHEAD: u64 = 2;

/// The keys that a range needs.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) store: &'a Store,
    pub(crate) view: Option<&'a View>,
    pub(crate) audience: Audience,
    /// The keys that the range has not visited yet lie between these.
    pub(crate) lower: &'a Cut,
    pub(crate) upper: &'a Cut,
    /// Window that the range comes from.
    pub(crate) after: Option<(WindowId, usize)>,
}

impl<'a> Request<'a> {
    /// Returns the current position of the range.
    pub(crate) fn position(&self) -> &'a Cut {
        match self.audience.side {
            Side::Lower => self.lower,
            Side::Upper => self.upper,
        }
    }
}

impl Passes {
    /// Enters the window with the range's next keys. `None`: there are no more keys, or no memory.
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

    /// Plans the windows after this one, as far as there is memory and the range will need them.
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
        if let Some(there) = self.state.lock().find(&request.audience, request.position()) {
            return Some(there);
        }
        // If another range is planning, that is enough.
        let _planning = self.planning.try_lock()?;
        let size = self.next_size(request.after);
        {
            let mut state = self.state.lock();
            if let Some(there) = state.find(&request.audience, request.position()) {
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
        let found = state.find(&request.audience, request.position())?;
        found.visitors.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    /// Copies keys from the index and plans to load their records.
    fn plan(&self, request: &Request<'_>, size: usize) -> Option<Arc<ScanWindow>> {
        // Read before the index: the copy contains every write applied by then. Acquire ensures
        // that.
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
        let plan = Plan::new(&request.store.files.segments, blocks, seq_max, record_len_max);
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
}

/// Keys copied for a window.
struct Copied {
    /// In key order.
    runs: Vec<Run>,
    /// End of the copied keys, as seen from the range's position.
    end: Cut,
}

/// Copies keys until their records take `size`, or up to the first record of another log. The
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
            // There is no key up to the other end.
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
            let shard = request.store.home_shard(key);
            // The keys of one log should not be split between windows.
            if shard != std::mem::replace(&mut home, shard) && bytes >= size / 2 {
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

/// Divides copied keys into blocks, and returns the memory they will take.
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
