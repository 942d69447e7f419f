//! Words with quotes: inline requests, lines of redis.conf, and the output of MONITOR.
//!
//! Spaces separate words. A word may be quoted, wholly or in part. Double quotes know the escapes `\n \r \t \b \a
//! \xHH` and take any other escaped byte literally; single quotes know only `\'`. A closing quote must be followed
//! by a space or the end.
//!
//! [`quote`] and [`split`] are inverse: `split(quote(x)) == [x]` for all bytes.
//!
//! Unlike in Redis, a zero byte has no special meaning. Redis finds line ends with C string functions, so a zero
//! byte ends a line of its configuration, and hides the end of an inline request, whose client then waits forever.

use std::borrow::Cow;

/// A quote is not closed, or closed in the middle of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unbalanced quotes")]
pub struct UnbalancedQuotes;

/// Splits a line into its words.
///
/// # Errors
/// Fails if a quote is not closed, or closed in the middle of a word.
///
/// ```
/// use tierce_wire::words::split;
/// assert_eq!(split(br#"SET "a key" 1"#)?, [&b"SET"[..], b"a key", b"1"]);
/// # Ok::<(), tierce_wire::words::UnbalancedQuotes>(())
/// ```
pub fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        let mut word = Vec::new();
        match take_word(rest, &mut word)? {
            Some(after) => rest = after,
            None => return Ok(words),
        }
        words.push(word);
    }
}

/// Appends the bytes of the first word of `line` to `word` and returns the bytes behind it; `None` if there are
/// only spaces.
///
/// # Errors
/// Fails if a quote is not closed, or closed in the middle of a word.
pub fn take_word<'a>(
    line: &'a [u8],
    word: &mut Vec<u8>,
) -> Result<Option<&'a [u8]>, UnbalancedQuotes> {
    let mut rest = skip_spaces(line);
    if rest.is_empty() {
        return Ok(None);
    }
    loop {
        match rest {
            [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => return Ok(Some(rest)),
            [b'"', quoted @ ..] => return close(take_double_quoted(quoted, word)?).map(Some),
            [b'\'', quoted @ ..] => return close(take_single_quoted(quoted, word)?).map(Some),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

/// Returns `bytes` in double quotes, on one line and in printable ASCII.
pub fn quote(bytes: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(bytes.len() + 2);
    quote_into(&mut quoted, bytes);
    quoted
}

/// Returns the word unchanged if [`split`] reads it so, and otherwise in quotes.
#[must_use]
pub fn quote_if_needed(word: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = matches!(split(word).as_deref(), Ok([only]) if only.as_slice() == word);
    if is_plain { Cow::Borrowed(word) } else { Cow::Owned(quote(word)) }
}

/// Appends the result of [`quote`].
pub fn quote_into(out: &mut Vec<u8>, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x08 => out.extend(b"\\b"),
            0x07 => out.extend(b"\\a"),
            b' '..=b'~' => out.push(byte),
            other => {
                let digits = [HEX[usize::from(other >> 4)], HEX[usize::from(other & 15)]];
                out.extend(b"\\x");
                out.extend(digits);
            }
        }
    }
    out.push(b'"');
}

/// Checks the byte behind a closing quote.
fn close(rest: &[u8]) -> Result<&[u8], UnbalancedQuotes> {
    match rest.first() {
        Some(&byte) if !is_space(byte) => Err(UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn take_double_quoted<'a>(
    mut rest: &'a [u8],
    unescaped: &mut Vec<u8>,
) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(UnbalancedQuotes),
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
) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(UnbalancedQuotes),
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

/// Returns the value of a hexadecimal digit.
fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Returns true for a separator of words: C's `isspace`, which has the vertical tab that Rust's ASCII lacks.
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
    use proptest::prelude::*;
    use tierce_harness::effort;

    #[track_caller]
    fn check(line: &[u8], expected: &[&[u8]]) {
        assert_eq!(split(line).unwrap(), expected);
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
            assert_eq!(split(line), Err(UnbalancedQuotes), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn quotes_are_those_that_monitor_shows() {
        assert_eq!(quote(b"a\"\\\n\r\t\x07\x08\0\xffz"), br#""a\"\\\n\r\t\a\b\x00\xffz""#);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn any_bytes_survive_quoting(bytes: Vec<u8>) {
            let line = quote(&bytes);
            prop_assert!(line.iter().all(|byte| (b' '..=b'~').contains(byte)));
            prop_assert_eq!(split(&line), Ok(vec![bytes]));
        }
    }
}
