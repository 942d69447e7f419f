//! The specification of a group, in plain code; used on targets without a known vector unit.

use super::Group;

/// Returns a mask whose bit `i` is set exactly if byte `i` of `group` equals `byte`.
pub(crate) fn match_byte(group: &Group, byte: u8) -> u16 {
    let mut matches = 0;
    for (place, candidate) in group.0.iter().enumerate() {
        matches |= u16::from(*candidate == byte) << place;
    }
    matches
}
