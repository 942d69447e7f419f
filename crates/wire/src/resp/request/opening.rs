//! The beginning of a request: the number of arguments, and the command's name.
//!
//! Clients repeat themselves. If a request begins with the same bytes as an earlier one, one comparison replaces
//! parsing them.

use super::args::Span;
use super::limits::PLAIN_COUNT_MAX;
use super::parser::CRLF_LEN;

/// Number of bytes compared at once.
const WINDOW_LEN: usize = 16;

/// Number of openings in the table.
const OPENINGS: usize = 8;

/// Length of `*2\r\n` and of `$3\r\n`, and so the offset of the name.
const LINE_LEN: usize = 4;
const NAME_AT: usize = 2 * LINE_LEN;

/// The longest name of a request with an opening.
const NAME_LEN_MAX: usize = WINDOW_LEN - NAME_AT - CRLF_LEN;

/// The opening of a parsed request: `*2\r\n$3\r\nGET\r\n`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    /// The lines before the name.
    lines: u64,
    /// The name and its CRLF, padded with zeros.
    name: u64,
    /// Mask of the bytes of the name and its CRLF.
    name_mask: u64,
    /// Length of the whole opening.
    len: u32,
    count: u32,
}

impl Default for Opening {
    /// Returns an opening that no request has.
    fn default() -> Opening {
        Opening { lines: 0, name: 1, name_mask: 0, len: 0, count: 0 }
    }
}

/// The openings of the latest requests.
#[derive(Debug, Default)]
pub(super) struct Openings {
    /// Opening of the last request, which is tried first: many clients repeat one command.
    last: Opening,
    of_classes: [Opening; OPENINGS],
}

impl Openings {
    /// Returns the opening that `input` begins with, and the bytes behind it.
    #[inline(always)]
    pub(super) fn split_from<'a>(&mut self, input: &'a [u8]) -> Option<(&Opening, &'a [u8])> {
        let window = Window::of(input)?;
        if !self.last.is_in(window) {
            let of_class = &self.of_classes[window.class()];
            if !of_class.is_in(window) {
                return None;
            }
            self.last = *of_class;
        }
        Some((&self.last, input.get(self.last.len as usize..)?))
    }

    /// Stores the opening of the request that `input` begins with, unless it does not fit. The request has `count`
    /// arguments, and its name has `name_len` bytes at `name_at`.
    pub(super) fn learn(&mut self, input: &[u8], count: usize, name_at: usize, name_len: usize) {
        let is_short = count <= PLAIN_COUNT_MAX && name_len <= NAME_LEN_MAX && name_at == NAME_AT;
        let Some(window) = Window::of(input).filter(|_| is_short) else { return };
        let name_mask = u64::MAX >> (8 * (NAME_LEN_MAX - name_len));
        let len = (NAME_AT + name_len + CRLF_LEN) as u32;
        let Window { lines, name } = window;
        self.of_classes[window.class()] =
            Opening { lines, name: name & name_mask, name_mask, len, count: count as u32 };
    }
}

/// The beginning of an input.
#[derive(Clone, Copy)]
struct Window {
    /// Lines with the count and with the length of the name, if both have one digit.
    lines: u64,
    name: u64,
}

impl Window {
    #[inline(always)]
    fn of(input: &[u8]) -> Option<Window> {
        let window = u128::from_le_bytes(*input.first_chunk::<WINDOW_LEN>()?);
        Some(Window { lines: window as u64, name: (window >> 64) as u64 })
    }

    /// Returns the index of its opening. Commands that clients mix differ in the count or in two letters; this
    /// factor gives most of them different indices.
    #[inline(always)]
    fn class(self) -> usize {
        let letters = (self.name as u16).wrapping_mul(819) >> 13;
        ((self.lines >> 8) ^ u64::from(letters)) as usize % OPENINGS
    }
}

impl Opening {
    #[inline(always)]
    fn is_in(&self, window: Window) -> bool {
        window.lines == self.lines && window.name & self.name_mask == self.name
    }

    /// Returns the number of arguments of a request with this opening, the name included.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the span of the name in a request that begins at `start`.
    #[inline(always)]
    pub(super) fn name_at(&self, start: usize) -> Span {
        Span::new(start + NAME_AT, self.len as usize - NAME_AT - CRLF_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AuthState, Batch, Limits, Parsed, Parser, Status};
    use super::*;

    /// The requests, the result of the parser, and true if empty requests came before.
    type Found = (Vec<Vec<Vec<u8>>>, Parsed, bool);

    fn parse_within(input: &[u8], limits: &Limits, batch: &mut Batch) -> Found {
        let parsed = Parser::new().parse(input, limits, 10, batch);
        let requests = batch.iter(input).map(|args| args.iter().map(<[u8]>::to_vec).collect());
        (requests.collect(), parsed, batch.follows_empty())
    }

    fn parse(input: &[u8], batch: &mut Batch) -> Found {
        parse_within(input, &Limits::default(), batch)
    }

    const REQUESTS: &[&[u8]] = &[
        b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"*2\r\n$3\r\nget\r\n$1\r\nk\r\n",
        b"*2\r\n$3\r\nGET\r\n$12\r\na longer key\r\n",
        b"*2\r\n$3\r\nGET\r\n$012\r\na longer key\r\n",
        b"*2\r\n$3\r\nGET\r\n$-1\r\n",
        b"*2\r\n$3\r\nGET\r\n:1\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10\r\nsome value\r\n",
        b"*3\r\n$3\r\nGET\r\n$1\r\nk\r\n$0\r\n\r\n",
        b"*2\r\n$6\r\nSTRLEN\r\n$1\r\nk\r\n",
        b"*2\r\n$7\r\nSTRLEN7\r\n$1\r\nk\r\n",
        b"*2\r\n$3\r\nGETxx$1\r\nk\r\n",
        b"*02\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"*2\r\n$4\r\nGET\r\n$1\r\nk\r\n",
        b"*2\r\n$0\r\n\r\n$1\r\nk\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n",
        b"*0\r\n*9\r\n$1\r\na\r\n",
        b"GET some key\r\n",
    ];

    #[test]
    fn what_was_parsed_before_changes_nothing() {
        let mut used = Batch::new();
        for before in REQUESTS {
            for request in REQUESTS {
                for end in 0..=request.len() {
                    parse(before, &mut used);
                    let input = &request[..end];
                    let fresh = parse(input, &mut Batch::new());
                    assert_eq!(parse(input, &mut used), fresh, "{}", input.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn requests_in_one_input_are_those_of_several() {
        let mut used = Batch::new();
        for first in REQUESTS {
            for second in REQUESTS {
                let input = [*first, second, first, second].concat();
                let together = parse(&input, &mut used);
                let mut alone: Vec<Vec<Vec<u8>>> = Vec::new();
                let mut rest = &input[..];
                let last = loop {
                    let mut batch = Batch::new();
                    let parsed = Parser::new().parse(rest, &Limits::default(), 1, &mut batch);
                    alone.extend(
                        batch.iter(rest).map(|args| args.iter().map(<[u8]>::to_vec).collect()),
                    );
                    rest = &rest[parsed.consumed..];
                    if parsed.status != Status::Full {
                        break parsed.status;
                    }
                };
                let (requests, parsed, _) = together;
                assert_eq!(requests, alone, "{}", input.escape_ascii());
                if parsed.status != Status::Full {
                    assert_eq!(parsed.status, last, "{}", input.escape_ascii());
                    assert_eq!(parsed.consumed, input.len() - rest.len());
                }
            }
        }
    }

    #[test]
    fn lengths_of_any_number_of_digits_are_those_of_the_general_way() {
        let mut used = Batch::new();
        parse(REQUESTS[0], &mut used);
        for len in [0, 1, 9, 10, 99, 100, 101, 999, 1000, 9999, 10_000, 123_456] {
            let argument = "x".repeat(len);
            let input = format!("*2\r\n$3\r\nGET\r\n${len}\r\n{argument}\r\n").into_bytes();
            for end in [input.len() - 1, input.len()] {
                let fresh = parse(&input[..end], &mut Batch::new());
                assert_eq!(parse(&input[..end], &mut used), fresh, "{len}");
            }
        }
    }

    #[test]
    fn an_opening_is_found_in_the_requests_behind_it() {
        let mut batch = Batch::new();
        let (get, set) = (REQUESTS[0], REQUESTS[6]);
        let found = |batch: &mut Batch, input: &[u8]| {
            let (opening, rest) = batch.openings.split_from(input)?;
            Some((opening.count(), opening.name_at(20), rest.to_vec()))
        };
        assert_eq!(found(&mut batch, get), None);
        parse(&[get, set].concat(), &mut batch);
        let name = Span::new(20 + 8, 3);
        assert_eq!(found(&mut batch, get), Some((2, name, get[13..].to_vec())));
        assert_eq!(found(&mut batch, set), Some((3, name, set[13..].to_vec())));
        assert_eq!(found(&mut batch, &get[..15]), None, "not enough bytes to compare");
    }

    #[test]
    fn limits_hold_for_plain_requests_as_for_others() {
        let of_bulk = |max_bulk_len| Limits { max_bulk_len, ..Limits::default() };
        let of_count = |max_multibulk_len| Limits { max_multibulk_len, ..Limits::default() };
        let required = Limits { auth: AuthState::Required, ..Limits::default() };
        let limits = [of_bulk(2), of_bulk(9998), of_bulk(9999), of_count(1), of_count(8), required];
        let mut used = Batch::new();
        for count in [2, 8, 9, 10, 11] {
            for len in [1, 2, 3, 9998, 9999, 10_000, 16_384, 16_385] {
                let argument = format!("${len}\r\n{}\r\n", "x".repeat(len));
                let request = |argument: &str| {
                    format!("*{count}\r\n$3\r\nGET\r\n{}", argument.repeat(count - 1)).into_bytes()
                };
                parse(&request("$1\r\nk\r\n"), &mut used);
                for limits in &limits {
                    let input = request(&argument);
                    let fresh = parse_within(&input, limits, &mut Batch::new());
                    assert_eq!(parse_within(&input, limits, &mut used), fresh, "{count} of {len}");
                }
            }
        }
    }

    #[test]
    fn a_batch_gives_back_what_large_inputs_have_left() {
        let words = format!("*100000\r\n{}", "$1\r\na\r\n".repeat(100_000)).into_bytes();
        for large in [words, REQUESTS[0].repeat(100_000)] {
            let mut batch = Batch::new();
            parse(REQUESTS[0], &mut batch);
            Parser::new().parse(&large, &Limits::default(), usize::MAX, &mut batch);
            assert!(batch.spans.len() >= 100_000);
            parse(REQUESTS[0], &mut batch);
            assert!(batch.spans.capacity() < 20_000, "{}", batch.spans.capacity());
        }
    }
}
