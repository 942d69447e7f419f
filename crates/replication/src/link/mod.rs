//! A replica's side of the link to its primary, as a state machine: bytes in, bytes out, and what they mean.
//!
//! It sees no socket and no clock. Its driver passes what has arrived to [`Link::receive`], asks [`Link::next`] for
//! [`Event`]s until there are no more, and sends what [`Link::take_output`] returns.
//!
//! ```text
//! PING, [AUTH], REPLCONF listening-port, [REPLCONF ip-address], REPLCONF capa, PSYNC      one after the other
//!   +FULLRESYNC id offset, then $<length> or $EOF:<mark>, and a file      Copy, Payload..., CopyEnds
//!   +CONTINUE [id]                                                        Continues
//! commands, each with the offset behind it                                Command...
//! ```
//!
//! **Invariants:**
//! - What the events say does not depend on how the bytes were split.
//! - Memory grows with received bytes, never with a declared length: of a file some bytes are kept at most, of a
//!   command what has arrived of it.
//! - After an error the link is over; the driver closes it and makes another one.

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

/// A place in a stream: so many bytes of it are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The name of the stream.
    pub id: ReplicationId,
    /// The bytes that are known.
    pub offset: u64,
}

impl Place {
    /// A stream does not begin behind this many bytes: offsets are signed numbers of 64 bits, and as many bytes again
    /// can follow. No primary has sent so much.
    pub const OFFSET_MAX: u64 = 1 << 62;
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, self.offset)
    }
}

/// What the primary has said.
#[derive(Debug)]
pub enum Event<'a> {
    /// A file with all data as they are at this place of the stream follows.
    Copy(Place),
    /// The next bytes of the file.
    Payload(&'a [u8]),
    /// The file is complete. Commands follow.
    CopyEnds,
    /// The stream goes on where this replica left it; its name may be another one.
    Continues(Place),
    /// A command of the stream, which is known up to `offset` with it.
    Command {
        /// The command, its name included.
        args: Args<'a>,
        /// Its bytes, and those before it that are no command.
        bytes: &'a [u8],
        /// Bytes of the stream that are known with it.
        offset: u64,
    },
    /// Bytes of the stream that say nothing: empty lines.
    Blank(&'a [u8]),
}

/// Why a link is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The primary cannot serve replicas at the moment.
    #[error("the primary cannot serve replicas now: {0}")]
    NotNow(String),
    /// It does not let this replica in.
    #[error("the primary refuses {step}: {reply}")]
    Refused {
        /// What it was asked for.
        step: &'static str,
        /// What it replied.
        reply: String,
    },
    /// What it sent is no reply to what it was asked.
    #[error("instead of a reply to {step} came: {line}")]
    NoReply {
        /// What it was asked for.
        step: &'static str,
        /// What came.
        line: String,
    },
    /// A line goes on and on.
    #[error("a line of more than {LINE_LEN_MAX} bytes came in reply to {step}")]
    LongLine {
        /// What it was asked for.
        step: &'static str,
    },
    /// What came is no command.
    #[error("at offset {offset} of the stream there is no command: {what}")]
    NoCommand {
        /// Bytes of the stream before it.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
}

/// The longest line of a handshake.
const LINE_LEN_MAX: usize = 64 * 1024;

/// Commands found at once.
const BATCH_LEN: usize = 128;

/// The limits on commands are those of Redis' protocol, and no directive's: what the primary has accepted is right.
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
    /// What has arrived; what is before `taken` has been dealt with.
    input: Vec<u8>,
    taken: usize,
    output: Vec<u8>,
    stream: Stream,
}

enum Phase {
    Handshake(Handshake),
    /// `+FULLRESYNC` has come, and the head of the file has not.
    Announced,
    Copy(Payload),
    Stream,
    Failed,
}

/// The commands that have been found in the input and not been returned yet.
#[derive(Default)]
struct Stream {
    place: Option<Place>,
    parser: Parser,
    batch: Batch,
    /// Where in the input the batch begins.
    start: usize,
    /// How many of it have been returned.
    returned: usize,
    /// Bytes of the input that belong to it.
    consumed: usize,
    /// What follows the batch is no command.
    error: Option<String>,
}

impl Link {
    /// A link that goes on at this place if the primary lets it.
    #[must_use]
    pub fn new(introduction: &Introduction, place: Option<Place>) -> Self {
        let mut output = Vec::new();
        let handshake = Handshake::begin(introduction, place, &mut output);
        Self {
            phase: Phase::Handshake(handshake),
            input: Vec::new(),
            taken: 0,
            output,
            stream: Stream { place, ..Stream::default() },
        }
    }

    /// Bytes that have arrived. Ask for all events before there are more.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input.drain(..self.taken);
        self.taken = 0;
        self.input.extend_from_slice(bytes);
        if self.input.is_empty() {
            // One long command shall not occupy memory for as long as the link is there.
            self.input.shrink_to(LINE_LEN_MAX);
        }
    }

    /// What is to be sent.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Whether commands of the stream come, so that the primary wants to know how far this replica is.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        matches!(self.phase, Phase::Stream)
    }

    /// What is being done, in a few words for the log.
    #[must_use]
    pub fn step(&self) -> &'static str {
        match &self.phase {
            Phase::Handshake(handshake) => handshake.step(),
            Phase::Announced | Phase::Copy(_) => "full copy",
            Phase::Stream => "stream",
            Phase::Failed => "nothing",
        }
    }

    /// Tells the primary that this replica has `offset` bytes of the stream, and `logged` of them on its device.
    pub fn acknowledge(&mut self, offset: u64, logged: Option<u64>) {
        let offset = offset.to_string();
        let logged = logged.map(|logged| logged.to_string());
        let mut words = vec![&b"REPLCONF"[..], b"ACK", offset.as_bytes()];
        if let Some(logged) = &logged {
            words.extend([&b"FACK"[..], logged.as_bytes()]);
        }
        handshake::push_command(&mut self.output, &words);
    }

    /// The next event, or `None` if more has to arrive first.
    ///
    /// # Errors
    /// When what arrived makes no sense, or is a refusal. The link is over then.
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

    /// The next line without its end; `None` if it is not complete.
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
        // The primary may send empty lines so that nothing in between takes the connection for dead.
        if line.is_empty() {
            return Ok(Step::Again);
        }
        let Phase::Handshake(handshake) = &mut self.phase else { return Ok(Step::Again) };
        match handshake.answer(&line, &mut self.output) {
            Err(error) => Err(self.fail(error)),
            Ok(Answer::GoesOn) => Ok(Step::Again),
            Ok(Answer::Copy(place)) => {
                self.phase = Phase::Announced;
                self.stream.place = Some(place);
                Ok(Step::Event(Event::Copy(place)))
            }
            Ok(Answer::Continues(place)) => {
                self.phase = Phase::Stream;
                self.stream.place = Some(place);
                Ok(Step::Event(Event::Continues(place)))
            }
        }
    }

    /// Reads the head of the file; whether it is complete.
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
        let Some(place) = &mut stream.place else { return Ok(None) };
        let nth = stream.returned;
        let end = stream.batch.end(nth);
        place.offset += (end - stream.consumed) as u64;
        *taken = stream.start + end;
        let bytes = &input[stream.start + stream.consumed..*taken];
        (stream.returned, stream.consumed) = (nth + 1, end);
        let args = stream.batch.get(nth, &input[stream.start..]);
        Ok(Some(Event::Command { args, bytes, offset: place.offset }))
    }

    /// Looks for commands behind those that have been returned.
    fn find_commands(&mut self) -> Result<Found, LinkError> {
        let Self { stream, input, taken, .. } = self;
        let Some(place) = &mut stream.place else { return Ok(Found::Nothing) };
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
            place.offset += parsed.consumed as u64;
            *taken += parsed.consumed;
            if parsed.consumed > 0 {
                return Ok(Found::Blank(parsed.consumed));
            }
        }
        let offset = place.offset;
        match stream.error.take() {
            None => Ok(Found::Nothing),
            Some(what) => Err(self.fail(LinkError::NoCommand { offset, what })),
        }
    }
}

/// What is in the input behind the commands that have been returned.
enum Found {
    Commands,
    /// So many bytes that say nothing. They are taken.
    Blank(usize),
    Nothing,
}

enum Step<'a> {
    /// Something was dealt with.
    Again,
    /// More has to arrive.
    Waits,
    Event(Event<'a>),
}
