//! Contents that may be recovered after a crash.
//!
//! The contents are a list of states, one after each change. The authoritative log recovers one of them:
//! after the death of the process one with everything that was acknowledged, after a power cut one with at
//! least everything that was synced.

use crate::together::history::Crash;
use crate::together::model::Contents;

/// Guarantees of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Last state whose changes were acknowledged.
    pub written: usize,
    /// Last state that is durable.
    pub synced: usize,
    /// Last state in the log, if it was closed.
    pub closed: Option<usize>,
}

/// The existing logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guarantees {
    /// The log that takes changes.
    pub open: Option<Held>,
    /// The previous log, while the open one is not authoritative.
    pub former: Option<Held>,
    /// The open log replaces a failed one that was not switched off: changes acknowledged meanwhile would
    /// have to be recovered too.
    pub heals: bool,
}

/// All states, and their guarantees.
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

    /// Notes that everything so far was acknowledged.
    pub fn note_written(&mut self) {
        let last = self.last();
        self.guarantees.open.iter_mut().for_each(|held| held.written = last);
        if self.guarantees.heals {
            self.guarantees.former.iter_mut().for_each(|held| held.written = last);
        }
    }

    /// Notes that everything so far is durable.
    pub fn note_synced(&mut self) {
        let last = self.last();
        self.guarantees.open.iter_mut().for_each(|held| (held.written, held.synced) = (last, last));
    }

    /// Notes that the log is closed. An authoritative one stays so.
    pub fn note_closed(&mut self) {
        self.retire();
        (self.guarantees.open, self.guarantees.heals) = (None, false);
    }

    /// Notes that a log is created next to the authoritative one, which was closed or has failed.
    pub fn note_begun(&mut self) {
        self.guarantees.heals = self.guarantees.open.is_some() && self.guarantees.former.is_none();
        self.retire();
        let last = self.last();
        self.guarantees.open = Some(Held { written: last, synced: last, closed: None });
    }

    /// Closes the open log. It is the authoritative one, unless another one still is.
    fn retire(&mut self) {
        let last = self.last();
        let open = self.guarantees.open.map(|held| Held { closed: Some(last), ..held });
        self.guarantees.former = self.guarantees.former.or(open);
    }

    /// Notes that the open log is authoritative, with everything in it.
    pub fn note_complete(&mut self) {
        (self.guarantees.former, self.guarantees.heals) = (None, false);
        self.note_synced();
    }

    /// Returns the states that may be recovered. With `both`, the incomplete log may be authoritative.
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

    /// Continues with the contents found after a crash during a step; `before` are the guarantees before it.
    /// Returns `false` if these contents are not allowed.
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
        // Synced data stays durable. Data that only the kernel has may still be lost in a power cut.
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
