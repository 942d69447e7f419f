//! Options of SORT.

use std::ops::Range;

use super::pattern::Pattern;
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;

pub(super) struct SortOptions<'a> {
    /// Pattern of BY, whose values determine the order.
    pub(super) by: Option<Pattern<'a>>,
    /// True after BY with a name that is no pattern: the elements keep their order.
    pub(super) keeps_order: bool,
    /// Patterns of GET, whose values are the reply.
    pub(super) get: Vec<Pattern<'a>>,
    pub(super) is_descending: bool,
    /// True to compare bytes and not numbers.
    pub(super) is_alpha: bool,
    pub(super) store: Option<&'a [u8]>,
    /// First option that may name keys by the elements: `BY` or `GET`.
    pub(super) names_keys: Option<&'static str>,
    /// Number of elements to skip and to reply; negative for all.
    limit: (i64, i64),
}

impl<'a> SortOptions<'a> {
    pub(super) fn parse(mut options: Options<'a>, may_store: bool) -> Result<Self, CommandError> {
        let mut parsed = Self {
            by: None,
            keeps_order: false,
            get: Vec::new(),
            is_descending: false,
            is_alpha: false,
            store: None,
            names_keys: None,
            limit: (0, -1),
        };
        while let Some(word) = options.next_word() {
            match &*word {
                b"asc" => parsed.is_descending = false,
                b"desc" => parsed.is_descending = true,
                b"alpha" => parsed.is_alpha = true,
                b"limit" => {
                    let [start, count] = options.values()?;
                    parsed.limit = (integer(start)?, integer(count)?);
                }
                b"store" if may_store => parsed.store = Some(options.value()?),
                b"by" => {
                    let pattern = Pattern::parse(options.value()?);
                    // Once set, this holds whatever another BY says.
                    parsed.keeps_order |= matches!(pattern, Pattern::Constant | Pattern::Element);
                    if matches!(pattern, Pattern::Key { .. }) {
                        parsed.names_keys.get_or_insert("BY");
                    }
                    parsed.by = Some(pattern);
                }
                b"get" => {
                    parsed.names_keys.get_or_insert("GET");
                    parsed.get.push(Pattern::parse(options.value()?));
                }
                _ => return Err(CommandError::SYNTAX),
            }
        }
        Ok(parsed)
    }

    /// Returns true if other keys than those named are read.
    pub(super) fn looks_up(&self) -> bool {
        let is_key = |pattern: &Pattern<'_>| matches!(pattern, Pattern::Key { .. });
        let by = self.by.as_ref().filter(|_| !self.keeps_order);
        by.is_some_and(is_key) || self.get.iter().any(is_key)
    }

    /// Returns the range of LIMIT among `len` sorted elements.
    pub(super) fn range(&self, len: usize) -> Range<usize> {
        let (start, count) = self.limit;
        let start = usize::try_from(start).unwrap_or(0).min(len);
        let count = usize::try_from(count).unwrap_or(len).min(len - start);
        start..start + count
    }
}
