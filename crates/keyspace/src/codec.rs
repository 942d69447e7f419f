//! Encoding of numbers and bytes in log operations and in edits of collections: lengths are varints, LEB128 of at
//! most ten bytes.

#[inline]
pub(crate) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reason why bytes are no operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset} of the record")]
pub struct Malformed {
    /// Offset from the start of the record.
    pub offset: usize,
    /// Description of the error.
    pub what: &'static str,
}

/// Reads the operations of a record one after the other.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    record: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Returns a reader for the operations of a record or a whole batch.
    pub fn new(record: &'a [u8]) -> Self {
        Self { record, at: 0 }
    }

    /// Reads a length and as many bytes.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.varint()?;
        let left = (self.record.len() - self.at) as u64;
        if len > left {
            return Err(self.malformed("a length beyond the end"));
        }
        self.take(len as usize)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(self.fixed()? as i64)
    }

    /// Reads eight bytes, little-endian.
    pub(crate) fn fixed(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let Some(byte) = self.record.get(self.at) else {
            return Err(self.malformed("the record ends early"));
        };
        self.at += 1;
        Ok(*byte)
    }

    /// Returns true if everything was read.
    pub fn is_at_end(&self) -> bool {
        self.at == self.record.len()
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        // The usual case.
        if let Some(byte) = self.record.get(self.at).filter(|byte| **byte < 0x80) {
            self.at += 1;
            return Ok((*byte).into());
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.malformed("a number of more than ten bytes"))
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let Some(bytes) = self.record.get(self.at..self.at + len) else {
            return Err(self.malformed("the record ends early"));
        };
        self.at += len;
        Ok(bytes)
    }

    /// Returns the unread rest.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.record[self.at..]
    }

    pub(crate) fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { offset: self.at, what }
    }
}

/// Appends edits.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Returns the length of the buffer, including earlier contents.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Returns the number of bytes that `write` writes.
    pub(crate) fn measure(&mut self, write: impl FnOnce(&mut Self)) -> usize {
        let before = self.len();
        write(self);
        self.len() - before
    }

    /// Begins an edit.
    pub(crate) fn begin(&mut self, code: u8) {
        self.out.push(code);
    }

    pub(crate) fn number(&mut self, value: u64) {
        push_varint(self.out, value);
    }

    pub(crate) fn count(&mut self, value: usize) {
        self.number(value as u64);
    }

    pub(crate) fn byte(&mut self, value: u8) {
        self.out.push(value);
    }

    /// Appends eight bytes, little-endian.
    pub(crate) fn fixed(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a length and as many bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        push_varint(self.out, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }
}
