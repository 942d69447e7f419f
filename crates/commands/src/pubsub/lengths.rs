//! Number of names of each length.

use std::collections::BTreeMap;

/// The lengths of a set of names.
#[derive(Default)]
pub(super) struct Lengths(BTreeMap<usize, usize>);

impl Lengths {
    /// Adds a name of this length.
    pub(super) fn add(&mut self, len: usize) {
        *self.0.entry(len).or_default() += 1;
    }

    /// Removes a name of this length.
    pub(super) fn remove(&mut self, len: usize) {
        if let Some(count) = self.0.get_mut(&len) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&len);
            }
        }
    }

    /// Returns the existing lengths up to `len`, in ascending order.
    pub(super) fn up_to(&self, len: usize) -> impl Iterator<Item = usize> {
        self.0.range(..=len).map(|(len, _)| *len)
    }

    /// Returns the greatest length; 0 without any name.
    pub(super) fn max(&self) -> usize {
        self.0.last_key_value().map_or(0, |(len, _)| *len)
    }
}
