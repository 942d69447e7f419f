//! RESP, the Redis protocol: any command, to any server that speaks it.
//!
//! [`Client`] keeps many commands in flight, with callbacks or futures, and [`Pipeline`] sends several as one.
//! [`SyncClient`] makes one request at a time on the calling thread. Replies are [`Value`]s.

mod client;
mod pipeline;
mod sync;

pub use client::Client;
pub use pipeline::Pipeline;
pub use sync::SyncClient;
pub use tierce_wire::resp::Value;

use memchr::memchr;
use tierce_wire::resp::{Encoder, Proto, ReplyDecoder};

use crate::callback::Outcome;
use crate::engine::Greeting;
use crate::error::Error;

/// Login and database of a connection.
#[derive(Clone, Debug, Default)]
pub struct Login {
    /// User; `None` for the default user.
    pub user: Option<String>,
    /// Password, if one is needed.
    pub password: Option<String>,
    /// Database; default 0.
    pub database: u32,
}

impl Login {
    fn greeting(&self) -> Greeting {
        let mut greeting = Greeting { refusal: Some(refusal), ..Greeting::default() };
        let mut command = |args: &[&str]| {
            encode(args, &mut greeting.bytes);
            greeting.answers += 1;
        };
        match (&self.user, &self.password) {
            (Some(user), Some(password)) => command(&["AUTH", user, password]),
            (None, Some(password)) => command(&["AUTH", password]),
            (_, None) => {}
        }
        if self.database > 0 {
            command(&["SELECT", &self.database.to_string()]);
        }
        greeting
    }
}

/// Returns the text of an error reply.
fn refusal(reply: &[u8]) -> Option<String> {
    let text = reply.strip_prefix(b"-")?;
    Some(String::from_utf8_lossy(text.trim_ascii_end()).into_owned())
}

/// Appends a command: an array of strings.
#[inline]
fn encode<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) {
    let mut encoder = Encoder::new(out, Proto::Resp2);
    encoder.array(args.len());
    for arg in args {
        encoder.bulk(arg.as_ref());
    }
}

/// Frequent commands, encoded up to their arguments.
const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n";
const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n";
const DEL: &[u8] = b"*2\r\n$3\r\nDEL\r\n";

/// Appends such a command with its arguments.
#[inline]
fn plain(command: &[u8], args: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Error> {
    out.extend_from_slice(command);
    let mut encoder = Encoder::new(out, Proto::Resp2);
    args.iter().for_each(|arg| encoder.bulk(arg));
    Ok(())
}

/// Commands after which replies do not match commands one by one, or never end.
const UNSUPPORTED: [&str; 10] = [
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "SSUBSCRIBE",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE",
    "MONITOR",
    "SYNC",
    "PSYNC",
    "QUIT",
];

/// Checks and appends a command of the caller.
fn encode_checked<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) -> Result<(), Error> {
    let Some(name) = args.first().map(AsRef::as_ref) else {
        return Err(Error::Unsupported("a command needs a name".to_owned()));
    };
    let is_client_reply = || {
        let second = args.get(1).map(AsRef::as_ref).unwrap_or_default();
        name.eq_ignore_ascii_case(b"CLIENT") && second.eq_ignore_ascii_case(b"REPLY")
    };
    let is_unsupported = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
    if UNSUPPORTED.iter().any(is_unsupported) || is_client_reply() {
        return Err(Error::Unsupported(String::from_utf8_lossy(name).into_owned()));
    }
    encode(args, out);
    Ok(())
}

/// Decodes the received replies, which are complete. Omits pushes between them.
fn values(mut replies: &[u8]) -> Result<Vec<Value>, Error> {
    let mut values = Vec::new();
    while !replies.is_empty() {
        let decoded = ReplyDecoder::new().decode(replies);
        match decoded.map_err(|error| Error::Protocol(error.to_string()))? {
            Some((Value::Push(_), len)) => replies = &replies[len..],
            Some((value, len)) => {
                values.push(value);
                replies = &replies[len..];
            }
            None => return Err(Error::Protocol("half a reply".to_owned())),
        }
    }
    Ok(values)
}

/// Returns the only reply. An error reply is an error.
fn value(outcome: Outcome<'_>) -> Result<Value, Error> {
    match values(outcome?)?.pop() {
        Some(Value::Error(text)) => Err(Error::server(&text)),
        Some(value) => Ok(value),
        None => Err(Error::Protocol("no reply".to_owned())),
    }
}

/// Returns the string without a copy, or `None` for null.
fn string(outcome: Outcome<'_>) -> Result<Option<&[u8]>, Error> {
    let reply = outcome?;
    match reply {
        [b'$', b'0'..=b'9', ..] => {
            let head = memchr(b'\n', reply).map_or(0, |end| end + 1);
            Ok(reply.get(head..reply.len() - 2))
        }
        b"$-1\r\n" | b"_\r\n" => Ok(None),
        _ => Err(unexpected(value(Ok(reply)))),
    }
}

/// Returns the string as an owned copy.
fn owned(outcome: Outcome<'_>) -> Result<Option<Vec<u8>>, Error> {
    Ok(string(outcome)?.map(<[u8]>::to_vec))
}

/// Checks for success.
fn ok(outcome: Outcome<'_>) -> Result<(), Error> {
    match outcome? {
        b"+OK\r\n" => Ok(()),
        reply => Err(unexpected(value(Ok(reply)))),
    }
}

/// Returns the number.
fn int(outcome: Outcome<'_>) -> Result<i64, Error> {
    match value(outcome)? {
        Value::Int(number) => Ok(number),
        other => Err(unexpected(Ok(other))),
    }
}

fn unexpected(value: Result<Value, Error>) -> Error {
    match value {
        Ok(value) => Error::Unexpected(format!("{value:?}")),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_in_place() {
        assert_eq!(string(Ok(b"$5\r\nhello\r\n")), Ok(Some(&b"hello"[..])));
        assert_eq!(string(Ok(b"$0\r\n\r\n")), Ok(Some(&b""[..])));
        assert_eq!(string(Ok(b"$2\r\n\n\r\r\n")), Ok(Some(&b"\n\r"[..])));
        assert_eq!(string(Ok(b"$-1\r\n")), Ok(None));
        assert_eq!(string(Ok(b"_\r\n")), Ok(None));
        assert_eq!(string(Ok(b"-ERR no\r\n")), Err(Error::Server("ERR no".to_owned())));
        assert_eq!(string(Ok(b":1\r\n")), Err(Error::Unexpected("Int(1)".to_owned())));
    }

    #[test]
    fn commands_that_break_the_order_are_not_sent() {
        let mut out = Vec::new();
        for args in [&["subscribe", "x"][..], &["Monitor"], &["client", "reply", "off"], &[]] {
            assert!(matches!(encode_checked(args, &mut out), Err(Error::Unsupported(_))));
        }
        assert!(out.is_empty());
        plain(SET, &[b"k", b"value"], &mut out).unwrap();
        let set = std::mem::take(&mut out);
        encode_checked(&["SET", "k", "value"], &mut out).unwrap();
        assert_eq!(std::mem::take(&mut out), set);
        encode_checked(&["CLIENT", "ID"], &mut out).unwrap();
        assert_eq!(out, b"*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n");
    }

    #[test]
    fn a_login_is_as_many_commands_as_are_needed() {
        assert_eq!(Login::default().greeting().answers, 0);
        let login = Login { password: Some("x".to_owned()), database: 3, ..Login::default() };
        let greeting = login.greeting();
        assert_eq!(greeting.answers, 2);
        assert_eq!(
            greeting.bytes,
            b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"
        );
        assert_eq!(refusal(b"-WRONGPASS no\r\n").as_deref(), Some("WRONGPASS no"));
        assert_eq!(refusal(b"+OK\r\n"), None);
    }
}
