//! Counts replies of memcached's protocols, at a few nanoseconds each.
//!
//! Only the end of a request's reply is counted: values of the text protocol and of quiet reads belong to the reply
//! after them. A reply without any value is a null.

use crate::counted::Counted;
use crate::protocol::Protocol;

/// Maximum length of a line or header.
const LINE_LEN_MAX: usize = 4096;

const HEADER_LEN: usize = 24;
const OPCODE_GETKQ: u8 = 0x0d;
const STATUS_NOT_FOUND: u16 = 1;

/// The server sent something that is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoReply;

/// Counts the replies of one connection.
#[derive(Debug)]
pub(crate) struct Scanner {
    protocol: Protocol,
    /// Number of bytes of a value that are still to come.
    skip: usize,
    /// Number of values since the last reply.
    values: u64,
    /// True if values of meta commands belong to the `MN` after them; otherwise they are replies.
    quiet: bool,
}

impl Scanner {
    pub(crate) fn new(protocol: Protocol, quiet: bool) -> Self {
        Self { protocol, skip: 0, values: 0, quiet }
    }

    /// Counts in `input`, which begins with the bytes that the last call did not consume.
    #[inline]
    pub(crate) fn count(&mut self, input: &[u8]) -> Result<Counted, NoReply> {
        let mut counted = Counted::default();
        loop {
            let skipped = self.skip.min(input.len() - counted.consumed);
            self.skip -= skipped;
            counted.consumed += skipped;
            let rest = &input[counted.consumed..];
            let len = match self.protocol {
                Protocol::MemcachedBinary => self.frame(rest, &mut counted)?,
                _ => self.line(rest, &mut counted)?,
            };
            if len == 0 {
                return Ok(counted);
            }
            counted.consumed += len;
        }
    }

    /// Handles a header and returns its length; 0 if it is incomplete.
    fn frame(&mut self, rest: &[u8], counted: &mut Counted) -> Result<usize, NoReply> {
        let Some(header) = rest.first_chunk::<HEADER_LEN>() else { return Ok(0) };
        if header[0] != 0x81 {
            return Err(NoReply);
        }
        self.skip = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        if header[1] == OPCODE_GETKQ {
            self.values += 1;
            return Ok(HEADER_LEN);
        }
        counted.replies += 1;
        match u16::from_be_bytes([header[6], header[7]]) {
            0 => {}
            STATUS_NOT_FOUND => counted.nulls += 1,
            status => {
                counted.errors += 1;
                counted.first_error.get_or_insert_with(|| format!("status {status:#x}"));
            }
        }
        Ok(HEADER_LEN)
    }

    /// Handles a line and returns its length; 0 if it is incomplete.
    fn line(&mut self, rest: &[u8], counted: &mut Counted) -> Result<usize, NoReply> {
        let window = &rest[..rest.len().min(LINE_LEN_MAX)];
        let Some(end) = window.iter().position(|&byte| byte == b'\n') else {
            return if window.len() == LINE_LEN_MAX { Err(NoReply) } else { Ok(0) };
        };
        let line = &rest[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.first_chunk() {
            Some(b"VA") => {
                // `VALUE key flags length` or `VA length`.
                let word = if line.starts_with(b"VALUE ") { 3 } else { 1 };
                self.skip = length(line, word).ok_or(NoReply)? + 2;
                self.values += 1;
                let is_reply = word == 1 && !self.quiet;
                counted.replies += u64::from(is_reply);
            }
            Some(b"EN") => {
                counted.replies += 1;
                counted.nulls += u64::from(self.values == 0 || line == b"EN");
                self.values = 0;
            }
            Some(b"ER" | b"CL" | b"SE") => {
                counted.replies += 1;
                counted.errors += 1;
                counted
                    .first_error
                    .get_or_insert_with(|| String::from_utf8_lossy(line).into_owned());
            }
            Some(b"ST" | b"HD" | b"MN" | b"NS" | b"NO" | b"NF" | b"EX") => counted.replies += 1,
            _ => return Err(NoReply),
        }
        Ok(end + 1)
    }
}

fn length(line: &[u8], word: usize) -> Option<usize> {
    let digits = line.split(|&byte| byte == b' ').nth(word)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts with the input split at every position: replies, nulls, errors.
    fn check(protocol: Protocol, quiet: bool, input: &[u8], expected: (u64, u64, u64)) {
        for piece in 1..=input.len() {
            let mut scanner = Scanner::new(protocol, quiet);
            let (mut at, mut total) = (0, (0, 0, 0));
            for end in (piece..input.len()).step_by(piece).chain([input.len()]) {
                let counted = scanner.count(&input[at..end]).expect("replies");
                at += counted.consumed;
                total.0 += counted.replies;
                total.1 += counted.nulls;
                total.2 += counted.errors;
            }
            assert_eq!((at, total), (input.len(), expected), "in pieces of {piece}");
        }
    }

    #[test]
    fn lines_are_counted() {
        let text = b"VALUE k 0 5\r\nEND\r\n\r\nEND\r\nEND\r\nSTORED\r\nERROR\r\n";
        check(Protocol::MemcachedText, false, text, (4, 1, 1));
        let meta = b"VA 5\r\nEND\r\n\r\nEN\r\nHD\r\n";
        check(Protocol::MemcachedMeta, false, meta, (3, 1, 0));
        let quiet = b"VA 1 kk\r\nx\r\nVA 1 kl\r\ny\r\nMN\r\n";
        check(Protocol::MemcachedMeta, true, quiet, (1, 0, 0));
    }

    #[test]
    fn frames_are_counted() {
        let frame = |opcode: u8, status: u8, body: &[u8]| {
            let mut frame = vec![0x81, opcode, 0, 0, 0, 0, 0, status, 0, 0, 0, body.len() as u8];
            frame.extend([0; 12]);
            frame.extend(body);
            frame
        };
        let input = [frame(0, 0, b"1234v"), frame(0, 1, b"Not found"), frame(1, 3, b"no")].concat();
        check(Protocol::MemcachedBinary, false, &input, (3, 1, 1));
        let quiet = [frame(0x0d, 0, b"k v"), frame(0x0d, 0, b""), frame(0x0a, 0, b"")].concat();
        check(Protocol::MemcachedBinary, false, &quiet, (1, 0, 0));
    }

    #[test]
    fn something_else_is_no_reply() {
        assert_eq!(Scanner::new(Protocol::MemcachedText, false).count(b"+OK\r\n"), Err(NoReply));
        assert_eq!(Scanner::new(Protocol::MemcachedBinary, false).count(&[0; 24]), Err(NoReply));
    }
}
