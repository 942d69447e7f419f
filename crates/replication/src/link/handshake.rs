//! The requests before the stream. They are sent one at a time: old primaries, and proxies between the two, do not
//! expect pipelined ones.

use super::{LinkError, Position};
use crate::identity::ReplicationId;
use tierce_wire::number::parse_i64;

/// Facts that a replica reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Introduction {
    /// User name, if it is not the default user.
    pub user: Option<Vec<u8>>,
    /// Password, if there is one.
    pub password: Option<Vec<u8>>,
    /// Port that it listens on, or that others must use.
    pub port: u16,
    /// Address that others must use, if it differs from the address of the connection.
    pub address: Option<Vec<u8>>,
    /// True if this server was the primary, and the other one, its replica, must take over.
    pub hands_over: bool,
}

/// A request of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Request {
    Ping,
    Auth(Vec<Vec<u8>>),
    Port(u16),
    Address(Vec<u8>),
    Capabilities,
    Sync(Option<Position>),
    /// `PSYNC` to a replica of this server, which must take over.
    TakeOver(Position),
}

/// Result of a reply.
pub(super) enum Answer {
    GoesOn,
    Copy(Position),
    Continues(Position),
}

pub(super) struct Handshake {
    /// Pending requests in reverse order; the last one waits for its reply.
    requests: Vec<Request>,
}

impl Request {
    fn name(&self) -> &'static str {
        match self {
            Self::Ping => "PING",
            Self::Auth(_) => "AUTH",
            Self::Port(_) => "REPLCONF listening-port",
            Self::Address(_) => "REPLCONF ip-address",
            Self::Capabilities => "REPLCONF capa",
            Self::Sync(_) | Self::TakeOver(_) => "PSYNC",
        }
    }

    fn push_to(&self, output: &mut Vec<u8>) {
        match self {
            Self::Ping => push_command(output, &[b"PING"]),
            Self::Auth(words) => {
                let words = words.iter().map(Vec::as_slice);
                push_command(output, &[&b"AUTH"[..]].into_iter().chain(words).collect::<Vec<_>>());
            }
            Self::Port(port) => {
                let port = port.to_string();
                push_command(output, &[b"REPLCONF", b"listening-port", port.as_bytes()]);
            }
            Self::Address(address) => {
                push_command(output, &[b"REPLCONF", b"ip-address", address]);
            }
            Self::Capabilities => {
                push_command(output, &[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"]);
            }
            Self::Sync(None) => push_command(output, &[b"PSYNC", b"?", b"-1"]),
            Self::Sync(Some(position)) => {
                push_command(
                    output,
                    &[b"PSYNC", position.id.as_bytes(), first_missing(position).as_bytes()],
                );
            }
            Self::TakeOver(position) => {
                let first = first_missing(position);
                push_command(
                    output,
                    &[b"PSYNC", position.id.as_bytes(), first.as_bytes(), b"FAILOVER"],
                );
            }
        }
    }
}

/// Returns the first missing byte, counted from 1.
fn first_missing(position: &Position) -> String {
    position.offset.saturating_add(1).to_string()
}

impl Handshake {
    pub(super) fn begin(
        introduction: &Introduction,
        position: Option<Position>,
        output: &mut Vec<u8>,
    ) -> Self {
        let Introduction { user, password, port, address, hands_over } = introduction.clone();
        let auth =
            password.map(|password| Request::Auth(user.into_iter().chain([password]).collect()));
        let sync = match position.filter(|_| hands_over) {
            Some(position) => Request::TakeOver(position),
            None => Request::Sync(position),
        };
        let mut requests = vec![sync, Request::Capabilities];
        requests.extend(address.map(Request::Address));
        requests.push(Request::Port(port));
        requests.extend(auth);
        requests.push(Request::Ping);
        let handshake = Self { requests };
        handshake.ask(output);
        handshake
    }

    fn ask(&self, output: &mut Vec<u8>) {
        if let Some(request) = self.requests.last() {
            request.push_to(output);
        }
    }

    /// Returns the request that waits for its reply.
    pub(super) fn step(&self) -> &'static str {
        self.requests.last().map_or("nothing", Request::name)
    }

    /// Handles a line of a reply, and sends the next request.
    pub(super) fn answer(
        &mut self,
        line: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<Answer, LinkError> {
        let Some(request) = self.requests.last() else { return Ok(Answer::GoesOn) };
        let step = request.name();
        let refusal = || LinkError::Refused { step, reply: shown(&line[1..]) };
        let is_error = line.starts_with(b"-");
        match request {
            _ if !is_error && !line.starts_with(b"+") => {
                return Err(LinkError::NoReply { step, line: shown(line) });
            }
            _ if is_error && is_temporary(line) => {
                return Err(LinkError::NotNow(shown(&line[1..])));
            }
            // A primary that requires AUTH refuses PING without it, too. Later replies show that.
            Request::Ping if is_error && !wants_password(line) => return Err(refusal()),
            Request::Auth(_) if is_error => return Err(refusal()),
            Request::Sync(_) | Request::TakeOver(_) if is_error => return Err(refusal()),
            Request::Sync(position) => return answer_of_sync(line, *position),
            Request::TakeOver(position) => return answer_of_sync(line, Some(*position)),
            // Older primaries do not support some of the other requests, and work without them.
            _ => {}
        }
        self.requests.pop();
        self.ask(output);
        Ok(Answer::GoesOn)
    }
}

fn answer_of_sync(line: &[u8], position: Option<Position>) -> Result<Answer, LinkError> {
    let no_reply = || LinkError::NoReply { step: "PSYNC", line: shown(line) };
    let mut words = line[1..].split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    match words.next().unwrap_or_default() {
        word if word.eq_ignore_ascii_case(b"FULLRESYNC") => {
            let id = words.next().and_then(ReplicationId::parse);
            let offset = words.next().and_then(parse_i64);
            let offset = offset.and_then(|offset| u64::try_from(offset).ok());
            let offset = offset.filter(|offset| *offset <= Position::OFFSET_MAX);
            let (Some(id), Some(offset)) = (id, offset) else { return Err(no_reply()) };
            Ok(Answer::Copy(Position { id, offset }))
        }
        // The primary can continue only if this replica sent a position.
        word if word.eq_ignore_ascii_case(b"CONTINUE") => {
            let position = position.ok_or_else(no_reply)?;
            let id = match words.next() {
                None => position.id,
                Some(id) => ReplicationId::parse(id).ok_or_else(no_reply)?,
            };
            Ok(Answer::Continues(Position { id, ..position }))
        }
        _ => Err(no_reply()),
    }
}

/// Returns true for errors of servers that will be able to serve replicas later.
fn is_temporary(line: &[u8]) -> bool {
    [&b"-NOMASTERLINK"[..], b"-LOADING", b"-MASTERDOWN", b"-BUSY"]
        .iter()
        .any(|kind| line.starts_with(kind))
}

fn wants_password(line: &[u8]) -> bool {
    [&b"-NOAUTH"[..], b"-NOPERM", b"-ERR operation not permitted"]
        .iter()
        .any(|kind| line.starts_with(kind))
}

/// Returns the beginning of a line, escaped for a log.
pub(super) fn shown(line: &[u8]) -> String {
    const SHOWN_MAX: usize = 200;
    line[..line.len().min(SHOWN_MAX)].trim_ascii_end().escape_ascii().to_string()
}

/// Appends a command as an array of bulk strings.
pub(super) fn push_command(output: &mut Vec<u8>, words: &[&[u8]]) {
    output.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        output.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        output.extend_from_slice(word);
        output.extend_from_slice(b"\r\n");
    }
}
