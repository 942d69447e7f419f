//! What may come back after a crash.
//!
//! The contents are a list of states, one after each change. A log that counts brings back one of
//! them: after the death of the process one that has in it everything that was acknowledged, after a power
//! cut at least everything that was synced.

use crate::together::history::Crash;
use crate::together::model::Contents;

/// What is certain of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Up to this state changes were acknowledged.
    pub written: usize,
    /// Up to this state they are on the device.
    pub synced: usize,
    /// Beyond this state the log has nothing, because it was closed.
    pub closed: Option<usize>,
}

/// The logs there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guarantees {
    /// The one that changes go to.
    pub open: Option<Held>,
    /// The one from before, as long as the open one does not count.
    pub former: Option<Held>,
    /// The open one takes the place of one that has failed, and it was not switched off: what is
    /// acknowledged meanwhile would have to come back, too.
    pub heals: bool,
}

/// All states, and what is certain of them.
#[derive(Debug)]
pub struct Past {
    pub states: Vec<Contents>,
    pub guarantees: Guarantees,
}

impl Past {
    pub fn new() -> Self {
        let held = Held { written: 0, synced: 0, closed: None };
        let guarantees = Guarantees { open: Some(held), ..Guarantees::default() };
        Self { states: vec![Contents::default()], guarantees }
    }

    pub fn latest(&self) -> &Contents {
        self.states.last().expect("there is always one")
    }

    pub fn change(&mut self, change: impl FnOnce(&mut Contents)) {
        let mut next = self.latest().clone();
        change(&mut next);
        self.states.push(next);
    }

    fn last(&self) -> usize {
        self.states.len() - 1
    }

    /// Everything so far was acknowledged.
    pub fn note_written(&mut self) {
        let last = self.last();
        self.guarantees.open.iter_mut().for_each(|held| held.written = last);
        if self.guarantees.heals {
            self.guarantees.former.iter_mut().for_each(|held| held.written = last);
        }
    }

    /// Everything so far is on the device.
    pub fn note_synced(&mut self) {
        let last = self.last();
        self.guarantees.open.iter_mut().for_each(|held| (held.written, held.synced) = (last, last));
    }

    /// The log is closed. Another one that counted goes on to do so.
    pub fn note_closed(&mut self) {
        self.retire();
        (self.guarantees.open, self.guarantees.heals) = (None, false);
    }

    /// A log is begun beside the one that counts, which was closed before or has failed.
    pub fn note_begun(&mut self) {
        self.guarantees.heals = self.guarantees.open.is_some() && self.guarantees.former.is_none();
        self.retire();
        let last = self.last();
        self.guarantees.open = Some(Held { written: last, synced: last, closed: None });
    }

    /// The open log takes nothing more. It is the one that counts, unless another one still does.
    fn retire(&mut self) {
        let last = self.last();
        let open = self.guarantees.open.map(|held| Held { closed: Some(last), ..held });
        self.guarantees.former = self.guarantees.former.or(open);
    }

    /// The open log counts, with everything in it.
    pub fn note_complete(&mut self) {
        (self.guarantees.former, self.guarantees.heals) = (None, false);
        self.note_synced();
    }

    /// The states that may come back. With `both` the log that is not complete may count.
    fn candidates(&self, guarantees: &Guarantees, crash: Crash, both: bool) -> Vec<usize> {
        let counts = |held: &Held| {
            let first = if crash == Crash::Kill { held.written } else { held.synced };
            first..=held.closed.unwrap_or(self.last())
        };
        let former = guarantees.former.iter().flat_map(counts);
        let open =
            guarantees.open.iter().filter(|_| both || guarantees.former.is_none()).flat_map(counts);
        former.chain(open).collect()
    }

    /// Goes on with what was found after a crash during a step before which `before` was certain; `false` if
    /// that should not be.
    pub fn goes_on_with(
        &mut self,
        found: &Contents,
        crash: Crash,
        before: &Guarantees,
        may_count: bool,
        now_ms: i64,
    ) -> bool {
        let mut candidates = self.candidates(before, crash, may_count);
        candidates.extend(self.candidates(&self.guarantees.clone(), crash, may_count));
        candidates.sort_unstable();
        let place = candidates.into_iter().rev().find(|at| self.states[*at].at(now_ms) == *found);
        let Some(place) = place else { return false };
        // What was synced stays so; what only the kernel has may still go in a power cut.
        let synced = [before.open, before.former].into_iter().flatten().map(|held| held.synced);
        let synced = match crash {
            Crash::Kill => synced.min().unwrap_or(0).min(place),
            Crash::PowerCut => place,
        };
        self.states.truncate(place + 1);
        let held = Held { written: place, synced, closed: None };
        self.guarantees = Guarantees { open: Some(held), ..Guarantees::default() };
        true
    }
}
