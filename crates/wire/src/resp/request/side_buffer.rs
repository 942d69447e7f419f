//! A request with one large argument outside the input.
//!
//! The argument is received into a side buffer, its final location, so the parser sees the request without it. Its
//! length was checked when its header arrived.

use memchr::memrchr;

use super::batch::Batch;
use super::limits::Limits;
use super::parser::{Parsed, Parser, Status};

/// Replaces the argument while the others are parsed.
const EMPTY_ARGUMENT: &[u8] = b"$0\r\n";

/// Parses the one request at the front of `input`, from which an argument of `len` bytes at `at` was removed. If
/// the batch then has a complete request, pass the removed argument as the batch's input.
///
/// [`Parsed::consumed`] counts the bytes of `input`.
pub fn parse_with_side_buffer(
    input: &[u8],
    at: usize,
    len: usize,
    limits: &Limits,
    batch: &mut Batch,
) -> Parsed {
    let line = memrchr(b'$', &input[..at]).expect("the length stands before the argument");
    let mut text = Vec::with_capacity(input.len());
    text.extend_from_slice(&input[..line]);
    text.extend_from_slice(EMPTY_ARGUMENT);
    let argument = text.len();
    text.extend_from_slice(&input[at..]);
    let shortened = input.len() - text.len();
    let parsed = Parser::new().parse(&text, limits, 1, batch);
    if parsed.status != Status::Full {
        return Parsed { consumed: 0, ..parsed };
    }
    let end = parsed.consumed + shortened;
    batch.put_with_side_buffer(text, argument, len, end);
    Parsed { consumed: end, ..parsed }
}

#[cfg(test)]
mod tests {
    use super::super::Parser;
    use super::*;
    use crate::resp::AuthState;

    fn request(words: &[&str]) -> Vec<u8> {
        let mut text = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            text.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        text
    }

    fn limits() -> Limits {
        Limits { auth: AuthState::Granted, ..Limits::default() }
    }

    #[test]
    fn a_request_without_its_value_is_the_same_request_with_it_at_every_length() {
        let value = "some value of $3\r\n bytes";
        for words in [&["SET", "key", value, "EX", "10"][..], &["APPEND", "k", value], &[value, ""]]
        {
            let whole = request(words);
            let head = request(words.split(|word| *word == value).next().unwrap());
            let count_len = format!("*{}\r\n", words.len()).len();
            let before =
                count_len + head[head.iter().position(|byte| *byte == b'\n').unwrap() + 1..].len();
            let at = before + format!("${}\r\n", value.len()).len();
            for end in at..=at + 1 {
                // If the parser knows the position of the value, it reports it.
                let mut parser = Parser::new();
                let parsed = parser.parse(&whole[..end], &limits(), 9, &mut Batch::new());
                assert!(matches!(parsed.status, Status::NeedMore { .. }));
                assert_eq!(parser.announced(&whole[..end]), Some((at, value.len())));
            }
            let mut input = whole[..at].to_vec();
            input.extend_from_slice(&whole[at + value.len()..]);
            let complete = input.len();
            input.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
            let mut batch = Batch::new();
            for end in at..complete {
                let parsed =
                    parse_with_side_buffer(&input[..end], at, value.len(), &limits(), &mut batch);
                assert!(matches!(parsed.status, Status::NeedMore { .. }), "{end}: {parsed:?}");
                assert_eq!((parsed.consumed, batch.len()), (0, 0));
            }
            let parsed = parse_with_side_buffer(&input, at, value.len(), &limits(), &mut batch);
            assert_eq!((parsed.consumed, parsed.status), (complete, Status::Full));
            assert_eq!((batch.len(), batch.end(0)), (1, complete));
            let args = batch.get(0, value.as_bytes());
            assert!(args.iter().eq(words.iter().map(|word| word.as_bytes())));
            let index = words.iter().position(|word| *word == value).unwrap();
            assert!(std::ptr::eq(args.at(index), value.as_bytes()), "the vector is the argument");
        }
    }

    #[test]
    fn where_no_argument_is_underway_none_is_announced() {
        for text in
            ["", "*", "*2\r\n", "*2\r\n$1", "*2\r\n$1\r\na\r\n", "SET a", "*1\r\n$4\r\nPING\r\n"]
        {
            let mut parser = Parser::new();
            parser.parse(text.as_bytes(), &limits(), 9, &mut Batch::new());
            assert_eq!(parser.announced(text.as_bytes()), None, "{text:?}");
        }
    }
}
