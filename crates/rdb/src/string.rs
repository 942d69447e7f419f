//! Lengths and strings, the building blocks of the format.
//!
//! The two upper bits of a length's first byte give its form: 6 bits in this byte, 14 bits in two bytes, 32 or 64
//! bits behind it; or, instead of a length, a specially encoded string: an integer or compressed bytes.

use std::io::{Read, Write};

use crate::error::Result;
use crate::input::Input;
use crate::lzf;
use crate::output::Output;

const LENGTH_32: u8 = 0x80;
const LENGTH_64: u8 = 0x81;

const INT_8: u8 = 0xc0;
const INT_16: u8 = 0xc1;
const INT_32: u8 = 0xc2;
const COMPRESSED: u8 = 0xc3;

/// Minimal length of strings for which compression is tried, as in Redis.
const COMPRESS_MIN: usize = 21;
/// Compression must save this many bytes, as in Redis.
const COMPRESS_GAIN_MIN: usize = 4;
/// Longest string that is read. A compressed one may declare ninety times its own length.
const STRING_LEN_MAX: u64 = 3 << 30;
/// Longest text of an integer of 32 bits.
const INT_TEXT_MAX: usize = 11;

/// A length, or the form of a specially encoded string.
enum Length {
    Plain(u64),
    Special(u8),
}

impl<R: Read> Input<R> {
    fn length_or_form(&mut self, expected: &'static str) -> Result<Length> {
        let first = self.byte(expected)?;
        let low = u64::from(first & 0x3f);
        Ok(Length::Plain(match first >> 6 {
            0 => low,
            1 => low << 8 | u64::from(self.byte(expected)?),
            2 if first == LENGTH_32 => u32::from_be_bytes(self.array(expected)?).into(),
            2 if first == LENGTH_64 => u64::from_be_bytes(self.array(expected)?),
            3 => return Ok(Length::Special(first)),
            _ => return Err(self.corrupt(expected)),
        }))
    }

    /// Reads a length, or another number in the form of a length.
    pub(crate) fn length(&mut self, expected: &'static str) -> Result<u64> {
        match self.length_or_form(expected)? {
            Length::Plain(length) => Ok(length),
            Length::Special(_) => Err(self.corrupt(expected)),
        }
    }

    /// Replaces `string` by the next string, in any form.
    pub(crate) fn string(&mut self, string: &mut Vec<u8>, expected: &'static str) -> Result<()> {
        let form = match self.length_or_form(expected)? {
            Length::Plain(len) if len > STRING_LEN_MAX => {
                return Err(self.corrupt("a string of at most 3 GiB"));
            }
            Length::Plain(len) => return self.read_into(string, len, expected),
            Length::Special(form) => form,
        };
        let number = match form {
            INT_8 => i8::from_le_bytes(self.array(expected)?).into(),
            INT_16 => i16::from_le_bytes(self.array(expected)?).into(),
            INT_32 => i32::from_le_bytes(self.array(expected)?),
            COMPRESSED => return self.compressed_string(string, expected),
            _ => return Err(self.corrupt(expected)),
        };
        string.clear();
        string.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        Ok(())
    }

    /// Reads a string into a new vector.
    pub(crate) fn owned_string(&mut self, expected: &'static str) -> Result<Vec<u8>> {
        let mut string = Vec::new();
        self.string(&mut string, expected)?;
        Ok(string)
    }

    fn compressed_string(&mut self, string: &mut Vec<u8>, expected: &'static str) -> Result<()> {
        let compressed_len = self.length("the length of a compressed string")?;
        let len = self.length("the length of a string that is compressed")?;
        if len > STRING_LEN_MAX {
            return Err(self.corrupt("a string of at most 3 GiB"));
        }
        let mut compressed = std::mem::take(&mut self.compressed);
        let read = self.read_into(&mut compressed, compressed_len, expected);
        string.clear();
        let whole = lzf::decompress(&compressed, len, string);
        self.compressed = compressed;
        read?;
        whole.ok_or_else(|| self.corrupt("a compressed string of the length announced"))
    }

    /// Skips a string.
    pub(crate) fn skip_string(&mut self, expected: &'static str) -> Result<()> {
        let len = match self.length_or_form(expected)? {
            Length::Plain(len) => len,
            Length::Special(INT_8) => 1,
            Length::Special(INT_16) => 2,
            Length::Special(INT_32) => 4,
            Length::Special(COMPRESSED) => {
                let compressed_len = self.length(expected)?;
                self.length(expected)?;
                compressed_len
            }
            Length::Special(_) => return Err(self.corrupt(expected)),
        };
        self.skip(len, expected)
    }
}

impl<W: Write> Output<W> {
    /// Writes a length, or another number in the form of a length.
    pub(crate) fn length(&mut self, length: u64) -> Result<()> {
        if length < 1 << 6 {
            self.put(&[length as u8])
        } else if length < 1 << 14 {
            self.put(&(0x4000 | length as u16).to_be_bytes())
        } else if let Ok(length) = u32::try_from(length) {
            self.put(&[LENGTH_32])?;
            self.put(&length.to_be_bytes())
        } else {
            self.put(&[LENGTH_64])?;
            self.put(&length.to_be_bytes())
        }
    }

    /// Writes a string in its shortest form.
    pub(crate) fn string(&mut self, string: &[u8]) -> Result<()> {
        if let Some(number) = parse_i32(string) {
            return self.integer(number);
        }
        if self.settings.compression && string.len() >= COMPRESS_MIN && self.compress(string) {
            return self.put_compressed(string.len());
        }
        self.length(string.len() as u64)?;
        self.put(string)
    }

    fn integer(&mut self, number: i32) -> Result<()> {
        if let Ok(number) = i8::try_from(number) {
            self.put(&[INT_8, number as u8])
        } else if let Ok(number) = i16::try_from(number) {
            let [low, high] = number.to_le_bytes();
            self.put(&[INT_16, low, high])
        } else {
            let [a, b, c, d] = number.to_le_bytes();
            self.put(&[INT_32, a, b, c, d])
        }
    }

    /// Tries to compress the string if the heuristic says so. Returns true if it shrinks, with the result in
    /// `self.compressed`.
    fn compress(&mut self, string: &[u8]) -> bool {
        if !self.heuristic.is_tried(string.len()) {
            return false;
        }
        self.compressed.clear();
        let len_max = string.len() - COMPRESS_GAIN_MIN;
        let shrinks = self.compressor.compress(string, len_max, &mut self.compressed);
        self.heuristic.note(string.len(), shrinks);
        shrinks
    }

    fn put_compressed(&mut self, len: usize) -> Result<()> {
        let compressed = std::mem::take(&mut self.compressed);
        self.put(&[COMPRESSED])?;
        self.length(compressed.len() as u64)?;
        self.length(len as u64)?;
        let put = self.put(&compressed);
        self.compressed = compressed;
        put
    }
}

/// Parses an integer in canonical decimal form.
fn parse_i32(text: &[u8]) -> Option<i32> {
    let (&first, _) = text.split_first()?;
    if text.len() > INT_TEXT_MAX || !(first == b'-' || first.is_ascii_digit()) {
        return None;
    }
    let number: i32 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // Leading zeros and `-0` are strings, not numbers.
    (itoa::Buffer::new().format(number).as_bytes() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Summing;
    use crate::output::Settings;
    use proptest::prelude::*;
    use tierce_harness::effort;

    fn written(put: impl FnOnce(&mut Output<Vec<u8>>) -> Result<()>) -> Vec<u8> {
        let settings =
            Settings { version: 10, compression: true, checksum: false, leave_out_unknown: false };
        let mut output = Output::new(Vec::new(), settings);
        put(&mut output).unwrap();
        output.flush().unwrap();
        output.into_writer()
    }

    fn string_form(string: &[u8]) -> Vec<u8> {
        let form = written(|output| output.string(string));
        let mut input = Input::new(&form[..], Summing::Off);
        assert_eq!(input.owned_string("it").unwrap(), string);
        assert!(input.at_end().unwrap());
        let mut input = Input::new(&form[..], Summing::Off);
        input.skip_string("it").unwrap();
        assert!(input.at_end().unwrap());
        form
    }

    #[test]
    fn each_form_of_a_string_is_used() {
        assert_eq!(string_form(b""), [0]);
        assert_eq!(string_form(b"ab"), [2, b'a', b'b']);
        assert_eq!(string_form(b"-5"), [INT_8, 0xfb]);
        assert_eq!(string_form(b"128"), [INT_16, 0x80, 0]);
        assert_eq!(string_form(b"-2147483648"), [INT_32, 0, 0, 0, 0x80]);
        assert_eq!(string_form(b"2147483648")[0], 10);
        for text in [&b"007"[..], b"-0", b"+1", b"1 ", b"-", b"99999999999"] {
            assert_eq!(usize::from(string_form(text)[0]), text.len());
        }
        let compressed = string_form(&[b'x'; 100]);
        assert_eq!((compressed[0], &compressed[2..4]), (COMPRESSED, &[0x40, 100][..]));
    }

    #[test]
    fn an_announced_length_takes_no_memory() {
        let mut string = Vec::new();
        let lie = [LENGTH_64, 0, 0, 0, 0, 0x80, 0, 0, 0, b'x'];
        let error = Input::new(&lie[..], Summing::Off).string(&mut string, "it").unwrap_err();
        assert_eq!(error.to_string(), "the input ends at offset 10, expected it");
        assert!(string.capacity() < 1024);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn any_length_comes_back(length: u64, shift in 0..64_u32) {
            let length = length >> shift;
            let form = written(|output| output.length(length));
            prop_assert_eq!(Input::new(&form[..], Summing::Off).length("it").unwrap(), length);
        }

        #[test]
        fn any_string_comes_back(string: Vec<u8>) {
            string_form(&string);
        }

        #[test]
        fn any_integer_comes_back(number: i64, shift in 0..64_u32) {
            string_form((number >> shift).to_string().as_bytes());
        }
    }
}
