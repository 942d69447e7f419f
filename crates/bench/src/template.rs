//! Command templates: words in which placeholders stand for what differs between requests.
//!
//! | placeholder | becomes |
//! |---|---|
//! | `__key__` | the key prefix and twelve digits, chosen by the key distribution |
//! | `__rand_int__` | twelve digits, uniform below the keyspace (redis-benchmark's placeholder) |
//! | `__data__` | a value of the wanted size, the same in all requests made from one encoding |
//!
//! Placeholders may be parts of a word (`user:__rand_int__:name`) and may occur any number of
//! times. Everything but the digits is encoded once.

use tierce_wire::resp::{Encoder, Proto};

use crate::dialect::Dialect;
use crate::digits::DIGITS_LEN;
use crate::memcached::Operation;
use crate::random::Random;

/// A command with its placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Command);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Command {
    /// The words of a Redis command.
    Words(Vec<Vec<Part>>),
    /// A request of another protocol.
    Memcached(Dialect, Operation),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Key,
    Number,
    Data,
}

const PLACEHOLDERS: [(&str, Part); 3] =
    [("__key__", Part::Key), ("__rand_int__", Part::Number), ("__data__", Part::Data)];

/// What all requests of a run have in common.
#[derive(Clone, Debug)]
pub(crate) struct Filling<'a> {
    pub(crate) key_prefix: &'a str,
    pub(crate) data_size: usize,
}

/// One encoded request, and where in it digits must be written before it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) bytes: Vec<u8>,
    /// Offsets of the digits of keys, ascending.
    pub(crate) keys: Vec<usize>,
    /// Offsets of the digits of other numbers, ascending.
    pub(crate) numbers: Vec<usize>,
}

impl Template {
    /// A template from the words of a command. An empty word is an empty argument.
    pub(crate) fn new<Word: AsRef<str>>(words: &[Word]) -> Self {
        Self(Command::Words(words.iter().map(|word| parse_word(word.as_ref())).collect()))
    }

    /// A request of a protocol of memcached.
    pub(crate) fn memcached(dialect: Dialect, operation: Operation) -> Self {
        Self(Command::Memcached(dialect, operation))
    }

    /// The name of the command, as it was written.
    pub(crate) fn name(&self) -> String {
        let words = match &self.0 {
            Command::Words(words) => words,
            Command::Memcached(_, operation) => return operation.name().to_owned(),
        };
        let mut name = String::new();
        for part in words.first().into_iter().flatten() {
            match part {
                Part::Text(text) => name.push_str(text),
                placeholder => name.push_str(placeholder_name(placeholder)),
            }
        }
        name
    }

    /// Whether it reads many keys for one reply.
    pub(crate) fn is_multi_get(&self) -> bool {
        matches!(self.0, Command::Memcached(_, Operation::MultiGet(_)))
    }

    /// Bytes of all arguments together.
    pub(crate) fn arguments_len(&self, filling: &Filling<'_>) -> usize {
        match &self.0 {
            Command::Words(words) => words.iter().flatten().map(|part| part.len(filling)).sum(),
            Command::Memcached(_, operation) => operation.arguments_len(filling),
        }
    }

    /// Encodes the command as an array of bulk strings. Digits are zeros, data is random letters
    /// and digits from `random`, so that a server that compresses has no easy game and one that
    /// stores numbers specially never takes a value for a number.
    pub(crate) fn encode(&self, filling: &Filling<'_>, random: &mut Random) -> Request {
        let words = match &self.0 {
            Command::Words(words) => words,
            Command::Memcached(dialect, operation) => {
                return operation.encode(*dialect, filling, random);
            }
        };
        let mut request = Request::default();
        request.encoder().array(words.len());
        for word in words {
            let len = word.iter().map(|part| part.len(filling)).sum();
            request.encoder().bulk_header(len);
            for part in word {
                request.part(part, filling, random);
            }
            request.encoder().crlf();
        }
        request
    }
}

impl Request {
    /// Requests are arrays of strings in every version of the protocol.
    fn encoder(&mut self) -> Encoder<'_> {
        Encoder::new(&mut self.bytes, Proto::Resp2)
    }

    fn part(&mut self, part: &Part, filling: &Filling<'_>, random: &mut Random) {
        match part {
            Part::Text(text) => self.bytes.extend_from_slice(text.as_bytes()),
            Part::Key => self.key(filling),
            Part::Number => {
                self.numbers.push(self.bytes.len());
                self.bytes.extend_from_slice(&[b'0'; DIGITS_LEN]);
            }
            Part::Data => self.data(filling.data_size, random),
        }
    }

    pub(crate) fn key(&mut self, filling: &Filling<'_>) {
        self.bytes.extend_from_slice(filling.key_prefix.as_bytes());
        self.keys.push(self.bytes.len());
        self.bytes.extend_from_slice(&[b'0'; DIGITS_LEN]);
    }

    pub(crate) fn data(&mut self, size: usize, random: &mut Random) {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        const ALL: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        for index in 0..size {
            let from = if index == 0 { LETTERS } else { ALL };
            self.bytes.push(from[random.below(from.len() as u64) as usize]);
        }
    }
}

impl Part {
    fn len(&self, filling: &Filling<'_>) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Key => filling.key_prefix.len() + DIGITS_LEN,
            Self::Number => DIGITS_LEN,
            Self::Data => filling.data_size,
        }
    }
}

fn placeholder_name(part: &Part) -> &'static str {
    PLACEHOLDERS.iter().find(|(_, known)| known == part).map_or("", |(name, _)| name)
}

fn parse_word(mut rest: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    while let Some((at, name, part)) = first_placeholder(rest) {
        if at > 0 {
            parts.push(Part::Text(rest[..at].to_owned()));
        }
        parts.push(part);
        rest = &rest[at + name.len()..];
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    parts
}

fn first_placeholder(text: &str) -> Option<(usize, &'static str, Part)> {
    PLACEHOLDERS
        .iter()
        .filter_map(|(name, part)| text.find(name).map(|at| (at, *name, part.clone())))
        .min_by_key(|(at, ..)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(words: &[&str], data_size: usize) -> Request {
        let filling = Filling { key_prefix: "key:", data_size };
        Template::new(words).encode(&filling, &mut Random::new(1))
    }

    #[test]
    fn placeholders_are_encoded_with_the_length_of_what_they_become() {
        let request = encode(&["SET", "__key__", "__data__"], 5);
        let text = String::from_utf8(request.bytes).unwrap();
        let head = "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$5\r\n";
        assert!(text.starts_with(head), "{text:?}");
        assert_eq!(text.len(), head.len() + 5 + 2);
        assert_eq!(request.keys, [4 + 9 + 5 + 4]);
        assert!(request.numbers.is_empty());
    }

    #[test]
    fn placeholders_may_be_parts_of_a_word() {
        let request = encode(&["GET", "a__rand_int__b__rand_int__", "x__key____data__"], 1);
        let text = String::from_utf8(request.bytes).unwrap();
        let head = "*3\r\n$3\r\nGET\r\n$26\r\na000000000000b000000000000\r\n$18\r\nxkey:";
        assert!(text.starts_with(head), "{text:?}");
        assert_eq!(request.numbers.len(), 2);
        assert_eq!(request.keys.len(), 1);
    }

    #[test]
    fn other_text_and_empty_words_stay_as_they_are() {
        let request = encode(&["ECHO", "", "__keys__ _data_"], 3);
        assert_eq!(request.bytes, b"*3\r\n$4\r\nECHO\r\n$0\r\n\r\n$15\r\n__keys__ _data_\r\n");
    }

    #[test]
    fn data_never_looks_like_a_number() {
        let filling = Filling { key_prefix: "", data_size: 1 };
        let template = Template::new(&["__data__"]);
        let mut random = Random::new(3);
        for _ in 0..200 {
            let request = template.encode(&filling, &mut random);
            assert!(request.bytes[8].is_ascii_alphabetic(), "{:?}", request.bytes);
        }
    }
}
