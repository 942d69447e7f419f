//! The complete requests of one input.

use super::args::{Args, Span};

/// Spans whose memory a batch keeps for the next input (128 KiB). A batch that grew beyond, by a
/// request of a million arguments, gives the excess back.
const SPANS_RETAINED_MAX: usize = 16 * 1024;

/// Unescaped inline bytes whose memory a batch keeps, enough for the longest inline request.
const UNESCAPED_RETAINED_MAX: usize = 128 * 1024;

/// The requests one call of [`Parser::parse`](super::Parser::parse) found. Reused from call to
/// call, so that parsing allocates nothing once it is warm.
#[derive(Debug, Default)]
pub struct Batch {
    /// The arguments of all requests, one after the other.
    pub(super) spans: Vec<Span>,
    /// The arguments of inline requests. They may have quotes and escapes, so they are no slices
    /// of the input. Also what stood around an argument that was detached.
    pub(super) unescaped: Vec<u8>,
    requests: Vec<Request>,
}

/// What the spans of a request point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Input,
    Unescaped,
    /// The largest argument is all of the input, the others are in `unescaped`; see
    /// [`Batch::detach_largest`].
    Detached,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    /// Index behind its last span; its first span follows the last one of the request before.
    spans_end: u32,
    /// Offset behind its last byte in the input.
    input_end: u32,
    source: Source,
}

impl Batch {
    /// An empty batch, without an allocation.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// How many requests it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether it holds no request.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The arguments of request `index`; there is at least one. `input` must be what was parsed.
    ///
    /// # Panics
    /// If there are not that many requests. With another input than the one that was parsed the
    /// arguments are other bytes, or looking at them panics.
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

    /// All requests in the order they arrived. Cheaper than one [`Batch::get`] for each.
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
            Source::Detached => Args::in_two(&self.unescaped, input, spans),
        }
    }

    /// Offset in the input behind request `index`. Whoever stops executing after that request
    /// consumes this much, and calls [`Parser::rewind`](super::Parser::rewind).
    ///
    /// # Panics
    /// If there are not that many requests.
    #[inline]
    pub fn end(&self, index: usize) -> usize {
        self.requests[index].input_end as usize
    }

    /// The length of the longest argument of the only request, if there is just one, `input` is nothing
    /// but that request, and it is no inline request.
    #[must_use]
    pub fn largest_of_only(&self, input: &[u8]) -> Option<usize> {
        let [Request { input_end, source: Source::Input, .. }] = self.requests[..] else {
            return None;
        };
        if input_end as usize != input.len() {
            return None;
        }
        self.spans.iter().map(|span| span.len as usize).max()
    }

    /// Makes the largest argument of the only request all there is in `input`, so that whoever stores it
    /// can keep the vector. From then on `input` in this form is what goes with the batch.
    ///
    /// # Panics
    /// If [`Batch::largest_of_only`] has nothing to say of the input.
    pub fn detach_largest(&mut self, input: &mut Vec<u8>) {
        assert!(self.largest_of_only(input).is_some(), "one request that is all of the input");
        let largest = (0..self.spans.len()).max_by_key(|index| self.spans[*index].len);
        let largest = largest.expect("a request has arguments");
        self.unescaped.clear();
        for (index, span) in self.spans.iter_mut().enumerate() {
            if index != largest {
                let (start, len) = (span.start as usize, span.len as usize);
                *span = Span::new(self.unescaped.len(), len);
                self.unescaped.extend_from_slice(&input[start..start + len]);
            }
        }
        let Span { start, len } = self.spans[largest];
        input.truncate(start as usize + len as usize);
        input.drain(..start as usize);
        input.shrink_to_fit();
        self.spans[largest].start = self.unescaped.len() as u32;
        self.requests[0].source = Source::Detached;
    }

    /// What the batch occupies on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
            + self.unescaped.capacity()
            + self.requests.capacity() * size_of::<Request>()
    }

    /// Declares the spans since the last request to be one that ends at `input_end`.
    #[inline]
    pub(super) fn finish_request(&mut self, input_end: usize, source: Source) {
        let spans_end = self.spans.len() as u32;
        self.requests.push(Request { spans_end, input_end: input_end as u32, source });
    }

    /// Removes all requests, and what memory an uncommonly large one has left.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.spans.clear();
        self.requests.clear();
        self.unescaped.clear();
        if self.spans.capacity() > SPANS_RETAINED_MAX {
            self.spans.shrink_to(SPANS_RETAINED_MAX);
        }
        if self.unescaped.capacity() > UNESCAPED_RETAINED_MAX {
            self.unescaped.shrink_to(UNESCAPED_RETAINED_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Parser};
    use super::*;
    use crate::resp::AuthState;

    fn parsed(input: &[u8]) -> Batch {
        let mut batch = Batch::new();
        let limits = Limits { auth: AuthState::Granted, ..Limits::default() };
        Parser::new().parse(input, &limits, 10, &mut batch);
        batch
    }

    #[test]
    fn the_largest_argument_is_left_of_the_input_and_the_request_stays_the_same() {
        for words in
            [&["SET", "key", "large value", "EX", "10"][..], &["GET", "a"], &["largest", "", "x"]]
        {
            let mut input = format!("*{}\r\n", words.len()).into_bytes();
            for word in words {
                input.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
            }
            let mut batch = parsed(&input);
            let largest = words.iter().max_by_key(|word| word.len()).unwrap();
            assert_eq!(batch.largest_of_only(&input), Some(largest.len()));
            batch.detach_largest(&mut input);
            assert_eq!(input, largest.as_bytes());
            let args = batch.get(0, &input);
            assert!(args.iter().eq(words.iter().map(|word| word.as_bytes())));
            assert!(args.to_owned().as_args().iter().eq(args.iter()));
            let at = words.iter().position(|word| word == largest).unwrap();
            assert!(std::ptr::eq(args.at(at), &*input), "the vector is the argument");
        }
    }

    #[test]
    fn requests_in_turn_are_those_of_their_indexes() {
        let input = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nSET \"quoted \\x41\" b\r\n*0\r\nPING\r\n*1\r\n$4\r\nPING\r\n";
        let batch = parsed(input);
        let requests: Vec<_> = batch.iter(input).map(|args| args.to_owned()).collect();
        assert_eq!(requests.len(), 4);
        assert_eq!(batch.iter(input).len(), batch.len());
        for (index, request) in requests.iter().enumerate() {
            assert!(request.as_args().iter().eq(batch.get(index, input).iter()), "{index}");
        }
        assert_eq!(&requests[1].as_args()[1], b"quoted A");
    }

    #[test]
    fn only_a_request_that_is_all_of_the_input_can_be_taken_apart() {
        let one = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
        assert_eq!(parsed(one).largest_of_only(one), Some(3));
        let two = [&one[..], one].concat();
        assert_eq!(parsed(&two).largest_of_only(&two), None);
        let more = [&one[..], b"*1\r\n"].concat();
        assert_eq!(parsed(&more).largest_of_only(&more), None);
        assert_eq!(parsed(b"GET a\r\n").largest_of_only(b"GET a\r\n"), None);
    }
}
