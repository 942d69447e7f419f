//! Optional attributes of an entry besides its value and deadline: for memcached's protocols, and for values in
//! memory that are also on disk.
//!
//! Most entries have none and pay nothing. The others end in a tail of 1 to 25 bytes:
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 1 | control | bits 0-1: flags length code (0, 1, 2, 3 for 0, 1, 2, 4); 2: version; 3-5: marks; 6: location |
//! | 0, 1, 2 or 4 | flags | little-endian, in the fewest bytes |
//! | 0 or 8 | version | little-endian |
//! | 0 or 12 | location | location of a copy of the value on disk |
//!
//! [`crate::change::version`] explains versions, and when an entry has its own.

use std::num::NonZeroU64;

use tierce_storage::ColdLocation;

const WIDTH_MASK: u8 = 0b11;
const VERSION: u8 = 1 << 2;
const MARK_SHIFT: u32 = 3;
const LOCATION: u8 = 1 << 6;

/// Size of a version in the tail, in bytes.
const VERSION_LEN: usize = 8;

/// Maximum length of a tail.
pub(super) const TAIL_LEN_MAX: usize = 1 + 4 + VERSION_LEN + ColdLocation::ENCODED_LEN;

/// Marks that readers and invalidations leave on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// The value is stale, and is still served until a client stores a new one.
    pub stale: bool,
    /// A reader was told to store a new value; others must not.
    pub won: bool,
    /// A reader that asks if the item was read before has read it.
    pub fetched: bool,
}

impl Marks {
    /// No marks.
    pub const NONE: Self = Self { stale: false, won: false, fetched: false };

    const fn bits(self) -> u8 {
        self.stale as u8 | (self.won as u8) << 1 | (self.fetched as u8) << 2
    }

    const fn from_bits(bits: u8) -> Self {
        Self { stale: bits & 1 != 0, won: bits & 2 != 0, fetched: bits & 4 != 0 }
    }

    /// Returns the marks that are logged. The mark `fetched` is not persistent, like the time of the last use.
    #[inline]
    pub(crate) const fn logged(self) -> Self {
        Self { fetched: false, ..self }
    }

    #[inline]
    pub(crate) const fn to_log(self) -> u8 {
        self.logged().bits()
    }

    /// Reverses [`Marks::to_log`]; `None` for bits that it does not produce.
    pub(crate) const fn of_log(bits: u8) -> Option<Self> {
        if bits & !0b11 == 0 { Some(Self::from_bits(bits)) } else { None }
    }
}

/// Attributes of a string besides its value and deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Flags that a client stored with the value; opaque to the server.
    pub(crate) flags: u32,
    /// Own version of the entry, if it has one.
    pub(crate) version: Option<NonZeroU64>,
    pub(crate) marks: Marks,
    /// Location on disk of a copy of the value in memory. `None` for a value that is only on disk.
    pub(crate) location: Option<ColdLocation>,
}

impl Attributes {
    /// Attributes of most entries.
    pub(crate) const NONE: Self =
        Self { flags: 0, version: None, marks: Marks::NONE, location: None };

    /// Returns the attributes that the log and other servers get.
    #[must_use]
    pub const fn note(&self) -> ItemNote {
        ItemNote { flags: self.flags, marks: self.marks.logged() }
    }

    /// Returns attributes with only flags.
    #[inline]
    pub(crate) const fn of_flags(flags: u32) -> Self {
        Self { flags, ..Self::NONE }
    }

    #[inline]
    pub(super) const fn is_none(&self) -> bool {
        self.flags == 0
            && self.version.is_none()
            && self.marks.bits() == 0
            && self.location.is_none()
    }

    /// Returns the length of the tail; 0 without attributes.
    #[inline]
    pub(super) const fn tail_len(&self) -> usize {
        if self.is_none() { 0 } else { tail_len(self.control()) }
    }

    const fn control(&self) -> u8 {
        let width = match self.flags {
            0 => 0,
            1..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 3,
        };
        let version = if self.version.is_some() { VERSION } else { 0 };
        let location = if self.location.is_some() { LOCATION } else { 0 };
        width | version | self.marks.bits() << MARK_SHIFT | location
    }

    /// Encodes the tail. Its length is `tail_len`; the rest of the array is unused.
    pub(super) fn encode(&self) -> [u8; TAIL_LEN_MAX] {
        let mut tail = [0; TAIL_LEN_MAX];
        let control = self.control();
        tail[0] = control;
        let flags_len = flags_len(control);
        tail[1..=flags_len].copy_from_slice(&self.flags.to_le_bytes()[..flags_len]);
        let mut at = 1 + flags_len;
        if let Some(version) = self.version {
            tail[at..at + VERSION_LEN].copy_from_slice(&version.get().to_le_bytes());
            at += VERSION_LEN;
        }
        if let Some(location) = self.location {
            tail[at..at + ColdLocation::ENCODED_LEN].copy_from_slice(&location.encode());
        }
        tail
    }

    /// Decodes a tail of the length that its control byte states.
    pub(super) fn decode(tail: &[u8]) -> Self {
        let control = tail[0];
        let flags_len = flags_len(control);
        let mut flags = [0; 4];
        flags[..flags_len].copy_from_slice(&tail[1..=flags_len]);
        let (mut rest, mut version) = (&tail[1 + flags_len..], None);
        if control & VERSION != 0
            && let Some((bytes, behind)) = rest.split_first_chunk::<VERSION_LEN>()
        {
            (rest, version) = (behind, NonZeroU64::new(u64::from_le_bytes(*bytes)));
        }
        Self {
            flags: u32::from_le_bytes(flags),
            version,
            marks: Marks::from_bits(control >> MARK_SHIFT),
            location: rest.first_chunk().map(ColdLocation::decode),
        }
    }
}

const fn flags_len(control: u8) -> usize {
    match control & WIDTH_MASK {
        3 => 4,
        width => width as usize,
    }
}

/// Returns the length of the tail that begins with this byte.
pub(super) const fn tail_len(control: u8) -> usize {
    let version_len = if control & VERSION == 0 { 0 } else { VERSION_LEN };
    let location_len = if control & LOCATION == 0 { 0 } else { ColdLocation::ENCODED_LEN };
    1 + flags_len(control) + version_len + location_len
}

/// Persistent part of the memcached attributes of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemNote {
    /// Flags that a client stored with the value.
    pub flags: u32,
    /// Marks that readers and invalidations have left, without `fetched`.
    pub marks: Marks,
}

impl ItemNote {
    /// Note of an item without flags and marks.
    pub const NONE: Self = Self { flags: 0, marks: Marks::NONE };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_read_back_and_as_short_as_can_be() {
        let mut lens = Vec::new();
        for flags in [0, 1, 255, 256, 65_535, 65_536, u32::MAX] {
            for version in [0, 1, u64::MAX] {
                for bits in 0..16 {
                    let version = NonZeroU64::new(version);
                    let marks = Marks::from_bits(bits & 7);
                    let location = (bits > 7).then(|| ColdLocation::decode(&[flags as u8; 12]));
                    let all = Attributes { flags, version, marks, location };
                    let tail = all.encode();
                    let len = all.tail_len();
                    lens.push(len);
                    if len > 0 {
                        assert_eq!(tail_len(tail[0]), len);
                        assert_eq!(Attributes::decode(&tail[..len]), all);
                    } else {
                        assert_eq!(all, Attributes::NONE);
                    }
                }
            }
        }
        lens.sort_unstable();
        lens.dedup();
        assert_eq!(lens, [0, 1, 2, 3, 5, 9, 10, 11, 13, 14, 15, 17, 21, 22, 23, 25]);
    }
}
