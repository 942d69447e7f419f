//! The ID of an entry.

use std::fmt;

/// The ID of an entry of a stream. Entries are in the order of their IDs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970, or any number that the client gave.
    pub ms: u64,
    /// Sequence number within the millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The least ID, which no entry has.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The greatest ID.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// Creates an ID from its two parts.
    #[inline]
    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// Returns the next ID, if there is one.
    pub const fn next(self) -> Option<Self> {
        match (self.seq.checked_add(1), self.ms.checked_add(1)) {
            (Some(seq), _) => Some(Self { ms: self.ms, seq }),
            (None, Some(ms)) => Some(Self { ms, seq: 0 }),
            (None, None) => None,
        }
    }

    /// Returns the ID before this one, if there is one.
    pub const fn previous(self) -> Option<Self> {
        match (self.seq.checked_sub(1), self.ms.checked_sub(1)) {
            (Some(seq), _) => Some(Self { ms: self.ms, seq }),
            (None, Some(ms)) => Some(Self { ms, seq: u64::MAX }),
            (None, None) => None,
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_carry_into_the_milliseconds() {
        let end_of_ms = StreamId::new(7, u64::MAX);
        assert_eq!(end_of_ms.next(), Some(StreamId::new(8, 0)));
        assert_eq!(StreamId::new(8, 0).previous(), Some(end_of_ms));
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(StreamId::MIN.previous(), None);
        assert_eq!(
            StreamId::new(3, 4).next().and_then(StreamId::previous),
            Some(StreamId::new(3, 4))
        );
    }
}
