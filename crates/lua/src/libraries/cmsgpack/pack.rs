//! Converts values to MessagePack.
//!
//! Numbers without a fraction become integers, others floats if that is exact. A table with the keys 1 to n, or an
//! empty one, becomes an array, any other a map. Tables below [`NESTING_MAX`] others, and types that MessagePack does
//! not have, become nil, so that packing a table which contains itself comes to an end.

use std::ffi::c_int;

use crate::native::{Buffer, Outcome, Stack, Steps, Type, truncate};

/// Maximum nesting of tables.
const NESTING_MAX: u32 = 16;

/// Free stack slots that must remain beyond the arguments.
const ROOM: c_int = 4;

pub fn pack(stack: Stack<'_>) -> Outcome<c_int> {
    let arguments = stack.top();
    if arguments == 0 {
        return Err(stack.argument_error(0, format_args!("MessagePack pack needs input.")));
    }
    // Redis keeps a string for each argument on the stack.
    if !stack.reserve(arguments.saturating_add(ROOM)) {
        return Err(
            stack.argument_error(0, format_args!("Too many arguments for MessagePack pack."))
        );
    }
    let mut packer = Packer { stack, out: Buffer::new(stack), steps: Steps::new() };
    for index in 1..=arguments {
        stack.push_copy(index);
        packer.value(0)?;
    }
    packer.out.push();
    Ok(1)
}

struct Packer<'call> {
    stack: Stack<'call>,
    out: Buffer<'call>,
    steps: Steps,
}

impl Packer<'_> {
    /// Packs the last value of the stack and pops it.
    fn value(&mut self, level: u32) -> Outcome<()> {
        let stack = self.stack;
        self.steps.take(stack, 1);
        match stack.kind(-1) {
            Type::String => self.string(stack.bytes(-1).unwrap_or_default()),
            Type::Boolean => self.out.add_byte(if stack.truth(-1) { 0xc3 } else { 0xc2 }),
            Type::Number => self.number(stack.number(-1)),
            Type::Table if level < NESTING_MAX => self.table(level)?,
            _ => self.out.add_byte(0xc0),
        }
        stack.pop(1);
        Ok(())
    }

    /// Writes a code, and the bytes of a number after it, the highest first.
    #[inline]
    fn head<const N: usize>(&mut self, code: u8, number: [u8; N]) {
        self.out.add_byte(code);
        self.out.add(&number);
    }

    fn string(&mut self, bytes: &[u8]) {
        match bytes.len() {
            len @ 0..32 => self.out.add_byte(0xa0 | len as u8),
            len @ 32..0x100 => self.head(0xd9, [len as u8]),
            len @ 0x100..0x1_0000 => self.head(0xda, (len as u16).to_be_bytes()),
            len => self.head(0xdb, (len as u32).to_be_bytes()),
        }
        self.out.add(bytes);
    }

    fn number(&mut self, number: f64) {
        let integer = truncate(number);
        if number.is_finite() && integer as f64 == number {
            return self.integer(integer);
        }
        let single = number as f32;
        if f64::from(single) == number {
            self.head(0xca, single.to_be_bytes());
        } else {
            self.head(0xcb, number.to_be_bytes());
        }
    }

    /// Writes an integer in as few bytes as it needs.
    fn integer(&mut self, integer: i64) {
        match integer {
            -32..=127 => self.out.add_byte(integer as u8),
            128..=0xff => self.head(0xcc, [integer as u8]),
            0x100..=0xffff => self.head(0xcd, (integer as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.head(0xce, (integer as u32).to_be_bytes()),
            0x1_0000_0000.. => self.head(0xcf, integer.to_be_bytes()),
            -0x80..=-33 => self.head(0xd0, [integer as u8]),
            -0x8000..=-0x81 => self.head(0xd1, (integer as i16).to_be_bytes()),
            -0x8000_0000..=-0x8001 => self.head(0xd2, (integer as i32).to_be_bytes()),
            _ => self.head(0xd3, integer.to_be_bytes()),
        }
    }

    /// Writes the head of an array or map: a code for up to 15 elements, or one before a count of 16 or 32 bits.
    fn collection(&mut self, few: u8, many: u8, count: usize) {
        match count {
            0..16 => self.out.add_byte(few | count as u8),
            16..0x1_0000 => self.head(many, (count as u16).to_be_bytes()),
            _ => self.head(many + 1, (count as u32).to_be_bytes()),
        }
    }

    fn table(&mut self, level: u32) -> Outcome<()> {
        self.stack.reserve_or(ROOM, "in function table_is_an_array")?;
        match self.shape() {
            Shape::Array(count) => self.array(count, level),
            Shape::Map(count) => self.map(count, level),
        }
    }

    fn array(&mut self, count: c_int, level: u32) -> Outcome<()> {
        self.collection(0x90, 0xdc, count.unsigned_abs() as usize);
        for n in 1..=count {
            self.stack.raw_get_element(-1, n);
            self.value(level + 1)?;
        }
        Ok(())
    }

    fn map(&mut self, count: usize, level: u32) -> Outcome<()> {
        self.collection(0x80, 0xde, count);
        self.stack.push_nil();
        while self.stack.next(-2) {
            self.stack.push_copy(-2);
            self.value(level + 1)?;
            self.value(level + 1)?;
        }
        Ok(())
    }

    /// Determines the form of the table on top, in one pass.
    fn shape(&mut self) -> Shape {
        let stack = self.stack;
        let (mut count, mut last, mut is_array) = (0_usize, 0, true);
        stack.push_nil();
        while stack.next(-2) {
            stack.pop(1);
            self.steps.take(stack, 1);
            count += 1;
            if is_array {
                let key = if stack.kind(-1) == Type::Number { stack.number(-1) } else { 0.0 };
                let index = key as c_int;
                is_array = index > 0 && f64::from(index) == key;
                last = last.max(index);
            }
        }
        if is_array && last.unsigned_abs() as usize == count {
            Shape::Array(last)
        } else {
            Shape::Map(count)
        }
    }
}

/// Packed form of a table, with its count of elements or fields.
enum Shape {
    Array(c_int),
    Map(usize),
}
