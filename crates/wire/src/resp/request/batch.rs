//! The complete requests of one input.

use super::args::{Args, Span};
use super::limits::PLAIN_LEN_MAX;
use super::opening::Openings;
use super::parser::{CRLF_LEN, plain_number};

/// Number of spans whose memory a batch keeps for the next input (128 KiB). A batch that grew beyond it, by a
/// request of a million arguments, frees the excess.
const SPANS_RETAINED_MAX: usize = 16 * 1024;

/// Number of unescaped inline bytes whose memory a batch keeps, enough for the longest inline request.
const UNESCAPED_RETAINED_MAX: usize = 128 * 1024;

/// The requests that one call of [`Parser::parse`](super::Parser::parse) found. It is reused, so that parsing
/// allocates nothing once the buffers have grown.
#[derive(Debug, Default)]
pub struct Batch {
    /// Arguments of all requests, one after the other.
    pub(super) spans: Vec<Span>,
    /// Arguments of inline requests: they may have quotes and escapes, so they are not slices of the input. Also
    /// the bytes around an argument that is in a side buffer.
    pub(super) unescaped: Vec<u8>,
    /// Beginnings of the latest requests with short names; kept from call to call.
    pub(super) openings: Openings,
    pub(super) follows_empty: bool,
    requests: Vec<Request>,
}

/// Bytes that the spans of a request point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Input,
    Unescaped,
    /// The input is one argument, the others are in `unescaped`; see [`parse_with_side_buffer`].
    ///
    /// [`parse_with_side_buffer`]: super::parse_with_side_buffer
    SideBuffer,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    /// Index behind its last span. Its first span follows the last one of the previous request.
    spans_end: u32,
    /// Offset behind its last byte in the input.
    input_end: u32,
    source: Source,
}

/// Returns the length of the argument at the front of `input`, if its spelling is canonical and all of it has
/// arrived, and the bytes behind it. One or two digits bypass [`plain_number`], which costs 14 instructions more.
#[inline(always)]
fn split_plain_argument(input: &[u8]) -> Option<(usize, &[u8])> {
    // Every argument has at least four bytes.
    let [b'$', tens, units, last] = *input.first_chunk::<4>()? else { return None };
    let (high, low) = (tens.wrapping_sub(b'0'), units.wrapping_sub(b'0'));
    if high > 9 {
        return None;
    }
    let (len, at) = if units == b'\r' {
        (usize::from(high), 4)
    } else if last == b'\r' && low <= 9 && high != 0 {
        (usize::from(high) * 10 + usize::from(low), 5)
    } else {
        plain_number(input, 0, b'$').filter(|(len, _)| *len <= PLAIN_LEN_MAX)?
    };
    Some((len, input.get(at + len + CRLF_LEN..)?))
}

impl Batch {
    /// Returns an empty batch, without an allocation.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Returns the number of requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns true if there is no request.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns true if requests without arguments came before the first one. There are none between requests: an
    /// empty one ends the batch.
    #[inline]
    pub fn follows_empty(&self) -> bool {
        self.follows_empty
    }

    /// Returns the arguments of request `index`; there is at least one. `input` must be the parsed input.
    ///
    /// # Panics
    /// Panics if there are not that many requests. With another input than the parsed one, the arguments have wrong
    /// bytes, or access to them panics.
    #[inline]
    pub fn get<'a>(&'a self, index: usize, input: &'a [u8]) -> Args<'a> {
        let request = self.requests[index];
        let first = match index.checked_sub(1) {
            Some(before) => self.requests[before].spans_end,
            None => 0,
        };
        let spans = &self.spans[first as usize..request.spans_end as usize];
        self.args(request.source, spans, input)
    }

    /// Returns all requests in order of arrival. Cheaper than one [`Batch::get`] for each.
    #[inline]
    pub fn iter<'a>(&'a self, input: &'a [u8]) -> impl ExactSizeIterator<Item = Args<'a>> {
        let (mut rest, mut spans_start) = (&self.spans[..], 0);
        self.requests.iter().map(move |request| {
            let count = (request.spans_end - spans_start) as usize;
            let (spans, behind) = rest.split_at(count);
            (rest, spans_start) = (behind, request.spans_end);
            self.args(request.source, spans, input)
        })
    }

    #[inline]
    fn args<'a>(&'a self, source: Source, spans: &'a [Span], input: &'a [u8]) -> Args<'a> {
        match source {
            Source::Input => Args::new(input, spans),
            Source::Unescaped => Args::new(&self.unescaped, spans),
            Source::SideBuffer => Args::in_two(&self.unescaped, input, spans),
        }
    }

    /// Returns the offset in the input behind request `index`. A caller that stops executing after that request
    /// consumes this many bytes, and calls [`Parser::rewind`](super::Parser::rewind).
    ///
    /// # Panics
    /// Panics if there are not that many requests.
    #[inline]
    pub fn end(&self, index: usize) -> usize {
        self.requests[index].input_end as usize
    }

    /// Moves an argument of the only request to a side buffer: the empty argument at `at` of `text`, from which the
    /// request was parsed. It becomes the whole input of `len` bytes that the caller passes from now on. The
    /// request ends at `end`.
    pub(super) fn put_with_side_buffer(
        &mut self,
        text: Vec<u8>,
        at: usize,
        len: usize,
        end: usize,
    ) {
        let span = self.spans.iter_mut().find(|span| span.start as usize == at);
        *span.expect("an argument begins there") = Span::new(text.len(), len);
        self.unescaped = text;
        self.requests[0].source = Source::SideBuffer;
        self.requests[0].input_end = end as u32;
    }

    /// Returns the heap memory of the batch.
    pub fn memory_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
            + self.unescaped.capacity()
            + self.requests.capacity() * size_of::<Request>()
    }

    /// Appends the requests from `start` on that begin like earlier ones and have plain arguments, up to
    /// `max_requests`. Returns the offset behind them.
    #[inline(always)]
    pub(super) fn take_alike(&mut self, input: &[u8], start: usize, max_requests: usize) -> usize {
        let mut end = start;
        let mut rest = &input[start..];
        while self.requests.len() < max_requests
            && let Some((opening, mut arguments)) = self.openings.split_from(rest)
        {
            let first = self.spans.len();
            let count = opening.count();
            self.spans.push(opening.name_at(end));
            for _ in 1..count {
                let Some((len, behind)) = split_plain_argument(arguments) else {
                    self.spans.truncate(first);
                    return end;
                };
                let at = input.len() - behind.len() - CRLF_LEN - len;
                self.spans.push(Span::new(at, len));
                arguments = behind;
            }
            rest = arguments;
            end = input.len() - rest.len();
            self.finish_request(end, Source::Input);
        }
        end
    }

    /// Makes the spans since the last request a request that ends at `input_end`.
    #[inline]
    pub(super) fn finish_request(&mut self, input_end: usize, source: Source) {
        let spans_end = self.spans.len() as u32;
        self.requests.push(Request { spans_end, input_end: input_end as u32, source });
    }

    /// Removes all requests, and frees the excess memory of an unusually large one.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.spans.clear();
        self.requests.clear();
        self.follows_empty = false;
        if self.spans.capacity() > SPANS_RETAINED_MAX {
            self.spans.shrink_to(SPANS_RETAINED_MAX);
        }
    }

    /// Clears the buffer that only requests unlike all earlier ones use. Called before the first of them.
    pub(super) fn clear_unescaped(&mut self) {
        self.unescaped.clear();
        self.unescaped.shrink_to(UNESCAPED_RETAINED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Parser};
    use super::*;
    use crate::resp::AuthState;

    #[test]
    fn requests_in_turn_are_those_of_their_indexes() {
        let input =
            b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nSET \"quoted \\x41\" b\r\nPING\r\n*1\r\n$4\r\nPING\r\n";
        let mut batch = Batch::new();
        let limits = Limits { auth: AuthState::Granted, ..Limits::default() };
        Parser::new().parse(input, &limits, 10, &mut batch);
        let requests: Vec<_> = batch.iter(input).map(|args| args.to_owned()).collect();
        assert_eq!(requests.len(), 4);
        assert_eq!(batch.iter(input).len(), batch.len());
        for (index, request) in requests.iter().enumerate() {
            assert!(request.as_args().iter().eq(batch.get(index, input).iter()), "{index}");
        }
        assert_eq!(&requests[1].as_args()[1], b"quoted A");
    }
}
