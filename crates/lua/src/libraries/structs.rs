//! `struct`: converts values to bytes and back, following a format.
//!
//! | option | value |
//! |---|---|
//! | `b` `B` | an integer of 1 byte, signed and unsigned |
//! | `h` `H` | 2 bytes |
//! | `l` `L` | 8 bytes; `T` is `L` |
//! | `i`n `I`n | n bytes, 4 without a number, at most 32 |
//! | `f` `d` | a float, a double |
//! | `s` | a string and a zero after it |
//! | `c`n | n bytes of a string, 1 without a number; `c0` is a whole string, or has the length that was read before |
//! | `x` | a zero |
//! | `<` `>` `!`n | little or big endian from here on; alignment to at most n bytes, 8 without a number |

use std::ffi::c_int;

use crate::native::{Buffer, Outcome, Stack, add, truncate};

/// Bytes of the largest integer.
const INTEGER_MAX: usize = 32;

/// Default alignment of `!` without a number.
const ALIGNMENT_DEFAULT: i32 = 8;

/// Pushes the library.
pub fn push(stack: Stack<'_>) {
    stack.push_table(0, 3);
    add(stack, c"pack", pack);
    add(stack, c"unpack", unpack);
    add(stack, c"size", size);
}

/// One option of a format, with its size in bytes.
#[derive(Clone, Copy)]
struct Item {
    option: u8,
    /// Bytes of the value; 0 if the value determines it.
    size: usize,
    /// Zeros before it.
    padding: usize,
}

impl Item {
    fn is_integer(self) -> bool {
        matches!(self.option, b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I')
    }
}

/// Reader of a format, up to its end or its first zero.
struct Format<'a> {
    rest: &'a [u8],
    is_big_endian: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(format: &'a [u8]) -> Self {
        let end = memchr::memchr(0, format).unwrap_or(format.len());
        Self { rest: &format[..end], is_big_endian: cfg!(target_endian = "big"), alignment: 1 }
    }

    /// Returns the next option. `position` is the start of its value, before alignment.
    fn next(&mut self, stack: Stack<'_>, position: usize) -> Outcome<Option<Item>> {
        let Some((&option, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let size = self.size(stack, option)?;
        Ok(Some(Item { option, size, padding: self.padding(option, size, position) }))
    }

    fn size(&mut self, stack: Stack<'_>, option: u8) -> Outcome<usize> {
        Ok(match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.number(stack, 1)?.unsigned_abs() as usize,
            b'i' | b'I' => {
                let size = self.number(stack, 4)?.unsigned_abs() as usize;
                if size > INTEGER_MAX {
                    let text =
                        format_args!("integral size {size} is larger than limit of {INTEGER_MAX}");
                    return Err(stack.error(text));
                }
                size
            }
            _ => 0,
        })
    }

    /// Reads the next number in the format.
    fn number(&mut self, stack: Stack<'_>, default: i32) -> Outcome<i32> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        number
            .iter()
            .try_fold(0_i32, |all, digit| all.checked_mul(10)?.checked_add(i32::from(digit - b'0')))
            .ok_or_else(|| stack.error(format_args!("integral size overflow")))
    }

    /// Returns the number of zeros that align a value of `size` bytes. Sizes that are not powers of two are aligned by
    /// their lowest bits, as in the original library.
    fn padding(&self, option: u8, size: usize, position: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.alignment);
        size.wrapping_sub(position & (size - 1)) & (size - 1)
    }

    /// Applies an option that stands for no value.
    fn control(&mut self, stack: Stack<'_>, option: u8) -> Outcome<()> {
        match option {
            b' ' => {}
            b'>' => self.is_big_endian = true,
            b'<' => self.is_big_endian = false,
            b'!' => {
                let alignment = self.number(stack, ALIGNMENT_DEFAULT)?;
                if alignment.count_ones() != 1 {
                    return Err(
                        stack.error(format_args!("alignment {alignment} is not a power of 2"))
                    );
                }
                self.alignment = alignment.unsigned_abs() as usize;
            }
            _ => {
                let mut text = Buffer::new(stack);
                text.add(b"invalid format option '");
                text.add_byte(option);
                text.add_byte(b'\'');
                return Err(stack.argument_error_bytes(1, text.bytes()));
            }
        }
        Ok(())
    }

    /// Converts the bytes of a number between the machine's order and that of the format.
    fn order(&self, bytes: &mut [u8]) {
        if self.is_big_endian != cfg!(target_endian = "big") {
            bytes.reverse();
        }
    }
}

fn pack(stack: Stack<'_>) -> Outcome<c_int> {
    let mut format = Format::new(stack.check_bytes(1)?);
    // Before the values are read, so that a missing one counts as nil, as in errors of Redis.
    let mut out = Buffer::new(stack);
    let mut argument = 1;
    let mut position = 0_usize;
    while let Some(item) = format.next(stack, position)? {
        out.add_repeated(0, item.padding);
        position += item.padding;
        let mut size = item.size;
        match item.option {
            _ if item.is_integer() => {
                argument += 1;
                add_integer(&mut out, &format, stack.check_number(argument)?, size);
            }
            b'x' => out.add_byte(0),
            b'f' => {
                argument += 1;
                let mut bytes = (stack.check_number(argument)? as f32).to_ne_bytes();
                format.order(&mut bytes);
                out.add(&bytes);
            }
            b'd' => {
                argument += 1;
                let mut bytes = stack.check_number(argument)?.to_ne_bytes();
                format.order(&mut bytes);
                out.add(&bytes);
            }
            b'c' | b's' => {
                argument += 1;
                let bytes = stack.check_bytes(argument)?;
                if size == 0 {
                    size = bytes.len();
                }
                let Some(bytes) = bytes.get(..size) else {
                    return Err(
                        stack.argument_error(argument + 1, format_args!("string too short"))
                    );
                };
                out.add(bytes);
                if item.option == b's' {
                    out.add_byte(0);
                    size += 1;
                }
            }
            option => format.control(stack, option)?,
        }
        position += size;
    }
    out.push();
    Ok(1)
}

/// Adds the low `size` bytes of a number, with zeros above the eighth.
fn add_integer(out: &mut Buffer<'_>, format: &Format<'_>, number: f64, size: usize) {
    let mut bytes = [0; INTEGER_MAX];
    bytes[..8].copy_from_slice(&unsigned(number).to_le_bytes());
    if format.is_big_endian {
        bytes[..size].reverse();
    }
    out.add(&bytes[..size]);
}

/// Converts a double to an unsigned integer as x86-64 does, which scripts can see if it does not fit.
fn unsigned(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if number >= HALF {
        truncate(number - HALF).cast_unsigned() ^ 1 << 63
    } else {
        truncate(number).cast_unsigned()
    }
}

fn unpack(stack: Stack<'_>) -> Outcome<c_int> {
    let mut format = Format::new(stack.check_bytes(1)?);
    let data = stack.check_bytes(2)?;
    let start = stack.integer_or(3, 1)?.cast_unsigned();
    if start == 0 {
        return Err(stack.argument_error(3, format_args!("offset must be 1 or greater")));
    }
    let mut position = usize::try_from(start - 1).unwrap_or(usize::MAX);
    let mut results = 0;
    while let Some(item) = format.next(stack, position)? {
        position = position.wrapping_add(item.padding);
        let mut size = item.size;
        let mut bytes = part(stack, data, position, size)?;
        stack.reserve_or(2, "too many results")?;
        match item.option {
            _ if item.is_integer() => stack.push_number(integer(&format, item, bytes)),
            b'f' => stack.push_number(f64::from(f32::from_ne_bytes(ordered(&format, bytes)))),
            b'd' => stack.push_number(f64::from_ne_bytes(ordered(&format, bytes))),
            b'c' => {
                if size == 0 {
                    size = length_before(stack, results)?;
                    results -= 1;
                    bytes = part(stack, data, position, size)?;
                }
                stack.push_bytes(bytes);
            }
            b's' => {
                let rest = &data[position..];
                let Some(end) = memchr::memchr(0, rest) else {
                    return Err(stack.error(format_args!("unfinished string in data")));
                };
                stack.push_bytes(&rest[..end]);
                size = end + 1;
            }
            b'x' => results -= 1,
            option => {
                format.control(stack, option)?;
                results -= 1;
            }
        }
        results += 1;
        position += size;
    }
    stack.push_integer((position as i64).wrapping_add(1));
    Ok(results + 1)
}

fn part<'a>(stack: Stack<'_>, data: &'a [u8], position: usize, size: usize) -> Outcome<&'a [u8]> {
    position
        .checked_add(size)
        .and_then(|end| data.get(position..end))
        .ok_or_else(|| stack.argument_error(2, format_args!("data string too short")))
}

/// Pops the result before this one: it is the length of a string.
fn length_before(stack: Stack<'_>, results: c_int) -> Outcome<usize> {
    if results == 0 || !stack.is_number(-1) {
        return Err(stack.error(format_args!("format 'c0' needs a previous size")));
    }
    let number = stack.number(-1);
    stack.pop(1);
    Ok(unsigned(number) as usize)
}

fn ordered<const N: usize>(format: &Format<'_>, bytes: &[u8]) -> [u8; N] {
    let mut ordered = [0; N];
    ordered.copy_from_slice(bytes);
    format.order(&mut ordered);
    ordered
}

/// Returns the integer of these bytes; of more than eight, the low ones count.
fn integer(format: &Format<'_>, item: Item, bytes: &[u8]) -> f64 {
    let mut low = [0; 8];
    let count = bytes.len().min(8);
    if format.is_big_endian {
        low[8 - count..].copy_from_slice(&bytes[bytes.len() - count..]);
        low.reverse();
    } else {
        low[..count].copy_from_slice(&bytes[..count]);
    }
    let value = u64::from_le_bytes(low);
    if !item.option.is_ascii_lowercase() {
        return value as f64;
    }
    // Beyond eight bytes the shift count wraps around, as on x86-64.
    let sign = u64::MAX.wrapping_shl((8 * item.size as u32).wrapping_sub(1));
    let extended = if value & sign == 0 { value } else { value | sign };
    extended.cast_signed() as f64
}

fn size(stack: Stack<'_>) -> Outcome<c_int> {
    let mut format = Format::new(stack.check_bytes(1)?);
    let mut position = 0_usize;
    while let Some(item) = format.next(stack, position)? {
        position = position.wrapping_add(item.padding);
        match (item.option, item.size) {
            (b's', _) => {
                return Err(stack.argument_error(1, format_args!("option 's' has no fixed size")));
            }
            (b'c', 0) => {
                return Err(stack.argument_error(1, format_args!("option 'c0' has no fixed size")));
            }
            (option, _) if option.is_ascii_alphanumeric() => {}
            (option, _) => format.control(stack, option)?,
        }
        position = position.wrapping_add(item.size);
    }
    stack.push_number(position as f64);
    Ok(1)
}
