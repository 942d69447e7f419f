//! What the local log of an owner that was killed has behind a cut, and the log in the bucket has not.
//!
//! A cut is in both logs: the changes before it are before it in both. Behind it, the order of the local log and that
//! of the feed, which the bucket has, may differ, but not for changes of the same keys. The bucket has no change that
//! is not in the local log. So of those that concern a key, it has the first ones, and each of its records is the first
//! one with these bytes.

use std::collections::HashMap;

use tierce_keyspace::log::{Sieve, Sifted};

/// The changes of `found` without those that were sent, in their order. `None` if something was sent that is not there.
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

    /// Records that set a key to a number.
    fn records(keys: &str) -> Vec<Vec<u8>> {
        keys.bytes().map(|key| vec![2, 0, 1, key, 4]).collect()
    }

    #[test]
    fn what_was_sent_is_left_out_once_and_first() {
        for (found, sent, expected) in [
            ("", "", Some("")),
            ("abc", "", Some("abc")),
            ("abc", "abc", Some("")),
            // Of other shards, in another order.
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
