//! A run of blocks, loading or loaded.

use super::block::Block;
use super::cut::Cut;
use super::plan::{Plan, Progress};
use crate::index::ordered::Side;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tierce_storage::disk::span::ReadBuf;

/// The ranges that a window is valid for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Audience {
    pub(crate) side: Side,
    /// Sequence number of the snapshot.
    pub(crate) view: Option<u64>,
    /// For a window, the number of writes applied when the index was copied; for a range, the
    /// number of writes begun when the range began.
    pub(crate) stamp: u64,
}

impl Audience {
    /// Returns true if a window loaded for `self` is valid for a range of `other`.
    fn includes(&self, other: &Audience) -> bool {
        self.side == other.side
            && self.view == other.view
            && (self.view.is_some() || self.stamp >= other.stamp)
    }
}

/// Identity of a window: pass and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowId {
    pub(crate) pass: u64,
    pub(crate) number: u64,
}

/// A run of blocks. A range's reference to a window costs little memory: the blocks can be dropped.
pub(crate) struct ScanWindow {
    pub(crate) audience: Audience,
    pub(crate) id: WindowId,
    pub(crate) lower: Cut,
    pub(crate) upper: Cut,
    /// Planned memory.
    pub(crate) bytes: usize,
    /// Number of ranges that are in it.
    pub(crate) visitors: AtomicUsize,
    /// Time at which a range last took a block, in milliseconds of the passes' clock.
    pub(crate) touched_ms: AtomicU64,
    phase: Mutex<Phase>,
    changed: Condvar,
}

enum Phase {
    Loading(Arc<Plan>),
    Ready(Vec<Arc<Block>>),
    Gone,
}

impl ScanWindow {
    /// Creates a window of at least one block.
    pub(crate) fn new(
        audience: Audience,
        id: WindowId,
        lower: Cut,
        upper: Cut,
        bytes: usize,
        plan: Plan,
    ) -> Self {
        let window = ScanWindow {
            audience,
            id,
            lower,
            upper,
            bytes,
            visitors: AtomicUsize::new(0),
            touched_ms: AtomicU64::new(0),
            phase: Mutex::new(Phase::Gone),
            changed: Condvar::new(),
        };
        let nothing_to_read = plan.read_count() == 0;
        *window.phase.lock() = Phase::Loading(Arc::new(plan));
        if nothing_to_read {
            window.seal();
        }
        window
    }

    /// Returns true if a range at `position` finds its next keys here.
    pub(crate) fn serves(&self, audience: &Audience, position: &Cut) -> bool {
        let is_inside = match audience.side {
            Side::Lower => self.lower <= *position && *position < self.upper,
            Side::Upper => self.lower < *position && *position <= self.upper,
        };
        is_inside && self.audience.includes(audience)
    }

    /// Returns the plan, while it has work left.
    pub(crate) fn work(&self) -> Option<Arc<Plan>> {
        match &*self.phase.lock() {
            Phase::Loading(plan) if plan.has_work() => Some(plan.clone()),
            _ => None,
        }
    }

    /// Executes reads of the plan until none is left to take.
    pub(crate) fn load(&self, plan: &Plan, buf: &mut ReadBuf) {
        if plan.work(buf) == Progress::Complete {
            self.seal();
        }
    }

    /// Turns the loaded records into blocks; called once, when no thread works on the plan any
    /// more.
    fn seal(&self) {
        let mut phase = self.phase.lock();
        if let Phase::Loading(plan) = &*phase {
            let take = |block: &Mutex<Block>| {
                Arc::new(std::mem::replace(&mut *block.lock(), Block::new(Cut::End)))
            };
            *phase = Phase::Ready(plan.blocks.iter().map(take).collect());
        }
        self.changed.notify_all();
    }

    /// Helps loading, then waits until everything is loaded; `None` if the window was dropped.
    pub(crate) fn blocks<T>(
        &self,
        buf: &mut ReadBuf,
        choose: impl FnOnce(&[Arc<Block>]) -> T,
    ) -> Option<T> {
        if let Some(plan) = self.work().filter(|plan| plan.wants_help()) {
            self.load(&plan, buf);
        }
        let mut phase = self.phase.lock();
        while matches!(*phase, Phase::Loading(_)) {
            // A thread that has taken a read always completes it.
            self.changed.wait(&mut phase);
        }
        match &*phase {
            Phase::Ready(blocks) => Some(choose(blocks)),
            Phase::Loading(_) | Phase::Gone => None,
        }
    }

    pub(crate) fn is_loading(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Loading(_))
    }

    /// Drops the blocks, and returns the buffers of those that no range is in.
    pub(crate) fn clear(&self) -> Vec<Vec<u8>> {
        let old = std::mem::replace(&mut *self.phase.lock(), Phase::Gone);
        self.changed.notify_all();
        let Phase::Ready(blocks) = old else { return Vec::new() };
        blocks.into_iter().filter_map(|block| Arc::into_inner(block)?.into_spare()).collect()
    }

    pub(crate) fn touch(&self, now_ms: u64) {
        self.touched_ms.store(now_ms, Ordering::Relaxed);
    }
}
