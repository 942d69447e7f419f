//! Finds the records that a killed owner's local log has behind a cut, and the log in the bucket lacks.
//!
//! A cut is a position in both logs, with equal changes before it. Behind it, the local log and the bucket's log (in
//! the order of the feed) may differ in order, but not for changes of one key. The bucket has no change that the local
//! log lacks. So it has the first changes of each key, and each of its records is the first one with these bytes.

use std::collections::HashMap;

use tierce_keyspace::log::{Sieve, Sifted};

/// Returns the changes of `found` that were not sent, in their order. `None` if a sent one is not there.
pub(super) fn without(found: Vec<Vec<u8>>, sent: &[impl AsRef<[u8]>]) -> Option<Vec<Vec<u8>>> {
    let mut sieve = Sieve::default();
    let (mut counts, mut left) = (HashMap::<&[u8], usize>::new(), 0);
    for record in sent.iter().map(AsRef::as_ref) {
        if sieve.sift(record).ok()? == Sifted::Change {
            *counts.entry(record).or_default() += 1;
            left += 1;
        }
    }
    let mut tail = found;
    tail.retain(|record| match counts.get_mut(&record[..]) {
        Some(count @ 1..) => {
            *count -= 1;
            left -= 1;
            false
        }
        _ => true,
    });
    (left == 0).then_some(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns records that set a key to a number.
    fn records(keys: &str) -> Vec<Vec<u8>> {
        keys.bytes().map(|key| vec![2, 0, 1, key, 4]).collect()
    }

    #[test]
    fn what_was_sent_is_left_out_once_and_first() {
        for (found, sent, expected) in [
            ("", "", Some("")),
            ("abc", "", Some("abc")),
            ("abc", "abc", Some("")),
            // Changes of other shards, in another order.
            ("abc", "cb", Some("a")),
            ("abab", "ab", Some("ab")),
            ("aba", "a", Some("ba")),
            ("ab", "c", None),
            ("a", "aa", None),
        ] {
            let tail = without(records(found), &records(sent));
            assert_eq!(tail, expected.map(records), "{found} without {sent}");
        }
    }
}
