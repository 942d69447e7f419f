//! Counts the replies of a connection.
//!
//! The generator must know the number of replies, the number of errors and nulls among them, and the text of the
//! first error; nothing else, at a few nanoseconds per reply. `tierce-wire` skips replies at that price. This file
//! adds the text of the first error, which costs a second pass over its piece of input.

use tierce_wire::resp::ReplyScanner;

use crate::counted::Counted;
use crate::error::Error;
use crate::memcached::Scanner;
use crate::pedrokv;
use crate::protocol::Protocol;

/// Maximum length of an error's text.
const ERROR_TEXT_LEN_MAX: usize = 200;

/// Maximum length of the unconsumed input. It is the beginning of one line, and the scanner rejects lines that are
/// too long.
pub(crate) const CARRY_LEN_MAX: usize = 64 * 1024 + 1;

/// Counts the replies of one connection.
#[derive(Debug)]
pub(crate) enum ReplyCounter {
    Resp(ReplyScanner),
    Memcached(Scanner),
    PedroKv,
}

impl ReplyCounter {
    /// Makes a counter for a connection with `protocol`. `quiet` if several requests get one reply.
    pub(crate) fn new(protocol: Protocol, quiet: bool) -> Self {
        match protocol {
            Protocol::Resp => Self::Resp(ReplyScanner::new()),
            Protocol::PedroKv => Self::PedroKv,
            protocol => Self::Memcached(Scanner::new(protocol, quiet)),
        }
    }

    /// Counts in `input`, which begins with the bytes that the last call did not consume.
    ///
    /// # Errors
    /// If the input is no sequence of replies. The counter must not be used afterwards.
    #[inline]
    pub(crate) fn count(&mut self, input: &[u8]) -> Result<Counted, Error> {
        let scanner = match self {
            Self::Resp(scanner) => scanner,
            Self::Memcached(scanner) => {
                return scanner.count(input).map_err(|_| Error::NotMemcached);
            }
            Self::PedroKv => return pedrokv::count(input).map_err(|_| Error::NotPedroKv),
        };
        let before = scanner.clone();
        let scanned = scanner.scan(input, usize::MAX).map_err(Error::Protocol)?;
        let first_error = if scanned.errors == 0 { None } else { first_error(before, input) };
        Ok(Counted {
            consumed: scanned.consumed,
            replies: scanned.replies as u64,
            errors: scanned.errors as u64,
            nulls: scanned.nulls as u64,
            first_error,
        })
    }
}

/// Returns the text of the first error in `input`, which `scanner` has not seen yet.
///
/// The error is the last line that the scanner has consumed when it counts one. Of a long RESP3 error that began in
/// an earlier piece, only the end is available here.
#[cold]
fn first_error(mut scanner: ReplyScanner, input: &[u8]) -> Option<String> {
    let mut end = 0;
    loop {
        let scanned = scanner.scan(&input[end..], 1).ok()?;
        end += scanned.consumed;
        if scanned.replies == 0 {
            return None;
        }
        if scanned.errors > 0 {
            break;
        }
    }
    let text = input[..end].strip_suffix(b"\r\n")?;
    let line = text.rsplit(|&byte| byte == b'\n').next()?;
    let line = line.strip_prefix(b"-").unwrap_or(line);
    Some(String::from_utf8_lossy(&line[..line.len().min(ERROR_TEXT_LEN_MAX)]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds pieces as a connection does: unconsumed input is passed again.
    fn feed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Counted {
        let mut counter = ReplyCounter::new(Protocol::Resp, false);
        let mut kept = Vec::new();
        let mut total = Counted::default();
        for piece in pieces {
            kept.extend_from_slice(piece);
            let counted = counter.count(&kept).unwrap();
            kept.drain(..counted.consumed);
            total.replies += counted.replies;
            total.errors += counted.errors;
            total.nulls += counted.nulls;
            total.first_error = total.first_error.or(counted.first_error);
        }
        assert!(kept.is_empty(), "{kept:?} left over");
        total
    }

    /// Checks that the counts do not depend on the splits of the input.
    fn check(input: &str, replies: u64, errors: u64, nulls: u64, first_error: Option<&str>) {
        let first_error = first_error.map(str::to_owned);
        let expected = Counted { consumed: 0, replies, errors, nulls, first_error };
        let bytes = input.as_bytes();
        assert_eq!(feed(bytes.chunks(1)), expected, "{input:?} byte by byte");
        for cut in 0..bytes.len() {
            assert_eq!(feed([&bytes[..cut], &bytes[cut..]]), expected, "{input:?} cut at {cut}");
        }
    }

    #[test]
    fn replies_nulls_and_errors_are_counted() {
        check("+OK\r\n+OK\r\n:12\r\n$3\r\nabc\r\n$0\r\n\r\n", 5, 0, 0, None);
        check("$-1\r\n*-1\r\n_\r\n*2\r\n:1\r\n*1\r\n+a\r\n", 4, 0, 3, None);
        check("+OK\r\n-ERR no\r\n:1\r\n-WRONG x\r\n", 4, 2, 0, Some("ERR no"));
        check(">2\r\n+a\r\n:1\r\n-ERR behind a push\r\n", 1, 1, 0, Some("ERR behind a push"));
        check("$11\r\n-ERR inside\r\n+OK\r\n", 2, 0, 0, None);
    }

    #[test]
    fn a_long_error_of_version_3_is_shown_by_its_last_line() {
        assert_eq!(feed([&b"!5\r\nERR x\r\n"[..]]).first_error.as_deref(), Some("ERR x"));
    }

    #[test]
    fn what_is_not_consumed_is_bounded() {
        let mut counter = ReplyCounter::new(Protocol::Resp, false);
        assert_eq!(counter.count(&vec![b'+'; CARRY_LEN_MAX - 1]).unwrap().consumed, 0);
        let mut counter = ReplyCounter::new(Protocol::Resp, false);
        assert!(counter.count(&vec![b'+'; CARRY_LEN_MAX + 1]).is_err());
    }
}
