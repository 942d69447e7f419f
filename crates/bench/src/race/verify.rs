//! Checks of everything that is read. A failure voids the run.

use super::dataset::{Dataset, Key};
use super::error::RaceError;

/// Formats a key for messages.
pub(super) fn show(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All keys of a race, in two numbers. All keys are different, so equal number and equal sum mean
/// equal keys, except for a chance of one in 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Coverage {
    count: u64,
    sum: u64,
}

impl Coverage {
    pub(super) fn of(dataset: &Dataset, keys: u64) -> Self {
        let mut coverage = Self::default();
        (0..keys).for_each(|number| coverage.add(dataset.key(number)));
        coverage
    }

    fn add(&mut self, key: Key) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(u64::from_be_bytes(key));
    }
}

/// Values that one of many scanning threads compares in full. Together the threads compare all of
/// them in every pass. Of the other values each thread checks one word.
#[derive(Clone, Copy, Debug)]
pub(super) enum Share {
    All,
    OneOf { number: u64, threads: u64 },
}

impl Share {
    fn has(self, key: Key) -> bool {
        match self {
            Self::All => true,
            Self::OneOf { number, threads } => u64::from_be_bytes(key) % threads == number,
        }
    }
}

/// One pass over everything in ascending order.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    dataset: &'a Dataset,
    share: Share,
    last: Option<Key>,
    met: Coverage,
}

impl<'a> Pass<'a> {
    pub(super) fn new(dataset: &'a Dataset, share: Share) -> Self {
        Self { dataset, share, last: None, met: Coverage::default() }
    }

    /// Checks the next key and value.
    pub(super) fn see(&mut self, key: &[u8], value: &[u8]) -> Result<(), RaceError> {
        let Ok(key) = Key::try_from(key) else {
            return Err(RaceError::Void(format!("a scan met the foreign key {}", show(key))));
        };
        if let Some(last) = self.last.filter(|last| *last >= key) {
            let (key, last) = (show(&key), show(&last));
            return Err(RaceError::Void(format!("a scan met key {key} after {last}")));
        }
        let is_right = if self.share.has(key) {
            self.dataset.is_value(value, key, 0)
        } else {
            self.dataset.looks_like_value(value, key, 0)
        };
        if !is_right {
            return Err(wrong_value(key));
        }
        self.last = Some(key);
        self.met.add(key);
        Ok(())
    }

    /// Ends the pass: nothing may be missing.
    pub(super) fn finish(self, expected: Coverage) -> Result<(), RaceError> {
        let (met, all) = (self.met.count, expected.count);
        if met != all {
            return Err(RaceError::Void(format!("a scan met {met} keys of {all}")));
        }
        if self.met != expected {
            return Err(RaceError::Void("a scan met keys that were never written".into()));
        }
        Ok(())
    }
}

/// Makes the error for a wrong value.
pub(super) fn wrong_value(key: Key) -> RaceError {
    RaceError::Void(format!("key {} has another value than was written", show(&key)))
}

/// Makes the error for a missing key.
pub(super) fn missing(key: Key) -> RaceError {
    RaceError::Void(format!("key {} is missing", show(&key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::dataset::VALUE_LEN;

    const KEYS: u64 = 100;

    type Items = Vec<(Vec<u8>, Vec<u8>)>;

    /// Scans the result of `items` on the right items, and returns the reason why the pass is void.
    fn outcome(share: Share, items: impl FnOnce(&mut Items)) -> String {
        let dataset = Dataset::new(1);
        let mut all: Items = (0..KEYS)
            .map(|number| {
                let mut value = [0; VALUE_LEN];
                dataset.fill(&mut value, dataset.key(number), 0);
                (dataset.key(number).to_vec(), value.to_vec())
            })
            .collect();
        all.sort();
        items(&mut all);
        let mut pass = Pass::new(&dataset, share);
        let seen = all.iter().try_for_each(|(key, value)| pass.see(key, value));
        let result = seen.and_then(|()| pass.finish(Coverage::of(&dataset, KEYS)));
        result.map_or_else(|error| error.to_string(), |()| "right".into())
    }

    #[test]
    fn a_right_pass_is_right() {
        assert_eq!(outcome(Share::All, |_| ()), "right");
        assert_eq!(outcome(Share::OneOf { number: 1, threads: 7 }, |_| ()), "right");
    }

    #[test]
    fn whatever_is_wrong_voids_the_pass() {
        let check = |expected: &str, items: fn(&mut Items)| {
            for share in [Share::All, Share::OneOf { number: 0, threads: 1 }] {
                let outcome = outcome(share, items);
                assert!(outcome.contains(expected), "{outcome}");
            }
        };
        check("99 keys of 100", |items| drop(items.remove(50)));
        check("99 keys of 100", |items| drop(items.pop()));
        check(" after ", |items| items.swap(3, 4));
        check(" after ", |items| items.insert(8, items[7].clone()));
        check("another value", |items| items[9].1[4000] ^= 1);
        check("another value", |items| items[9].1.truncate(4088));
        check("another value", |items| items[9].1 = items[10].1.clone());
        check("foreign key", |items| items[9].0.push(0));
    }

    #[test]
    fn a_value_of_another_key_shows_to_every_thread() {
        let swap = |items: &mut Items| items[9].1 = items[10].1.clone();
        for number in 0..5 {
            let outcome = outcome(Share::OneOf { number, threads: 5 }, swap);
            assert!(outcome.contains("another value"), "{outcome}");
        }
    }
}
