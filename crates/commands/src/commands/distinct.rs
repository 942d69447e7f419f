//! For commands that may name a key several times, but need its value once.

use tierce_keyspace::Key;

use crate::pipeline::{Context, Done};

/// Keys without duplicates.
pub(super) struct Distinct<'a> {
    /// In the order of their first occurrence.
    pub(super) keys: Vec<Key<'a>>,
    /// Index of its key for each argument.
    pub(super) places: Vec<usize>,
}

impl<'a> Distinct<'a> {
    /// Removes duplicates by sorting, so that the time is not quadratic in the number of keys.
    pub(super) fn of(named: &[Key<'a>]) -> Self {
        let mut order: Vec<usize> = (0..named.len()).collect();
        order.sort_unstable_by_key(|&at| (named[at].hash(), named[at].bytes(), at));
        // Index of the first argument that names the same key.
        let mut first: Vec<usize> = (0..named.len()).collect();
        for pair in order.windows(2) {
            if named[pair[0]].bytes() == named[pair[1]].bytes() {
                first[pair[1]] = first[pair[0]];
            }
        }
        let (mut keys, mut places) = (Vec::with_capacity(named.len()), first);
        for at in 0..named.len() {
            places[at] = match places[at] {
                first if first < at => places[first],
                _ => {
                    keys.push(named[at]);
                    keys.len() - 1
                }
            };
        }
        Self { keys, places }
    }

    /// Counts a read for each repetition of a key, as Redis does.
    pub(super) fn count_repeated(&self, ctx: &mut Context<'_, '_>) -> Done {
        if self.places.len() == self.keys.len() {
            return Ok(());
        }
        ctx.holding(|ctx| {
            let mut seen = vec![false; self.keys.len()];
            for place in &self.places {
                if std::mem::replace(&mut seen[*place], true) {
                    let key = self.keys[*place];
                    let mut db = ctx.guard.db(ctx.caller.db, key.hash(), ctx.now_ms);
                    let found = db.peek(key).is_some();
                    db.count_read(key, found);
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_keyspace::{Keyspace, Options};

    #[test]
    fn keys_are_found_once_in_the_order_of_their_first_names() {
        let keyspace = Keyspace::new(Options::default()).expect("sound options");
        for (names, keys, places) in [
            ("", "", vec![]),
            ("b", "b", vec![0]),
            ("b a c", "b a c", vec![0, 1, 2]),
            ("b b b", "b", vec![0, 0, 0]),
            ("c a c b a a", "c a b", vec![0, 1, 0, 2, 1, 1]),
        ] {
            let named: Vec<_> =
                names.split_whitespace().map(|name| keyspace.key(name.as_bytes())).collect();
            let distinct = Distinct::of(&named);
            let shown: Vec<_> =
                distinct.keys.iter().map(|key| String::from_utf8_lossy(key.bytes())).collect();
            assert_eq!((shown.join(" ").as_str(), distinct.places), (keys, places));
        }
    }
}
