//! BITFIELD, BITFIELD_RO: integers of any number of bits, anywhere in a string.

use tierce_keyspace::{Db, Event, IntText, Key};
use tierce_wire::number;
use tierce_wire::resp::Rest;

use super::{BAD_OFFSET, bit_offset};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};
use crate::reply::Reply;

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("bitfield", Group::Bitmap, at_least!(bit_field))
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::VARIABLE)
            .note("This command allows both access and modification of the key")])
        .since("3.2.0", "O(1) for each subcommand specified")
        .doc(
            "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset \
                 value | INCRBY encoding offset increment>]",
            "Reads and changes integers within a string, one operation after the other.",
        )
        .example(
            r#"
            > BITFIELD player SET u8 0 200 INCRBY u8 0 100 GET u4 0
            1) (integer) 0
            2) (integer) 44
            3) (integer) 2
            > BITFIELD player OVERFLOW FAIL INCRBY u8 0 250
            1) (nil)
            "#,
        ),
    Defined::new("bitfield_ro", Group::Bitmap, at_least!(bit_field_ro))
        .flags(Flags::READONLY.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .since("6.0.0", "O(1) for each subcommand specified")
        .doc("key [GET encoding offset]", "Reads integers within a string.")
        .example(
            r#"
            > SET player "\x10\xff"
            OK
            > BITFIELD_RO player GET u8 0 GET i8 8
            1) (integer) 16
            2) (integer) -1
            "#,
        ),
];

/// Position and type of an integer.
#[derive(Clone, Copy, Debug)]
struct Field {
    offset: u64,
    bits: u32,
    is_signed: bool,
}

impl Field {
    fn parse(encoding: &[u8], offset: &[u8], len_max: usize) -> Result<Self, CommandError> {
        const BAD_TYPE: CommandError = CommandError::new(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but \
             i64 is.",
        );
        let (is_signed, bits_max) = match encoding.first() {
            Some(b'i') => (true, 64),
            Some(b'u') => (false, 63),
            _ => return Err(BAD_TYPE),
        };
        let bits = number::parse_i64(&encoding[1..]).filter(|bits| (1..=bits_max).contains(bits));
        let bits = bits.ok_or(BAD_TYPE)? as u32;
        let offset = match offset.strip_prefix(b"#") {
            None => bit_offset(offset, len_max)?,
            Some(index) => {
                let offset = bit_offset(index, len_max)?.checked_mul(bits.into());
                offset.filter(|offset| offset / 8 < len_max as u64).ok_or(BAD_OFFSET)?
            }
        };
        Ok(Self { offset, bits, is_signed })
    }

    /// Returns the bytes that it touches.
    fn bytes(self) -> std::ops::Range<u64> {
        self.offset / 8..(self.offset + u64::from(self.bits)).div_ceil(8)
    }

    /// Returns the number of bits between it and the end of those bytes.
    fn shift(self) -> u32 {
        (self.bytes().end * 8 - self.offset) as u32 - self.bits
    }

    /// Returns a mask of its length, in the lowest bits.
    fn mask(self) -> u128 {
        (1 << self.bits) - 1
    }

    /// Returns the bytes that it touches as one number. Bytes beyond the end of the string are
    /// zero.
    fn window(self, string: &[u8]) -> u128 {
        let each = |at: u64| usize::try_from(at).ok().and_then(|at| string.get(at)).copied();
        self.bytes().fold(0, |window, at| window << 8 | u128::from(each(at).unwrap_or(0)))
    }

    fn value(self, window: u128) -> i128 {
        self.wrapped((window >> self.shift()) as i128)
    }

    /// Truncates a value to this many bits.
    fn wrapped(self, value: i128) -> i128 {
        let bits = value & self.mask() as i128;
        let is_negative = self.is_signed && bits >> (self.bits - 1) & 1 == 1;
        if is_negative { bits - (1 << self.bits) } else { bits }
    }

    /// Returns the least and the greatest value.
    fn limits(self) -> (i128, i128) {
        if self.is_signed {
            (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }
}

/// Policy for a value that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Get,
    Set(i64, Overflow),
    Increment(i64, Overflow),
}

/// An operation on a field.
#[derive(Clone, Copy, Debug)]
struct Operation {
    field: Field,
    action: Action,
}

impl Operation {
    /// Returns the value to store; `None` if it does not fit and the operation fails.
    fn target(self, present: i128) -> Option<i128> {
        let (wanted, overflow) = match self.action {
            Action::Get => return Some(present),
            // An unsigned field reads a negative value as a large one.
            Action::Set(value, overflow) if self.field.is_signed => (value.into(), overflow),
            Action::Set(value, overflow) => ((value as u64).into(), overflow),
            Action::Increment(by, overflow) => (present + i128::from(by), overflow),
        };
        let (min, max) = self.field.limits();
        match overflow {
            _ if (min..=max).contains(&wanted) => Some(wanted),
            Overflow::Wrap => Some(self.field.wrapped(wanted)),
            Overflow::Saturate => Some(wanted.clamp(min, max)),
            Overflow::Fail => None,
        }
    }
}

fn parse(mut words: Options<'_>, len_max: usize) -> Result<Vec<Operation>, CommandError> {
    const BAD_OVERFLOW: CommandError = CommandError::new("ERR Invalid OVERFLOW type specified");
    let (mut operations, mut overflow) = (Vec::new(), Overflow::Wrap);
    while let Some(word) = words.next_word() {
        let (field, action) = match &*word {
            b"get" => {
                let [encoding, offset] = words.values()?;
                (Field::parse(encoding, offset, len_max)?, Action::Get)
            }
            b"set" => {
                let [encoding, offset, value] = words.values()?;
                let field = Field::parse(encoding, offset, len_max)?;
                (field, Action::Set(integer(value)?, overflow))
            }
            b"incrby" => {
                let [encoding, offset, increment] = words.values()?;
                let field = Field::parse(encoding, offset, len_max)?;
                (field, Action::Increment(integer(increment)?, overflow))
            }
            b"overflow" => {
                overflow = match words.value()?.to_ascii_lowercase().as_slice() {
                    b"wrap" => Overflow::Wrap,
                    b"sat" => Overflow::Saturate,
                    b"fail" => Overflow::Fail,
                    _ => return Err(BAD_OVERFLOW),
                };
                continue;
            }
            _ => return Err(CommandError::SYNTAX),
        };
        operations.push(Operation { field, action });
    }
    Ok(operations)
}

fn bit_field(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], operations: Rest<'_>) -> Done {
    let operations = parse(Options::of(operations), ctx.kernel.keyspace.value_len_max())?;
    let writes = operations.iter().filter(|operation| !matches!(operation.action, Action::Get));
    let len = writes.map(|operation| operation.field.bytes().end).max();
    let (mut db, key, reply) = ctx.open(key);
    let present = match len {
        Some(_) => db.string_to_change(key)?,
        None => db.string(key)?,
    };
    let present_len = present.map_or(0, |value| value.len() as u64);
    let longer = len.filter(|len| *len > present_len);
    if let Some(len) = longer {
        // The string gets its final length first.
        db.set_range(key, len - 1, &[0])?;
    }
    let written = run(&mut db, key, reply, &operations)?;
    if written == Written::Other || (written == Written::Same && longer.is_some()) {
        db.event(Event::SetBit, key);
    } else if longer.is_some() {
        // All operations that would have overflowed were refused.
        db.event(Event::BitField, key);
    }
    Ok(())
}

fn bit_field_ro(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], operations: Rest<'_>) -> Done {
    const ONLY_GET: CommandError =
        CommandError::new("ERR BITFIELD_RO only supports the GET subcommand");
    let operations = parse(Options::of(operations), ctx.kernel.keyspace.value_len_max())?;
    if operations.iter().any(|operation| !matches!(operation.action, Action::Get)) {
        return Err(ONLY_GET);
    }
    let (mut db, key, reply) = ctx.open(key);
    db.string(key)?;
    run(&mut db, key, reply, &operations)?;
    Ok(())
}

/// Effect of operations on the bits, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Written {
    /// They were not written.
    Nothing,
    /// They were written and are unchanged.
    Same,
    /// They were written and have changed.
    Other,
}

/// Runs operations on a key that is a string or absent. Only the bytes of a field are read and
/// written. Returns the largest effect of an operation.
fn run(
    db: &mut Db<'_>,
    key: Key<'_>,
    reply: &mut Reply<'_>,
    operations: &[Operation],
) -> Result<Written, CommandError> {
    let mut written = Written::Nothing;
    reply.array(operations.len());
    for operation in operations {
        let field = operation.field;
        let window = match db.string_to_change(key)? {
            Some(value) => field.window(value.bytes(&mut IntText::new())),
            None => 0,
        };
        let present = field.value(window);
        let Some(target) = operation.target(present) else {
            reply.null();
            continue;
        };
        if !matches!(operation.action, Action::Get) {
            written = written.max(Written::Same);
        }
        if target != present {
            written = Written::Other;
            let cleared = window & !(field.mask() << field.shift());
            let window = cleared | (target as u128 & field.mask()) << field.shift();
            let range = field.bytes();
            let bytes = window.to_be_bytes();
            let len = (range.end - range.start) as usize;
            db.set_range(key, range.start, &bytes[bytes.len() - len..])?;
        }
        let shown = if let Action::Set(..) = operation.action { present } else { target };
        reply.int(shown as i64);
    }
    Ok(written)
}
