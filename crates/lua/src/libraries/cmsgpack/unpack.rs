//! Converts MessagePack to values, without recursion: values may nest as deep as Lua's stack has room.
//!
//! Tables grow with the data read, never with a declared count. That also gives their fields the same order as in
//! Redis. Extension types are refused, as in Redis.

use std::ffi::c_int;

use crate::native::{List, Outcome, Stack, Steps, Type};

/// Levels that need no memory of the state.
const OPEN_INLINE: usize = 32;

/// Unpacks all values of the string.
pub fn unpack(stack: Stack<'_>) -> Outcome<c_int> {
    Unpacker::new(stack)?.all()
}

/// Unpacks one value from an offset on, after the offset of the next one, which is -1 at the end.
pub fn unpack_one(stack: Stack<'_>) -> Outcome<c_int> {
    let offset = stack.integer_or(2, 0)?;
    part(stack, 1, offset)
}

/// As `unpack_one`, with as many values as the second argument says.
pub fn unpack_limit(stack: Stack<'_>) -> Outcome<c_int> {
    let limit = stack.check_integer(2)?;
    let offset = stack.integer_or(3, 0)?;
    part(stack, limit, offset)
}

fn part(stack: Stack<'_>, limit: i64, offset: i64) -> Outcome<c_int> {
    stack.set_top(stack.top().min(1));
    let mut unpacker = Unpacker::new(stack)?;
    let len = unpacker.input.len();
    let (Ok(limit), Ok(start)) = (u64::try_from(limit), usize::try_from(offset)) else {
        // As in Redis, the message gives the length of the input as the limit.
        let text = format_args!(
            "Invalid request to unpack with offset of {} and limit of {len}.",
            offset as i32
        );
        return Err(stack.error(text));
    };
    if start > len {
        let text = format_args!("Start offset {} greater than input length {len}.", offset as i32);
        return Err(stack.error(text));
    }
    if limit == 0 && start == 0 {
        return unpacker.all();
    }
    unpacker.position = start;
    let count = unpacker.values(limit)?;
    stack.reserve_or(1, "in function mp_unpack_full")?;
    let next = if unpacker.position == len { -1 } else { unpacker.position as i64 };
    stack.push_integer(next);
    stack.insert(-count - 1);
    Ok(count + 1)
}

/// A table that is being read, which is on the stack. Above it is the key of the next value: of an array, its index.
#[derive(Clone, Copy)]
enum Open {
    Array {
        at: u32,
        len: u32,
    },
    /// Number of missing keys and values.
    Map {
        left: u64,
    },
}

struct Unpacker<'call> {
    stack: Stack<'call>,
    input: &'call [u8],
    position: usize,
    open: List<'call, Open, OPEN_INLINE>,
    steps: Steps,
}

impl<'call> Unpacker<'call> {
    fn new(stack: Stack<'call>) -> Outcome<Self> {
        let input = stack.check_bytes(1)?;
        Ok(Self { stack, input, position: 0, open: List::new(stack), steps: Steps::new() })
    }

    fn all(&mut self) -> Outcome<c_int> {
        self.values(u64::MAX)
    }

    /// Pushes at most `limit` values, and returns their number.
    fn values(&mut self, limit: u64) -> Outcome<c_int> {
        let mut count = 0_u32;
        while self.position < self.input.len() && u64::from(count) < limit {
            self.value()?;
            count += 1;
        }
        Ok(count.cast_signed())
    }

    fn take(&mut self, len: usize) -> Outcome<&'call [u8]> {
        let rest = &self.input[self.position..];
        let Some(bytes) = rest.get(..len) else {
            return Err(self.stack.error(format_args!("Missing bytes in input.")));
        };
        self.position += len;
        Ok(bytes)
    }

    /// Reads a number of `len` bytes, the highest first.
    fn bits(&mut self, len: usize) -> Outcome<u64> {
        Ok(self.take(len)?.iter().fold(0, |bits, &byte| bits << 8 | u64::from(byte)))
    }

    fn string(&mut self, len: u64) -> Outcome<()> {
        let bytes = self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        self.stack.push_bytes(bytes);
        Ok(())
    }

    /// Pushes the next value, including its content.
    fn value(&mut self) -> Outcome<()> {
        loop {
            let depth = self.open.as_slice().len();
            self.begin()?;
            let is_complete = self.open.as_slice().len() == depth;
            if is_complete && !self.after_value()? {
                return Ok(());
            }
        }
    }

    /// Pushes the next value. Of a table that is not empty only the beginning is read.
    fn begin(&mut self) -> Outcome<()> {
        let stack = self.stack;
        self.steps.take(stack, 1);
        let code = self.take(1)?[0];
        stack.reserve_or(
            1,
            "too many return values at once; use unpack_one or unpack_limit instead.",
        )?;
        match code {
            0x00..=0x7f => stack.push_integer(i64::from(code)),
            0x80..=0x8f => self.map(u64::from(code & 15))?,
            0x90..=0x9f => self.array(u64::from(code & 15))?,
            0xa0..=0xbf => self.string(u64::from(code & 31))?,
            0xc0 => stack.push_nil(),
            0xc2 => stack.push_boolean(false),
            0xc3 => stack.push_boolean(true),
            0xca => stack.push_number(f64::from(f32::from_bits(self.bits(4)? as u32))),
            0xcb => stack.push_number(f64::from_bits(self.bits(8)?)),
            0xcc => stack.push_integer(self.bits(1)?.cast_signed()),
            0xcd => stack.push_integer(self.bits(2)?.cast_signed()),
            0xce => stack.push_integer(self.bits(4)?.cast_signed()),
            // Unsigned integers of 64 bits become signed, as in Redis.
            0xcf | 0xd3 => stack.push_integer(self.bits(8)?.cast_signed()),
            0xd0 => stack.push_integer(i64::from(self.bits(1)? as i8)),
            0xd1 => stack.push_integer(i64::from(self.bits(2)? as i16)),
            0xd2 => stack.push_integer(i64::from(self.bits(4)? as i32)),
            0xd9 => self.sized(1, Self::string)?,
            0xda => self.sized(2, Self::string)?,
            0xdb => self.sized(4, Self::string)?,
            0xdc => self.sized(2, Self::array)?,
            0xdd => self.sized(4, Self::array)?,
            0xde => self.sized(2, Self::map)?,
            0xdf => self.sized(4, Self::map)?,
            0xe0..=0xff => stack.push_integer(i64::from(code.cast_signed())),
            0xc1 | 0xc4..=0xc9 | 0xd4..=0xd8 => {
                return Err(stack.error(format_args!("Bad data format in input.")));
            }
        }
        Ok(())
    }

    /// Reads a value after its length or count, which takes `bytes` bytes.
    fn sized(&mut self, bytes: usize, value: fn(&mut Self, u64) -> Outcome<()>) -> Outcome<()> {
        let size = self.bits(bytes)?;
        value(self, size)
    }

    fn array(&mut self, len: u64) -> Outcome<()> {
        self.stack.push_table(0, 0);
        self.stack.reserve_or(1, "in function mp_decode_to_lua_array")?;
        if len > 0 {
            // A length has 32 bits.
            self.open.push(Open::Array { at: 1, len: u32::try_from(len).unwrap_or(u32::MAX) });
            self.stack.push_integer(1);
        }
        Ok(())
    }

    fn map(&mut self, len: u64) -> Outcome<()> {
        self.stack.push_table(0, 0);
        if len > 0 {
            self.open.push(Open::Map { left: 2 * len });
        }
        Ok(())
    }

    /// Adds the last value to its table, and tables that end with it to theirs. `false` if that was the outermost.
    fn after_value(&mut self) -> Outcome<bool> {
        let stack = self.stack;
        while let Some(open) = self.open.last_mut() {
            match open {
                Open::Array { at, len } => {
                    stack.raw_set(-3);
                    if at < len {
                        *at += 1;
                        stack.push_integer(i64::from(*at));
                        return Ok(true);
                    }
                }
                Open::Map { left } => {
                    *left -= 1;
                    let was_key = *left % 2 == 1;
                    if !was_key {
                        check_key(stack)?;
                        stack.raw_set(-3);
                    }
                    if *left > 0 {
                        return Ok(true);
                    }
                }
            }
            self.open.pop();
        }
        Ok(false)
    }
}

/// Rejects a key, below its value on top, that no table can have.
fn check_key(stack: Stack<'_>) -> Outcome<()> {
    match stack.kind(-2) {
        Type::Nil => Err(stack.plain_error(format_args!("table index is nil"))),
        Type::Number if stack.number(-2).is_nan() => {
            Err(stack.plain_error(format_args!("table index is NaN")))
        }
        _ => Ok(()),
    }
}
