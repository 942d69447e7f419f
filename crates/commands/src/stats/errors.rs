//! How often each kind of error was replied.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Kinds kept apart; beyond it new kinds are counted together, since a kind is the first word of
/// a text that a script may invent.
const KINDS_MAX: usize = 128;

/// Counts by kind. Errors are rare, so one lock for all workers is enough.
#[derive(Default)]
pub struct ErrorCounts {
    kinds: Mutex<BTreeMap<String, u64>>,
}

impl ErrorCounts {
    /// Counts one error whose text begins with `kind`.
    pub fn count(&self, kind: &str) {
        let mut kinds = self.kinds.lock();
        if let Some(count) = kinds.get_mut(kind) {
            *count += 1;
        } else {
            let kind = if kinds.len() < KINDS_MAX { kind } else { "OTHER" };
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
    }

    /// Kinds and counts by name.
    pub fn counts(&self) -> Vec<(String, u64)> {
        self.kinds.lock().iter().map(|(kind, count)| (kind.clone(), *count)).collect()
    }

    /// Forgets all counts.
    pub fn reset(&self) {
        self.kinds.lock().clear();
    }
}
