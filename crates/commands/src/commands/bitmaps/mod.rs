//! Bitmaps: strings whose bits are numbered from the highest one of the first byte.

mod bits;
mod count;
mod field;
mod operation;
mod single;

use crate::error::CommandError;
use crate::pipeline::Defined;
use tierce_wire::number;

pub(super) static COMMANDS: &[&[Defined]] =
    &[single::COMMANDS, count::COMMANDS, operation::COMMANDS, field::COMMANDS];

const BAD_OFFSET: CommandError =
    CommandError::new("ERR bit offset is not an integer or out of range");

/// Parses the number of a bit in a string of at most `len_max` bytes.
fn bit_offset(arg: &[u8], len_max: usize) -> Result<u64, CommandError> {
    let offset = number::parse_i64(arg).and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|offset| offset / 8 < len_max as u64).ok_or(BAD_OFFSET)
}
