//! Decoded replies, and their notation.

use std::fmt::{self, Display, Write as _};
use std::io::BufRead as _;

/// A reply in either protocol version, with everything that distinguishes it on the wire.
///
/// `Display` writes it on one line. Tests compare with this notation:
///
/// | reply | notation |
/// |---|---|
/// | simple string, error | `+OK`, `-ERR syntax error` |
/// | integer, double, big number | `:1`, `,1.5`, `(123` |
/// | bulk and verbatim string | `"a\x00b"`, `=txt:"a"` |
/// | absent bulk string, absent array, null of RESP3 | `nil`, `nil-array`, `null` |
/// | boolean | `#t`, `#f` |
/// | array, set, push | `[:1, :2]`, `~[:1]`, `>[:1]` |
/// | map, attribute | `{"a": :1}`, `|{"a": :1}` |
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// A status line.
    Simple(Vec<u8>),
    /// An error line.
    Error(Vec<u8>),
    /// A number.
    Int(i64),
    /// A string.
    Bulk(Vec<u8>),
    /// `$-1`.
    Nil,
    /// `*-1`.
    NilArray,
    /// `_`.
    Null,
    /// A number as text, as received.
    Double(Vec<u8>),
    /// True or false.
    Bool(bool),
    /// A number as text, as received.
    BigNumber(Vec<u8>),
    /// A text with its format.
    Verbatim(Vec<u8>),
    /// Elements in order.
    Array(Vec<Self>),
    /// Elements without a defined order, in order of arrival.
    Set(Vec<Self>),
    /// A message that the client did not ask for.
    Push(Vec<Self>),
    /// Pairs in order of arrival.
    Map(Vec<(Self, Self)>),
    /// Pairs that belong to the next reply.
    Attribute(Vec<(Self, Self)>),
}

impl Reply {
    /// Decodes the reply at the start of `bytes` and returns it with its length, or `None` if it is
    /// incomplete.
    ///
    /// # Panics
    /// If the bytes are no reply.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut decoder = Decoder { bytes, at: 0 };
        let reply = decoder.reply()?;
        Some((reply, decoder.at))
    }

    /// Returns the bytes of a simple, bulk or verbatim string (without its format), or of an error.
    ///
    /// # Panics
    /// If it is something else.
    #[must_use]
    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Simple(bytes) | Self::Error(bytes) | Self::Bulk(bytes) => bytes,
            Self::Verbatim(bytes) => &bytes[4..],
            other => panic!("not a string: {other}"),
        }
    }

    /// Returns the bytes as text.
    ///
    /// # Panics
    /// If it is something else, or not UTF-8.
    #[must_use]
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).expect("UTF-8")
    }

    /// Returns the number.
    ///
    /// # Panics
    /// If it is something else.
    #[must_use]
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("not a number: {other}"),
        }
    }

    /// Returns the elements of an array, set or push.
    ///
    /// # Panics
    /// If it is something else.
    #[must_use]
    #[track_caller]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) | Self::Set(items) | Self::Push(items) => items,
            other => panic!("not an array: {other}"),
        }
    }

    /// Returns the value of a key in a map, or in an array of keys and values.
    ///
    /// # Panics
    /// If there is no such key.
    #[must_use]
    #[track_caller]
    pub fn field(&self, name: &str) -> &Self {
        let is_it = |key: &Self| matches!(key, Self::Bulk(key) | Self::Simple(key) if key == name.as_bytes());
        let found = match self {
            Self::Map(pairs) => pairs.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value),
            _ => self.items().chunks(2).find(|pair| is_it(&pair[0])).map(|pair| &pair[1]),
        };
        found.unwrap_or_else(|| panic!("no {name} in {self}"))
    }
}

impl Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => write!(f, "+{}", text.escape_ascii()),
            Self::Error(text) => write!(f, "-{}", Line(text)),
            Self::Int(number) => write!(f, ":{number}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Nil => f.write_str("nil"),
            Self::NilArray => f.write_str("nil-array"),
            Self::Null => f.write_str("null"),
            Self::Double(text) => write!(f, ",{}", text.escape_ascii()),
            Self::Bool(value) => f.write_str(if *value { "#t" } else { "#f" }),
            Self::BigNumber(text) => write!(f, "({}", text.escape_ascii()),
            Self::Verbatim(text) => {
                let (format, text) = text.split_at(4);
                write!(f, "={}\"{}\"", format.escape_ascii(), text.escape_ascii())
            }
            Self::Array(items) => write_items(f, "[", items),
            Self::Set(items) => write_items(f, "~[", items),
            Self::Push(items) => write_items(f, ">[", items),
            Self::Map(pairs) => write_pairs(f, "{", pairs),
            Self::Attribute(pairs) => write_pairs(f, "|{", pairs),
        }
    }
}

/// A line whose quotes are not escaped.
struct Line<'a>(&'a [u8]);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b' '..=b'~' => f.write_char(char::from(byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        Ok(())
    }
}

fn write_items(f: &mut fmt::Formatter<'_>, open: &str, items: &[Reply]) -> fmt::Result {
    f.write_str(open)?;
    for (index, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if index > 0 { ", " } else { "" })?;
    }
    f.write_str("]")
}

fn write_pairs(f: &mut fmt::Formatter<'_>, open: &str, pairs: &[(Reply, Reply)]) -> fmt::Result {
    f.write_str(open)?;
    for (index, (key, value)) in pairs.iter().enumerate() {
        write!(f, "{}{key}: {value}", if index > 0 { ", " } else { "" })?;
    }
    f.write_str("}")
}

struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Decoder<'_> {
    fn reply(&mut self) -> Option<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_first().expect("a reply, not an empty line");
        Some(match kind {
            b'+' => Reply::Simple(rest.to_vec()),
            b'-' => Reply::Error(rest.to_vec()),
            b':' => Reply::Int(number(rest)),
            b',' => Reply::Double(rest.to_vec()),
            b'(' => Reply::BigNumber(rest.to_vec()),
            b'#' => Reply::Bool(rest == b"t"),
            b'_' => Reply::Null,
            b'$' if number(rest) < 0 => Reply::Nil,
            b'$' => Reply::Bulk(self.body(number(rest))?),
            b'=' => Reply::Verbatim(self.body(number(rest))?),
            b'*' if number(rest) < 0 => Reply::NilArray,
            b'*' => Reply::Array(self.items(number(rest))?),
            b'~' => Reply::Set(self.items(number(rest))?),
            b'>' => Reply::Push(self.items(number(rest))?),
            b'%' => Reply::Map(self.pairs(number(rest))?),
            b'|' => Reply::Attribute(self.pairs(number(rest))?),
            _ => panic!("not a reply: {}", line.escape_ascii()),
        })
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        // Unoptimized, a loop over the bytes would take most of a test with large replies.
        let (mut line, mut rest) = (Vec::new(), &self.bytes[self.at..]);
        while !line.ends_with(b"\r\n") {
            if rest.read_until(b'\n', &mut line).expect("memory") == 0 {
                return None;
            }
        }
        self.at += line.len();
        line.truncate(line.len() - 2);
        Some(line)
    }

    fn body(&mut self, len: i64) -> Option<Vec<u8>> {
        let rest = &self.bytes[self.at..];
        let len = len as usize;
        let end = rest.get(len..len + 2)?;
        assert_eq!(end, b"\r\n", "a string of {len} bytes goes on");
        self.at += len + 2;
        Some(rest[..len].to_vec())
    }

    fn items(&mut self, count: i64) -> Option<Vec<Reply>> {
        (0..count).map(|_| self.reply()).collect()
    }

    fn pairs(&mut self, count: i64) -> Option<Vec<(Reply, Reply)>> {
        (0..count).map(|_| Some((self.reply()?, self.reply()?))).collect()
    }
}

fn number(text: &[u8]) -> i64 {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("not a number: {}", text.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_decoded_and_written_down() {
        let cases: [(&[u8], &str); 17] = [
            (b"+OK\r\n", "+OK"),
            (b"-ERR 'x'\r\n", "-ERR 'x'"),
            (b":-5\r\n", ":-5"),
            (b"$3\r\na\0b\r\n", r#""a\x00b""#),
            (b"$0\r\n\r\n", r#""""#),
            (b"$-1\r\n", "nil"),
            (b"*-1\r\n", "nil-array"),
            (b"_\r\n", "null"),
            (b",3.14\r\n", ",3.14"),
            (b"#t\r\n", "#t"),
            (b"(123\r\n", "(123"),
            (b"=7\r\ntxt:abc\r\n", r#"=txt:"abc""#),
            (b"*2\r\n:1\r\n*0\r\n", "[:1, []]"),
            (b"~1\r\n:1\r\n", "~[:1]"),
            (b">1\r\n:1\r\n", ">[:1]"),
            (b"%1\r\n+a\r\n:1\r\n", "{+a: :1}"),
            (b"|1\r\n+a\r\n:1\r\n", "|{+a: :1}"),
        ];
        for (bytes, written) in cases {
            let (reply, len) = Reply::decode(bytes).expect("a whole reply");
            assert_eq!((reply.to_string().as_str(), len), (written, bytes.len()));
            for end in 0..bytes.len() {
                assert_eq!(Reply::decode(&bytes[..end]), None, "{}", bytes.escape_ascii());
            }
        }
    }
}
