//! BITCOUNT, BITPOS.

use std::ops::Range;

use tierce_keyspace::IntText;
use tierce_wire::resp::Args;

use super::bits;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("bitcount", -2, Group::Bitmap, bit_count)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .doc(
            "2.6.0",
            "O(N)",
            "key [start end [BYTE | BIT]]",
            "Returns how many bits of a string are set.",
        ),
    Spec::new("bitpos", -3, Group::Bitmap, bit_pos)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .doc(
            "2.8.7",
            "O(N)",
            "key bit [start [end [BYTE | BIT]]]",
            "Returns the position of the first bit of a string that is set, or is clear.",
        ),
];

type Done = Result<(), CommandError>;

/// What positions count.
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

/// A part of a string. Negative positions count from the end.
#[derive(Clone, Copy)]
struct Part {
    start: i64,
    end: Option<i64>,
    unit: Unit,
}

impl Part {
    const ALL: Self = Self { start: 0, end: None, unit: Unit::Byte };

    /// The bits of it in a string of `len` bytes.
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

fn bit_count(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let part = match args.len() {
        2 => Part::ALL,
        4 | 5 => {
            let (start, end) = (integer(&args[2])?, integer(&args[3])?);
            let unit = args.get(4).map_or(Ok(Unit::Byte), Unit::parse)?;
            Part { start, end: Some(end), unit }
        }
        _ => return Err(CommandError::SYNTAX),
    };
    let (mut db, key, reply) = ctx.open(args.at(1));
    let value = db.string(key)?;
    // Clamped to the first byte, both ends would be there.
    let is_backward = part.start < 0 && part.end.is_some_and(|end| end < part.start);
    let count = match value {
        Some(value) if !is_backward => {
            let mut text = IntText::new();
            let bytes = value.bytes(&mut text);
            bits::count(bytes, part.bits(bytes.len()))
        }
        _ => 0,
    };
    reply.int(count as i64);
    Ok(())
}

fn bit_pos(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const BAD_BIT: CommandError = CommandError::new("ERR The bit argument must be 1 or 0.");
    let wanted = match integer(&args[2])? {
        0 => false,
        1 => true,
        _ => return Err(BAD_BIT),
    };
    if args.len() > 6 {
        return Err(CommandError::SYNTAX);
    }
    let start = args.get(3).map_or(Ok(0), integer)?;
    let unit = args.get(5).map_or(Ok(Unit::Byte), Unit::parse)?;
    let end = args.get(4).map(integer).transpose()?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let Some(value) = db.string(key)? else {
        // Zeros without end.
        reply.int(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let mut text = IntText::new();
    let bytes = value.bytes(&mut text);
    let range = Part { start, end, unit }.bits(bytes.len());
    let found = bits::find(bytes, range.clone(), wanted);
    // Without an end the string goes on with zeros.
    let behind = (!wanted && end.is_none() && !range.is_empty()).then_some(range.end);
    reply.int(found.or(behind).map_or(-1, |bit| bit as i64));
    Ok(())
}
