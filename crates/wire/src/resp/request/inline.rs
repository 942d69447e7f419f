//! Inline requests: a line of words, for a person with telnet. Their syntax is that of
//! [`words`](crate::words).

use super::args::Span;
use super::error::ProtocolError;
use crate::words::{UnbalancedQuotes, take_word};

/// Splits `line`, without its line end, into words. Appends their bytes to `unescaped` and a span
/// for each to `spans`. An empty line has no words.
///
/// # Errors
/// Fails if a quote is not closed, or closed in the middle of a word.
pub(super) fn split_words(
    line: &[u8],
    unescaped: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), ProtocolError> {
    let mut rest = line;
    loop {
        let start = unescaped.len();
        match take_word(rest, unescaped) {
            Ok(Some(after)) => rest = after,
            Ok(None) => return Ok(()),
            Err(UnbalancedQuotes) => return Err(ProtocolError::UnbalancedQuotes),
        }
        spans.push(Span::new(start, unescaped.len() - start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_spans_of_the_unescaped_bytes() {
        let (mut unescaped, mut spans) = (Vec::new(), Vec::new());
        split_words(br#" SET "a\tb" ""  'x' "#, &mut unescaped, &mut spans).unwrap();
        let args = super::super::Args::new(&unescaped, &spans);
        assert!(args.iter().eq([&b"SET"[..], b"a\tb", b"", b"x"]), "{args:?}");
        assert_eq!(unescaped, b"SETa\tbx");
    }

    #[test]
    fn open_quotes_are_refused() {
        let result = split_words(br#"GET "a"#, &mut Vec::new(), &mut Vec::new());
        assert_eq!(result, Err(ProtocolError::UnbalancedQuotes));
    }
}
