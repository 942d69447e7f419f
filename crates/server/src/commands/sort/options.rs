//! What SORT is told.

use std::ops::Range;

use tierce_wire::resp::Args;

use super::pattern::Pattern;
use crate::commands::options::integer;
use crate::error::CommandError;

/// See the head of the file.
pub(super) struct SortOptions<'a> {
    /// Whose values are sorted by, instead of the elements.
    pub(super) by: Option<Pattern<'a>>,
    /// BY with a name that is no pattern: the elements stay in the order in which they are.
    pub(super) keeps_order: bool,
    /// What to reply for each element, instead of the element.
    pub(super) get: Vec<Pattern<'a>>,
    pub(super) is_descending: bool,
    /// Whether to compare bytes and not numbers.
    pub(super) is_alpha: bool,
    pub(super) store: Option<&'a [u8]>,
    /// How many elements to skip and to reply; fewer than 0 for all.
    limit: (i64, i64),
}

impl<'a> SortOptions<'a> {
    pub(super) fn parse(options: Args<'a>, may_store: bool) -> Result<Self, CommandError> {
        let mut parsed = Self {
            by: None,
            keeps_order: false,
            get: Vec::new(),
            is_descending: false,
            is_alpha: false,
            store: None,
            limit: (0, -1),
        };
        let mut at = 0;
        while at < options.len() {
            let (first, second) = (options.get(at + 1), options.get(at + 2));
            match (options[at].to_ascii_lowercase().as_slice(), first, second) {
                (b"asc", ..) => parsed.is_descending = false,
                (b"desc", ..) => parsed.is_descending = true,
                (b"alpha", ..) => parsed.is_alpha = true,
                (b"limit", Some(start), Some(count)) => {
                    parsed.limit = (integer(start)?, integer(count)?);
                    at += 2;
                }
                (b"store", Some(key), _) if may_store => {
                    parsed.store = Some(key);
                    at += 1;
                }
                (b"by", Some(pattern), _) => {
                    let pattern = Pattern::parse(pattern);
                    // Once said, this holds whatever other BY there is.
                    parsed.keeps_order |= matches!(pattern, Pattern::Constant | Pattern::Element);
                    parsed.by = Some(pattern);
                    at += 1;
                }
                (b"get", Some(pattern), _) => {
                    parsed.get.push(Pattern::parse(pattern));
                    at += 1;
                }
                _ => return Err(CommandError::SYNTAX),
            }
            at += 1;
        }
        Ok(parsed)
    }

    /// Whether other keys than those named are read.
    pub(super) fn looks_up(&self) -> bool {
        let is_key = |pattern: &Pattern<'_>| matches!(pattern, Pattern::Key { .. });
        let by = self.by.as_ref().filter(|_| !self.keeps_order);
        by.is_some_and(is_key) || self.get.iter().any(is_key)
    }

    /// Which of `len` sorted elements LIMIT leaves.
    pub(super) fn range(&self, len: usize) -> Range<usize> {
        let (start, count) = self.limit;
        let start = usize::try_from(start).unwrap_or(0).min(len);
        let count = usize::try_from(count).unwrap_or(len).min(len - start);
        start..start + count
    }
}
