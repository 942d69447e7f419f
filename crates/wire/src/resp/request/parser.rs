//! The incremental parser.
//!
//! Invariants:
//! * An input begins with the byte at which the last call stopped consuming: the start of the incomplete request.
//! * The parser remembers how far it understood an incomplete request, so it examines every byte a bounded number
//!   of times, even when a request of a million arguments arrives byte by byte. Its spans are stored here and not in
//!   the batch, which other connections share.
//! * Memory grows with received arguments, never with a declared count or length.
//!
//! Like Redis, the parser does not check the line feed of a line and the CRLF behind an argument: it skips both.

use memchr::memchr;

use super::args::Span;
use super::batch::{Batch, Source};
use super::error::ProtocolError;
use super::inline::split_words;
use super::limits::{AuthState, Limits};
use crate::number::parse_i64;

/// Bytes of CRLF.
pub(super) const CRLF_LEN: usize = 2;

/// Bytes that a plain number may have behind its second digit, carriage return included. Longer ones take the
/// general path.
const LONGER_LINE_LEN: usize = 8;

/// Length of the input that is examined: spans have offsets of 32 bits.
const INPUT_LEN_MAX: usize = u32::MAX as usize;

/// Finds requests in the input of a client. Each connection has one; it holds no memory between requests.
#[derive(Debug, Default)]
pub struct Parser {
    partial: Partial,
}

/// State of the incomplete request at the front of the input. All offsets are relative to its start.
#[derive(Debug, Default)]
struct Partial {
    /// Its complete arguments.
    spans: Vec<Span>,
    /// Offset behind its last complete argument, or behind its count.
    at: u32,
    /// Arguments still missing; 0 as long as the count is unknown.
    outstanding: u32,
    /// Bytes behind `at` that were searched for a line end.
    searched: u32,
}

/// Result of [`Parser::parse`], in addition to the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Bytes of the batch's requests. Drop them after executing the batch, and begin the next input with the rest.
    pub consumed: usize,
    /// Reason why the parser stopped.
    pub status: Status,
}

/// Reason why the parser stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All complete requests are in the batch.
    NeedMore {
        /// Bytes that are missing at least: the rest of an argument, if its length is known; 0 if no request has
        /// begun. The peer declares this number, so reserve no more memory for it than you can spare.
        hint: usize,
    },
    /// The batch has as many requests as the caller allowed, or a request without arguments follows it. More
    /// requests may follow.
    Full,
    /// The next bytes are not a request. Execute the batch, send the message and close.
    Error(ProtocolError),
}

/// Outcome of reading one request.
enum Outcome {
    /// The request is complete and in the batch.
    Complete {
        end: usize,
    },
    /// The request is complete and has nothing to execute.
    Empty {
        end: usize,
    },
    Incomplete {
        hint: usize,
    },
}

/// Outcome of reading one line.
enum Line {
    /// The line's terminator is at `end`.
    Complete {
        end: usize,
    },
    /// There is no terminator in the first `searched` bytes.
    Incomplete {
        searched: usize,
    },
    TooLong,
}

/// Outcome of reading arguments.
enum Bulks {
    Complete { end: usize },
    Incomplete { at: usize, outstanding: usize, searched: usize, hint: usize },
}

impl Parser {
    /// Returns a parser at the start of a request.
    pub fn new() -> Parser {
        Parser::default()
    }

    /// Replaces the contents of `batch` by the complete requests of `input`, at most `max_requests` of them. Counts
    /// of zero and empty lines are consumed without becoming requests. Behind a request they end the batch, and
    /// [`Batch::follows_empty`] then reports them.
    ///
    /// `input` begins with the first byte that has not been consumed, and is at least as long as the unconsumed
    /// rest of the last call. After an error, only [`Parser::rewind`] may be called.
    pub fn parse(
        &mut self,
        input: &[u8],
        limits: &Limits,
        max_requests: usize,
        batch: &mut Batch,
    ) -> Parsed {
        self.parse_within(input, || *limits, max_requests, batch)
    }

    /// Does what [`Parser::parse`] does. It calls `limits` once if all requests are plain, otherwise twice.
    #[inline]
    pub fn parse_within(
        &mut self,
        input: &[u8],
        limits: impl Fn() -> Limits,
        max_requests: usize,
        batch: &mut Batch,
    ) -> Parsed {
        batch.clear();
        let mut consumed = 0;
        if !self.is_inside_request() && limits().allow_plain_requests() {
            consumed = batch.take_alike(window_of(input), 0, max_requests);
            if consumed == input.len() && batch.len() < max_requests {
                return Parsed { consumed, status: Status::NeedMore { hint: 0 } };
            }
        }
        self.parse_further(input, consumed, &limits(), max_requests, batch)
    }

    /// Continues behind the first `consumed` bytes, whose requests are in the batch.
    #[inline(never)]
    fn parse_further(
        &mut self,
        input: &[u8],
        mut consumed: usize,
        limits: &Limits,
        max_requests: usize,
        batch: &mut Batch,
    ) -> Parsed {
        let window = window_of(input);
        let bounds = Bounds::of(limits);
        batch.clear_unescaped();
        // Only the first line of this call can have been searched before.
        let mut searched = std::mem::take(&mut self.partial.searched);
        let status = loop {
            if batch.len() >= max_requests {
                break Status::Full;
            }
            let searched = std::mem::take(&mut searched);
            match self.read_request(window, consumed, searched, &bounds, batch) {
                Ok(Outcome::Complete { end }) => consumed = end,
                Ok(Outcome::Empty { .. }) if !batch.is_empty() => break Status::Full,
                Ok(Outcome::Empty { end }) => {
                    batch.follows_empty = true;
                    consumed = end;
                }
                Ok(Outcome::Incomplete { hint }) => break Status::NeedMore { hint },
                Err(error) => break Status::Error(error),
            }
            if limits.allow_plain_requests() {
                consumed = batch.take_alike(window, consumed, max_requests);
            }
        };
        if window.len() < input.len() && matches!(status, Status::NeedMore { .. }) {
            return Parsed { consumed, status: beyond_window(consumed) };
        }
        Parsed { consumed, status }
    }

    /// Returns the offset and the length of the argument in which the last input ended. `input` is the unconsumed
    /// rest of that input.
    pub fn announced(&self, input: &[u8]) -> Option<(usize, usize)> {
        let at = self.partial.at as usize;
        if self.partial.outstanding == 0 {
            return None;
        }
        let line = &input[at..];
        let end = memchr(b'\r', line)?;
        let len = parse_bulk_len(&line[..end]).ok()?;
        let start = at + end + CRLF_LEN;
        (start <= input.len()).then_some((start, len))
    }

    /// Drops an incomplete request. For a caller that consumed less than [`Parsed::consumed`], so that the next
    /// input begins at the start of another request.
    pub fn rewind(&mut self) {
        self.partial = Partial::default();
    }

    /// Returns true if the last input ended inside a request.
    #[inline]
    pub fn is_inside_request(&self) -> bool {
        self.partial.outstanding > 0 || self.partial.searched > 0
    }

    /// Returns the heap memory of the incomplete request.
    pub fn memory_bytes(&self) -> usize {
        self.partial.spans.capacity() * size_of::<Span>()
    }

    #[inline]
    fn read_request(
        &mut self,
        input: &[u8],
        start: usize,
        searched: u32,
        bounds: &Bounds<'_>,
        batch: &mut Batch,
    ) -> Result<Outcome, ProtocolError> {
        if self.partial.outstanding > 0 {
            return self.resume(input, searched, bounds, batch);
        }
        match input.get(start) {
            None => Ok(Outcome::Incomplete { hint: 0 }),
            Some(b'*') => self.read_multibulk(input, start, searched, bounds, batch),
            Some(_) => self.read_inline(input, start, searched, bounds, batch),
        }
    }

    /// Reads a request that begins with `*`.
    #[inline]
    fn read_multibulk(
        &mut self,
        input: &[u8],
        start: usize,
        searched: u32,
        bounds: &Bounds<'_>,
        batch: &mut Batch,
    ) -> Result<Outcome, ProtocolError> {
        let (count, at) = match plain_number(input, start, b'*') {
            Some(plain) => plain,
            None => match read_line(input, start, searched, b'\r', bounds) {
                Line::Complete { end } => (parse_count(&input[start + 1..end])?, end + CRLF_LEN),
                Line::Incomplete { searched } => {
                    self.partial.searched = searched as u32;
                    return Ok(Outcome::Incomplete { hint: 1 });
                }
                Line::TooLong => return Err(ProtocolError::MultibulkCountTooLong),
            },
        };
        if count > bounds.count_max {
            return Err(bounds.refuse_count(count));
        }
        if count == 0 {
            return Ok(Outcome::Empty { end: at });
        }
        let first = batch.spans.len();
        match read_bulks(input, at, count, 0, bounds, &mut batch.spans)? {
            Bulks::Complete { end } => {
                let name = batch.spans[first];
                let name_at = name.start as usize - start;
                batch.openings.learn(&input[start..], count, name_at, name.len as usize);
                batch.finish_request(end, Source::Input);
                Ok(Outcome::Complete { end })
            }
            Bulks::Incomplete { at, outstanding, searched, hint } => {
                self.keep(batch.spans.drain(first..), start, at, outstanding, searched);
                Ok(Outcome::Incomplete { hint })
            }
        }
    }

    /// Saves the state of the incomplete request that begins at `start`.
    #[cold]
    fn keep(
        &mut self,
        spans: impl Iterator<Item = Span>,
        start: usize,
        at: usize,
        outstanding: usize,
        searched: usize,
    ) {
        let start_u32 = start as u32;
        let relative = spans.map(|span| Span { start: span.start - start_u32, ..span });
        self.partial = Partial {
            spans: relative.collect(),
            at: (at - start) as u32,
            outstanding: outstanding as u32,
            searched: searched as u32,
        };
    }

    /// Continues with the incomplete request at the front of the input.
    #[cold]
    fn resume(
        &mut self,
        input: &[u8],
        searched: u32,
        bounds: &Bounds<'_>,
        batch: &mut Batch,
    ) -> Result<Outcome, ProtocolError> {
        let Partial { spans, at, outstanding, .. } = &mut self.partial;
        match read_bulks(input, *at as usize, *outstanding as usize, searched, bounds, spans)? {
            Bulks::Complete { end } => {
                let spans = std::mem::take(&mut self.partial).spans;
                if spans.len() > batch.spans.capacity() {
                    batch.spans = spans;
                } else {
                    batch.spans.extend_from_slice(&spans);
                }
                batch.finish_request(end, Source::Input);
                Ok(Outcome::Complete { end })
            }
            Bulks::Incomplete { at: reached, outstanding: left, searched, hint } => {
                *at = reached as u32;
                *outstanding = left as u32;
                self.partial.searched = searched as u32;
                Ok(Outcome::Incomplete { hint })
            }
        }
    }

    #[cold]
    fn read_inline(
        &mut self,
        input: &[u8],
        start: usize,
        searched: u32,
        bounds: &Bounds<'_>,
        batch: &mut Batch,
    ) -> Result<Outcome, ProtocolError> {
        let end = match read_line(input, start, searched, b'\n', bounds) {
            Line::Complete { end } => end,
            Line::Incomplete { searched } => {
                self.partial.searched = searched as u32;
                return Ok(Outcome::Incomplete { hint: 1 });
            }
            Line::TooLong => return Err(ProtocolError::InlineTooLong),
        };
        let line = &input[start..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let first = batch.spans.len();
        split_words(line, &mut batch.unescaped, &mut batch.spans)?;
        if batch.spans.len() == first {
            return Ok(Outcome::Empty { end: end + 1 });
        }
        batch.finish_request(end + 1, Source::Unescaped);
        Ok(Outcome::Complete { end: end + 1 })
    }
}

/// Returns the beginning of the input that spans can address.
#[inline]
fn window_of(input: &[u8]) -> &[u8] {
    input.get(..INPUT_LEN_MAX).unwrap_or(input)
}

/// Returns the status for a window that ends before the input. The caller drops the consumed bytes and calls again,
/// unless not even one request fits.
#[cold]
fn beyond_window(consumed: usize) -> Status {
    match consumed {
        0 => Status::Error(ProtocolError::RequestTooLarge),
        _ => Status::Full,
    }
}

/// Appends the spans of `outstanding` arguments, which begin at `at`.
fn read_bulks(
    input: &[u8],
    mut at: usize,
    outstanding: usize,
    mut searched: u32,
    bounds: &Bounds<'_>,
    spans: &mut Vec<Span>,
) -> Result<Bulks, ProtocolError> {
    for left in (1..=outstanding).rev() {
        let (len, start) = match plain_number(input, at, b'$') {
            Some(plain) => plain,
            None => match read_line(input, at, searched, b'\r', bounds) {
                Line::Complete { end } => (parse_bulk_len(&input[at..end])?, end + CRLF_LEN),
                Line::Incomplete { searched } => {
                    return Ok(Bulks::Incomplete { at, outstanding: left, searched, hint: 1 });
                }
                Line::TooLong => return Err(ProtocolError::BulkCountTooLong),
            },
        };
        if len > bounds.bulk_len_max {
            return Err(bounds.refuse_bulk_len(len));
        }
        let end = start + len + CRLF_LEN;
        if end > input.len() {
            let hint = end - input.len();
            return Ok(Bulks::Incomplete { at, outstanding: left, searched: 0, hint });
        }
        spans.push(Span::new(start, len));
        at = end;
        searched = 0;
    }
    Ok(Bulks::Complete { end: at })
}

/// Reads `marker`, a canonical number and CRLF at `at`, and returns the value and the offset behind the line. After
/// `None` the caller takes the general path, which finds out what is missing or wrong.
#[inline]
pub(super) fn plain_number(input: &[u8], at: usize, marker: u8) -> Option<(usize, usize)> {
    // Every complete argument has at least four bytes, so this path suffices for all lengths of one or two digits,
    // including the last argument of the input.
    let [first, tens, units, last] = *input.get(at..)?.first_chunk::<4>()?;
    if first != marker {
        return None;
    }
    let high = tens.wrapping_sub(b'0');
    if units == b'\r' && high <= 9 {
        return Some((usize::from(high), at + 4));
    }
    let low = units.wrapping_sub(b'0');
    if !(1..=9).contains(&high) || low > 9 {
        return None;
    }
    let value = usize::from(high) * 10 + usize::from(low);
    match last {
        b'\r' => Some((value, at + 5)),
        b'0'..=b'9' if input.get(at + 4) == Some(&b'\r') => {
            Some((value * 10 + usize::from(last - b'0'), at + 6))
        }
        _ => longer_number(input, at + 3, value),
    }
}

/// Continues [`plain_number`] at the third digit. Not inlined: that would slow down the callers' common path by a
/// third.
#[inline(never)]
fn longer_number(input: &[u8], at: usize, mut value: usize) -> Option<(usize, usize)> {
    let rest = input.get(at..at + LONGER_LINE_LEN)?;
    for (index, &byte) in rest.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (byte == b'\r').then_some((value, at + index + CRLF_LEN));
        }
        value = value * 10 + usize::from(digit);
    }
    None
}

/// Finds the end of the line that begins at `start`: `terminator`, and one byte more after a carriage return. The
/// first `searched` bytes are known to have none.
#[cold]
fn read_line(
    input: &[u8],
    start: usize,
    searched: u32,
    terminator: u8,
    bounds: &Bounds<'_>,
) -> Line {
    let searched = searched as usize;
    // The parser does not wait for a number's last line feed, so the next line may begin behind the input.
    let line = input.get(start..).unwrap_or_default();
    // One byte more than the limit, for the terminator of a line of exactly that length.
    let limit = bounds.line_len_max();
    let len_max = limit.saturating_add(bounds.limits.line_slack).saturating_add(1);
    let line = &line[..line.len().min(len_max)];
    match memchr(terminator, line.get(searched..).unwrap_or_default()) {
        Some(found) => {
            let end = start + searched + found;
            if terminator == b'\r' && end + 1 == input.len() {
                return Line::Incomplete { searched: searched + found };
            }
            Line::Complete { end }
        }
        None if line.len() > limit => Line::TooLong,
        None => Line::Incomplete { searched: line.len() },
    }
}

/// Parses the number of arguments; 0 for negative ones, which Redis ignores.
fn parse_count(text: &[u8]) -> Result<usize, ProtocolError> {
    let count = parse_i64(text).ok_or(ProtocolError::InvalidMultibulkLength)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Parses the length of an argument from its line with the `$`.
fn parse_bulk_len(line: &[u8]) -> Result<usize, ProtocolError> {
    let [b'$', text @ ..] = line else {
        // An empty line has its carriage return in place of the `$`.
        let got = line.first().copied().unwrap_or(b'\r');
        return Err(ProtocolError::ExpectedBulk { got });
    };
    let len = parse_i64(text).ok_or(ProtocolError::InvalidBulkLength)?;
    usize::try_from(len).map_err(|_| ProtocolError::InvalidBulkLength)
}

/// The limits in a form that takes one comparison each.
struct Bounds<'a> {
    count_max: usize,
    bulk_len_max: usize,
    limits: &'a Limits,
}

impl Bounds<'_> {
    fn of(limits: &Limits) -> Bounds<'_> {
        let (count_max, bulk_len_max) = Bounds::of_auth(limits.auth);
        Bounds {
            count_max: limits.max_multibulk_len.min(INPUT_LEN_MAX).min(count_max),
            bulk_len_max: limits.max_bulk_len.min(INPUT_LEN_MAX).min(bulk_len_max),
            limits,
        }
    }

    /// Returns the limits on arguments, and on bytes of an argument or a line, that authentication lifts.
    fn of_auth(auth: AuthState) -> (usize, usize) {
        match auth {
            AuthState::Granted => (usize::MAX, usize::MAX),
            AuthState::Required => {
                (Limits::UNAUTHENTICATED_MULTIBULK_LEN_MAX, Limits::UNAUTHENTICATED_BULK_LEN_MAX)
            }
        }
    }

    fn line_len_max(&self) -> usize {
        let (_, len_max) = Bounds::of_auth(self.limits.auth);
        self.limits.max_inline_len.min(len_max).clamp(Limits::INLINE_LEN_MIN, INPUT_LEN_MAX)
    }

    #[cold]
    fn refuse_count(&self, count: usize) -> ProtocolError {
        match count > self.limits.max_multibulk_len.min(INPUT_LEN_MAX) {
            true => ProtocolError::InvalidMultibulkLength,
            false => ProtocolError::UnauthenticatedMultibulkLength,
        }
    }

    #[cold]
    fn refuse_bulk_len(&self, len: usize) -> ProtocolError {
        match len > self.limits.max_bulk_len.min(INPUT_LEN_MAX) {
            true => ProtocolError::InvalidBulkLength,
            false => ProtocolError::UnauthenticatedBulkLength,
        }
    }
}
