//! Counting replies without decoding them.
//!
//! The generator must know how many replies arrived and how many of them are errors, nothing else,
//! and it must know that at a few nanoseconds per reply. The counter walks over RESP2 and RESP3:
//! it reads type bytes and lengths, jumps over payloads and descends into aggregates by counting
//! the elements still missing, so that nesting needs no stack.
//!
//! Input comes in pieces cut anywhere. A payload that is not complete is remembered as a number of
//! bytes to skip; only an incomplete *line* (a type byte, a number, a short text) must be shown
//! again, together with what follows it. So a caller keeps a few bytes, never a payload.

use memchr::memchr;

/// The part of an error reply that is kept to be shown.
const ERROR_TEXT_LEN_MAX: usize = 200;

/// A line of a reply is at most this long; a server that sends more is not speaking RESP.
pub(crate) const LINE_LEN_MAX: usize = 64 * 1024;

/// Counts the replies of one connection.
#[derive(Debug, Default)]
pub(crate) struct ReplyCounter {
    /// Payload bytes still to come of the current bulk string, its line end included.
    skip: u64,
    /// Elements still missing in the current top-level aggregate. 0 between replies.
    open: u64,
    /// The current top-level value is out of band and must not be counted.
    push: bool,
}

/// What a piece of input held.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Bytes that need not be shown again.
    pub(crate) consumed: usize,
    /// Replies that ended in this piece.
    pub(crate) replies: u64,
    /// How many of them are errors.
    pub(crate) errors: u64,
    /// The text of the first error among them.
    pub(crate) first_error: Option<String>,
}

/// The peer sent something that is not RESP, at this offset of the piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) at: usize,
}

impl ReplyCounter {
    /// Walks over `input`, which begins with the bytes the last call did not consume.
    ///
    /// # Errors
    /// When a type byte or a number is none. The counter is of no use afterwards.
    pub(crate) fn count(&mut self, input: &[u8]) -> Result<Counted, Malformed> {
        let mut counted = Counted::default();
        let mut at = 0;
        loop {
            if self.skip > 0 {
                let step = self.skip.min((input.len() - at) as u64);
                at += step as usize;
                self.skip -= step;
                if self.skip > 0 {
                    break;
                }
                self.value_ended(&mut counted);
            }
            // The reply to nearly every write is worth a comparison of its own.
            while self.open == 0 && input[at..].starts_with(b"+OK\r\n") {
                at += 5;
                counted.replies += 1;
            }
            match self.header(input, at, &mut counted)? {
                Some(len) => at += len,
                None => break,
            }
        }
        counted.consumed = at;
        Ok(counted)
    }

    /// Reads the line at `at` and returns its length, or `None` if it is not complete.
    #[inline]
    fn header(
        &mut self,
        input: &[u8],
        at: usize,
        counted: &mut Counted,
    ) -> Result<Option<usize>, Malformed> {
        let Some((&kind, rest)) = input[at..].split_first() else { return Ok(None) };
        match kind {
            b'$' | b'=' | b'!' => {
                let Some((number, len)) = number(rest).map_err(|_| Malformed { at })? else {
                    return incomplete(rest, at);
                };
                self.bulk(kind, number, counted);
                Ok(Some(1 + len))
            }
            b'*' | b'~' | b'%' | b'>' | b'|' => {
                let Some((number, len)) = number(rest).map_err(|_| Malformed { at })? else {
                    return incomplete(rest, at);
                };
                self.aggregate(kind, number, counted);
                Ok(Some(1 + len))
            }
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {
                let Some(end) = memchr(b'\n', rest) else { return incomplete(rest, at) };
                if kind == b'-' && self.open == 0 {
                    counted.error(&rest[..end]);
                }
                self.value_ended(counted);
                Ok(Some(1 + end + 1))
            }
            _ => Err(Malformed { at }),
        }
    }

    fn bulk(&mut self, kind: u8, len: Option<u64>, counted: &mut Counted) {
        if kind == b'!' && self.open == 0 {
            counted.error(b"(an error in RESP3's long form)");
        }
        match len {
            Some(len) => self.skip = len + 2,
            None => self.value_ended(counted),
        }
    }

    fn aggregate(&mut self, kind: u8, len: Option<u64>, counted: &mut Counted) {
        let pairs = matches!(kind, b'%' | b'|');
        let elements = len.unwrap_or(0).saturating_mul(if pairs { 2 } else { 1 });
        if kind == b'|' {
            // An attribute is not a value: the value it describes follows and is still missing.
            self.open = self.open.max(1).saturating_add(elements);
            return;
        }
        if kind == b'>' && self.open == 0 {
            self.push = true;
        }
        if elements == 0 {
            self.value_ended(counted);
        } else {
            // The aggregate itself was one of the missing elements, unless it is the whole reply.
            self.open = self.open.saturating_sub(1).saturating_add(elements);
        }
    }

    #[inline]
    fn value_ended(&mut self, counted: &mut Counted) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            counted.replies += u64::from(!self.push);
            self.push = false;
        }
    }
}

impl Counted {
    #[cold]
    fn error(&mut self, text: &[u8]) {
        self.errors += 1;
        if self.first_error.is_none() {
            let text = &text[..text.len().min(ERROR_TEXT_LEN_MAX)];
            self.first_error = Some(String::from_utf8_lossy(text).trim_end().to_owned());
        }
    }
}

/// A line that goes on in the next piece, unless it has gone on for too long already.
#[cold]
fn incomplete(rest: &[u8], at: usize) -> Result<Option<usize>, Malformed> {
    if rest.len() < LINE_LEN_MAX { Ok(None) } else { Err(Malformed { at }) }
}

/// The number of a line and the length of the line, line end included. -1 is `None`: absent.
#[inline]
fn number(line: &[u8]) -> Result<Option<(Option<u64>, usize)>, ()> {
    let mut value = 0_u64;
    for (index, &byte) in line.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            value =
                value.checked_mul(10).and_then(|value| value.checked_add(digit.into())).ok_or(())?;
            continue;
        }
        if byte == b'-' && index == 0 {
            return match line {
                [b'-', b'1', b'\r', b'\n', ..] => Ok(Some((None, 4))),
                _ if b"-1\r\n".starts_with(line) => Ok(None),
                _ => Err(()),
            };
        }
        if byte != b'\r' || index == 0 || value > MAX_NUMBER {
            return Err(());
        }
        return match line.get(index + 1) {
            Some(b'\n') => Ok(Some((Some(value), index + 2))),
            Some(_) => Err(()),
            None => Ok(None),
        };
    }
    Ok(None)
}

/// Lengths above this would overflow in sums; no server has so much to say.
const MAX_NUMBER: u64 = 1 << 48;

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds pieces as a connection does: what was not consumed comes again.
    fn feed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<(u64, u64), Malformed> {
        let mut counter = ReplyCounter::default();
        let mut kept = Vec::new();
        let (mut replies, mut errors) = (0, 0);
        for piece in pieces {
            kept.extend_from_slice(piece);
            let counted = counter.count(&kept)?;
            kept.drain(..counted.consumed);
            replies += counted.replies;
            errors += counted.errors;
        }
        assert!(kept.is_empty(), "{kept:?} left over");
        Ok((replies, errors))
    }

    /// The counts must not depend on where the input is cut.
    fn check(input: &str, replies: u64, errors: u64) {
        let bytes = input.as_bytes();
        assert_eq!(feed([bytes]), Ok((replies, errors)), "{input:?} whole");
        assert_eq!(feed(bytes.chunks(1)), Ok((replies, errors)), "{input:?} byte by byte");
        for cut in 1..bytes.len() {
            let pieces = [&bytes[..cut], &bytes[cut..]];
            assert_eq!(feed(pieces), Ok((replies, errors)), "{input:?} cut at {cut}");
        }
    }

    #[test]
    fn plain_values_are_counted() {
        check("+OK\r\n+OK\r\n+PONG\r\n:12\r\n", 4, 0);
        check("$3\r\nabc\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n", 5, 0);
        check("_\r\n#t\r\n,1.5\r\n(123\r\n=5\r\ntxt:a\r\n", 5, 0);
    }

    #[test]
    fn payloads_may_hold_anything() {
        check("$9\r\n+OK\r\n$3\r\n\r\n:1\r\n", 2, 0);
    }

    #[test]
    fn errors_are_counted_and_the_first_is_kept() {
        check("+OK\r\n-ERR no\r\n-WRONG x\r\n!5\r\nERR x\r\n", 4, 3);
        let counted = ReplyCounter::default().count(b"-ERR no\r\n-WRONG x\r\n").unwrap();
        assert_eq!(counted.first_error.as_deref(), Some("ERR no"));
    }

    #[test]
    fn aggregates_are_one_reply_however_deep() {
        check("*2\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n+OK\r\n", 2, 0);
        check("%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n$1\r\nx\r\n:7\r\n", 2, 0);
        check("*3\r\n-ERR inside\r\n+OK\r\n_\r\n", 1, 0);
    }

    #[test]
    fn pushes_are_not_replies() {
        check(">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n+OK\r\n", 1, 0);
    }

    #[test]
    fn attributes_belong_to_the_value_behind_them() {
        check("|1\r\n+ttl\r\n:3\r\n$1\r\na\r\n:1\r\n", 2, 0);
        check("*2\r\n|1\r\n+ttl\r\n:3\r\n$1\r\na\r\n:1\r\n:1\r\n", 2, 0);
    }

    #[test]
    fn what_is_not_resp_is_refused() {
        for input in [
            "HTTP/1.1 200 OK\r\n",
            "$x\r\n",
            "$\r\n",
            "*-2\r\n",
            "$12345678901234567890123\r\n",
            "$3\rx",
        ] {
            assert!(feed([input.as_bytes()]).is_err(), "{input:?}");
        }
        let endless = vec![b'+'; LINE_LEN_MAX + 1];
        assert!(ReplyCounter::default().count(&endless).is_err());
    }
}
