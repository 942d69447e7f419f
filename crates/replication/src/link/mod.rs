//! A replica's side of the link to its primary, as a state machine: bytes in, events and bytes out.
//!
//! It has no socket and no clock. Its driver passes received bytes to [`Link::receive`], calls [`Link::next`] for
//! [`Event`]s until there are no more, and sends the bytes that [`Link::take_output`] returns.
//!
//! ```text
//! PING, [AUTH], REPLCONF listening-port, [REPLCONF ip-address], REPLCONF capa, PSYNC      one after the other
//!   +FULLRESYNC id offset, then $<length> or $EOF:<mark>, and a file      Copy, Payload..., CopyEnds
//!   +CONTINUE [id]                                                        Continues
//! commands, each with the offset behind it                                Command...
//! ```
//!
//! **Invariants:**
//! - The events do not depend on how the bytes were split.
//! - Memory grows with received bytes, never with a declared length. At most some bytes of a file are kept, and the
//!   received part of a command.
//! - After an error the link has failed; the driver closes it and creates another one.

mod handshake;
mod payload;
#[cfg(test)]
mod simulation;

use std::fmt;

use tierce_wire::resp::{Args, Batch, Limits, Parser, Status};

use self::handshake::{Answer, Handshake};
use self::payload::{Payload, Piece};
use crate::identity::ReplicationId;

pub use self::handshake::Introduction;

/// A position in a stream: this many bytes of it are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Replication id of the stream.
    pub id: ReplicationId,
    /// Number of known bytes.
    pub offset: u64,
}

impl Position {
    /// Greatest offset at which a stream may begin. Offsets are signed 64-bit numbers, so as many bytes again can
    /// follow. No primary has sent so much.
    pub const OFFSET_MAX: u64 = 1 << 62;
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, self.offset)
    }
}

/// Event on the link.
#[derive(Debug)]
pub enum Event<'a> {
    /// A file follows, with all data as of this position in the stream.
    Copy(Position),
    /// The next bytes of the file.
    Payload(&'a [u8]),
    /// The file is complete. Commands follow.
    CopyEnds,
    /// The stream continues at this replica's position; its id may have changed.
    Continues(Position),
    /// A command of the stream. The stream is known up to `offset` with it.
    Command {
        /// The command, its name included.
        args: Args<'a>,
        /// Its bytes, and the bytes before it that belong to no command.
        bytes: &'a [u8],
        /// Number of known bytes of the stream, including this command.
        offset: u64,
    },
    /// Bytes of the stream without a meaning: empty lines.
    Blank(&'a [u8]),
}

/// Reason why a link has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The primary cannot serve replicas at the moment.
    #[error("the primary cannot serve replicas now: {0}")]
    NotNow(String),
    /// The primary refuses this replica.
    #[error("the primary refuses {step}: {reply}")]
    Refused {
        /// Request that it refused.
        step: &'static str,
        /// Reply of the primary.
        reply: String,
    },
    /// The primary sent something that is no reply to the request.
    #[error("instead of a reply to {step} came: {line}")]
    NoReply {
        /// The request.
        step: &'static str,
        /// The line that it sent.
        line: String,
    },
    /// A line exceeds the limit.
    #[error("a line of more than {LINE_LEN_MAX} bytes came in reply to {step}")]
    LongLine {
        /// The request.
        step: &'static str,
    },
    /// The stream has something that is no command.
    #[error("at offset {offset} of the stream there is no command: {what}")]
    NoCommand {
        /// Offset in the stream at which it begins.
        offset: u64,
        /// The fault in it.
        what: String,
    },
}

/// The longest line of a handshake.
const LINE_LEN_MAX: usize = 64 * 1024;

/// Upper bound of commands parsed at once.
const BATCH_LEN: usize = 128;

/// Limits of Redis' protocol, not of any directive: a command that the primary accepted is valid.
const LIMITS: Limits = Limits {
    max_bulk_len: u32::MAX as usize,
    max_multibulk_len: i32::MAX as usize,
    max_inline_len: LINE_LEN_MAX,
    line_slack: 0,
    auth: tierce_wire::resp::AuthState::Granted,
};

/// A connection to a primary.
pub struct Link {
    phase: Phase,
    /// Received bytes; those before `taken` are consumed.
    input: Vec<u8>,
    taken: usize,
    output: Vec<u8>,
    stream: Stream,
}

enum Phase {
    Handshake(Handshake),
    /// `+FULLRESYNC` has come, but not the header of the file.
    Announced,
    Copy(Payload),
    Stream,
    Failed,
}

/// Commands that were parsed from the input and not returned yet.
#[derive(Default)]
struct Stream {
    position: Option<Position>,
    parser: Parser,
    batch: Batch,
    /// Offset in the input at which the batch begins.
    start: usize,
    /// Number of its commands that were returned.
    returned: usize,
    /// Bytes of the input that belong to them.
    consumed: usize,
    /// The bytes behind the batch are no command.
    error: Option<String>,
}

impl Link {
    /// Returns a link that continues at this position if the primary allows it.
    #[must_use]
    pub fn new(introduction: &Introduction, position: Option<Position>) -> Self {
        let mut output = Vec::new();
        let handshake = Handshake::begin(introduction, position, &mut output);
        Self {
            phase: Phase::Handshake(handshake),
            input: Vec::new(),
            taken: 0,
            output,
            stream: Stream { position, ..Stream::default() },
        }
    }

    /// Receives bytes. Call [`Link::next`] until it returns `None` before the next call.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input.drain(..self.taken);
        self.taken = 0;
        self.input.extend_from_slice(bytes);
        if self.input.is_empty() {
            // One long command must not occupy memory for the lifetime of the link.
            self.input.shrink_to(LINE_LEN_MAX);
        }
    }

    /// Returns the bytes to send.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns true if the link receives commands, so that the primary expects acknowledgements of the offset.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        matches!(self.phase, Phase::Stream)
    }

    /// Returns the present step in a few words, for the log.
    #[must_use]
    pub fn step(&self) -> &'static str {
        match &self.phase {
            Phase::Handshake(handshake) => handshake.step(),
            Phase::Announced | Phase::Copy(_) => "full copy",
            Phase::Stream => "stream",
            Phase::Failed => "nothing",
        }
    }

    /// Tells the primary that this replica has `offset` bytes of the stream, and `logged` of them on disk.
    pub fn acknowledge(&mut self, offset: u64, logged: Option<u64>) {
        let offset = offset.to_string();
        let logged = logged.map(|logged| logged.to_string());
        let mut words = vec![&b"REPLCONF"[..], b"ACK", offset.as_bytes()];
        if let Some(logged) = &logged {
            words.extend([&b"FACK"[..], logged.as_bytes()]);
        }
        handshake::push_command(&mut self.output, &words);
    }

    /// Returns the next event, or `None` if more bytes have to arrive first.
    ///
    /// # Errors
    /// Fails if the received bytes are invalid or a refusal. The link has failed then.
    #[expect(clippy::should_implement_trait, reason = "an event borrows the link")]
    pub fn next(&mut self) -> Result<Option<Event<'_>>, LinkError> {
        loop {
            match &self.phase {
                Phase::Handshake(_) => match self.handshake()? {
                    Step::Again => {}
                    Step::Waits => return Ok(None),
                    Step::Event(event) => return Ok(Some(event)),
                },
                Phase::Announced => {
                    if !self.head()? {
                        return Ok(None);
                    }
                }
                Phase::Copy(_) => return Ok(self.payload()),
                Phase::Stream => return self.command(),
                Phase::Failed => return Ok(None),
            }
        }
    }

    fn fail(&mut self, error: LinkError) -> LinkError {
        self.phase = Phase::Failed;
        error
    }

    /// Returns the next line without its end; `None` if it is incomplete.
    fn line(&mut self, step: &'static str) -> Result<Option<Vec<u8>>, LinkError> {
        let rest = &self.input[self.taken..];
        let window = &rest[..rest.len().min(LINE_LEN_MAX)];
        let Some(end) = memchr::memchr(b'\n', window) else {
            if rest.len() < LINE_LEN_MAX {
                return Ok(None);
            }
            return Err(self.fail(LinkError::LongLine { step }));
        };
        let line = &rest[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        self.taken += end + 1;
        Ok(Some(line))
    }

    fn handshake(&mut self) -> Result<Step<'static>, LinkError> {
        let Phase::Handshake(handshake) = &self.phase else { return Ok(Step::Again) };
        let Some(line) = self.line(handshake.step())? else { return Ok(Step::Waits) };
        // The primary sends empty lines to keep the connection alive.
        if line.is_empty() {
            return Ok(Step::Again);
        }
        let Phase::Handshake(handshake) = &mut self.phase else { return Ok(Step::Again) };
        match handshake.answer(&line, &mut self.output) {
            Err(error) => Err(self.fail(error)),
            Ok(Answer::GoesOn) => Ok(Step::Again),
            Ok(Answer::Copy(position)) => {
                self.phase = Phase::Announced;
                self.stream.position = Some(position);
                Ok(Step::Event(Event::Copy(position)))
            }
            Ok(Answer::Continues(position)) => {
                self.phase = Phase::Stream;
                self.stream.position = Some(position);
                Ok(Step::Event(Event::Continues(position)))
            }
        }
    }

    /// Reads the header of the file. Returns true if a line was complete.
    fn head(&mut self) -> Result<bool, LinkError> {
        const STEP: &str = "full copy";
        let Some(line) = self.line(STEP)? else { return Ok(false) };
        match Payload::announced_by(&line) {
            _ if line.is_empty() => Ok(true),
            Some(payload) => {
                self.phase = Phase::Copy(payload);
                Ok(true)
            }
            None if line.starts_with(b"-") => {
                Err(self.fail(LinkError::NotNow(handshake::shown(&line[1..]))))
            }
            None => {
                let line = handshake::shown(&line);
                Err(self.fail(LinkError::NoReply { step: STEP, line }))
            }
        }
    }

    fn payload(&mut self) -> Option<Event<'_>> {
        let Phase::Copy(payload) = &mut self.phase else { return None };
        match payload.take(&self.input[self.taken..]) {
            Piece::Waits => None,
            Piece::Bytes(len) => {
                let start = self.taken;
                self.taken += len;
                Some(Event::Payload(&self.input[start..self.taken]))
            }
            Piece::End { mark_len } => {
                self.taken += mark_len;
                self.phase = Phase::Stream;
                Some(Event::CopyEnds)
            }
        }
    }

    fn command(&mut self) -> Result<Option<Event<'_>>, LinkError> {
        if self.stream.returned == self.stream.batch.len() {
            match self.find_commands()? {
                Found::Commands => {}
                Found::Blank(len) => {
                    return Ok(Some(Event::Blank(&self.input[self.taken - len..self.taken])));
                }
                Found::Nothing => return Ok(None),
            }
        }
        let Self { stream, input, taken, .. } = self;
        let Some(position) = &mut stream.position else { return Ok(None) };
        let nth = stream.returned;
        let end = stream.batch.end(nth);
        position.offset += (end - stream.consumed) as u64;
        *taken = stream.start + end;
        let bytes = &input[stream.start + stream.consumed..*taken];
        (stream.returned, stream.consumed) = (nth + 1, end);
        let args = stream.batch.get(nth, &input[stream.start..]);
        Ok(Some(Event::Command { args, bytes, offset: position.offset }))
    }

    /// Parses the commands behind those that were returned.
    fn find_commands(&mut self) -> Result<Found, LinkError> {
        let Self { stream, input, taken, .. } = self;
        let Some(position) = &mut stream.position else { return Ok(Found::Nothing) };
        if stream.error.is_none() {
            let rest = &input[*taken..];
            let parsed = stream.parser.parse(rest, &LIMITS, BATCH_LEN, &mut stream.batch);
            (stream.start, stream.returned, stream.consumed) = (*taken, 0, 0);
            if let Status::Error(error) = parsed.status {
                stream.error = Some(error.to_string());
            }
            if !stream.batch.is_empty() {
                return Ok(Found::Commands);
            }
            // Empty lines are a part of the stream.
            position.offset += parsed.consumed as u64;
            *taken += parsed.consumed;
            if parsed.consumed > 0 {
                return Ok(Found::Blank(parsed.consumed));
            }
        }
        let offset = position.offset;
        match stream.error.take() {
            None => Ok(Found::Nothing),
            Some(what) => Err(self.fail(LinkError::NoCommand { offset, what })),
        }
    }
}

/// Content of the input behind the returned commands.
enum Found {
    Commands,
    /// Empty lines of this many bytes. They are consumed.
    Blank(usize),
    Nothing,
}

enum Step<'a> {
    /// Something was consumed.
    Again,
    /// More bytes have to arrive.
    Waits,
    Event(Event<'a>),
}
