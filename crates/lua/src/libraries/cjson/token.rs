//! Tokens of JSON, as the reader of Redis sees them: a zero ends the text, and words and numbers need no delimiter
//! after them.

use super::number;
use crate::native::Buffer;

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Colon,
    Comma,
    Null,
    Boolean(bool),
    Number(f64),
    /// A string without escapes.
    String(&'a [u8]),
    /// A string with escapes; its text is in the buffer.
    Unescaped,
    End,
    /// Description of the error.
    Error(&'static str),
}

impl Token<'_> {
    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::Null => "T_NULL",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Number(_) => "T_NUMBER",
            Self::String(_) | Self::Unescaped => "T_STRING",
            Self::End => "T_END",
            Self::Error(error) => error,
        }
    }
}

/// Reader of tokens, one after the other.
pub struct Tokens<'a> {
    text: &'a [u8],
    position: usize,
    /// Start of the last token; in a string with an error, the position of the error.
    start: usize,
    allow_invalid_numbers: bool,
}

impl<'a> Tokens<'a> {
    /// Returns the tokens of a text up to its first zero.
    pub fn new(text: &'a [u8], allow_invalid_numbers: bool) -> Self {
        let end = memchr::memchr(0, text).unwrap_or(text.len());
        Self { text: &text[..end], position: 0, start: 0, allow_invalid_numbers }
    }

    /// Returns the index of the first byte of the last token; in a string with an error, that of the error.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Returns the number of bytes that were read.
    pub fn position(&self) -> usize {
        self.position
    }

    #[inline]
    fn skip_space(&mut self) {
        while matches!(self.text.get(self.position), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.position += 1;
        }
    }

    /// Returns true if the next token is this single character, and consumes it then.
    #[inline]
    pub fn eat(&mut self, character: u8) -> bool {
        self.skip_space();
        let is_next = self.text.get(self.position) == Some(&character);
        self.position += usize::from(is_next);
        is_next
    }

    /// Returns the next token. `unescaped` receives the text of a string with escapes.
    #[inline]
    pub fn next(&mut self, unescaped: &mut Buffer<'_>) -> Token<'a> {
        self.skip_space();
        self.start = self.position;
        self.token(unescaped)
    }

    fn error(&mut self, error: &'static str) -> Token<'a> {
        self.start = self.position;
        Token::Error(error)
    }

    #[inline]
    fn token(&mut self, unescaped: &mut Buffer<'_>) -> Token<'a> {
        let rest = &self.text[self.position..];
        match rest.first() {
            None => Token::End,
            Some(b'{') => self.found(Token::ObjectBegin, 1),
            Some(b'}') => self.found(Token::ObjectEnd, 1),
            Some(b'[') => self.found(Token::ArrayBegin, 1),
            Some(b']') => self.found(Token::ArrayEnd, 1),
            Some(b',') => self.found(Token::Comma, 1),
            Some(b':') => self.found(Token::Colon, 1),
            Some(b'"') => self.string(unescaped),
            Some(b'-' | b'0'..=b'9') if !self.allow_invalid_numbers && number::is_invalid(rest) => {
                self.error("invalid number")
            }
            Some(b'-' | b'0'..=b'9') => self.number(rest),
            Some(_) if rest.starts_with(b"true") => self.found(Token::Boolean(true), 4),
            Some(_) if rest.starts_with(b"false") => self.found(Token::Boolean(false), 5),
            Some(_) if rest.starts_with(b"null") => self.found(Token::Null, 4),
            Some(b'i' | b'I' | b'n' | b'N' | b'+')
                if self.allow_invalid_numbers && number::is_invalid(rest) =>
            {
                self.number(rest)
            }
            Some(_) => self.error("invalid token"),
        }
    }

    fn found(&mut self, token: Token<'a>, len: usize) -> Token<'a> {
        self.position += len;
        token
    }

    fn number(&mut self, rest: &[u8]) -> Token<'a> {
        match number::read(rest) {
            Some((number, len)) => self.found(Token::Number(number), len),
            None => self.error("invalid number"),
        }
    }

    fn string(&mut self, unescaped: &mut Buffer<'_>) -> Token<'a> {
        self.position += 1;
        let plain = self.plain();
        if self.text.get(self.position) == Some(&b'"') {
            return self.found(Token::String(plain), 1);
        }
        unescaped.clear();
        unescaped.add(plain);
        loop {
            match self.text.get(self.position) {
                None => return self.error("unexpected end of string"),
                Some(b'"') => return self.found(Token::Unescaped, 1),
                Some(_) => {
                    if let Err(error) = self.escape(unescaped) {
                        return self.error(error);
                    }
                }
            }
            unescaped.add(self.plain());
        }
    }

    /// Returns the bytes of a string up to its next backslash or end.
    fn plain(&mut self) -> &'a [u8] {
        /// Most strings end before this; for them a search byte by byte is faster.
        const SHORT: usize = 32;
        let rest = &self.text[self.position..];
        let is_end = |byte: &u8| matches!(byte, b'"' | b'\\');
        let short = rest.iter().take(SHORT).position(is_end);
        let len = short.or_else(|| memchr::memchr2(b'"', b'\\', rest)).unwrap_or(rest.len());
        self.position += len;
        &rest[..len]
    }

    /// Reads the escape here. If it is malformed, the position stays at its backslash.
    fn escape(&mut self, unescaped: &mut Buffer<'_>) -> Result<(), &'static str> {
        let rest = &self.text[self.position..];
        let byte = match rest.get(1) {
            Some(&byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                let (code, len) = code_point(rest).ok_or("invalid unicode escape code")?;
                self.position += len;
                unescaped.add(code.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        };
        self.position += 2;
        unescaped.add_byte(byte);
        Ok(())
    }
}

/// Returns the code point of `\uXXXX` or of a pair of surrogates, and its length.
fn code_point(text: &[u8]) -> Option<(char, usize)> {
    let first = code_unit(text.get(2..6)?)?;
    if let Some(code) = char::from_u32(first) {
        return Some((code, 6));
    }
    let second = text.get(6..12)?.strip_prefix(b"\\u")?;
    let pair = [u16::try_from(first).ok()?, u16::try_from(code_unit(second)?).ok()?];
    let code = char::decode_utf16(pair).next()?.ok()?;
    Some((code, 12))
}

fn code_unit(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |unit, &digit| Some(unit << 4 | char::from(digit).to_digit(16)?))
}
