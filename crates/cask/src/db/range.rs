//! Keys and values in order, from both ends.
//!
//! A range copies one leaf's worth of keys and locations at a time and holds no lock while values
//! are read. So keys come strictly ascending (or descending), each at most once, whatever is
//! written meanwhile; a key that exists all the time is met. Without a snapshot, a key written or
//! deleted during the scan may or may not be met; with one, the scan is of that moment.

use super::read::Entry;
use super::snapshot::View;
use super::store::{Index, Store};
use crate::error::{Error, Result};
use crate::index::ordered::{OrderedIndex, Run, Side};
use crate::location::Location;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// Iterator over a range of keys, double-ended.
pub struct Range {
    store: Arc<Store>,
    view: Option<Arc<View>>,
    /// What neither end has passed yet.
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    front: VecDeque<(Vec<u8>, Location)>,
    back: VecDeque<(Vec<u8>, Location)>,
    run: Run,
    finished: bool,
}

impl Range {
    pub(crate) fn new(
        store: Arc<Store>,
        view: Option<Arc<View>>,
        lower: &[u8],
        upper: Bound<&[u8]>,
    ) -> Result<Self> {
        store.check_open()?;
        if matches!(store.index, Index::Hash(_)) {
            return Err(Error::Unordered);
        }
        let finished = matches!(upper, Bound::Excluded(upper) if lower >= upper);
        Ok(Range {
            store,
            view,
            lower: Bound::Included(lower.to_vec()),
            upper: upper.map(<[u8]>::to_vec),
            front: VecDeque::new(),
            back: VecDeque::new(),
            run: Run::default(),
            finished,
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

    fn step(&mut self, side: Side) -> Result<Option<(Vec<u8>, Entry)>> {
        loop {
            let Some((key, location)) = self.step_key(side)? else { return Ok(None) };
            if let Some(entry) = self.load(&key, location)? {
                return Ok(Some((key, entry)));
            }
        }
    }

    /// The next key on a side and where its record was when the leaf was copied.
    fn step_key(&mut self, side: Side) -> Result<Option<(Vec<u8>, Location)>> {
        if self.finished {
            return Ok(None);
        }
        if let Err(closed) = self.store.check_open() {
            // Once is enough: a loop that passes over errors must come to an end.
            self.finished = true;
            return Err(closed);
        }
        let buffered = match side {
            Side::Lower => &self.front,
            Side::Upper => &self.back,
        };
        if buffered.is_empty() {
            self.fill(side);
        }
        let next = match side {
            Side::Lower => self.front.pop_front(),
            Side::Upper => self.back.pop_back(),
        };
        let Some((key, location)) = next.filter(|(key, _)| self.is_ahead(key)) else {
            self.finished = true;
            return Ok(None);
        };
        match side {
            Side::Lower => self.lower = Bound::Excluded(key.clone()),
            Side::Upper => self.upper = Bound::Excluded(key.clone()),
        }
        // Between two neighbouring excluded keys, or around one, there is nothing.
        if let (Bound::Excluded(low) | Bound::Included(low), Bound::Excluded(high)) =
            (&self.lower, &self.upper)
        {
            self.finished = low >= high;
        }
        Ok(Some((key, location)))
    }

    /// Whether neither end has passed the key.
    fn is_ahead(&self, key: &[u8]) -> bool {
        let above = match &self.lower {
            Bound::Included(low) => key >= &low[..],
            Bound::Excluded(low) => key > &low[..],
            Bound::Unbounded => true,
        };
        let below = match &self.upper {
            Bound::Included(high) => key <= &high[..],
            Bound::Excluded(high) => key < &high[..],
            Bound::Unbounded => true,
        };
        above && below
    }

    fn fill(&mut self, side: Side) {
        let Index::Ordered(index) = &self.store.index else {
            unreachable!("checked when the range was made")
        };
        let entries = match &self.view {
            None => current_run(index, &self.lower, &self.upper, side, &mut self.run),
            Some(view) => past_run(view, index, &self.lower, &self.upper, side, &mut self.run),
        };
        match side {
            Side::Lower => self.front = entries,
            Side::Upper => self.back = entries,
        }
    }

    /// The value, `None` when there is none for this range.
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

fn borrow(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

fn current_run(
    index: &OrderedIndex,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
    side: Side,
    run: &mut Run,
) -> VecDeque<(Vec<u8>, Location)> {
    index.run(borrow(lower), borrow(upper), side, run);
    (0..run.len()).map(|at| run.get(at)).map(|(key, location)| (key.to_vec(), location)).collect()
}

/// As [`current_run`], with what writes superseded since the view's moment put back.
fn past_run(
    view: &View,
    index: &OrderedIndex,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
    side: Side,
    run: &mut Run,
) -> VecDeque<(Vec<u8>, Location)> {
    let current = current_run(index, lower, upper, side, run);
    // The history is consulted for exactly the stretch of keys this run speaks for.
    let (low, high) = match (side, current.front(), current.back()) {
        (Side::Lower, _, Some((last, _))) => (borrow(lower), Bound::Included(&last[..])),
        (Side::Upper, Some((first, _)), _) => (Bound::Included(&first[..]), borrow(upper)),
        _ => (borrow(lower), borrow(upper)),
    };
    let past = view.store.history.range_after(low, high, view.seq);
    merge(current, past)
}

/// Both in one, ascending; of equal keys the past one.
fn merge(
    mut current: VecDeque<(Vec<u8>, Location)>,
    past: Vec<(Vec<u8>, Location)>,
) -> VecDeque<(Vec<u8>, Location)> {
    let mut merged = VecDeque::with_capacity(current.len() + past.len());
    for past in past {
        while let Some(next) = current.pop_front_if_below(&past.0) {
            merged.push_back(next);
        }
        if current.front().is_some_and(|(key, _)| *key == past.0) {
            current.pop_front();
        }
        merged.push_back(past);
    }
    merged.extend(current);
    merged
}

trait PopBelow {
    fn pop_front_if_below(&mut self, key: &[u8]) -> Option<(Vec<u8>, Location)>;
}

impl PopBelow for VecDeque<(Vec<u8>, Location)> {
    fn pop_front_if_below(&mut self, key: &[u8]) -> Option<(Vec<u8>, Location)> {
        if self.front().is_some_and(|(front, _)| &front[..] < key) {
            self.pop_front()
        } else {
            None
        }
    }
}

/// The first key after all keys with this prefix; `None` when there is none.
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
