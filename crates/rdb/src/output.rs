//! The output, with its length and checksum.

use std::io::Write;

use crate::compression_heuristic::CompressionHeuristic;
use crate::crc64::crc64;
use crate::error::{Error, Result};
use crate::lzf::Compressor;

/// Size of the buffer in front of the writer.
const BUFFER_LEN: usize = 64 << 10;

/// A writer, a buffer in front of it, and the state of the written bytes.
#[derive(Debug)]
pub(crate) struct Output<W> {
    writer: W,
    buffer: Vec<u8>,
    /// Number of bytes passed to the writer.
    written: u64,
    /// Checksum of these bytes.
    sum: u64,
    pub(crate) settings: Settings,
    pub(crate) compressor: Compressor,
    pub(crate) heuristic: CompressionHeuristic,
    /// Scratch buffer for the compressed form of a string.
    pub(crate) compressed: Vec<u8>,
}

/// Options of the encoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) version: u16,
    pub(crate) compression: bool,
    pub(crate) checksum: bool,
    pub(crate) leave_out_unknown: bool,
}

impl<W: Write> Output<W> {
    pub(crate) fn new(writer: W, settings: Settings) -> Self {
        Output {
            writer,
            buffer: Vec::new(),
            written: 0,
            sum: 0,
            settings,
            compressor: Compressor::default(),
            heuristic: CompressionHeuristic::default(),
            compressed: Vec::new(),
        }
    }

    /// Returns the number of bytes put so far.
    pub(crate) fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER_LEN {
            self.flush()?;
            if bytes.len() >= BUFFER_LEN {
                return self.pass(bytes);
            }
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Passes the buffer to the writer, and returns the checksum of all bytes so far.
    pub(crate) fn flush(&mut self) -> Result<u64> {
        let buffer = std::mem::take(&mut self.buffer);
        let passed = self.pass(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        passed.map(|()| self.sum)
    }

    fn pass(&mut self, bytes: &[u8]) -> Result<()> {
        if self.settings.checksum {
            self.sum = crc64(self.sum, bytes);
        }
        let offset = self.written;
        self.writer.write_all(bytes).map_err(|source| Error::Io { offset, source })?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Returns the writer, which has received all flushed bytes.
    pub(crate) fn into_writer(self) -> W {
        self.writer
    }
}
