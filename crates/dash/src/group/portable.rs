//! The specification of a group, in plain code; it runs where no vector unit is known.

use super::Group;

/// Bit `i` of the answer is set exactly when byte `i` of `group` equals `byte`.
pub(crate) fn match_byte(group: &Group, byte: u8) -> u16 {
    let mut matches = 0;
    for (place, candidate) in group.0.iter().enumerate() {
        matches |= u16::from(*candidate == byte) << place;
    }
    matches
}
