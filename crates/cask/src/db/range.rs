//! Ranges of keys and values in order, from both ends.
//!
//! A range reads its first keys record by record, then takes its keys from windows it shares with other ranges
//! ([`scan`](super::scan)). Either way it copies keys and locations before it reads values, and holds no lock
//! meanwhile. So keys come strictly ascending (or descending), each at most once, whatever is written meanwhile, and a
//! key that exists throughout is visited. Without a snapshot, a key written or deleted during the scan may or may not
//! be visited; with one, the scan is of that moment.
//!
//! The keys between the two ends form a *gap* that only shrinks. An end *claims* the keys next to it, a few or a block
//! of them, and returns them one by one. Once the gap is empty, an end continues with the claims of the other end.

use super::scan::block::{Block, Found, Loaded};
use super::scan::copy::copy_leaf;
use super::scan::cursor::Cursor;
use super::scan::cut::Cut;
use super::scan::request::Request;
use super::scan::window::Audience;
use super::store::{Index, Store};
use super::view::View;
use crate::entry::Entry;
use crate::index::ordered::{Run, Side};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tierce_storage::location::Location;
use tierce_storage::{Error, Result};

/// Number of keys in a range's first claims. Most ranges end there.
const ALONE: usize = 16;

/// Iterator over a range of keys, double-ended.
///
/// Callers that do not keep the items are faster with [`Range::visit`].
pub struct Range {
    store: Arc<Store>,
    view: Option<Arc<View>>,
    /// Number of writes that had begun to be applied when the range began.
    stamp: u64,
    /// The gap: keys that neither end has claimed yet.
    lower: Cut,
    upper: Cut,
    front: End,
    back: End,
    finished: bool,
}

/// One end of a range.
#[derive(Default)]
struct End {
    claim: Claim,
    /// Set from the second claim on.
    cursor: Option<Cursor>,
    claims: usize,
}

/// Keys next to an end; those at `next..end` are still to be returned.
#[derive(Default)]
struct Claim {
    source: Source,
    next: usize,
    end: usize,
}

enum Source {
    Keys(Run),
    Block(Arc<Block>),
}

impl Default for Source {
    fn default() -> Self {
        Source::Keys(Run::default())
    }
}

impl Claim {
    fn take(&mut self, side: Side) -> Option<usize> {
        if self.next == self.end {
            return None;
        }
        match side {
            Side::Lower => self.next += 1,
            Side::Upper => self.end -= 1,
        }
        Some(if side == Side::Lower { self.next - 1 } else { self.end })
    }

    /// Continues from the front as long as all records are loaded.
    fn visit(
        &mut self,
        visitor: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Source::Block(block) = &self.source else { return ControlFlow::Continue(()) };
        while self.next < self.end {
            let Found::Ready(loaded) = block.get(self.next) else { break };
            let key = block.key(self.next);
            self.next += 1;
            visitor(key, loaded.value())?;
        }
        ControlFlow::Continue(())
    }

    fn get(&self, at: usize) -> (&[u8], Found<'_>) {
        match &self.source {
            Source::Keys(run) => {
                let (key, location) = run.get(at);
                (key, Found::Separate(location))
            }
            Source::Block(block) => (block.key(at), block.get(at)),
        }
    }
}

/// The next item: a position in one of the claims.
#[derive(Clone, Copy)]
struct Next {
    from: Side,
    at: usize,
}

impl Range {
    pub(crate) fn new(
        store: Arc<Store>,
        view: Option<Arc<View>>,
        lower: &[u8],
        upper: Bound<&[u8]>,
    ) -> Result<Self> {
        store.files.check_open()?;
        if matches!(store.index, Index::Hash(_)) {
            return Err(Error::Unordered);
        }
        Ok(Range {
            stamp: store.applying.load(Ordering::Acquire),
            store,
            view,
            lower: Cut::before(lower),
            upper: Cut::of_upper(upper),
            front: End::default(),
            back: End::default(),
            finished: false,
        })
    }

    pub(crate) fn with_prefix(
        store: Arc<Store>,
        view: Option<Arc<View>>,
        prefix: &[u8],
    ) -> Result<Self> {
        match prefix_end(prefix) {
            Some(end) => Self::new(store, view, prefix, Bound::Excluded(&end)),
            None => Self::new(store, view, prefix, Bound::Unbounded),
        }
    }

    /// Calls `visitor` with each remaining key and value, ascending, until it breaks. Keys and values are lent:
    /// nothing is allocated or counted per item, so this is the fastest way through a store.
    ///
    /// # Errors
    /// The first one; the visit ends there.
    pub fn visit(
        &mut self,
        mut visitor: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        while let Some(next) = self.next_location(Side::Lower)? {
            let (key, found) = self.get(next);
            let flow = match found {
                Found::Ready(loaded) => visitor(key, loaded.value()),
                Found::Separate(location) => match self.load(key, location)? {
                    Some(entry) => visitor(key, &entry.value),
                    None => ControlFlow::Continue(()),
                },
            };
            if flow.is_break() || self.front.claim.visit(&mut visitor).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn step(&mut self, side: Side) -> Result<Option<(Vec<u8>, Entry)>> {
        while let Some(next) = self.next_location(side)? {
            let (key, found) = self.get(next);
            let entry = match found {
                Found::Ready(loaded) => Some(Loaded::entry(&loaded)),
                Found::Separate(location) => self.load(key, location)?,
            };
            if let Some(entry) = entry {
                return Ok(Some((key.to_vec(), entry)));
            }
        }
        Ok(None)
    }

    fn get(&self, next: Next) -> (&[u8], Found<'_>) {
        match next.from {
            Side::Lower => self.front.claim.get(next.at),
            Side::Upper => self.back.claim.get(next.at),
        }
    }

    /// Returns the position of the next key on a side.
    fn next_location(&mut self, side: Side) -> Result<Option<Next>> {
        if self.finished {
            return Ok(None);
        }
        if let Err(closed) = self.store.files.check_open() {
            // Reported once: a loop that skips errors must come to an end.
            self.finished = true;
            return Err(closed);
        }
        loop {
            let (own, other, from) = match side {
                Side::Lower => (&mut self.front, &mut self.back, Side::Upper),
                Side::Upper => (&mut self.back, &mut self.front, Side::Lower),
            };
            if let Some(at) = own.claim.take(side) {
                return Ok(Some(Next { from: side, at }));
            }
            if self.lower >= self.upper {
                let next = other.claim.take(side).map(|at| Next { from, at });
                self.finished = next.is_none();
                return Ok(next);
            }
            self.claim(side);
        }
    }

    /// Claims keys at a side of the gap, or closes it.
    fn claim(&mut self, side: Side) {
        let end = match side {
            Side::Lower => &mut self.front,
            Side::Upper => &mut self.back,
        };
        end.claims += 1;
        if end.claims == 2 && self.store.passes.is_enabled() {
            end.cursor = Some(Cursor::new(&self.store.passes));
        }
        if let Some(cursor) = &mut end.cursor {
            let view = self.view.as_deref();
            let audience = Audience { side, view: view.map(|view| view.seq), stamp: self.stamp };
            let (lower, upper) = (&self.lower, &self.upper);
            let request = Request { store: &self.store, view, audience, lower, upper, after: None };
            if let Some(block) = cursor.block(&request) {
                return self.claim_block(side, block);
            }
        }
        self.claim_keys(side);
    }

    fn claim_block(&mut self, side: Side, block: Arc<Block>) {
        let positions = block.positions(&self.lower, &self.upper);
        let claim = match side {
            Side::Lower => {
                self.lower = block.upper.clone();
                &mut self.front.claim
            }
            Side::Upper => {
                self.upper = block.lower.clone();
                &mut self.back.claim
            }
        };
        *claim = Claim { next: positions.start, end: positions.end, source: Source::Block(block) };
    }

    fn claim_keys(&mut self, side: Side) {
        let mut run = Run::default();
        copy_leaf(&self.store, self.view.as_deref(), (&self.lower, &self.upper), side, &mut run);
        let (mut next, mut end) = (0, run.len());
        let most = if self.store.passes.is_enabled() { ALONE } else { usize::MAX };
        if run.len() == 0 {
            self.lower = self.upper.clone();
        } else if side == Side::Lower {
            end = end.min(most);
            self.lower = Cut::after(run.get(end - 1).0);
        } else {
            next = end.saturating_sub(most);
            self.upper = Cut::before(run.get(next).0);
        }
        let claim = Claim { source: Source::Keys(run), next, end };
        match side {
            Side::Lower => self.front.claim = claim,
            Side::Upper => self.back.claim = claim,
        }
    }

    /// Loads the value. `None`: there is none for this range.
    fn load(&self, key: &[u8], location: Location) -> Result<Option<Entry>> {
        let Some((fetched, segment)) = self.store.fetch(location)? else {
            // Compaction moved the record after the leaf was copied.
            return match &self.view {
                None => self.store.get(key),
                Some(view) => view.get(key),
            };
        };
        if fetched.key() != key {
            let offset = location.offset();
            return Err(Error::corrupt(&segment.path, offset, "record of another key"));
        }
        if self.view.as_ref().is_some_and(|view| fetched.header.seq > view.seq) {
            return Ok(None);
        }
        fetched.into_entry(&segment, location).map(Some)
    }
}

impl Iterator for Range {
    type Item = Result<(Vec<u8>, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Side::Lower).transpose()
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Side::Upper).transpose()
    }
}

/// Returns the first key after all keys with this prefix; `None` if there is none.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_ends_before_the_next_prefix() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
