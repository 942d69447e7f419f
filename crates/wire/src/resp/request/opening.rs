//! The beginning of a request: the number of arguments, and the command's name.
//!
//! Clients repeat themselves. If a request begins with the same bytes as an earlier one, one compare replaces
//! parsing them.

use super::args::Span;
use super::limits::PLAIN_COUNT_MAX;
use super::parser::CRLF_LEN;

/// Bytes that are compared at once.
const WINDOW_LEN: usize = 16;

/// Openings that are kept: enough for GET, SET, DEL and INCR, and those of hashes and lists.
const OPENINGS: usize = 8;

/// Bytes of `*2\r\n` and of `$3\r\n`, and so the place of the name.
const LINE_LEN: usize = 4;
const NAME_AT: usize = 2 * LINE_LEN;

/// The longest name of a request with an opening.
const NAME_LEN_MAX: usize = WINDOW_LEN - NAME_AT - CRLF_LEN;

/// The opening of a request that was parsed: `*2\r\n$3\r\nGET\r\n`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    /// Its lines in front of the name.
    lines: u64,
    /// The name, with zeros behind its CRLF.
    name: u64,
    /// Which of the bytes behind the lines it covers.
    name_mask: u64,
    len: u32,
    count: u32,
}

impl Default for Opening {
    /// One that no request has.
    fn default() -> Opening {
        Opening { lines: 0, name: 1, name_mask: 0, len: 0, count: 0 }
    }
}

/// The openings of the latest requests: one for each of [`OPENINGS`] classes of counts and first letters.
#[derive(Debug, Default)]
pub(super) struct Openings([Opening; OPENINGS]);

impl Openings {
    /// The opening that `input` begins with, and what follows it.
    #[inline(always)]
    pub(super) fn split_from<'a>(&self, input: &'a [u8]) -> Option<(&Opening, &'a [u8])> {
        let window = Window::of(input)?;
        let opening = &self.0[window.class()];
        let is_it =
            window.lines == opening.lines && window.name & opening.name_mask == opening.name;
        if is_it { Some((opening, input.get(opening.len as usize..)?)) } else { None }
    }

    /// Keeps the opening of the request that `input` begins with, whose `count` arguments follow a name of `name_len`
    /// bytes, unless it is spelled at greater length.
    pub(super) fn learn(&mut self, input: &[u8], count: usize, name_at: usize, name_len: usize) {
        let is_short = count <= PLAIN_COUNT_MAX && name_len <= NAME_LEN_MAX && name_at == NAME_AT;
        let Some(window) = Window::of(input).filter(|_| is_short) else { return };
        let name_mask = u64::MAX >> (8 * (NAME_LEN_MAX - name_len));
        let len = (NAME_AT + name_len + CRLF_LEN) as u32;
        let Window { lines, name } = window;
        self.0[window.class()] =
            Opening { lines, name: name & name_mask, name_mask, len, count: count as u32 };
    }
}

/// The beginning of an input.
#[derive(Clone, Copy)]
struct Window {
    /// The lines with the count, and with the length of the name, if both have one digit.
    lines: u64,
    name: u64,
}

impl Window {
    #[inline(always)]
    fn of(input: &[u8]) -> Option<Window> {
        let window = u128::from_le_bytes(*input.first_chunk::<WINDOW_LEN>()?);
        Some(Window { lines: window as u64, name: (window >> 64) as u64 })
    }

    /// The index of its opening, from the count and the first letter of the name.
    #[inline(always)]
    fn class(self) -> usize {
        let count = self.lines >> 8;
        (count ^ self.name) as usize % OPENINGS
    }
}

impl Opening {
    /// Arguments of a request with this opening, the name included.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Where the name of a request that begins at `start` is.
    #[inline(always)]
    pub(super) fn name(&self, start: usize) -> Span {
        Span::new(start + NAME_AT, self.len as usize - NAME_AT - CRLF_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Batch, Limits, Parser, Status};
    use super::*;

    fn parse(input: &[u8], batch: &mut Batch) -> (Vec<Vec<Vec<u8>>>, super::super::Parsed) {
        let parsed = Parser::new().parse(input, &Limits::default(), 10, batch);
        let requests = batch.iter(input).map(|args| args.iter().map(<[u8]>::to_vec).collect());
        (requests.collect(), parsed)
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
                let mut apart: Vec<Vec<Vec<u8>>> = Vec::new();
                let mut rest = &input[..];
                let last = loop {
                    let mut batch = Batch::new();
                    let parsed = Parser::new().parse(rest, &Limits::default(), 1, &mut batch);
                    apart.extend(
                        batch.iter(rest).map(|args| args.iter().map(<[u8]>::to_vec).collect()),
                    );
                    rest = &rest[parsed.consumed..];
                    if parsed.status != Status::Full {
                        break parsed.status;
                    }
                };
                let (requests, parsed) = together;
                assert_eq!(requests, apart, "{}", input.escape_ascii());
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
        let found = |batch: &Batch, input: &[u8]| {
            let (opening, rest) = batch.openings.split_from(input)?;
            Some((opening.count(), opening.name(20), rest.to_vec()))
        };
        assert_eq!(found(&batch, get), None);
        parse(&[get, set].concat(), &mut batch);
        let name = Span::new(20 + 8, 3);
        assert_eq!(found(&batch, get), Some((2, name, get[13..].to_vec())));
        assert_eq!(found(&batch, set), Some((3, name, set[13..].to_vec())));
        assert_eq!(found(&batch, &get[..15]), None, "not enough bytes to compare");
    }

    #[test]
    fn limits_that_are_lower_than_an_opening_hold() {
        let input = REQUESTS[0];
        let mut batch = Batch::new();
        parse(input, &mut batch);
        for limits in [
            Limits { max_bulk_len: 2, ..Limits::default() },
            Limits { max_multibulk_len: 1, ..Limits::default() },
        ] {
            let parsed = Parser::new().parse(input, &limits, 10, &mut batch);
            let fresh = Parser::new().parse(input, &limits, 10, &mut Batch::new());
            assert_eq!(parsed, fresh);
            assert!(matches!(parsed.status, Status::Error(_)));
        }
    }

    #[test]
    fn a_batch_gives_back_what_a_large_request_has_left() {
        let mut batch = Batch::new();
        let words = "$1\r\na\r\n".repeat(100_000);
        parse(format!("*100000\r\n{words}").as_bytes(), &mut batch);
        assert!(batch.memory_bytes() > 100_000);
        parse(REQUESTS[0], &mut batch);
        parse(REQUESTS[0], &mut batch);
        assert!(batch.memory_bytes() < 200_000, "{}", batch.memory_bytes());
    }
}
