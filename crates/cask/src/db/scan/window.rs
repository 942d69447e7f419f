//! A run of blocks, loading or loaded.

use super::block::Block;
use super::cut::Cut;
use super::plan::{Plan, Progress};
use crate::index::ordered::Side;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tierce_storage::disk::span::ReadBuf;

/// For whom a window is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Audience {
    pub(crate) side: Side,
    /// Number of the snapshot.
    pub(crate) view: Option<u64>,
    /// Of a window, how many writes had been applied when the index was copied; of a range, how
    /// many had begun to be when it began.
    pub(crate) stamp: u64,
}

impl Audience {
    /// Whether what was loaded for `self` is right for a range of `other`.
    fn includes(&self, other: &Audience) -> bool {
        self.side == other.side
            && self.view == other.view
            && (self.view.is_some() || self.stamp >= other.stamp)
    }
}

/// A window, by pass and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowId {
    pub(crate) pass: u64,
    pub(crate) number: u64,
}

/// A run of blocks. What a range holds of it costs no memory worth counting: the blocks can be
/// taken away.
pub(crate) struct ScanWindow {
    pub(crate) audience: Audience,
    pub(crate) id: WindowId,
    pub(crate) lower: Cut,
    pub(crate) upper: Cut,
    /// Memory it takes, as planned.
    pub(crate) bytes: usize,
    /// Ranges that are in it.
    pub(crate) visitors: AtomicUsize,
    /// When a range last took a block, in milliseconds of the passes' clock.
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
    /// A window of at least one block.
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

    /// Whether a range that is at `position` finds its next keys here.
    pub(crate) fn serves(&self, audience: &Audience, position: &Cut) -> bool {
        let is_inside = match audience.side {
            Side::Lower => self.lower <= *position && *position < self.upper,
            Side::Upper => self.lower < *position && *position <= self.upper,
        };
        is_inside && self.audience.includes(audience)
    }

    /// The plan, while it has work left.
    pub(crate) fn work(&self) -> Option<Arc<Plan>> {
        match &*self.phase.lock() {
            Phase::Loading(plan) if plan.has_work() => Some(plan.clone()),
            _ => None,
        }
    }

    /// Does reads of the plan until none is left to take.
    pub(crate) fn load(&self, plan: &Plan, buf: &mut ReadBuf) {
        if plan.work(buf) == Progress::Complete {
            self.seal();
        }
    }

    /// Turns what was loaded into blocks; called once, when no thread works on the plan any more.
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

    /// Helps loading, then waits until everything is there; `None` when it was taken away.
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
            // A thread that has taken a read always does it.
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

    /// Gives the blocks back, and the buffers of those that no range is in.
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
