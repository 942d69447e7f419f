//! Collects the changes after a given offset of the log while the log is loaded. A bucket that has all earlier
//! changes lacks exactly these.

use tierce_keyspace::log::{Malformed, Sieve, Sifted, no_position};

/// Searches for a [cut](tierce_keyspace::log::cut) record and keeps the changes after it.
#[derive(Debug)]
pub struct CutSearch {
    cut: u64,
    /// Upper bound of the bytes that are kept.
    bytes_max: usize,
    bytes: usize,
    sieve: Sieve,
    /// Changes after the cut, once it was found.
    found: Option<Vec<Vec<u8>>>,
}

impl CutSearch {
    /// Creates a search for the cut with this number that keeps at most `bytes_max` bytes of changes.
    #[must_use]
    pub fn new(cut: u64, bytes_max: usize) -> Self {
        Self { cut, bytes_max, bytes: 0, sieve: Sieve::default(), found: None }
    }

    /// Processes the next record.
    ///
    /// # Errors
    /// If it is not a valid record.
    pub fn take(&mut self, record: &[u8]) -> Result<(), Malformed> {
        if record == no_position() {
            // A repaired log lacks some changes, perhaps ones before the cut.
            self.found = None;
        }
        match self.sieve.sift(record)? {
            Sifted::Cut(cut) if cut == self.cut => (self.found, self.bytes) = (Some(Vec::new()), 0),
            Sifted::Change if self.bytes <= self.bytes_max => {
                if let Some(found) = &mut self.found {
                    self.bytes += record.len();
                    found.push(record.to_vec());
                }
            }
            Sifted::Change | Sifted::Other | Sifted::Cut(_) => {}
        }
        Ok(())
    }

    /// Returns the changes in order. Returns `None` if the log has no such cut, has too much after it, or has lost
    /// something.
    #[must_use]
    pub fn finish(self) -> Option<Vec<Vec<u8>>> {
        self.found.filter(|_| self.bytes <= self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use tierce_keyspace::log::cut;

    use super::*;

    fn found(records: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        let mut search = CutSearch::new(7, 100);
        records.iter().for_each(|record| search.take(record).expect("a record"));
        search.finish()
    }

    #[test]
    fn the_changes_behind_a_cut_are_found_unless_something_is_missing() {
        let set = |key| vec![2, 0, 1, key, 4];
        let (a, b) = (set(b'a'), set(b'b'));
        assert_eq!(found(&[a.clone(), cut(6), b.clone()]), None, "another cut");
        assert_eq!(found(&[a.clone(), cut(7), b.clone()]), Some(vec![b.clone()]));
        // `tierce repair` leaves such a log.
        assert_eq!(found(&[a.clone(), cut(7), b.clone(), no_position()]), None);
        assert_eq!(found(&[no_position(), cut(7), b.clone()]), Some(vec![b]), "it was before");
        let too_much = vec![a; 30];
        assert_eq!(found(&[vec![cut(7)], too_much].concat()), None);
    }
}
