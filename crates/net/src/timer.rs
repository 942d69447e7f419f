//! Deadlines of connections, in a binary heap that knows the position of each entry.
//!
//! - At most one entry for each slot and kind, so the number of slots bounds memory.
//! - Moving a deadline later, or clearing it, only records it: the entry stays and is corrected when it reaches
//!   the top. So an idle timeout that moves with every request costs a store per request and a heap operation
//!   per timeout.
//! - Deadlines come out in order of time. Time is passed in.

/// "No deadline", and later than all deadlines.
const NEVER: u64 = u64::MAX;
/// "Not in the heap".
const NOWHERE: u32 = u32::MAX;

/// Kind of a deadline; a connection can have one of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerKind {
    /// Set by the session.
    Session,
    /// Set by the worker: a soft output limit or the end of a connection that is being closed.
    Worker,
}

const KINDS: usize = 2;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Not later than the deadline of `timer`.
    at_ms: u64,
    /// `slot * KINDS + kind`.
    timer: u32,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    deadline_ms: u64,
    position: u32,
}

/// Deadlines of all connections of a worker.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<Entry>,
    timers: Vec<Timer>,
}

impl Timers {
    /// Sets the deadline, replacing the previous one.
    pub(crate) fn set(&mut self, slot: u32, kind: TimerKind, at_ms: u64) {
        let timer = index(slot, kind);
        self.grow_to(timer);
        // The latest time that is not "never"; in practice it is.
        let at_ms = at_ms.min(NEVER - 1);
        let Timer { deadline_ms, position } = &mut self.timers[timer as usize];
        *deadline_ms = at_ms;
        let position = *position as usize;
        if position == NOWHERE as usize {
            self.heap.push(Entry { at_ms, timer });
            self.sift_up(self.heap.len() - 1);
        } else if at_ms < self.heap[position].at_ms {
            self.heap[position].at_ms = at_ms;
            self.sift_up(position);
        }
    }

    /// Clears the deadline.
    pub(crate) fn clear(&mut self, slot: u32, kind: TimerKind) {
        if let Some(timer) = self.timers.get_mut(index(slot, kind) as usize) {
            timer.deadline_ms = NEVER;
        }
    }

    /// Clears all deadlines of a slot and removes its entries, because the slot is about to be reused.
    pub(crate) fn remove(&mut self, slot: u32) {
        for kind in [TimerKind::Session, TimerKind::Worker] {
            let timer = index(slot, kind) as usize;
            if let Some(&Timer { position, .. }) = self.timers.get(timer) {
                self.timers[timer].deadline_ms = NEVER;
                if position != NOWHERE {
                    self.take(position as usize);
                }
            }
        }
    }

    /// Returns a time before which no deadline is due. It may be earlier than the first deadline, because moved
    /// deadlines are corrected only when they reach the top.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.heap.first().map(|entry| entry.at_ms)
    }

    /// Removes the earliest deadline that is not after `now_ms`.
    pub(crate) fn pop_due(&mut self, now_ms: u64) -> Option<(u32, TimerKind)> {
        while let Some(&Entry { at_ms, timer }) = self.heap.first() {
            if at_ms > now_ms {
                return None;
            }
            let deadline_ms = self.timers[timer as usize].deadline_ms;
            if deadline_ms == NEVER {
                self.take(0);
            } else if deadline_ms > at_ms {
                self.heap[0].at_ms = deadline_ms;
                self.sift_down(0);
            } else {
                self.timers[timer as usize].deadline_ms = NEVER;
                self.take(0);
                return Some(slot_and_kind(timer));
            }
        }
        None
    }

    fn grow_to(&mut self, timer: u32) {
        if self.timers.len() <= timer as usize {
            let none = Timer { deadline_ms: NEVER, position: NOWHERE };
            self.timers.resize(timer as usize + 1, none);
        }
    }

    /// Removes the entry at `position` from the heap.
    fn take(&mut self, position: usize) {
        let entry = self.heap.swap_remove(position);
        self.timers[entry.timer as usize].position = NOWHERE;
        if position < self.heap.len() {
            // The entry that filled the hole may have to move up or down.
            self.sift_down(position);
            self.sift_up(position);
        }
    }

    fn sift_up(&mut self, mut position: usize) {
        let entry = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent].at_ms <= entry.at_ms {
                break;
            }
            self.place(position, self.heap[parent]);
            position = parent;
        }
        self.place(position, entry);
    }

    fn sift_down(&mut self, mut position: usize) {
        let entry = self.heap[position];
        loop {
            let mut child = 2 * position + 1;
            if child >= self.heap.len() {
                break;
            }
            let right = child + 1;
            if right < self.heap.len() && self.heap[right].at_ms < self.heap[child].at_ms {
                child = right;
            }
            if self.heap[child].at_ms >= entry.at_ms {
                break;
            }
            self.place(position, self.heap[child]);
            position = child;
        }
        self.place(position, entry);
    }

    fn place(&mut self, position: usize, entry: Entry) {
        self.heap[position] = entry;
        self.timers[entry.timer as usize].position = position as u32;
    }
}

fn index(slot: u32, kind: TimerKind) -> u32 {
    slot * KINDS as u32 + kind as u32
}

fn slot_and_kind(timer: u32) -> (u32, TimerKind) {
    let kind =
        if timer.is_multiple_of(KINDS as u32) { TimerKind::Session } else { TimerKind::Worker };
    (timer / KINDS as u32, kind)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;

    const SLOTS: u32 = 12;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, bool, u64),
        Clear(u32, bool),
        Remove(u32),
        Advance(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..SLOTS, any::<bool>(), 0..200u64).prop_map(|(s, k, t)| Step::Set(s, k, t)),
            1 => (0..SLOTS, any::<bool>()).prop_map(|(s, k)| Step::Clear(s, k)),
            1 => (0..SLOTS).prop_map(Step::Remove),
            2 => (0..60u64).prop_map(Step::Advance),
        ]
    }

    fn kind(worker: bool) -> TimerKind {
        if worker { TimerKind::Worker } else { TimerKind::Session }
    }

    /// Removes due deadlines and compares them with the model, a map from timer to deadline.
    fn check_due(timers: &mut Timers, model: &mut BTreeMap<u32, u64>, now: u64) {
        let mut last = 0;
        while let Some((slot, kind)) = timers.pop_due(now) {
            let deadline = model.remove(&index(slot, kind)).expect("a deadline of the model");
            assert!(deadline <= now, "fired at {now} instead of {deadline}");
            assert!(deadline >= last, "fired out of order");
            last = deadline;
        }
        assert!(model.values().all(|&deadline| deadline > now), "a deadline was missed");
        if let Some(first) = model.values().min() {
            let next = timers.next_ms().expect("a deadline is waiting");
            assert!(now < next && next <= *first, "would sleep until {next}, not {first}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { effort(256) },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn fires_like_a_map_of_deadlines(steps in prop::collection::vec(step(), 1..300)) {
            let mut timers = Timers::default();
            let mut model = BTreeMap::new();
            let mut now = 0;
            for step in steps {
                match step {
                    Step::Set(slot, worker, after) => {
                        timers.set(slot, kind(worker), now + 1 + after);
                        model.insert(index(slot, kind(worker)), now + 1 + after);
                    }
                    Step::Clear(slot, worker) => {
                        timers.clear(slot, kind(worker));
                        model.remove(&index(slot, kind(worker)));
                    }
                    Step::Remove(slot) => {
                        timers.remove(slot);
                        model.remove(&index(slot, TimerKind::Session));
                        model.remove(&index(slot, TimerKind::Worker));
                    }
                    Step::Advance(by) => {
                        now += by;
                        check_due(&mut timers, &mut model, now);
                    }
                }
                prop_assert!(timers.heap.len() <= SLOTS as usize * KINDS);
            }
            check_due(&mut timers, &mut model, u64::MAX - 1);
            prop_assert!(model.is_empty() && timers.heap.is_empty());
        }
    }
}
