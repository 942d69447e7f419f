//! Replies, appended to the caller's buffer.
//!
//! Every method appends one whole value, or the header of an aggregate whose elements the caller appends next.
//! Types that only version 3 has are written for version 2 as Redis 7.2 writes them, so a command builds its reply
//! once for both.

use super::Proto;
use crate::number::format_f64;

/// Room for the longest header: a type byte, 20 digits (or a sign and 19), and CRLF.
const HEADER_LEN_MAX: usize = 24;

/// Length of the format name of a verbatim string, including the colon.
const VERBATIM_PREFIX_LEN: usize = 4;

/// A number of up to three digits as text, padded with zero bytes.
#[derive(Clone, Copy)]
struct Digits {
    text: [u8; 3],
    len: u8,
}

/// The numbers below 1000. Of these four kilobytes, a load of values of similar lengths uses a cache line or two.
static SHORT_NUMBERS: [Digits; 1000] = {
    let mut numbers = [Digits { text: [0; 3], len: 0 }; 1000];
    let mut value = 0;
    while value < numbers.len() {
        let (hundreds, tens) = (b'0' + (value / 100) as u8, b'0' + (value / 10 % 10) as u8);
        let units = b'0' + (value % 10) as u8;
        numbers[value] = match value {
            0..10 => Digits { text: [units, 0, 0], len: 1 },
            10..100 => Digits { text: [tens, units, 0], len: 2 },
            _ => Digits { text: [hundreds, tens, units], len: 3 },
        };
        value += 1;
    }
    numbers
};

/// Writes replies in one version of the protocol.
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    proto: Proto,
}

impl<'a> Encoder<'a> {
    /// Returns an encoder that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, proto: Proto) -> Encoder<'a> {
        Encoder { out, proto }
    }

    /// Returns the protocol version.
    #[inline]
    pub fn proto(&self) -> Proto {
        self.proto
    }

    /// Returns the buffer, for values that are encoded already.
    #[inline]
    pub fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Appends a short text without a length, such as `OK`. Line ends in it become spaces.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Appends `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// Appends an error, whose first word is its code: `ERR syntax error`. Line ends in it become spaces, as errors
    /// often repeat what the client sent.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        // As in Redis: texts of scripts and other servers may end in line breaks of their own.
        let end =
            text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |at| at + 1);
        self.line(b'-', &text[..end]);
    }

    /// Appends an integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        match usize::try_from(value) {
            Ok(value) => self.header(b':', value),
            Err(_) => self.long_header(b':', value),
        }
    }

    /// Appends an integer that may exceed `i64`.
    #[inline]
    pub fn unsigned(&mut self, value: u64) {
        self.header(b':', value as usize);
    }

    /// Appends a string of any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        // A long string must not make the buffer grow twice. For a short one the check costs as much as the header.
        if bytes.len() >= SHORT_NUMBERS.len() {
            self.out.reserve(HEADER_LEN_MAX + bytes.len() + 2);
        }
        self.bulk_header(bytes.len());
        self.out.extend_from_slice(bytes);
        self.crlf();
    }

    /// Appends the header of a string. The caller sends its `len` bytes itself, then [`Encoder::crlf`].
    #[inline]
    pub fn bulk_header(&mut self, len: usize) {
        self.header(b'$', len);
    }

    /// Ends a string begun by [`Encoder::bulk_header`].
    #[inline]
    pub fn crlf(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// Appends a null value. In version 2, a null string.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.proto {
            Proto::Resp2 => b"$-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// Appends a null value in place of an array. In version 2, a null array.
    #[inline]
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.proto {
            Proto::Resp2 => b"*-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// Appends the header of an array of `len` values.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    /// Appends the header of a map of `pairs` keys, each followed by its value. In version 2, an array of twice as
    /// many values.
    #[inline]
    pub fn map(&mut self, pairs: usize) {
        match self.proto {
            Proto::Resp2 => self.header(b'*', pairs * 2),
            Proto::Resp3 => self.header(b'%', pairs),
        }
    }

    /// Appends the header of a set of `len` values. In version 2, an array.
    #[inline]
    pub fn set(&mut self, len: usize) {
        self.header(self.either(b'*', b'~'), len);
    }

    /// Appends the header of a push message of `len` values, which answers no request. In version 2, an array.
    #[inline]
    pub fn push(&mut self, len: usize) {
        self.header(self.either(b'*', b'>'), len);
    }

    /// Appends an attribute of the reply that follows: `pairs` keys and values, written by `write`. Version 2 has
    /// no attributes: `write` is not called.
    pub fn attribute(&mut self, pairs: usize, write: impl FnOnce(&mut Encoder<'_>)) {
        if self.proto == Proto::Resp3 {
            self.header(b'|', pairs);
            write(self);
        }
    }

    /// Appends a boolean. In version 2, the integer 1 or 0.
    #[inline]
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.proto, value) {
            (Proto::Resp2, false) => b":0\r\n",
            (Proto::Resp2, true) => b":1\r\n",
            (Proto::Resp3, false) => b"#f\r\n",
            (Proto::Resp3, true) => b"#t\r\n",
        });
    }

    /// Appends a double, as [`format_f64`] prints it. In version 2, a string.
    pub fn double(&mut self, value: f64) {
        self.double_text(&format_f64(value));
    }

    /// Appends a double in another spelling, for replies in which Redis has one.
    pub fn double_text(&mut self, text: &[u8]) {
        match self.proto {
            Proto::Resp2 => self.bulk(text),
            Proto::Resp3 => self.line(b',', text),
        }
    }

    /// Appends an integer of any size, in decimal digits. In version 2, a string.
    pub fn big_number(&mut self, digits: &str) {
        match self.proto {
            Proto::Resp2 => self.bulk(digits.as_bytes()),
            Proto::Resp3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// Appends a verbatim string; `format` is `b"txt"` or `b"mkd"`. In version 2, a string.
    pub fn verbatim(&mut self, format: &[u8; 3], text: &[u8]) {
        if self.proto == Proto::Resp2 {
            return self.bulk(text);
        }
        self.header(b'=', text.len() + VERBATIM_PREFIX_LEN);
        self.out.extend_from_slice(format);
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.crlf();
    }

    #[inline]
    fn either(&self, resp2: u8, resp3: u8) -> u8 {
        match self.proto {
            Proto::Resp2 => resp2,
            Proto::Resp3 => resp3,
        }
    }

    /// Appends a type byte, a number and CRLF.
    #[inline]
    fn header(&mut self, marker: u8, value: usize) {
        match value {
            0..1000 => self.short_header(marker, value),
            _ => self.middle_header(marker, value),
        }
    }

    /// Appends a header with up to three digits, which suffice for most lengths and results. It is built in a
    /// register and always appended as eight bytes, so that no branch depends on the number of digits.
    #[inline]
    fn short_header(&mut self, marker: u8, value: usize) {
        const CRLF: u64 = u16::from_le_bytes(*b"\r\n") as u64;
        let Digits { text, len } = SHORT_NUMBERS[value];
        let digits = u64::from(u32::from_le_bytes([text[0], text[1], text[2], 0]));
        let header = u64::from(marker) | digits << 8 | CRLF << (8 + 8 * u32::from(len));
        let end = self.out.len() + 3 + usize::from(len);
        self.out.extend_from_slice(&header.to_le_bytes());
        self.out.truncate(end);
    }

    /// Appends a header with up to seven digits.
    fn middle_header(&mut self, marker: u8, value: usize) {
        match value {
            0..1_000_000 => self.header_of_six(marker, value),
            1_000_000..10_000_000 => self.header_of_len::<10>(marker, value),
            _ => self.long_header(marker, value),
        }
    }

    /// Appends a header with four to six digits, as [`Encoder::short_header`] does: the digits above the last three
    /// come from its table.
    #[inline]
    fn header_of_six(&mut self, marker: u8, value: usize) {
        let Digits { text: [a, b, c], len } = SHORT_NUMBERS[value / 1000];
        let low = (value % 1000) as u32;
        let [x, y, z] = [low / 100, low / 10 % 10, low % 10].map(|digit| b'0' + digit as u8);
        let front = u128::from(u32::from_le_bytes([marker, a, b, c]));
        let back = u128::from(u64::from_le_bytes([x, y, z, b'\r', b'\n', 0, 0, 0]));
        let header = front | back << (8 + 8 * u32::from(len));
        let end = self.out.len() + 6 + usize::from(len);
        self.out.extend_from_slice(&header.to_le_bytes());
        self.out.truncate(end);
    }

    /// Appends a header of `LEN` bytes, of which all but three are digits. As the number of digits is constant, the
    /// loop unrolls and the append has a fixed size.
    #[inline]
    fn header_of_len<const LEN: usize>(&mut self, marker: u8, value: usize) {
        let mut header = [marker; LEN];
        let mut rest = value as u32;
        for digit in header[1..LEN - 2].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        [header[LEN - 2], header[LEN - 1]] = *b"\r\n";
        self.out.extend_from_slice(&header);
    }

    fn long_header(&mut self, marker: u8, value: impl itoa::Integer) {
        self.out.reserve(HEADER_LEN_MAX);
        self.out.push(marker);
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.crlf();
    }

    fn line(&mut self, marker: u8, text: &[u8]) {
        self.out.push(marker);
        let start = self.out.len();
        self.out.extend_from_slice(text);
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.crlf();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(write: impl Fn(&mut Encoder<'_>), resp2: &str, resp3: &str) {
        for (proto, expected) in [(Proto::Resp2, resp2), (Proto::Resp3, resp3)] {
            let mut out = b"before".to_vec();
            write(&mut Encoder::new(&mut out, proto));
            let expected = format!("before{expected}");
            assert_eq!(String::from_utf8_lossy(&out), expected, "{proto:?}");
        }
    }

    #[track_caller]
    fn check_same(write: impl Fn(&mut Encoder<'_>), expected: &str) {
        check(write, expected, expected);
    }

    #[test]
    fn numbers_of_every_length_are_whole() {
        check_same(|e| e.int(0), ":0\r\n");
        check_same(|e| e.int(9), ":9\r\n");
        check_same(|e| e.int(10), ":10\r\n");
        check_same(|e| e.int(99), ":99\r\n");
        check_same(|e| e.int(100), ":100\r\n");
        check_same(|e| e.int(999), ":999\r\n");
        check_same(|e| e.int(1234), ":1234\r\n");
        check_same(|e| e.int(10_000), ":10000\r\n");
        for value in 0..1100 {
            check_same(|e| e.int(value), &format!(":{value}\r\n"));
        }
        for digits in 1..=18 {
            let power = 10i64.pow(digits);
            for value in [power - 1, power, power + power / 7] {
                check_same(|e| e.int(value), &format!(":{value}\r\n"));
            }
        }
        check_same(|e| e.int(-1), ":-1\r\n");
        check_same(|e| e.int(i64::MIN), ":-9223372036854775808\r\n");
        check_same(|e| e.int(i64::MAX), ":9223372036854775807\r\n");
        check_same(|e| e.unsigned(u64::MAX), ":18446744073709551615\r\n");
    }

    #[test]
    fn strings_keep_their_bytes() {
        check_same(|e| e.ok(), "+OK\r\n");
        check_same(|e| e.simple("PONG"), "+PONG\r\n");
        check_same(|e| e.bulk(b""), "$0\r\n\r\n");
        check_same(|e| e.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n");
        let long = "x".repeat(1000);
        check_same(|e| e.bulk(long.as_bytes()), &format!("$1000\r\n{long}\r\n"));
    }

    #[test]
    fn lines_stay_lines() {
        check_same(|e| e.error("ERR no\r\n+such \n"), "-ERR no  +such \r\n");
        check_same(|e| e.error("ERR no such\r\n\n"), "-ERR no such\r\n");
        check_same(|e| e.error("\r\n"), "-\r\n");
        check_same(|e| e.error(b"ERR \xff"), "-ERR \u{fffd}\r\n");
        check_same(|e| e.simple("a\nb"), "+a b\r\n");
    }

    #[test]
    fn version_2_gets_the_nearest_type() {
        check(|e| e.null(), "$-1\r\n", "_\r\n");
        check(|e| e.null_array(), "*-1\r\n", "_\r\n");
        check(|e| e.array(3), "*3\r\n", "*3\r\n");
        check(|e| e.map(50), "*100\r\n", "%50\r\n");
        check(|e| e.set(12), "*12\r\n", "~12\r\n");
        check(|e| e.push(2), "*2\r\n", ">2\r\n");
        check(|e| e.boolean(true), ":1\r\n", "#t\r\n");
        check(|e| e.boolean(false), ":0\r\n", "#f\r\n");
        check(|e| e.double(3.0), "$1\r\n3\r\n", ",3\r\n");
        check(|e| e.double(-0.25), "$5\r\n-0.25\r\n", ",-0.25\r\n");
        check(|e| e.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
        check(|e| e.double(f64::NAN), "$3\r\nnan\r\n", ",nan\r\n");
        check(|e| e.big_number("-12"), "$3\r\n-12\r\n", "(-12\r\n");
        check(|e| e.verbatim(b"txt", b"ab"), "$2\r\nab\r\n", "=6\r\ntxt:ab\r\n");
        check(|e| e.attribute(1, |e| e.map(0)), "", "|1\r\n%0\r\n");
    }
}
