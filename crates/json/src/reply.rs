//! Replies as JSON: `{"result": ...}` or `{"error": "..."}`.
//!
//! JSON is text. A reply that is not UTF-8 is an error, unless the client asks for base64. Then every string is encoded
//! except the status `OK`, which cannot be mistaken for base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tierce_wire::resp::{ReplyDecoder, Value};

use crate::Error;

/// Encoding of strings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strings {
    /// Plain text.
    Text,
    /// Base64 for all strings.
    Base64,
}

/// Error for a string that is not UTF-8 while the client did not ask for base64.
#[derive(Debug)]
struct NotText;

const NOT_TEXT: &str =
    "ERR the reply is not text: ask for it with the header Upstash-Encoding: base64";

/// Form of a response body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// True for an array with one object for each command; false for the object of the only command.
    pub is_array: bool,
    /// Encoding of the strings in the replies.
    pub strings: Strings,
}

impl Form {
    /// Returns the body with these replies.
    pub fn encode(self, values: &[Value]) -> Result<Vec<u8>, Error> {
        match values {
            values if self.is_array => Ok(several(values, self.strings)),
            [value] => one(value, self.strings),
            _ => Err(Error::Malformed("ERR the command has no reply".to_owned())),
        }
    }
}

/// Returns the body with an error.
#[must_use]
pub fn error(text: &str) -> Vec<u8> {
    let mut body = Vec::new();
    write_error(&mut body, text.as_bytes());
    body
}

/// Decodes all replies in the output of a command.
pub fn decode(mut output: &[u8]) -> Result<Vec<Value>, Error> {
    let (mut decoder, mut values) = (ReplyDecoder::new(), Vec::new());
    while !output.is_empty() {
        let Ok(Some((value, len))) = decoder.decode(output) else {
            return Err(Error::NotShown);
        };
        values.push(value);
        output = &output[len..];
    }
    Ok(values)
}

/// Returns the body for one command.
fn one(value: &Value, strings: Strings) -> Result<Vec<u8>, Error> {
    if let Value::Error(text) = value {
        return Err(Error::OfCommand(String::from_utf8_lossy(text).into_owned()));
    }
    let mut body = Vec::new();
    write_result(&mut body, value, strings)
        .map_err(|NotText| Error::Malformed(NOT_TEXT.to_owned()))?;
    Ok(body)
}

/// Returns the body for several commands: an array with an object for each.
fn several(values: &[Value], strings: Strings) -> Vec<u8> {
    let mut body = vec![b'['];
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        let begin = body.len();
        if write_result(&mut body, value, strings).is_err() {
            body.truncate(begin);
            write_error(&mut body, NOT_TEXT.as_bytes());
        }
    }
    body.push(b']');
    body
}

fn write_result(body: &mut Vec<u8>, value: &Value, strings: Strings) -> Result<(), NotText> {
    if let Value::Error(text) = value {
        write_error(body, text);
        return Ok(());
    }
    body.extend_from_slice(b"{\"result\":");
    write(body, value, strings)?;
    body.push(b'}');
    Ok(())
}

fn write_error(body: &mut Vec<u8>, text: &[u8]) {
    body.extend_from_slice(b"{\"error\":");
    write_text(body, &String::from_utf8_lossy(text));
    body.push(b'}');
}

/// Writes a value as JSON. Recursion is bounded by the nesting limit of the decoder.
fn write(body: &mut Vec<u8>, value: &Value, strings: Strings) -> Result<(), NotText> {
    match value {
        Value::Int(number) => body.extend_from_slice(number.to_string().as_bytes()),
        Value::Null => body.extend_from_slice(b"null"),
        Value::Bool(yes) => body.extend_from_slice(yes.to_string().as_bytes()),
        Value::Double(number) => write_text(body, &number.to_string()),
        Value::Simple(text) if text == b"OK" => body.extend_from_slice(b"\"OK\""),
        Value::Error(text) => write_error(body, text),
        Value::Simple(bytes)
        | Value::Bulk(bytes)
        | Value::BigNumber(bytes)
        | Value::Verbatim { text: bytes, .. } => write_string(body, bytes, strings)?,
        Value::Array(values) | Value::Set(values) | Value::Push(values) => {
            write_all(body, values.iter(), strings)?;
        }
        Value::Map(pairs) => {
            write_all(body, pairs.iter().flat_map(|(key, value)| [key, value]), strings)?;
        }
        Value::Attributed { value, .. } => write(body, value, strings)?,
    }
    Ok(())
}

fn write_all<'a>(
    body: &mut Vec<u8>,
    values: impl Iterator<Item = &'a Value>,
    strings: Strings,
) -> Result<(), NotText> {
    body.push(b'[');
    for (index, value) in values.enumerate() {
        if index > 0 {
            body.push(b',');
        }
        write(body, value, strings)?;
    }
    body.push(b']');
    Ok(())
}

fn write_string(body: &mut Vec<u8>, bytes: &[u8], strings: Strings) -> Result<(), NotText> {
    match strings {
        Strings::Text => write_text(body, std::str::from_utf8(bytes).map_err(|_| NotText)?),
        Strings::Base64 => {
            body.push(b'"');
            append_base64(body, bytes);
            body.push(b'"');
        }
    }
    Ok(())
}

/// Appends bytes in base64.
pub fn append_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
}

fn write_text(body: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(body, text).expect("memory takes all of it");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(output: &[u8], strings: Strings) -> String {
        let values = decode(output).expect("replies");
        String::from_utf8(several(&values, strings)).expect("text")
    }

    #[test]
    fn replies_are_json() {
        let output = b"+OK\r\n+PONG\r\n:-7\r\n$-1\r\n*-1\r\n$3\r\na\"\n\r\n*2\r\n$0\r\n\r\n*1\r\n-ERR x\r\n-ERR y\r\n";
        let text = r#"[{"result":"OK"},{"result":"PONG"},{"result":-7},{"result":null},{"result":null},{"result":"a\"\n"},{"result":["",[{"error":"ERR x"}]]},{"error":"ERR y"}]"#;
        assert_eq!(shown(output, Strings::Text), text);
        let encoded = r#"[{"result":"OK"},{"result":"UE9ORw=="},{"result":-7},{"result":null},{"result":null},{"result":"YSIK"},{"result":["",[{"error":"ERR x"}]]},{"error":"ERR y"}]"#;
        assert_eq!(shown(output, Strings::Base64), encoded);
    }

    #[test]
    fn bytes_need_base64_and_what_is_beside_them_does_not_suffer() {
        let output = b"$2\r\n\xff\0\r\n*2\r\n:1\r\n$1\r\n\x80\r\n:1\r\n$2\r\nOK\r\n";
        let refused = format!(r#"{{"error":"{NOT_TEXT}"}}"#);
        let text = format!(r#"[{refused},{refused},{{"result":1}},{{"result":"OK"}}]"#);
        assert_eq!(shown(output, Strings::Text), text);
        let encoded = r#"[{"result":"/wA="},{"result":[1,"gA=="]},{"result":1},{"result":"T0s="}]"#;
        assert_eq!(shown(output, Strings::Base64), encoded);
    }
}
