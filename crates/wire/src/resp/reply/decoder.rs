//! Decodes replies into values.

use super::error::ReplyError;
use super::scanner::ReplyScanner;
use super::token::{Aggregate, Blob, CRLF_LEN, Token, read_token};

/// Deepest nesting that is decoded. Replies of Redis have less than ten levels; the bound prevents stack overflow,
/// both in decoding and in dropping a value.
pub const DEPTH_MAX: usize = 128;

/// Length of the shortest value, `_` and CRLF. It bounds the number of values in an input.
const VALUE_LEN_MIN: usize = 3;

/// Length of the format name of a verbatim string, without its colon.
const FORMAT_LEN: usize = 3;

/// One reply, owned. Strings are bytes, as they need not be text.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A short text such as `OK`.
    Simple(Vec<u8>),
    /// An error, its code first.
    Error(Vec<u8>),
    /// An integer.
    Int(i64),
    /// A string.
    Bulk(Vec<u8>),
    /// Null, of any version and type.
    Null,
    /// Values in order.
    Array(Vec<Value>),
    /// Keys and their values, in the order they came.
    Map(Vec<(Value, Value)>),
    /// Values in any order.
    Set(Vec<Value>),
    /// A message that answers no request.
    Push(Vec<Value>),
    /// A double.
    Double(f64),
    /// A boolean.
    Bool(bool),
    /// An integer of any size, in decimal digits.
    BigNumber(Vec<u8>),
    /// Text and the name of its format.
    Verbatim {
        /// `txt` or `mkd`.
        format: [u8; FORMAT_LEN],
        /// The text.
        text: Vec<u8>,
    },
    /// A value and its attributes.
    Attributed {
        /// The attributes.
        attributes: Vec<(Value, Value)>,
        /// The reply itself.
        value: Box<Value>,
    },
}

impl Value {
    /// Returns the bytes of a string of any type, or of an error.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(bytes)
            | Value::Error(bytes)
            | Value::Bulk(bytes)
            | Value::BigNumber(bytes)
            | Value::Verbatim { text: bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Returns the integer.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the values of an array, a set or a push.
    pub fn as_values(&self) -> Option<&[Value]> {
        match self {
            Value::Array(values) | Value::Set(values) | Value::Push(values) => Some(values),
            _ => None,
        }
    }

    /// Returns true if it is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }
}

/// Decodes replies one by one. A reply that arrives in many pieces is scanned as they arrive and decoded once, when
/// it is complete.
#[derive(Clone, Debug, Default)]
pub struct ReplyDecoder {
    scanner: ReplyScanner,
    /// Bytes of the input that were scanned.
    scanned: usize,
    /// True if the scanned bytes are a whole reply.
    is_complete: bool,
}

impl ReplyDecoder {
    /// Returns a decoder at the start of a reply.
    pub fn new() -> ReplyDecoder {
        ReplyDecoder::default()
    }

    /// Decodes the reply at the front of `input` and returns it with its length, or `None` if it is incomplete. The
    /// next input must begin behind that reply, or with the same byte after `None`.
    ///
    /// # Errors
    /// Fails if the input is no reply, or nests too deep. The connection cannot be used any more.
    pub fn decode(&mut self, input: &[u8]) -> Result<Option<(Value, usize)>, ReplyError> {
        let Some(len) = self.reply_len(input)? else { return Ok(None) };
        (self.scanned, self.is_complete) = (0, false);
        let mut reader = Reader { rest: &input[..len] };
        let value = reader.read_value(0)?;
        debug_assert!(reader.rest.is_empty());
        Ok(Some((value, len)))
    }

    /// Returns the length of the reply at the front of `input`, or `None` if it is incomplete. The reply is not
    /// decoded: the next input begins with the same byte.
    ///
    /// # Errors
    /// Fails if the input is no reply.
    pub fn reply_len(&mut self, input: &[u8]) -> Result<Option<usize>, ReplyError> {
        if !self.is_complete {
            let unseen = input.get(self.scanned..).unwrap_or_default();
            let (consumed, complete) = self.scanner.step(unseen)?;
            self.scanned += consumed;
            self.is_complete = complete.is_some();
        }
        Ok(self.is_complete.then_some(self.scanned))
    }
}

/// Reads from a complete reply.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn read_value(&mut self, depth: usize) -> Result<Value, ReplyError> {
        // The scanner found the reply complete. If it is not, that is an error and no panic.
        let (token, len) = read_token(self.rest)?.ok_or(ReplyError::CrlfMissing)?;
        self.rest = &self.rest[len..];
        match token {
            Token::Simple(text) => Ok(Value::Simple(text.to_vec())),
            Token::Error(text) => Ok(Value::Error(text.to_vec())),
            Token::Int(value) => Ok(Value::Int(value)),
            Token::Double(value) => Ok(Value::Double(value)),
            Token::Bool(value) => Ok(Value::Bool(value)),
            Token::BigNumber(digits) => Ok(Value::BigNumber(digits.to_vec())),
            Token::Null => Ok(Value::Null),
            Token::Blob { kind, len } => self.read_blob(kind, len),
            Token::Aggregate { .. } if depth == DEPTH_MAX => Err(ReplyError::TooDeep),
            Token::Aggregate { kind, len } => self.read_aggregate(kind, len, depth + 1),
        }
    }

    fn read_blob(&mut self, kind: Blob, len: u64) -> Result<Value, ReplyError> {
        let len = usize::try_from(len).map_err(|_| ReplyError::CrlfMissing)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(ReplyError::CrlfMissing)?;
        self.rest = match rest {
            [b'\r', b'\n', ..] => &rest[CRLF_LEN..],
            _ => return Err(ReplyError::CrlfMissing),
        };
        match (kind, bytes) {
            (Blob::String, _) => Ok(Value::Bulk(bytes.to_vec())),
            (Blob::Error, _) => Ok(Value::Error(bytes.to_vec())),
            (Blob::Verbatim, &[a, b, c, b':', ref text @ ..]) => {
                Ok(Value::Verbatim { format: [a, b, c], text: text.to_vec() })
            }
            (Blob::Verbatim, _) => Err(ReplyError::MalformedLine { of: b'=' }),
        }
    }

    fn read_aggregate(
        &mut self,
        kind: Aggregate,
        len: u64,
        depth: usize,
    ) -> Result<Value, ReplyError> {
        match kind {
            Aggregate::Array => self.read_values(len, depth).map(Value::Array),
            Aggregate::Set => self.read_values(len, depth).map(Value::Set),
            Aggregate::Push => self.read_values(len, depth).map(Value::Push),
            Aggregate::Map => self.read_pairs(len, depth).map(Value::Map),
            Aggregate::Attribute => Ok(Value::Attributed {
                attributes: self.read_pairs(len, depth)?,
                value: Box::new(self.read_value(depth)?),
            }),
        }
    }

    fn read_values(&mut self, len: u64, depth: usize) -> Result<Vec<Value>, ReplyError> {
        let mut values = Vec::with_capacity(self.capacity(len, 1));
        for _ in 0..len {
            values.push(self.read_value(depth)?);
        }
        Ok(values)
    }

    fn read_pairs(&mut self, len: u64, depth: usize) -> Result<Vec<(Value, Value)>, ReplyError> {
        let mut pairs = Vec::with_capacity(self.capacity(len, 2));
        for _ in 0..len {
            pairs.push((self.read_value(depth)?, self.read_value(depth)?));
        }
        Ok(pairs)
    }

    /// Returns the number of elements, of `values` values each, to reserve memory for: the declared number, but no
    /// more than the remaining bytes can hold.
    fn capacity(&self, announced: u64, values: usize) -> usize {
        let possible = self.rest.len() / (VALUE_LEN_MIN * values);
        usize::try_from(announced).map_or(possible, |announced| announced.min(possible))
    }
}
