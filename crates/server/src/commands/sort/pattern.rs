//! Patterns of BY and GET, and the values that they stand for.

use tierce_collections::Hash;
use tierce_keyspace::{DbIndex, Error, IntText, Value};

use crate::error::CommandError;
use crate::execute::Guard;

/// What to look up for an element.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pattern<'a> {
    /// `#`: the element itself.
    Element,
    /// Without a place for the element, a name stands for nothing.
    Constant,
    /// The element stands between these in the name of a key.
    Key {
        before: &'a [u8],
        behind: &'a [u8],
        /// The key is a hash, and this field of it is meant.
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
}

/// Reads the keys that patterns name. Their shards are locked, all of them if need be.
pub(super) struct Lookup<'m, 'l, 'k> {
    guard: &'m mut Guard<'l, 'k>,
    db: DbIndex,
    now_ms: i64,
}

impl<'m, 'l, 'k> Lookup<'m, 'l, 'k> {
    pub(super) fn new(guard: &'m mut Guard<'l, 'k>, db: DbIndex, now_ms: i64) -> Self {
        Self { guard, db, now_ms }
    }

    /// What `pattern` stands for at `element`; `None` if that is not there, or of another type. A value
    /// that is there and cannot be read from disk is an error.
    pub(super) fn find(
        &mut self,
        pattern: &Pattern<'_>,
        element: &[u8],
    ) -> Result<Option<Vec<u8>>, CommandError> {
        let (before, behind, field) = match pattern {
            Pattern::Element => return Ok(Some(element.to_vec())),
            Pattern::Constant => return Ok(None),
            Pattern::Key { before, behind, field } => (before, behind, field),
        };
        let name = [before, element, behind].concat();
        let key = self.guard.keyspace().key(&name);
        let mut db = self.guard.db(self.db, key.hash(), self.now_ms);
        let Some(field) = field else {
            return Ok(match db.get(key)? {
                Some(Value::Str(string)) => Some(string.bytes(&mut IntText::new()).to_vec()),
                _ => None,
            });
        };
        match db.collection::<Hash>(key) {
            Ok(hash) => Ok(hash
                .and_then(|hash| hash.get(field, self.now_ms).map(|field| field.value.to_vec()))),
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
