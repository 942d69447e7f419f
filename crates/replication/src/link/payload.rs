//! The file with all data: of known length, or up to a mark of forty random bytes.

use memchr::memmem;
use tierce_wire::number::parse_i64;

/// Length of a mark.
const MARK_LEN: usize = 40;

pub(super) enum Payload {
    /// So many bytes are missing.
    Length(u64),
    /// It ends before these bytes, which end it only there: they are random.
    Mark([u8; MARK_LEN]),
}

/// What comes next in the input.
pub(super) enum Piece {
    /// More has to arrive.
    Waits,
    /// So many bytes of the file.
    Bytes(usize),
    /// The file is complete, and so many bytes behind it belong to neither it nor the stream.
    End { mark_len: usize },
}

impl Payload {
    /// From the line before it.
    pub(super) fn announced_by(line: &[u8]) -> Option<Self> {
        let text = line.strip_prefix(b"$")?;
        if let Some(mark) = text.strip_prefix(b"EOF:") {
            return Some(Self::Mark(mark.try_into().ok()?));
        }
        u64::try_from(parse_i64(text)?).ok().map(Self::Length)
    }

    /// What the input begins with.
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
