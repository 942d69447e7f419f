//! Requests of memcached's protocols. Keys are the prefix and twelve digits, which are written later.

use tierce_wire::pedrokv::Kind;

use crate::digits::DIGITS_LEN;
use crate::pedrokv;
use crate::protocol::Protocol;
use crate::random::Random;
use crate::request::{Filling, Request};

const SET: u8 = 0x01;
const GET: u8 = 0x00;
const GETKQ: u8 = 0x0d;
const NOOP: u8 = 0x0a;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Set,
    Get,
    /// Reads so many keys. One reply for any number of keys found.
    MultiGet(u32),
}

impl Operation {
    /// Returns the name of the test.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
            Self::MultiGet(_) => "mget",
        }
    }

    /// Returns the number of bytes of all arguments together.
    pub(crate) fn arguments_len(self, filling: &Filling<'_>) -> usize {
        let key_len = filling.key_prefix.len() + DIGITS_LEN;
        match self {
            Self::Set => key_len + filling.data_size,
            Self::Get => key_len,
            Self::MultiGet(keys) => key_len * keys as usize,
        }
    }

    /// Encodes the request with zeros for digits.
    pub(crate) fn encode(
        self,
        protocol: Protocol,
        filling: &Filling<'_>,
        random: &mut Random,
    ) -> Request {
        if protocol == Protocol::PedroKv {
            let kind = if self == Self::Set { Kind::Put } else { Kind::Get };
            return pedrokv::encode(kind, filling, random);
        }
        let mut request = Request::default();
        match protocol {
            Protocol::MemcachedBinary => self.frames(&mut request, filling, random),
            Protocol::MemcachedMeta => self.meta(&mut request, filling, random),
            _ => self.text(&mut request, filling, random),
        }
        request
    }

    fn text(self, request: &mut Request, filling: &Filling<'_>, random: &mut Random) {
        match self {
            Self::Set => {
                request.bytes.extend_from_slice(b"set ");
                request.key(filling);
                let line = format!(" 0 0 {}\r\n", filling.data_size);
                request.bytes.extend_from_slice(line.as_bytes());
                request.data(filling.data_size, random);
            }
            Self::Get => {
                request.bytes.extend_from_slice(b"get ");
                request.key(filling);
            }
            Self::MultiGet(keys) => {
                request.bytes.extend_from_slice(b"get");
                for _ in 0..keys {
                    request.bytes.push(b' ');
                    request.key(filling);
                }
            }
        }
        request.bytes.extend_from_slice(b"\r\n");
    }

    fn meta(self, request: &mut Request, filling: &Filling<'_>, random: &mut Random) {
        match self {
            Self::Set => {
                request.bytes.extend_from_slice(b"ms ");
                request.key(filling);
                request.bytes.extend_from_slice(format!(" {}\r\n", filling.data_size).as_bytes());
                request.data(filling.data_size, random);
                request.bytes.extend_from_slice(b"\r\n");
            }
            Self::Get => {
                request.bytes.extend_from_slice(b"mg ");
                request.key(filling);
                request.bytes.extend_from_slice(b" v\r\n");
            }
            Self::MultiGet(keys) => {
                for _ in 0..keys {
                    request.bytes.extend_from_slice(b"mg ");
                    request.key(filling);
                    request.bytes.extend_from_slice(b" v k q\r\n");
                }
                request.bytes.extend_from_slice(b"mn\r\n");
            }
        }
    }

    fn frames(self, request: &mut Request, filling: &Filling<'_>, random: &mut Random) {
        let key_len = filling.key_prefix.len() + DIGITS_LEN;
        match self {
            Self::Set => {
                header(request, SET, key_len, 8, filling.data_size);
                request.bytes.extend_from_slice(&[0; 8]);
                request.key(filling);
                request.data(filling.data_size, random);
            }
            Self::Get => {
                header(request, GET, key_len, 0, 0);
                request.key(filling);
            }
            Self::MultiGet(keys) => {
                for _ in 0..keys {
                    header(request, GETKQ, key_len, 0, 0);
                    request.key(filling);
                }
                header(request, NOOP, 0, 0, 0);
            }
        }
    }
}

fn header(request: &mut Request, opcode: u8, key_len: usize, extras_len: u8, value_len: usize) {
    let body_len = (key_len + usize::from(extras_len) + value_len) as u32;
    let mut header = [0; 24];
    header[..2].copy_from_slice(&[0x80, opcode]);
    header[2..4].copy_from_slice(&(key_len as u16).to_be_bytes());
    header[4] = extras_len;
    header[8..12].copy_from_slice(&body_len.to_be_bytes());
    request.bytes.extend_from_slice(&header);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(operation: Operation, protocol: Protocol) -> Request {
        let filling = Filling { key_prefix: "key:", data_size: 2 };
        operation.encode(protocol, &filling, &mut Random::new(1))
    }

    #[test]
    fn lines_are_those_of_the_protocol() {
        let text = |operation, protocol| {
            String::from_utf8(encode(operation, protocol).bytes).expect("letters")
        };
        let set = text(Operation::Set, Protocol::MemcachedText);
        assert!(set.starts_with("set key:000000000000 0 0 2\r\n") && set.len() == 32, "{set}");
        assert_eq!(
            text(Operation::MultiGet(2), Protocol::MemcachedText),
            "get key:000000000000 key:000000000000\r\n"
        );
        assert_eq!(text(Operation::Get, Protocol::MemcachedMeta), "mg key:000000000000 v\r\n");
        assert!(text(Operation::MultiGet(2), Protocol::MemcachedMeta).ends_with("q\r\nmn\r\n"));
    }

    #[test]
    fn frames_are_as_long_as_they_say() {
        for operation in [Operation::Set, Operation::Get, Operation::MultiGet(3)] {
            let request = encode(operation, Protocol::MemcachedBinary);
            let mut rest = &request.bytes[..];
            while let Some((header, body)) = rest.split_first_chunk::<24>() {
                let len = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
                rest = &body[len as usize..];
            }
            assert!(rest.is_empty());
            let keys = if let Operation::MultiGet(keys) = operation { keys } else { 1 };
            assert_eq!(request.keys.len(), keys as usize);
        }
    }
}
