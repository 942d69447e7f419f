//! The file with all data: with a declared length, or up to a mark of forty random bytes.

use memchr::memmem;
use tierce_wire::number::parse_i64;

/// Length of a mark.
const MARK_LEN: usize = 40;

pub(super) enum Payload {
    /// Number of missing bytes.
    Length(u64),
    /// The file ends before this mark. The mark is random, so it does not occur in the file.
    Mark([u8; MARK_LEN]),
}

/// Next item in the input.
pub(super) enum Piece {
    /// More bytes have to arrive.
    Waits,
    /// This many bytes of the file.
    Bytes(usize),
    /// The file is complete. The next `mark_len` bytes belong neither to it nor to the stream.
    End { mark_len: usize },
}

impl Payload {
    /// Parses the line before the file.
    pub(super) fn announced_by(line: &[u8]) -> Option<Self> {
        let text = line.strip_prefix(b"$")?;
        if let Some(mark) = text.strip_prefix(b"EOF:") {
            return Some(Self::Mark(mark.try_into().ok()?));
        }
        u64::try_from(parse_i64(text)?).ok().map(Self::Length)
    }

    /// Returns the item at the front of the input.
    pub(super) fn take(&mut self, input: &[u8]) -> Piece {
        match self {
            Self::Length(0) => Piece::End { mark_len: 0 },
            Self::Length(_) if input.is_empty() => Piece::Waits,
            Self::Length(missing) => {
                let len = usize::try_from(*missing).map_or(input.len(), |len| len.min(input.len()));
                *missing -= len as u64;
                Piece::Bytes(len)
            }
            Self::Mark(mark) => match memmem::find(input, mark) {
                Some(0) => Piece::End { mark_len: MARK_LEN },
                Some(before) => Piece::Bytes(before),
                // The last bytes may be the beginning of the mark.
                None if input.len() < MARK_LEN => Piece::Waits,
                None => Piece::Bytes(input.len() - (MARK_LEN - 1)),
            },
        }
    }
}
