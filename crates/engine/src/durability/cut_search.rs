//! The changes behind a place in the log, found while the log is loaded: what a bucket
//! lacks that has all changes before that place.

use tierce_keyspace::log::{Malformed, Sieve, Sifted, no_place};

/// Looks for a [cut](tierce_keyspace::log::cut), and keeps the changes behind it.
#[derive(Debug)]
pub struct CutSearch {
    cut: u64,
    /// No more than this is kept.
    bytes_max: usize,
    bytes: usize,
    sieve: Sieve,
    /// The changes, once the cut was met.
    found: Option<Vec<Vec<u8>>>,
}

impl CutSearch {
    /// The search for the cut with this number, and for at most so many bytes behind it.
    #[must_use]
    pub fn new(cut: u64, bytes_max: usize) -> Self {
        Self { cut, bytes_max, bytes: 0, sieve: Sieve::default(), found: None }
    }

    /// Looks at the next record.
    ///
    /// # Errors
    /// If it is none.
    pub fn take(&mut self, record: &[u8]) -> Result<(), Malformed> {
        if record == no_place() {
            // A repair says that something is missing, perhaps of what was before the cut.
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

    /// The changes in their order; `None` if the log has no such cut, or too much behind it, or has lost something.
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
        // As `tierce repair` leaves it.
        assert_eq!(found(&[a.clone(), cut(7), b.clone(), no_place()]), None);
        assert_eq!(found(&[no_place(), cut(7), b.clone()]), Some(vec![b]), "it was before");
        let too_much = vec![a; 30];
        assert_eq!(found(&[vec![cut(7)], too_much].concat()), None);
    }
}
