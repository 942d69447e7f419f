//! The quoting of redis.conf lines, both directions.
//!
//! A line is words between blanks. A word may hold quoted parts: in double quotes the escapes
//! `\n \r \t \b \a \\ \"` and `\xHH` mean bytes, in single quotes only `\'` is an escape. A closing
//! quote has to be followed by a blank or the end of the line.
//!
//! [`quote`] and [`split`] are inverse: `split(quote(x)) == [x]` for all bytes.

/// The line has a quote that is never closed, or one that closes in the middle of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnbalancedQuotes;

/// Splits a line into its words.
///
/// # Errors
/// If a quote is not closed, or is closed in front of anything but a blank.
pub(super) fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Ok(words);
        }
        let (word, after) = take_word(rest)?;
        words.push(word);
        rest = after;
    }
}

/// Takes one word off the front of `rest`, which does not start with a blank.
fn take_word(mut rest: &[u8]) -> Result<(Vec<u8>, &[u8]), UnbalancedQuotes> {
    let mut word = Vec::new();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = match byte {
            b'"' => take_double_quoted(tail, &mut word)?,
            b'\'' => take_single_quoted(tail, &mut word)?,
            blank if blank.is_ascii_whitespace() => break,
            plain => {
                word.push(plain);
                tail
            }
        };
    }
    Ok((word, rest))
}

fn take_double_quoted<'a>(
    mut rest: &'a [u8],
    word: &mut Vec<u8>,
) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        rest = match rest {
            [b'"', tail @ ..] => return after_quote(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex_value(*high) << 4 | hex_value(*low));
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                word.push(unescape(*escaped));
                tail
            }
            [plain, tail @ ..] => {
                word.push(*plain);
                tail
            }
            [] => return Err(UnbalancedQuotes),
        };
    }
}

fn take_single_quoted<'a>(
    mut rest: &'a [u8],
    word: &mut Vec<u8>,
) -> Result<&'a [u8], UnbalancedQuotes> {
    loop {
        rest = match rest {
            [b'\'', tail @ ..] => return after_quote(tail),
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                tail
            }
            [plain, tail @ ..] => {
                word.push(*plain);
                tail
            }
            [] => return Err(UnbalancedQuotes),
        };
    }
}

fn after_quote(rest: &[u8]) -> Result<&[u8], UnbalancedQuotes> {
    match rest.first() {
        Some(byte) if !byte.is_ascii_whitespace() => Err(UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// The value of a hexadecimal digit; the caller has checked that it is one.
fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Writes a value in double quotes, on one line and in printable ASCII whatever it holds.
#[must_use]
pub(super) fn quote(value: &[u8]) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut out = Vec::with_capacity(value.len() + 2);
    out.push(b'"');
    for &byte in value {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x08 => out.extend(b"\\b"),
            0x07 => out.extend(b"\\a"),
            0x20..=0x7e => out.push(byte),
            other => {
                let digits = [HEX[usize::from(other >> 4)], HEX[usize::from(other & 15)]];
                out.extend(b"\\x");
                out.extend(digits);
            }
        }
    }
    out.push(b'"');
    out
}

#[cfg(test)]
mod tests {
    use super::{UnbalancedQuotes, quote, split};
    use proptest::prelude::*;

    fn check(line: &str, words: &[&str]) {
        let expected: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(split(line.as_bytes()), Ok(expected), "{line}");
    }

    #[test]
    fn words_are_split_at_blanks_and_unquoted() {
        check("", &[]);
        check("  port\t 7000  ", &["port", "7000"]);
        check(r#"save """#, &["save", ""]);
        check(r#"requirepass "a b" 'c d'"#, &["requirepass", "a b", "c d"]);
        check(r#"x "\x41\x4a\n\"\\\q""#, &["x", "AJ\n\"\\q"]);
        check(r"x 'it\'s \n'", &["x", r"it's \n"]);
        check(r#"dir pre"fix and"  rest"#, &["dir", "prefix and", "rest"]);
        check(r#"x "\x4""#, &["x", "x4"]);
    }

    #[test]
    fn a_quote_has_to_be_closed_and_followed_by_a_blank() {
        for line in [r#"port "1"#, "port '1", r#"port "1"2"#, "port '1'2", r#"port "1\"#] {
            assert_eq!(split(line.as_bytes()), Err(UnbalancedQuotes), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_survive_quoting(value: Vec<u8>) {
            let line = quote(&value);
            prop_assert!(line.iter().all(|byte| (0x20..0x7f).contains(byte)));
            prop_assert_eq!(split(&line), Ok(vec![value]));
        }
    }
}
