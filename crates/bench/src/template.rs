//! Command templates: words with placeholders for the parts that differ between requests.
//!
//! | placeholder | replaced by |
//! |---|---|
//! | `__key__` | the key prefix and twelve digits, chosen by the key distribution |
//! | `__rand_int__` | twelve digits, uniform below the keyspace (redis-benchmark's placeholder) |
//! | `__data__` | a value of the requested size, the same in all requests made from one encoding |
//!
//! Placeholders may be part of a word (`user:__rand_int__:name`) and may occur any number of times. Everything except
//! the digits is encoded once.

use crate::digits::DIGITS_LEN;
use crate::memcached::Operation;
use crate::protocol::Protocol;
use crate::random::Random;
use crate::request::{Filling, Request};

/// A command with its placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Command);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Command {
    /// The words of a Redis command.
    Words(Vec<Vec<Token>>),
    /// A request of another protocol.
    Memcached(Protocol, Operation),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Text(String),
    Key,
    Number,
    Data,
}

const PLACEHOLDERS: [(&str, Token); 3] =
    [("__key__", Token::Key), ("__rand_int__", Token::Number), ("__data__", Token::Data)];

impl Template {
    /// Makes a template from the words of a command. An empty word is an empty argument.
    pub(crate) fn new<Word: AsRef<str>>(words: &[Word]) -> Self {
        Self(Command::Words(words.iter().map(|word| parse_word(word.as_ref())).collect()))
    }

    /// Makes a request of a memcached protocol.
    pub(crate) fn memcached(protocol: Protocol, operation: Operation) -> Self {
        Self(Command::Memcached(protocol, operation))
    }

    /// Returns the name of the command, as it was written.
    pub(crate) fn name(&self) -> String {
        let words = match &self.0 {
            Command::Words(words) => words,
            Command::Memcached(_, operation) => return operation.name().to_owned(),
        };
        let mut name = String::new();
        for token in words.first().into_iter().flatten() {
            match token {
                Token::Text(text) => name.push_str(text),
                placeholder => name.push_str(placeholder_name(placeholder)),
            }
        }
        name
    }

    /// Returns true if it reads many keys for one reply.
    pub(crate) fn is_multi_get(&self) -> bool {
        matches!(self.0, Command::Memcached(_, Operation::MultiGet(_)))
    }

    /// Returns the number of bytes of all arguments together.
    pub(crate) fn arguments_len(&self, filling: &Filling<'_>) -> usize {
        match &self.0 {
            Command::Words(words) => words.iter().flatten().map(|token| token.len(filling)).sum(),
            Command::Memcached(_, operation) => operation.arguments_len(filling),
        }
    }

    /// Encodes the command as an array of bulk strings. Digits are zeros. Data is random letters and digits from
    /// `random`: a server with compression gets no advantage, and a server that stores numbers specially never takes
    /// a value for a number.
    pub(crate) fn encode(&self, filling: &Filling<'_>, random: &mut Random) -> Request {
        let words = match &self.0 {
            Command::Words(words) => words,
            Command::Memcached(protocol, operation) => {
                return operation.encode(*protocol, filling, random);
            }
        };
        let mut request = Request::default();
        request.encoder().array(words.len());
        for word in words {
            let len = word.iter().map(|token| token.len(filling)).sum();
            request.encoder().bulk_header(len);
            for token in word {
                token.encode(&mut request, filling, random);
            }
            request.encoder().crlf();
        }
        request
    }
}

impl Token {
    fn encode(&self, request: &mut Request, filling: &Filling<'_>, random: &mut Random) {
        match self {
            Self::Text(text) => request.bytes.extend_from_slice(text.as_bytes()),
            Self::Key => request.key(filling),
            Self::Number => request.number(),
            Self::Data => request.data(filling.data_size, random),
        }
    }

    fn len(&self, filling: &Filling<'_>) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Key => filling.key_prefix.len() + DIGITS_LEN,
            Self::Number => DIGITS_LEN,
            Self::Data => filling.data_size,
        }
    }
}

fn placeholder_name(token: &Token) -> &'static str {
    PLACEHOLDERS.iter().find(|(_, known)| known == token).map_or("", |(name, _)| name)
}

fn parse_word(mut rest: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    while let Some((at, name, token)) = first_placeholder(rest) {
        if at > 0 {
            tokens.push(Token::Text(rest[..at].to_owned()));
        }
        tokens.push(token);
        rest = &rest[at + name.len()..];
    }
    if !rest.is_empty() {
        tokens.push(Token::Text(rest.to_owned()));
    }
    tokens
}

fn first_placeholder(text: &str) -> Option<(usize, &'static str, Token)> {
    PLACEHOLDERS
        .iter()
        .filter_map(|(name, token)| text.find(name).map(|at| (at, *name, token.clone())))
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
