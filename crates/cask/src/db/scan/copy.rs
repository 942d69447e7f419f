//! Copies keys and locations out of the index, and restores the state that a snapshot sees.

use super::cut::Cut;
use crate::db::store::{Index, Store};
use crate::db::view::View;
use crate::index::ordered::{OrderedIndex, Run, Side};
use tierce_storage::location::Location;

/// Copies about a leaf's worth of keys between two cuts, ascending: those nearest to the side. If
/// nothing was copied, no key is left between the cuts.
pub(crate) fn copy_leaf(
    store: &Store,
    view: Option<&View>,
    (lower, upper): (&Cut, &Cut),
    side: Side,
    out: &mut Run,
) {
    out.clear();
    if lower >= upper {
        return;
    }
    let Index::Ordered(index) = &store.index else {
        unreachable!("ranges are refused without an ordered index")
    };
    match view {
        None => index.run(lower.as_lower(), upper.as_upper(), side, out),
        Some(view) => copy_past(view, index, (lower, upper), side, out),
    }
}

/// Copies the index entries, with the records superseded since the view's moment put back.
fn copy_past(
    view: &View,
    index: &OrderedIndex,
    (lower, upper): (&Cut, &Cut),
    side: Side,
    out: &mut Run,
) {
    let mut current = Run::default();
    index.run(lower.as_lower(), upper.as_upper(), side, &mut current);
    // The history is read for exactly the range of keys that this run covers.
    let (mut low, mut high) = (lower.clone(), upper.clone());
    match (side, current.len().checked_sub(1)) {
        (Side::Lower, Some(last)) => high = Cut::after(current.get(last).0),
        (Side::Upper, Some(_)) => low = Cut::before(current.get(0).0),
        (_, None) => {}
    }
    let past = view.store.history.range_after(low.as_lower(), high.as_upper(), view.seq);
    merge(&current, &past, out);
}

/// Merges both, ascending. Of equal keys, the past entry wins.
fn merge(current: &Run, past: &[(Vec<u8>, Location)], out: &mut Run) {
    let mut at = 0;
    for (key, location) in past {
        while at < current.len() && current.get(at).0 < &key[..] {
            let (key, location) = current.get(at);
            out.append(key, location);
            at += 1;
        }
        if at < current.len() && current.get(at).0 == &key[..] {
            at += 1;
        }
        out.append(key, *location);
    }
    for at in at..current.len() {
        let (key, location) = current.get(at);
        out.append(key, location);
    }
}
