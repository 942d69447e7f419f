//! Intersection, union and difference of sets.
//!
//! Members are visited in the order of one of the sets, without copying, and each once.

use tierce_dash::Table;

use super::Set;
use super::table::hash_of;
use crate::packed::Element;

/// Visits the members that all sets have. Ends when `visit` returns `false`.
///
/// Iterates over the smallest set, and checks the next larger one first.
pub fn intersection<'a>(sets: &[&'a Set], mut visit: impl FnMut(Element<'a>) -> bool) {
    let mut sets = sets.to_vec();
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else { return };
    for element in smallest.iter() {
        if others.iter().all(|set| set.contains_compact(element)) && !visit(element) {
            return;
        }
    }
}

/// Visits the members that at least one of the sets has. Ends when `visit` returns `false`.
pub fn union<'a>(sets: &[&'a Set], mut visit: impl FnMut(Element<'a>) -> bool) {
    let mut sets = sets.to_vec();
    sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
    let Some((largest, others)) = sets.split_first() else { return };
    if !largest.iter().all(&mut visit) {
        return;
    }
    // Members of the last set are not looked up any more, nor those of the largest, which does its own lookup.
    let mut seen = Seen::default();
    for (index, set) in others.iter().enumerate() {
        let is_last = index + 1 == others.len();
        for element in set.iter().filter(|element| !largest.contains_compact(*element)) {
            let is_new = if is_last { !seen.contains(element) } else { seen.insert(element) };
            if is_new && !visit(element) {
                return;
            }
        }
    }
}

/// Visits the members of `first` that none of the others has. Ends when `visit` returns `false`.
///
/// Either looks up each member of the first in the others, or removes the members of each from a table of those of the
/// first, whichever is estimated to be less work, as in Redis.
pub fn difference<'a>(first: &'a Set, others: &[&'a Set], visit: impl FnMut(Element<'a>) -> bool) {
    // Common members end a lookup early.
    let work_of_asking = first.len() * (others.len() + 1) / 2;
    let work_of_taking = first.len() + others.iter().map(|set| set.len()).sum::<usize>();
    if work_of_asking <= work_of_taking {
        // The sets most likely to have a member come first.
        let mut others = others.to_vec();
        others.sort_by_key(|set| std::cmp::Reverse(set.len()));
        let is_left =
            |element: &Element<'_>| !others.iter().any(|set| set.contains_compact(*element));
        first.iter().filter(is_left).all(visit);
        return;
    }
    let mut left = Seen::default();
    first.iter().for_each(|element| _ = left.insert(element));
    for element in others.iter().flat_map(|set| set.iter()) {
        left.remove(element);
    }
    left.table.into_iter().all(visit);
}

/// Elements by reference.
#[derive(Default)]
struct Seen<'a> {
    table: Table<Element<'a>>,
}

impl<'a> Seen<'a> {
    fn contains(&self, element: Element<'_>) -> bool {
        self.table.find(hash_of(element), |seen| *seen == element).is_some()
    }

    /// Adds an element; `false` if it already exists.
    fn insert(&mut self, element: Element<'a>) -> bool {
        let is_new = !self.contains(element);
        if is_new {
            self.table
                .insert_unique(hash_of(element), element, &|seen: &Element<'_>| hash_of(*seen));
        }
        is_new
    }

    fn remove(&mut self, element: Element<'_>) {
        let rehash = |seen: &Element<'_>| hash_of(*seen);
        self.table.remove(hash_of(element), |seen| *seen == element, &rehash);
    }
}
