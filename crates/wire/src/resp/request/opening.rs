//! The beginning of a request: the number of arguments, and the command's name.
//!
//! Clients repeat themselves. If a request begins with the same bytes as an earlier one, one compare replaces
//! parsing them.

use super::args::Span;

/// Bytes that are compared at once.
const WINDOW_LEN: usize = 16;

/// Bytes of `*2\r\n` and of `$3\r\n`, and so the place of the name.
const LINE_LEN: usize = 4;
const NAME_AT: usize = 2 * LINE_LEN;

/// Most arguments of a request with an opening, and the longest name.
pub(super) const COUNT_MAX: usize = 9;
pub(super) const NAME_LEN_MAX: usize = WINDOW_LEN - NAME_AT - 2;

/// The opening of a request that was parsed: `*2\r\n$3\r\nGET\r\n`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    /// Its bytes, and zeros behind them.
    bytes: u128,
    /// Which of the bytes of a window it covers.
    mask: u128,
    name_len: u32,
    count: u32,
}

/// What an opening says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// Arguments of the request, the name included.
    pub(super) count: usize,
    /// Where the name stands.
    pub(super) name: Span,
    /// Where the second argument begins.
    pub(super) at: usize,
}

impl Default for Opening {
    /// One that no request has.
    fn default() -> Opening {
        Opening { bytes: 1, mask: 0, name_len: 0, count: 0 }
    }
}

impl Opening {
    /// What the request at `start` begins with, if that is this opening.
    #[inline]
    pub(super) fn read(&self, input: &[u8], start: usize) -> Option<Opened> {
        let window = input.get(start..)?.first_chunk::<WINDOW_LEN>()?;
        if u128::from_le_bytes(*window) & self.mask != self.bytes {
            return None;
        }
        let name = Span::new(start + NAME_AT, self.name_len as usize);
        let at = start + NAME_AT + self.name_len as usize + 2;
        Some(Opened { count: self.count as usize, name, at })
    }

    /// Becomes the opening of the request at `start`, which has `count` arguments and this name, unless it
    /// is spelled at greater length.
    pub(super) fn learn(&mut self, input: &[u8], start: usize, count: usize, name: Span) {
        let name_len = name.len as usize;
        let is_short = count <= COUNT_MAX
            && name_len <= NAME_LEN_MAX
            && name.start as usize == start + NAME_AT;
        if !is_short {
            return;
        }
        let Some(window) = input[start..].first_chunk::<WINDOW_LEN>() else { return };
        let mask = u128::MAX >> (8 * (NAME_LEN_MAX - name_len));
        let bytes = u128::from_le_bytes(*window) & mask;
        *self = Opening { bytes, mask, name_len: name.len, count: count as u32 };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Batch, Limits, Parser};
    use super::*;

    fn parse(input: &[u8], batch: &mut Batch) -> (Vec<Vec<Vec<u8>>>, super::super::Parsed) {
        let parsed = Parser::new().parse(input, &Limits::default(), 10, batch);
        let requests = batch.iter(input).map(|args| args.iter().map(<[u8]>::to_vec).collect());
        (requests.collect(), parsed)
    }

    #[test]
    fn what_was_parsed_before_changes_nothing() {
        let requests: &[&[u8]] = &[
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$7\r\nsome value\r\n",
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
        let mut used = Batch::new();
        for before in requests {
            for request in requests {
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
    fn an_opening_is_used_for_the_request_behind_it() {
        let input = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        let mut batch = Batch::new();
        assert_eq!(batch.opening.read(input, 0), None);
        parse(input, &mut batch);
        let twice = [input, input.as_slice()].concat();
        let opened = Opened { count: 2, name: Span::new(20 + 8, 3), at: 20 + 13 };
        assert_eq!(batch.opening.read(&twice, 20), Some(opened));
        assert_eq!(batch.opening.read(&twice, 25), None, "not enough bytes to compare");
    }

    #[test]
    fn limits_that_are_lower_than_an_opening_hold() {
        let input = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        let mut batch = Batch::new();
        parse(input, &mut batch);
        for limits in [
            Limits { max_bulk_len: 2, ..Limits::default() },
            Limits { max_multibulk_len: 1, ..Limits::default() },
        ] {
            let parsed = Parser::new().parse(input, &limits, 10, &mut batch);
            let fresh = Parser::new().parse(input, &limits, 10, &mut Batch::new());
            assert_eq!(parsed, fresh);
            assert!(matches!(parsed.status, super::super::Status::Error(_)));
        }
    }
}
