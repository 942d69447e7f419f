//! Reads a part of a file, direct or buffered as its handle requires.

use super::{DIRECT_ALIGNMENT, DiskFile};

/// The bytes from `start` to `end` of a buffer, as read.
#[derive(Default)]
pub struct ReadBuf {
    pub bytes: Vec<u8>,
    pub start: usize,
    pub end: usize,
}

impl ReadBuf {
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns room for `len` bytes. Only memory that the buffer never had is zeroed: later reads
    /// replace the rest.
    fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            // A new vector of zeros comes zeroed from the system; growing would write the zeros.
            self.bytes = vec![0; len];
        }
        &mut self.bytes
    }
}

/// Range to read for some bytes of a file: the bytes themselves, or the blocks around them if the
/// handle requires alignment.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Offset of the range.
    pub first: u64,
    /// Length of the range.
    pub len: usize,
    /// Number of wanted bytes, which begin after `skip` others.
    wanted: usize,
    skip: usize,
    is_aligned: bool,
}

impl Span {
    pub fn of(file: &dyn DiskFile, offset: u64, wanted: usize) -> Self {
        if !file.is_direct() {
            return Span { first: offset, len: wanted, wanted, skip: 0, is_aligned: false };
        }
        let alignment = DIRECT_ALIGNMENT as u64;
        let first = offset - offset % alignment;
        let end = (offset + wanted as u64).next_multiple_of(alignment);
        let (len, skip) = ((end - first) as usize, (offset - first) as usize);
        Span { first, len, wanted, skip, is_aligned: true }
    }

    /// Returns the part of the buffer to read into.
    pub fn room<'b>(&self, buf: &'b mut ReadBuf) -> &'b mut [u8] {
        buf.start = 0;
        let bytes = buf.room(self.len + if self.is_aligned { DIRECT_ALIGNMENT } else { 0 });
        let pad = if self.is_aligned { bytes.as_ptr().align_offset(DIRECT_ALIGNMENT) } else { 0 };
        buf.start = pad;
        &mut buf.bytes[pad..pad + self.len]
    }

    /// Reduces the buffer to the wanted part of the `read` bytes.
    pub fn cut(&self, buf: &mut ReadBuf, read: usize) {
        let start = buf.start + self.skip;
        let end = start + read.saturating_sub(self.skip).min(self.wanted);
        (buf.start, buf.end) = (start, end);
    }
}

/// Reads `len` bytes, or fewer at the end of the file, as the handle requires.
pub fn read_span(
    file: &dyn DiskFile,
    offset: u64,
    len: usize,
    buf: &mut ReadBuf,
) -> std::io::Result<()> {
    let span = Span::of(file, offset, len);
    let read = file.read_at(span.room(buf), span.first)?;
    span.cut(buf, read);
    Ok(())
}
