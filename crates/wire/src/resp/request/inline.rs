//! Inline requests: a line of words, for a person with telnet.
//!
//! A word may be quoted, wholly or in part. Double quotes know the escapes `\n \r \t \b \a \xHH`
//! and take any other escaped byte as it is; single quotes know `\'` alone. A closing quote must be
//! followed by a space or the end.
//!
//! One thing differs from Redis: a zero byte is a byte like any other. Redis looks for the line's
//! end with C string functions, so a zero byte hides it, and the client waits forever.

use super::args::Span;
use super::error::ProtocolError;

/// Splits `line`, which is without its line end, into words. Appends their bytes to `unescaped` and
/// a span for each to `spans`. An empty line has no words.
///
/// # Errors
/// If a quote is not closed, or closed in the middle of a word.
pub(super) fn split_words(
    line: &[u8],
    unescaped: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), ProtocolError> {
    let mut rest = skip_spaces(line);
    while !rest.is_empty() {
        let start = unescaped.len();
        rest = skip_spaces(take_word(rest, unescaped)?);
        spans.push(Span::new(start, unescaped.len() - start));
    }
    Ok(())
}

/// Appends the word at the front of `rest` to `unescaped`, and returns what follows it.
fn take_word<'a>(mut rest: &'a [u8], unescaped: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => return Ok(rest),
            [b'"', quoted @ ..] => return close(take_double_quoted(quoted, unescaped)?),
            [b'\'', quoted @ ..] => return close(take_single_quoted(quoted, unescaped)?),
            [byte, after @ ..] => {
                unescaped.push(*byte);
                rest = after;
            }
        }
    }
}

/// Checks what follows a closing quote.
fn close(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(&byte) if !is_space(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn take_double_quoted<'a>(
    mut rest: &'a [u8],
    unescaped: &mut Vec<u8>,
) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', after @ ..] => return Ok(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex_value(*high) << 4 | hex_value(*low), after)
            }
            [b'\\', escaped, after @ ..] => (escape_value(*escaped), after),
            [byte, after @ ..] => (*byte, after),
        };
        unescaped.push(byte);
        rest = after;
    }
}

fn take_single_quoted<'a>(
    mut rest: &'a [u8],
    unescaped: &mut Vec<u8>,
) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\'', after @ ..] => return Ok(after),
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [byte, after @ ..] => (*byte, after),
        };
        unescaped.push(byte);
        rest = after;
    }
}

fn escape_value(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// The value of a byte that is known to be a hexadecimal digit.
fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// What separates words: C's `isspace`, which has the vertical tab that Rust's ASCII lacks.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    let first = text.iter().position(|&byte| !is_space(byte)).unwrap_or(text.len());
    &text[first..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[u8], expected: &[&[u8]]) {
        let (mut unescaped, mut spans) = (Vec::new(), Vec::new());
        split_words(line, &mut unescaped, &mut spans).unwrap();
        let args = super::super::Args::new(&unescaped, &spans);
        assert!(args.iter().eq(expected.iter().copied()), "{args:?}");
    }

    #[track_caller]
    fn check_refused(line: &[u8]) {
        let result = split_words(line, &mut Vec::new(), &mut Vec::new());
        assert_eq!(result, Err(ProtocolError::UnbalancedQuotes));
    }

    #[test]
    fn words_are_separated_by_spaces_of_any_kind() {
        check(b"", &[]);
        check(b" \t\x0b\x0c\r ", &[]);
        check(b"SET  key\tvalue ", &[b"SET", b"key", b"value"]);
        check(b"a\x0bb", &[b"a\x0bb"]);
        check(b"a\0b \0", &[b"a\0b", b"\0"]);
    }

    #[test]
    fn double_quotes_have_escapes() {
        check(
            br#"SET "a b" "" "\n\r\t\b\a\x41\xfF\q\"\\""#,
            &[b"SET", b"a b", b"", b"\n\r\t\x08\x07A\xffq\"\\"],
        );
        check(br#""\x4" "\xg0""#, &[b"x4", b"xg0"]);
        check(br#"ab"c d" e"#, &[b"abc d", b"e"]);
    }

    #[test]
    fn single_quotes_escape_themselves_only() {
        check(br#"'a\'b' '\n"' ''"#, &[b"a'b", b"\\n\"", b""]);
    }

    #[test]
    fn open_quotes_are_refused() {
        for line in
            [&br#"""#[..], br#""a"#, br#""a\"#, br#""a\""#, br#""a"b"#, b"'", b"'a'b", br"'\'"]
        {
            check_refused(line);
        }
    }
}
