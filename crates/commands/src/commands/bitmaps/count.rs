//! BITCOUNT, BITPOS.

use std::ops::Range;

use tierce_wire::resp::Rest;

use super::bits;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("bitcount", Group::Bitmap, at_least!(bit_count))
        .weighs(Weight::All)
        .locks(Scope::InTurns)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .since("2.6.0", "O(N)")
        .doc("key [start end [BYTE | BIT]]", "Returns how many bits of a string are set.")
        .example(
            r#"
            > SET text foobar
            OK
            > BITCOUNT text
            (integer) 26
            > BITCOUNT text 1 1
            (integer) 6
            > BITCOUNT text 5 30 BIT
            (integer) 17
            "#,
        ),
    Defined::new("bitpos", Group::Bitmap, at_least!(bit_pos))
        .weighs(Weight::All)
        .locks(Scope::InTurns)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .since("2.8.7", "O(N)")
        .doc(
            "key bit [start [end [BYTE | BIT]]]",
            "Returns the position of the first bit of a string that is set, or is clear.",
        )
        .example(
            r#"
            > SET flags "\xff\xf0\x00"
            OK
            > BITPOS flags 0
            (integer) 12
            > BITPOS flags 1 2
            (integer) -1
            "#,
        ),
];

/// Unit of positions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Byte,
    Bit,
}

impl Unit {
    fn parse(arg: &[u8]) -> Result<Self, CommandError> {
        match arg.to_ascii_lowercase().as_slice() {
            b"bit" => Ok(Self::Bit),
            b"byte" => Ok(Self::Byte),
            _ => Err(CommandError::SYNTAX),
        }
    }
}

/// A range of a string. Negative positions count from the end.
#[derive(Clone, Copy)]
struct RangeArgument {
    start: i64,
    end: Option<i64>,
    unit: Unit,
}

impl RangeArgument {
    const ALL: Self = Self { start: 0, end: None, unit: Unit::Byte };

    /// Returns its bits in a string of `len` bytes.
    fn bits(self, len: usize) -> Range<u64> {
        let total = if self.unit == Unit::Bit { len as i64 * 8 } else { len as i64 };
        let position = |at: i64| if at < 0 { at.saturating_add(total).max(0) } else { at };
        let start = position(self.start);
        let end = self.end.map_or(total - 1, position).min(total - 1);
        if start > end {
            return 0..0;
        }
        let bits = if self.unit == Unit::Bit { 1 } else { 8 };
        start as u64 * bits..(end as u64 + 1) * bits
    }
}

fn bit_count(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let mut options = Options::of(options);
    let part = match options.left() {
        0 => RangeArgument::ALL,
        2 | 3 => {
            let [start, end] = options.values()?;
            let (start, end) = (integer(start)?, integer(end)?);
            let unit = options.next_value().map_or(Ok(Unit::Byte), Unit::parse)?;
            RangeArgument { start, end: Some(end), unit }
        }
        _ => return Err(CommandError::SYNTAX),
    };
    ctx.read_string(key, |bytes, reply| {
        // After clamping, both ends would be at the first byte.
        let is_backward = part.start < 0 && part.end.is_some_and(|end| end < part.start);
        let count = match bytes {
            Some(bytes) if !is_backward => bits::count(bytes, part.bits(bytes.len())),
            _ => 0,
        };
        reply.int(count as i64);
    })
}

fn bit_pos(ctx: &mut Context<'_, '_>, [key, bit]: [&[u8]; 2], options: Rest<'_>) -> Done {
    const BAD_BIT: CommandError = CommandError::new("ERR The bit argument must be 1 or 0.");
    let wanted = match integer(bit)? {
        0 => false,
        1 => true,
        _ => return Err(BAD_BIT),
    };
    if options.len() > 3 {
        return Err(CommandError::SYNTAX);
    }
    let start = options.get(0).map_or(Ok(0), integer)?;
    let unit = options.get(2).map_or(Ok(Unit::Byte), Unit::parse)?;
    let end = options.get(1).map(integer).transpose()?;
    ctx.read_string(key, |bytes, reply| {
        let Some(bytes) = bytes else {
            // The string counts as endless zeros.
            return reply.int(if wanted { -1 } else { 0 });
        };
        let range = RangeArgument { start, end, unit }.bits(bytes.len());
        let found = bits::find(bytes, range.clone(), wanted);
        // Without an end argument, the string continues with zeros.
        let behind = (!wanted && end.is_none() && !range.is_empty()).then_some(range.end);
        reply.int(found.or(behind).map_or(-1, |bit| bit as i64));
    })
}
