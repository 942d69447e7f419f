//! Reading a part of a file, direct or buffered as its handle requires.

use super::{DIRECT_ALIGNMENT, DiskFile};

/// Bytes that were read, at some place of a buffer.
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

    /// Room for `len` bytes. Only what the buffer never had is zeroed: what is read afterwards
    /// replaces the rest.
    fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            // A new vector of zeros comes from the system as such; growing would write them.
            self.bytes = vec![0; len];
        }
        &mut self.bytes
    }
}

/// What to read in order to have some bytes of a file: the bytes themselves, or the blocks around
/// them where the handle wants everything aligned.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Where reading begins.
    pub first: u64,
    /// How much is read.
    pub len: usize,
    /// What is wanted: this many bytes, behind so many that are not.
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

    /// The part of the buffer to read into.
    pub fn room<'b>(&self, buf: &'b mut ReadBuf) -> &'b mut [u8] {
        buf.start = 0;
        let bytes = buf.room(self.len + if self.is_aligned { DIRECT_ALIGNMENT } else { 0 });
        let pad = if self.is_aligned { bytes.as_ptr().align_offset(DIRECT_ALIGNMENT) } else { 0 };
        buf.start = pad;
        &mut buf.bytes[pad..pad + self.len]
    }

    /// Leaves in the buffer what is wanted of the `read` bytes at the beginning of the room.
    pub fn cut(&self, buf: &mut ReadBuf, read: usize) {
        let start = buf.start + self.skip;
        let end = start + read.saturating_sub(self.skip).min(self.wanted);
        (buf.start, buf.end) = (start, end);
    }
}

/// Reads `len` bytes, or fewer at the end of the file, in the way that the handle wants.
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
