//! Counts of error replies by kind.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Maximum number of separate kinds. Further kinds are counted together: a kind is the first word
/// of a text, which a script may invent.
const KINDS_MAX: usize = 128;

/// Counts by kind. Errors are rare, so one lock for all workers is enough.
#[derive(Default)]
pub struct ErrorCounts {
    kinds: Mutex<BTreeMap<String, u64>>,
}

impl ErrorCounts {
    /// Counts one error whose text begins with `kind`.
    pub fn count(&self, kind: &str) {
        self.add(kind, 1);
    }

    fn add(&self, kind: &str, errors: u64) {
        let mut kinds = self.kinds.lock();
        if let Some(count) = kinds.get_mut(kind) {
            *count += errors;
        } else {
            let kind = if kinds.len() < KINDS_MAX { kind } else { "OTHER" };
            *kinds.entry(kind.to_owned()).or_default() += errors;
        }
    }

    /// Adds the counts of another set. Returns the number of errors in it.
    pub fn add_all(&self, others: &Self) -> u64 {
        let others = others.counts();
        others.iter().for_each(|(kind, errors)| self.add(kind, *errors));
        others.iter().map(|(_, errors)| errors).sum()
    }

    /// Returns kinds and counts, ordered by name.
    pub fn counts(&self) -> Vec<(String, u64)> {
        self.kinds.lock().iter().map(|(kind, count)| (kind.clone(), *count)).collect()
    }

    /// Resets all counts.
    pub fn reset(&self) {
        self.kinds.lock().clear();
    }
}
