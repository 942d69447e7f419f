//! The input, with its offset and checksum.
//!
//! **Invariant:** memory grows with received bytes, by a constant factor, never with a declared length.

use std::io::{ErrorKind, Read};

use crate::crc64::crc64;
use crate::error::{Error, Result};

/// Size of one read, unless a string is larger.
const BUFFER_LEN: usize = 64 << 10;

/// State of the checksum computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Summing {
    On,
    Off,
}

/// A reader, a buffer in front of it, and the state of the consumed bytes.
#[derive(Debug)]
pub(crate) struct Input<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Bytes of the buffer below `start` are consumed, those below `end` have come from the reader.
    start: usize,
    end: usize,
    /// Bytes of the buffer below this are in `sum`: `summed <= start`.
    summed: usize,
    sum: u64,
    summing: Summing,
    /// Offset in the input of the buffer's first byte.
    base: u64,
    /// Scratch buffer for compressed bytes.
    pub(crate) compressed: Vec<u8>,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(reader: R, summing: Summing) -> Self {
        Self::with_buffer(reader, summing, BUFFER_LEN)
    }

    /// Returns an input with a buffer of `len` bytes at most, for inputs known to be small.
    pub(crate) fn with_buffer(reader: R, summing: Summing, len: usize) -> Self {
        Input {
            reader,
            buffer: vec![0; len.clamp(16, BUFFER_LEN)],
            start: 0,
            end: 0,
            summed: 0,
            sum: 0,
            summing,
            base: 0,
            compressed: Vec::new(),
        }
    }

    /// Sets the offset of the first byte.
    pub(crate) fn beginning_at(mut self, offset: u64) -> Self {
        self.base = offset;
        self
    }

    /// Returns the offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Returns the checksum of all bytes consumed since summing began.
    pub(crate) fn sum(&mut self) -> u64 {
        self.sum_up();
        self.sum
    }

    /// Excludes the following bytes from the checksum.
    pub(crate) fn stop_summing(&mut self) {
        self.summing = Summing::Off;
    }

    pub(crate) fn corrupt(&self, expected: &'static str) -> Error {
        Error::Corrupt { offset: self.offset(), expected }
    }

    pub(crate) fn truncated(&self, expected: &'static str) -> Error {
        Error::Truncated { offset: self.offset(), expected }
    }

    fn sum_up(&mut self) {
        if self.summing == Summing::On {
            self.sum = crc64(self.sum, &self.buffer[self.summed..self.start]);
        }
        self.summed = self.start;
    }

    /// Makes room and reads once. Returns false at the end of the input.
    fn fill(&mut self) -> Result<bool> {
        self.sum_up();
        self.buffer.copy_within(self.start..self.end, 0);
        self.base += self.start as u64;
        self.end -= self.start;
        (self.start, self.summed) = (0, 0);
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(len) => {
                    self.end += len;
                    return Ok(len > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Io { offset: self.base + self.end as u64, source });
                }
            }
        }
    }

    /// Returns the buffered bytes that are not consumed, at least `len` bytes unless the input ends before. `len`
    /// is at most 16.
    pub(crate) fn peek(&mut self, len: usize) -> Result<&[u8]> {
        while self.end - self.start < len && self.fill()? {}
        Ok(&self.buffer[self.start..self.end])
    }

    /// Consumes peeked bytes.
    pub(crate) fn consume(&mut self, len: usize) {
        debug_assert!(len <= self.end - self.start);
        self.start += len;
    }

    pub(crate) fn at_end(&mut self) -> Result<bool> {
        Ok(self.peek(1)?.is_empty())
    }

    pub(crate) fn byte(&mut self, expected: &'static str) -> Result<u8> {
        self.array::<1>(expected).map(|[byte]| byte)
    }

    /// Reads `N` bytes; `N` is at most 16.
    pub(crate) fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N]> {
        if self.end - self.start < N {
            self.peek(N)?;
        }
        let Some(&bytes) = self.buffer[self.start..self.end].first_chunk() else {
            return Err(self.truncated_at_end(expected));
        };
        self.consume(N);
        Ok(bytes)
    }

    /// Returns the error for a truncated input.
    fn truncated_at_end(&self, expected: &'static str) -> Error {
        Error::Truncated { offset: self.base + self.end as u64, expected }
    }

    /// Replaces `bytes` by the next `len` bytes.
    pub(crate) fn read_into(
        &mut self,
        bytes: &mut Vec<u8>,
        len: u64,
        expected: &'static str,
    ) -> Result<()> {
        bytes.clear();
        let buffered = (self.end - self.start) as u64;
        if len <= buffered {
            let end = self.start + len as usize;
            bytes.extend_from_slice(&self.buffer[self.start..end]);
            self.start = end;
            return Ok(());
        }
        bytes.extend_from_slice(&self.buffer[self.start..self.end]);
        self.start = self.end;
        self.sum_up();
        // Beyond the buffer. `read_to_end` grows the vector with received bytes, not with the declared length.
        let rest = len - buffered;
        let before = bytes.len();
        let read = (&mut self.reader).take(rest).read_to_end(bytes);
        let came = &bytes[before..];
        if self.summing == Summing::On {
            self.sum = crc64(self.sum, came);
        }
        self.base += came.len() as u64;
        match read {
            Err(source) => Err(Error::Io { offset: self.offset(), source }),
            Ok(read) if (read as u64) < rest => Err(self.truncated(expected)),
            Ok(_) => Ok(()),
        }
    }

    /// Skips `len` bytes.
    pub(crate) fn skip(&mut self, mut len: u64, expected: &'static str) -> Result<()> {
        loop {
            let piece = len.min((self.end - self.start) as u64);
            self.start += piece as usize;
            len -= piece;
            if len == 0 {
                return Ok(());
            }
            if !self.fill()? {
                return Err(self.truncated(expected));
            }
        }
    }
}
