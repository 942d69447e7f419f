//! Saves a large list as of one moment, while it keeps changing.
//!
//! Elements have no identity, so the list is tracked as runs. A run has the number of unchanged elements, the number
//! inserted since, and the removed elements, in blocks. A push at either end only counts, a pop keeps the element, and
//! blocks removed whole, as by LTRIM, are kept without copying. The snapshot takes from the front.
//!
//! A change in the middle splits a run. When there are many runs, a change copies whole spans of elements instead, so
//! that finding a run stays fast.
//!
//! Invariants:
//! - The runs in order, in each first the inserted and then the unchanged elements, are the list.
//! - The runs in order, in each first the removed and then the unchanged elements, are the rest of the original list
//!   that is still to be saved.
//! - Every run but the last has unchanged elements.

use std::collections::VecDeque;
use std::ops::Range;

use super::iter::Iter;
use super::nodes::Nodes;
use crate::incremental_snapshot::{SnapshotProgress, SnapshotTag};
use crate::packed::{Element, Packed};

/// Number of runs above which changes in the middle copy spans. A change scans half of the runs, which takes some
/// microseconds.
const RUNS_MAX: usize = if cfg!(test) { 8 } else { 4096 };

/// Number of spans that a list is divided into: with ten million elements, a span has about ten thousand.
const SPANS: usize = 1024;

/// Minimum elements of a span. Shorter spans would split the list into more runs than allowed anyway.
const SPAN_LEN_MIN: usize = if cfg!(test) { 4 } else { 64 };

/// Blocks of removed elements are filled up to this many bytes.
const BLOCK_BYTES: usize = 4096;

#[derive(Debug)]
pub(super) struct ListSnapshot {
    pub(super) tag: SnapshotTag,
    runs: VecDeque<Run>,
    /// Memory of the blocks of all runs.
    gone_bytes: usize,
}

#[derive(Debug, Default)]
struct Run {
    gone: VecDeque<Packed>,
    come: usize,
    there: usize,
}

impl Run {
    fn len(&self) -> usize {
        self.come + self.there
    }
}

impl ListSnapshot {
    pub(super) fn begin(tag: SnapshotTag, len: usize) -> Self {
        let runs = [Run { there: len, ..Run::default() }].into();
        Self { tag, runs, gone_bytes: 0 }
    }

    /// Returns the run of element number `index`, and its number there. An index at a border belongs to the later run,
    /// and the end to the last run.
    fn find(&self, index: usize, len: usize) -> (usize, usize) {
        let last = self.runs.len() - 1;
        if index < len / 2 {
            let mut rest = index;
            for (at, run) in self.runs.iter().enumerate() {
                if rest < run.len() {
                    return (at, rest);
                }
                rest -= run.len();
            }
            return (last, rest + self.runs[last].len());
        }
        let mut begin = len;
        for at in (0..=last).rev() {
            begin -= self.runs[at].len();
            if begin <= index {
                return (at, index - begin);
            }
        }
        unreachable!("the runs are the list")
    }

    /// Notes that `count` elements were inserted before number `index` of a list that had `len`.
    fn inserted(&mut self, index: usize, count: usize, len: usize) {
        let (at, offset) = self.find(index, len);
        let run = &mut self.runs[at];
        if offset <= run.come {
            run.come += count;
        } else {
            let behind = Run { come: count, there: run.len() - offset, ..Run::default() };
            run.there = offset - run.come;
            self.runs.insert(at + 1, behind);
        }
        self.count();
    }

    /// Notes that the elements in `taken` were removed, from number `index` on, of a list that had `len`.
    fn removed(&mut self, index: usize, mut taken: Taken, mut len: usize) {
        while taken.len > 0 {
            let (at, offset) = self.find(index, len);
            let run = &mut self.runs[at];
            let count = if offset < run.come {
                let count = taken.len.min(run.come - offset);
                run.come -= count;
                taken.take(count, drop);
                count
            } else {
                let before = offset - run.come;
                let count = taken.len.min(run.there - before);
                self.remove_there(at, before, count, &mut taken);
                count
            };
            len -= count;
        }
        self.count();
    }

    /// Notes that `count` present elements of a run were removed, after `before` others.
    fn remove_there(&mut self, at: usize, before: usize, count: usize, taken: &mut Taken) {
        let mut at = at;
        if before > 0 {
            let there = self.runs[at].there - before;
            self.runs[at].there = before;
            at += 1;
            self.runs.insert(at, Run { there, ..Run::default() });
        }
        let (run, gone_bytes) = (&mut self.runs[at], &mut self.gone_bytes);
        run.there -= count;
        taken.take(count, |block| push(&mut run.gone, block, gone_bytes));
        self.join(at);
    }

    /// Joins a run with the next one if none of its unchanged elements are left.
    fn join(&mut self, at: usize) {
        if self.runs[at].there > 0 || at + 1 == self.runs.len() {
            return;
        }
        let Some(behind) = self.runs.remove(at + 1) else { return };
        let (run, gone_bytes) = (&mut self.runs[at], &mut self.gone_bytes);
        run.come += behind.come;
        run.there = behind.there;
        join_blocks(&mut run.gone, behind.gone, gone_bytes);
    }

    /// Returns the span around element number `index` to be copied before it changes, if there are too many runs for
    /// another split.
    fn span(&self, index: usize, len: usize) -> Option<Range<usize>> {
        if self.runs.len() < RUNS_MAX {
            return None;
        }
        let (at, offset) = self.find(index, len);
        let run = &self.runs[at];
        if offset <= run.come || offset == run.len() {
            return None;
        }
        let span = (len / SPANS).max(SPAN_LEN_MIN);
        let before = offset - run.come;
        let start = before - before % span;
        let end = run.there.min(start + span);
        Some(index - (before - start)..index + (end - before))
    }

    fn is_complete(&self) -> bool {
        self.runs.len() == 1 && self.runs[0].there == 0 && self.runs[0].gone.is_empty()
    }

    fn count(&mut self) {
        self.tag.count(self.gone_bytes + self.runs.capacity() * size_of::<Run>());
    }
}

/// Appends a block, or adds its elements to the last block.
fn push(blocks: &mut VecDeque<Packed>, block: Packed, bytes: &mut usize) {
    match blocks.back_mut() {
        Some(last) if last.bytes_len() + block.bytes_len() <= BLOCK_BYTES => {
            *bytes -= last.allocated_bytes();
            last.append(&block);
            *bytes += last.allocated_bytes();
        }
        _ => {
            *bytes += block.allocated_bytes();
            blocks.push_back(block);
        }
    }
}

/// Appends blocks. Moves the shorter sequence: after an LTRIM there may be tens of thousands of blocks at one end,
/// where elements are popped one by one.
fn join_blocks(blocks: &mut VecDeque<Packed>, mut behind: VecDeque<Packed>, bytes: &mut usize) {
    if let Some(first) = behind.pop_front() {
        *bytes -= first.allocated_bytes();
        push(blocks, first, bytes);
    }
    if blocks.len() < behind.len() {
        std::mem::swap(blocks, &mut behind);
        behind.into_iter().rev().for_each(|block| blocks.push_front(block));
    } else {
        blocks.append(&mut behind);
    }
}

/// Elements that were taken out of a list, in their order.
#[derive(Debug, Default)]
pub(super) struct Taken {
    blocks: VecDeque<Packed>,
    len: usize,
}

impl Taken {
    pub(super) fn push(&mut self, block: Packed) {
        self.len += block.len();
        self.blocks.push_back(block);
    }

    /// Passes the first `count` elements to `give`.
    fn take(&mut self, count: usize, mut give: impl FnMut(Packed)) {
        let mut left = count;
        while left > 0
            && let Some(mut block) = self.blocks.pop_front()
        {
            if block.len() <= left {
                left -= block.len();
                give(block);
            } else {
                give(block.split_front(block.seek(left)));
                self.blocks.push_front(block);
                left = 0;
            }
        }
        self.len -= count;
    }
}

/// Copies some elements into blocks of bounded size.
fn copy_of<'a>(elements: impl Iterator<Item = Element<'a>>) -> Taken {
    let (mut taken, mut block) = (Taken::default(), Packed::new());
    for element in elements {
        block.push_back(element);
        if block.bytes_len() >= BLOCK_BYTES {
            taken.push(std::mem::take(&mut block));
        }
    }
    if !block.is_empty() {
        taken.push(block);
    }
    taken
}

impl Nodes {
    /// See [`List::snapshot_slice`](super::List::snapshot_slice).
    pub(super) fn snapshot_slice(
        &mut self,
        bytes_max: usize,
        mut visit: impl FnMut(Element<'_>) -> usize,
    ) -> SnapshotProgress {
        let Some(mut snapshot) = self.snapshot.take() else { return SnapshotProgress::Complete };
        let mut bytes = 0;
        while bytes < bytes_max && !snapshot.is_complete() {
            let run = &mut snapshot.runs[0];
            if let Some(block) = run.gone.pop_front() {
                snapshot.gone_bytes -= block.allocated_bytes();
                block.iter().for_each(|element| bytes += visit(element));
                continue;
            }
            let mut count = 0;
            for element in Iter::of_nodes(self, run.come).take(run.there) {
                bytes += visit(element);
                count += 1;
                if bytes >= bytes_max {
                    break;
                }
            }
            run.come += count;
            run.there -= count;
            snapshot.join(0);
        }
        snapshot.count();
        if snapshot.is_complete() {
            return SnapshotProgress::Complete;
        }
        self.snapshot = Some(snapshot);
        SnapshotProgress::Slice
    }

    /// Must be called before an element is inserted before number `index`.
    #[cold]
    pub(super) fn save_before_insert(&mut self, index: usize) {
        self.copy_span(index);
        let len = self.len();
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.inserted(index.min(len), 1, len);
        }
    }

    /// Must be called before element number `index` is replaced.
    #[cold]
    pub(super) fn save_before_set(&mut self, index: usize) {
        self.save_copy(index..index + 1);
    }

    /// Must be called with elements that were removed from number `index` on.
    #[cold]
    pub(super) fn save_removed(&mut self, index: usize, taken: Taken) {
        let len = self.len() + taken.len;
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.removed(index, taken, len);
        }
    }

    /// Copies the span around an element that is about to change, if that is better than splitting a run.
    pub(super) fn copy_span(&mut self, index: usize) {
        let span = self.snapshot.as_ref().and_then(|snapshot| snapshot.span(index, self.len()));
        if let Some(span) = span {
            self.save_copy(span);
        }
    }

    /// Copies some elements, as if they had been removed and inserted again.
    fn save_copy(&mut self, range: Range<usize>) {
        let Some(mut snapshot) = self.snapshot.take() else { return };
        let len = self.len();
        let taken = copy_of(Iter::of_nodes(self, range.start).take(range.len()));
        snapshot.removed(range.start, taken, len);
        snapshot.inserted(range.start, range.len(), len - range.len());
        self.snapshot = Some(snapshot);
    }

    /// Returns a copy of one element.
    pub(super) fn copy_of(&self, index: usize) -> Taken {
        copy_of(std::iter::once(self.get(index)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use proptest::collection::vec;
    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;
    use crate::{List, ListLimits, Snapshotted};

    #[derive(Debug, Clone)]
    enum Step {
        Insert(usize, u8),
        Remove(usize, usize),
        Set(usize),
        Save(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let index = || prop_oneof![2 => Just(0), 2 => Just(usize::MAX), 3 => 0usize..300];
        prop_oneof![
            5 => (index(), 1u8..10).prop_map(|(index, count)| Step::Insert(index, count)),
            4 => (index(), prop_oneof![5 => 1usize..4, 1 => 1usize..200])
                .prop_map(|(index, count)| Step::Remove(index, count)),
            5 => index().prop_map(Step::Set),
            3 => (1usize..60).prop_map(Step::Save),
        ]
    }

    struct World {
        list: List,
        limits: ListLimits,
        /// Expected content of the list.
        model: Vec<String>,
        saved: Vec<String>,
        next: usize,
    }

    impl World {
        fn new(len: usize, entries_max: usize) -> Self {
            let limits = ListLimits { entries_max, bytes_max: 1 << 20 };
            let mut world =
                Self { list: List::new(), limits, model: Vec::new(), saved: Vec::new(), next: 0 };
            world.list.make_room(1000, 0, limits);
            world.insert(0, len);
            world
        }

        fn insert(&mut self, index: usize, count: usize) {
            let index = index.min(self.model.len());
            for _ in 0..count {
                self.next += 1;
                let element = format!("element {}", self.next);
                self.list.insert(index, element.as_bytes(), self.limits);
                self.model.insert(index, element);
            }
        }

        fn apply(&mut self, step: &Step) {
            let len = self.model.len();
            match *step {
                Step::Insert(index, count) => self.insert(index, count.into()),
                Step::Remove(index, count) => {
                    let index = index.min(len.saturating_sub(count));
                    let end = len.min(index + count);
                    let removed = self.list.remove(index, count, self.limits);
                    assert_eq!(removed, self.model.drain(index..end).count());
                }
                Step::Set(index) if len > 0 => {
                    let index = index.min(len - 1);
                    self.next += 1;
                    self.model[index] = format!("another {}", self.next);
                    self.list.set(index, self.model[index].as_bytes(), self.limits);
                }
                Step::Set(_) => {}
                Step::Save(bytes) => _ = self.save(bytes),
            }
            let elements = self.list.iter().map(|element| text(element));
            assert!(elements.eq(self.model.iter().cloned()));
        }

        fn save(&mut self, bytes: usize) -> SnapshotProgress {
            let saved = &mut self.saved;
            self.list.snapshot_slice(bytes, |element| {
                saved.push(text(element));
                1
            })
        }
    }

    fn text(element: Element<'_>) -> String {
        String::from_utf8(element.to_vec()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { effort(200) },
            ..ProptestConfig::default()
        })]

        #[test]
        fn slices_are_the_list_as_it_was(
            len in 1usize..300,
            entries_max in 2usize..30,
            steps in vec(step(), 1..if cfg!(miri) { 20 } else { 100 }),
        ) {
            let bytes = Arc::new(AtomicUsize::new(0));
            let mut world = World::new(len, entries_max);
            let before = world.model.clone();
            prop_assert!(world.list.begin_snapshot(SnapshotTag::new(&bytes)));
            steps.iter().for_each(|step| world.apply(step));
            while world.save(7) == SnapshotProgress::Slice {}
            prop_assert_eq!(&world.saved, &before);
            prop_assert_eq!(bytes.load(Relaxed), 0);
            prop_assert_eq!(world.list.snapshot_id(), None);
        }

        /// However many changes there are, the number of runs stays bounded.
        #[test]
        fn runs_stay_few(indices in vec(0usize..10_000, 60)) {
            let mut world = World::new(300, 30);
            let before = world.model.clone();
            world.list.begin_snapshot(SnapshotTag::new(&Arc::default()));
            for index in indices {
                world.apply(&Step::Set(index % 300));
            }
            let super::super::Repr::Nodes(nodes) = &world.list.repr else { unreachable!() };
            let runs = nodes.snapshot.as_ref().unwrap().runs.len();
            prop_assert!(runs <= RUNS_MAX + 300 / SPAN_LEN_MIN + 1, "{} runs", runs);
            while world.save(100) == SnapshotProgress::Slice {}
            prop_assert_eq!(&world.saved, &before);
        }
    }
}
