//! Cursor over the options at the end of a call.

use std::ops::Deref;

use tierce_wire::resp::Rest;

use crate::error::CommandError;
use crate::pipeline::Done;

/// Remaining arguments of a call. Each option word is taken with its values; a missing value is a syntax error.
#[derive(Clone, Copy)]
pub(crate) struct Options<'a>(Rest<'a>);

/// Maximum length of an option.
const WORD_LEN_MAX: usize = 16;

/// An option word, with its lower case for comparisons.
pub(crate) struct Word<'a> {
    /// Spelling of the client.
    pub(crate) spelled: &'a [u8],
    lower: [u8; WORD_LEN_MAX],
    len: usize,
}

impl<'a> Word<'a> {
    fn new(spelled: &'a [u8]) -> Self {
        let mut lower = [0; WORD_LEN_MAX];
        // Words that are too long or empty match no option.
        let len = if spelled.len() <= WORD_LEN_MAX { spelled.len() } else { 0 };
        lower.iter_mut().zip(spelled).for_each(|(to, from)| *to = from.to_ascii_lowercase());
        Self { spelled, lower, len }
    }
}

impl Deref for Word<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.lower.get(..self.len).unwrap_or_default()
    }
}

impl<'a> Options<'a> {
    pub(crate) fn of<const MIN: usize>(arguments: Rest<'a, MIN>) -> Self {
        Self(arguments.any())
    }

    /// Number of remaining arguments.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    /// Returns the remaining arguments.
    pub(crate) fn rest(self) -> Rest<'a> {
        self.0
    }

    /// Takes the next word, if any.
    pub(crate) fn next_word(&mut self) -> Option<Word<'a>> {
        self.next_value().map(Word::new)
    }

    /// Takes the next word if it equals `word` in any case.
    pub(crate) fn take(&mut self, word: &str) -> bool {
        self.next_if(|next| next.eq_ignore_ascii_case(word.as_bytes())).is_some()
    }

    /// Takes the next argument if `is_wanted`.
    pub(crate) fn next_if(&mut self, is_wanted: impl FnOnce(&[u8]) -> bool) -> Option<&'a [u8]> {
        let next = self.0.get(0).filter(|next| is_wanted(next))?;
        self.0 = self.0.from(1);
        Some(next)
    }

    /// Takes the next argument, if any.
    pub(crate) fn next_value(&mut self) -> Option<&'a [u8]> {
        self.next_if(|_| true)
    }

    /// Takes the value of an option.
    ///
    /// # Errors
    /// Fails if nothing is left.
    pub(crate) fn value(&mut self) -> Result<&'a [u8], CommandError> {
        self.next_value().ok_or(CommandError::SYNTAX)
    }

    /// Takes the values of an option.
    ///
    /// # Errors
    /// Fails if fewer are left.
    pub(crate) fn values<const N: usize>(&mut self) -> Result<[&'a [u8]; N], CommandError> {
        let (values, rest) = self.0.split_first().ok_or(CommandError::SYNTAX)?;
        self.0 = rest;
        Ok(values)
    }

    /// Takes this many values.
    ///
    /// # Errors
    /// Fails if fewer are left.
    pub(crate) fn many_values(&mut self, count: usize) -> Result<Rest<'a>, CommandError> {
        let (values, rest) = self.0.split_at(count).ok_or(CommandError::SYNTAX)?;
        self.0 = rest;
        Ok(values)
    }

    /// # Errors
    /// Fails if something is left.
    pub(crate) fn end(self) -> Done {
        if self.0.is_empty() { Ok(()) } else { Err(CommandError::SYNTAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_wire::resp::OwnedArgs;

    fn check(line: &str, test: impl FnOnce(Options<'_>)) {
        let mut args = OwnedArgs::new();
        line.split(' ').for_each(|word| args.push(word.as_bytes()).expect("a short call"));
        test(Options::of(Rest::new(args.as_args())));
    }

    #[test]
    fn words_come_with_their_values() {
        check("NX Limit 1 2 count", |mut options| {
            assert!(!options.take("xx") && options.take("nx"));
            let word = options.next_word().unwrap();
            assert_eq!((&*word, word.spelled), (&b"limit"[..], &b"Limit"[..]));
            assert_eq!(options.values::<3>().map(|[_, _, count]| count), Ok(&b"count"[..]));
            assert!(options.next_word().is_none() && options.end().is_ok());
        });
    }

    #[test]
    fn what_is_missing_is_an_error_and_takes_nothing() {
        check("LIMIT 1", |mut options| {
            options.next_word();
            assert_eq!(options.values::<2>(), Err(CommandError::SYNTAX));
            assert!(options.end().is_err());
            assert_eq!(options.value(), Ok(&b"1"[..]));
            assert_eq!(options.value(), Err(CommandError::SYNTAX));
        });
    }

    #[test]
    fn long_and_empty_words_are_no_options() {
        check("aVeryLongWordIndeed ", |mut options| {
            assert_eq!(&*options.next_word().unwrap(), b"");
            assert_eq!(&*options.next_word().unwrap(), b"");
        });
    }
}
