//! Encoding of memcached's flags and marks of an item in the replication stream.
//!
//! Redis has no command for them, and every reader of the stream executes the same commands. So the stream carries
//! them in a call that has no effect on other servers: `SETRANGE key number ""` writes nothing at any offset. The
//! key is an ordinary argument, so that everything that locks, queues or filters commands by key works here, too.
//! As an offset, the number is beyond any string:
//! | bits | |
//! |---|---|
//! | 48-63 | 0x5449 |
//! | 35-47 | 0 |
//! | 34 | flags are present |
//! | 32-33 | marks: stale, and that a reader must store another value |
//! | 0-31 | the flags; 0 if they are absent: the item then keeps its flags |
//!
//! A plain `SET` of the key clears flags and marks, as on the primary.

use tierce_keyspace::Marks;

const SIGN: u64 = 0x5449 << 48;
const HAS_FLAGS: u64 = 1 << 34;
const WON: u64 = 1 << 33;
const STALE: u64 = 1 << 32;
const FLAGS: u64 = u32::MAX as u64;

/// Encodes flags and marks as a number.
#[must_use]
pub fn encode(flags: Option<u32>, marks: Marks) -> u64 {
    let has = |is_set: bool, bit| if is_set { bit } else { 0 };
    SIGN | has(flags.is_some(), HAS_FLAGS)
        | has(marks.won, WON)
        | has(marks.stale, STALE)
        | u64::from(flags.unwrap_or(0))
}

/// Decodes a number; `None` if it is only an offset.
#[must_use]
pub fn decode(number: u64) -> Option<(Option<u32>, Marks)> {
    let known = SIGN | HAS_FLAGS | WON | STALE | FLAGS;
    if number & SIGN != SIGN || number & !known != 0 {
        return None;
    }
    let has = |bit| number & bit != 0;
    let flags = (number & FLAGS) as u32;
    let marks = Marks { stale: has(STALE), won: has(WON), fetched: false };
    match has(HAS_FLAGS) {
        true => Some((Some(flags), marks)),
        false => (flags == 0).then_some((None, marks)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_and_an_offset_is_none() {
        for flags in [None, Some(0), Some(1), Some(u32::MAX)] {
            for (stale, won) in [(false, false), (true, false), (false, true), (true, true)] {
                let marks = Marks { stale, won, fetched: false };
                let number = encode(flags, marks);
                assert!(i64::try_from(number).is_ok(), "offsets have a sign");
                assert_eq!(decode(number), Some((flags, marks)));
            }
        }
        for offset in [0, 5, 1 << 32, u64::MAX, SIGN | 1, SIGN | 1 << 40] {
            assert_eq!(decode(offset), None, "{offset:x}");
        }
    }
}
