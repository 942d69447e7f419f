//! Patterns of BY and GET, and their values.

use tierce_collections::Hash;
use tierce_keyspace::{DbIndex, Error, IntText, KeyHash, Value};

use crate::error::CommandError;
use crate::pipeline::Guard;

/// Pattern of the value to look up for an element.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pattern<'a> {
    /// `#`: the element itself.
    Element,
    /// A name without a placeholder for the element, which has no value.
    Constant,
    /// A key, whose name has the element between these parts.
    Key {
        before: &'a [u8],
        behind: &'a [u8],
        /// Field, if the key is a hash.
        field: Option<&'a [u8]>,
    },
}

impl<'a> Pattern<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Self {
        if text == b"#" {
            return Pattern::Element;
        }
        let Some(star) = text.iter().position(|byte| *byte == b'*') else {
            return Pattern::Constant;
        };
        let (before, behind) = (&text[..star], &text[star + 1..]);
        match behind.windows(2).position(|pair| pair == b"->") {
            // An arrow at the end is part of the name.
            Some(arrow) if arrow + 2 < behind.len() => {
                let field = Some(&behind[arrow + 2..]);
                Pattern::Key { before, behind: &behind[..arrow], field }
            }
            _ => Pattern::Key { before, behind, field: None },
        }
    }

    /// Returns the name of its key for an element; empty if there is none.
    fn name(&self, element: &[u8]) -> Vec<u8> {
        match self {
            Pattern::Key { before, behind, .. } => [before, element, behind].concat(),
            Pattern::Element | Pattern::Constant => Vec::new(),
        }
    }
}

/// Upper bounds, in keys and bytes, of the reads under one shard lock: about 100 microseconds.
const TURN_KEYS: usize = if cfg!(test) { 2 } else { 256 };
const TURN_BYTES: usize = 64 * 1024;

/// Reads the keys that patterns name.
///
/// If all shards are locked already, it uses these locks. Otherwise it locks them in turns: it reads the keys shard
/// by shard, and unlocks after every few so that others get in. Each key is read at its own moment then, except that
/// all fields that one call reads of a hash are consistent.
pub(super) struct Lookup<'m, 'l, 'k>(Option<Reader<'m, 'l, 'k>>);

struct Reader<'m, 'l, 'k> {
    guard: &'m mut Guard<'l, 'k>,
    db: DbIndex,
    now_ms: i64,
}

impl<'m, 'l, 'k> Lookup<'m, 'l, 'k> {
    pub(super) fn new(guard: &'m mut Guard<'l, 'k>, db: DbIndex, now_ms: i64) -> Self {
        Self(Some(Reader { guard, db, now_ms }))
    }

    /// Creates a lookup for patterns that name no key.
    pub(super) fn of_nothing() -> Self {
        Self(None)
    }

    /// Returns the value of each pattern for each element; all values of the first element come first. `None` if the
    /// value is absent or of another type. A value that cannot be read from disk is an error.
    pub(super) fn find_all(
        &mut self,
        patterns: &[Pattern<'_>],
        elements: &[Vec<u8>],
    ) -> Result<Vec<Option<Vec<u8>>>, CommandError> {
        let calls =
            elements.iter().flat_map(|element| patterns.iter().map(move |by| (by, element)));
        let mut found: Vec<Option<Vec<u8>>> = Vec::with_capacity(elements.len() * patterns.len());
        let mut keys = Vec::new();
        for (number, (pattern, element)) in calls.clone().enumerate() {
            found.push(matches!(pattern, Pattern::Element).then(|| element.clone()));
            if let (Pattern::Key { .. }, Some(reader)) = (pattern, &self.0) {
                keys.push((reader.guard.keyspace().hash(&pattern.name(element)), number));
            }
        }
        if let Some(reader) = &mut self.0 {
            reader.read_all(
                keys,
                |number| {
                    let (pattern, element) =
                        (&patterns[number % patterns.len()], &elements[number / patterns.len()]);
                    (pattern, element.as_slice())
                },
                &mut found,
            )?;
        }
        Ok(found)
    }
}

impl Reader<'_, '_, '_> {
    /// Reads the values of calls, given by their keys and numbers, into their positions.
    fn read_all<'c>(
        &mut self,
        mut keys: Vec<(KeyHash, usize)>,
        call: impl Fn(usize) -> (&'c Pattern<'c>, &'c [u8]),
        found: &mut [Option<Vec<u8>>],
    ) -> Result<(), CommandError> {
        if self.guard.takes_turns() {
            // Groups the keys of a shard, and equal keys.
            keys.sort_unstable();
        }
        let (mut before, mut read, mut bytes) = (None, 0, 0);
        for (hash, number) in keys {
            if before.replace(hash) != Some(hash) && (read >= TURN_KEYS || bytes >= TURN_BYTES) {
                self.guard.end_turn();
                (read, bytes) = (0, 0);
            }
            let (pattern, element) = call(number);
            let value = self.read(pattern, element)?;
            read += 1;
            bytes += value.as_ref().map_or(0, Vec::len);
            found[number] = value;
        }
        self.guard.end_turn();
        Ok(())
    }

    fn read(
        &mut self,
        pattern: &Pattern<'_>,
        element: &[u8],
    ) -> Result<Option<Vec<u8>>, CommandError> {
        let name = pattern.name(element);
        let key = self.guard.keyspace().key(&name);
        let mut db = self.guard.db(self.db, key.hash(), self.now_ms);
        let Pattern::Key { field: Some(field), .. } = pattern else {
            return Ok(match db.get(key)? {
                Some(Value::Str(string)) => Some(string.bytes(&mut IntText::new()).to_vec()),
                _ => None,
            });
        };
        match db.collection::<Hash>(key) {
            Ok(hash) => {
                let field = hash.and_then(|hash| {
                    hash.get(field, self.now_ms).map(|field| field.value.to_vec())
                });
                Ok(field)
            }
            Err(Error::WrongType) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let key = |before, behind, field| Pattern::Key { before, behind, field };
        assert_eq!(Pattern::parse(b"w_*"), key(b"w_", b"", None));
        assert_eq!(Pattern::parse(b"a*b*c"), key(b"a", b"b*c", None));
        assert_eq!(Pattern::parse(b"h_*_x->f->g"), key(b"h_", b"_x", Some(b"f->g")));
        assert_eq!(Pattern::parse(b"h_*->"), key(b"h_", b"->", None));
        assert_eq!(Pattern::parse(b"a->b*"), key(b"a->b", b"", None));
        assert_eq!(Pattern::parse(b"nosort"), Pattern::Constant);
        assert_eq!(Pattern::parse(b"#"), Pattern::Element);
    }
}
