//! The lines that make up replies.

use memchr::memchr;

use super::error::ReplyError;
use crate::number::{parse_f64, parse_i64};

/// Longest line. Servers send short lines; longer texts are strings with a length.
pub(super) const LINE_LEN_MAX: usize = 64 * 1024;

/// Digits that are read without searching for the line end first. Common lengths do not have more.
const SHORT_DIGITS_MAX: usize = 6;

/// Bytes of CRLF.
pub(super) const CRLF_LEN: usize = 2;

/// Content of one line, without type byte and CRLF.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Int(i64),
    Double(f64),
    Bool(bool),
    BigNumber(&'a [u8]),
    Null,
    /// The header of a string: `len` bytes and CRLF follow.
    Blob {
        kind: Blob,
        len: u64,
    },
    /// The header of an aggregate: `len` values or pairs of values follow.
    Aggregate {
        kind: Aggregate,
        len: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blob {
    String,
    Error,
    Verbatim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Array,
    Map,
    Set,
    Push,
    /// Precedes the value that it belongs to, and does not count as a value.
    Attribute,
}

impl Aggregate {
    /// Returns the number of values in an aggregate of this length.
    pub(super) fn values(self, len: u64) -> Result<u64, ReplyError> {
        let factor = match self {
            Aggregate::Map | Aggregate::Attribute => 2,
            Aggregate::Array | Aggregate::Set | Aggregate::Push => 1,
        };
        len.checked_mul(factor).ok_or(ReplyError::TooManyValues)
    }
}

/// Reads the line at the front of `input`, and returns its token and length; `None` if its end has
/// not arrived.
#[inline]
pub(super) fn read_token(input: &[u8]) -> Result<Option<(Token<'_>, usize)>, ReplyError> {
    if let Some(short) = read_short_token(input) {
        return Ok(Some(short));
    }
    let window = &input[..input.len().min(LINE_LEN_MAX)];
    let Some(end) = memchr(b'\r', window) else {
        // An incomplete line is only accepted if its first byte is a type.
        return match input.first() {
            Some(&got) if !is_type(got) => Err(ReplyError::UnknownType { got }),
            _ if window.len() < input.len() => Err(ReplyError::LineTooLong),
            _ => Ok(None),
        };
    };
    let line = &input[..end];
    match (line.split_first(), input.get(end + 1)) {
        (None, _) => Err(ReplyError::UnknownType { got: b'\r' }),
        (Some((&got, _)), _) if !is_type(got) => Err(ReplyError::UnknownType { got }),
        (Some((&kind, text)), Some(b'\n')) => Ok(Some((parse_line(kind, text)?, end + CRLF_LEN))),
        (Some(_), Some(_)) => Err(ReplyError::CrlfMissing),
        (Some(_), None) => Ok(None),
    }
}

/// Reads the most common lines: `+OK`, and integers and lengths of up to [`SHORT_DIGITS_MAX`]
/// digits.
#[inline]
fn read_short_token(input: &[u8]) -> Option<(Token<'_>, usize)> {
    let (&kind, digits) = match input {
        [b'+', b'O', b'K', b'\r', b'\n', ..] => return Some((Token::Simple(&input[1..3]), 5)),
        [kind @ (b':' | b'$'), digits @ ..] => (kind, digits),
        _ => return None,
    };
    let mut number = 0;
    for (index, &byte) in digits.iter().take(SHORT_DIGITS_MAX + 1).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let is_canonical = index > 0 && (digits[0] != b'0' || index == 1);
            let is_line = digits[index..].starts_with(b"\r\n");
            let token = match kind {
                b'$' => Token::Blob { kind: Blob::String, len: number },
                _ => Token::Int(number as i64),
            };
            return (is_canonical && is_line).then_some((token, 1 + index + CRLF_LEN));
        }
        number = number * 10 + u64::from(digit);
    }
    None
}

fn is_type(byte: u8) -> bool {
    matches!(
        byte,
        b'+' | b'-'
            | b':'
            | b'$'
            | b'*'
            | b'_'
            | b','
            | b'#'
            | b'!'
            | b'='
            | b'('
            | b'%'
            | b'~'
            | b'|'
            | b'>'
            | b';'
            | b'.'
    )
}

/// Parses the text of a line with a valid type byte.
fn parse_line(kind: u8, text: &[u8]) -> Result<Token<'_>, ReplyError> {
    let malformed = ReplyError::MalformedLine { of: kind };
    let blob = |kind| Ok(Token::Blob { kind, len: parse_len(text).ok_or(malformed)? });
    let aggregate = |kind| Ok(Token::Aggregate { kind, len: parse_len(text).ok_or(malformed)? });
    match (kind, text) {
        (b'$' | b'*' | b'!' | b'=' | b'%' | b'~' | b'|' | b'>', b"?") | (b';' | b'.', _) => {
            Err(ReplyError::Streamed)
        }
        (b'$' | b'*', b"-1") | (b'_', b"") => Ok(Token::Null),
        (b'+', _) => Ok(Token::Simple(text)),
        (b'-', _) => Ok(Token::Error(text)),
        (b':', _) => parse_int(text).map(Token::Int).ok_or(malformed),
        (b',', _) => parse_double(text).map(Token::Double).ok_or(malformed),
        (b'#', b"t") => Ok(Token::Bool(true)),
        (b'#', b"f") => Ok(Token::Bool(false)),
        (b'(', _) if is_big_number(text) => Ok(Token::BigNumber(text)),
        (b'$', _) => blob(Blob::String),
        (b'!', _) => blob(Blob::Error),
        (b'=', _) => blob(Blob::Verbatim),
        (b'*', _) => aggregate(Aggregate::Array),
        (b'%', _) => aggregate(Aggregate::Map),
        (b'~', _) => aggregate(Aggregate::Set),
        (b'>', _) => aggregate(Aggregate::Push),
        (b'|', _) => aggregate(Aggregate::Attribute),
        _ => Err(malformed),
    }
}

fn parse_len(text: &[u8]) -> Option<u64> {
    parse_i64(text).and_then(|len| u64::try_from(len).ok())
}

/// Parses an integer; version 3 allows a plus sign.
fn parse_int(text: &[u8]) -> Option<i64> {
    match text {
        [b'+', digits @ ..] if digits.first() != Some(&b'-') => parse_i64(digits),
        _ => parse_i64(text),
    }
}

fn parse_double(text: &[u8]) -> Option<f64> {
    match text {
        b"nan" | b"-nan" => Some(f64::NAN),
        _ => parse_f64(text),
    }
}

fn is_big_number(text: &[u8]) -> bool {
    let digits = match text {
        [b'+' | b'-', digits @ ..] => digits,
        digits => digits,
    };
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Token<'_>) {
        let input = format!("{line}\r\n");
        assert_eq!(read_token(input.as_bytes()), Ok(Some((expected, input.len()))));
        for end in 0..input.len() {
            assert_eq!(read_token(&input.as_bytes()[..end]), Ok(None), "{end} bytes");
        }
    }

    #[track_caller]
    fn check_error(line: &str, expected: ReplyError) {
        assert_eq!(read_token(format!("{line}\r\n").as_bytes()), Err(expected));
    }

    #[test]
    fn every_type_is_read() {
        check("+OK", Token::Simple(b"OK"));
        check("+", Token::Simple(b""));
        check("-ERR no", Token::Error(b"ERR no"));
        check(":7", Token::Int(7));
        check(":42", Token::Int(42));
        check(":-1", Token::Int(-1));
        check(":+123", Token::Int(123));
        check(",1.5", Token::Double(1.5));
        check(",-inf", Token::Double(f64::NEG_INFINITY));
        check("#t", Token::Bool(true));
        check("#f", Token::Bool(false));
        check(
            "(-123456789012345678901234567890",
            Token::BigNumber(b"-123456789012345678901234567890"),
        );
        check("_", Token::Null);
        check("$-1", Token::Null);
        check("*-1", Token::Null);
        check("$0", Token::Blob { kind: Blob::String, len: 0 });
        check("$99", Token::Blob { kind: Blob::String, len: 99 });
        check("$12345", Token::Blob { kind: Blob::String, len: 12345 });
        check("!21", Token::Blob { kind: Blob::Error, len: 21 });
        check("=15", Token::Blob { kind: Blob::Verbatim, len: 15 });
        for (kind, aggregate) in [
            ('*', Aggregate::Array),
            ('%', Aggregate::Map),
            ('~', Aggregate::Set),
            ('>', Aggregate::Push),
            ('|', Aggregate::Attribute),
        ] {
            check(&format!("{kind}3"), Token::Aggregate { kind: aggregate, len: 3 });
        }
    }

    #[test]
    fn malformed_lines_are_refused() {
        for line in [
            ":", ":1x", ":+-1", ":01", "$", "$-2", "$01", "*-2", "%-1", "~x", ">", "!-1", "=a",
            "_x", "#", "#true", ",", ",1x", "(", "(-", "(1.5",
        ] {
            check_error(line, ReplyError::MalformedLine { of: line.as_bytes()[0] });
        }
        for line in ["$?", "*?", "%?", ";4", ".", "!?"] {
            check_error(line, ReplyError::Streamed);
        }
        check_error("", ReplyError::UnknownType { got: b'\r' });
        check_error("HTTP/1.1 400", ReplyError::UnknownType { got: b'H' });
        assert_eq!(read_token(b"x"), Err(ReplyError::UnknownType { got: b'x' }));
        assert_eq!(read_token(b"+OK\rx"), Err(ReplyError::CrlfMissing));
        assert_eq!(read_token(&[b'+'; LINE_LEN_MAX]), Ok(None));
        assert_eq!(read_token(&[b'+'; LINE_LEN_MAX + 1]), Err(ReplyError::LineTooLong));
    }
}
