//! Converts values to JSON, without recursion: tables may nest as deep as Lua's stack has room.

use std::ffi::c_int;

use super::{INVALID_REFUSED, INVALID_WRITTEN, Settings, settings};
use crate::native::{Buffer, Error, List, Outcome, Stack, Steps, Type};
use crate::number::format_general;

/// Levels that need no memory of the state.
const OPEN_INLINE: usize = 32;

pub fn encode(stack: Stack<'_>) -> Outcome<c_int> {
    let settings = *settings(stack);
    if stack.top() != 1 {
        return Err(stack.argument_error(1, format_args!("expected 1 argument")));
    }
    let mut encoder = Encoder {
        stack,
        settings,
        out: Buffer::new(stack),
        open: List::new(stack),
        steps: Steps::new(),
    };
    stack.push_copy(1);
    encoder.value()?;
    while encoder.next_value()? {
        encoder.value()?;
    }
    encoder.out.push();
    Ok(1)
}

/// A table that is being written, which is on the stack. Above it is its last value, and for an object its key below
/// that.
#[derive(Clone, Copy)]
enum Open {
    Object {
        is_first: bool,
    },
    /// Index of its last value, 0 before the first, and the index of the one at its end.
    Array {
        at: c_int,
        len: c_int,
    },
}

struct Encoder<'call> {
    stack: Stack<'call>,
    settings: Settings,
    out: Buffer<'call>,
    open: List<'call, Open, OPEN_INLINE>,
    steps: Steps,
}

impl Encoder<'_> {
    /// Writes the last value of the stack, and leaves it there. Of a table only the beginning is written.
    fn value(&mut self) -> Outcome<()> {
        let stack = self.stack;
        self.steps.take(stack, 1);
        match stack.kind(-1) {
            Type::String => self.string(-1),
            Type::Number => self.number(-1)?,
            Type::Boolean if stack.truth(-1) => self.out.add(b"true"),
            Type::Boolean => self.out.add(b"false"),
            Type::Table => self.begin()?,
            Type::Nil => self.out.add(b"null"),
            Type::LightUserdata if stack.pointer(-1).is_null() => self.out.add(b"null"),
            _ => return Err(self.refuse(-1, "type not supported")),
        }
        Ok(())
    }

    fn begin(&mut self) -> Outcome<()> {
        let depth = self.open.as_slice().len() + 1;
        let is_allowed =
            c_int::try_from(depth).is_ok_and(|depth| depth <= self.settings.encode_depth_max);
        // A key, a value, and the memory of the buffer when it grows.
        if !is_allowed || !self.stack.reserve(3) {
            return Err(self
                .stack
                .error(format_args!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.array_len()? {
            Some(len) => {
                self.out.add_byte(b'[');
                self.open.push(Open::Array { at: 0, len });
            }
            None => {
                self.out.add_byte(b'{');
                self.stack.push_nil();
                self.open.push(Open::Object { is_first: true });
            }
        }
        Ok(())
    }

    /// Continues after the last value: pushes the next one, writes the separator and key before it, and ends tables
    /// that have none. `false` at the end of the outermost.
    fn next_value(&mut self) -> Outcome<bool> {
        let stack = self.stack;
        while let Some(open) = self.open.last_mut() {
            match open {
                Open::Array { at, len } => {
                    if *at > 0 {
                        stack.pop(1);
                    }
                    if at < len {
                        *at += 1;
                        let at = *at;
                        stack.raw_get_element(-1, at);
                        if at > 1 {
                            self.out.add_byte(b',');
                        }
                        return Ok(true);
                    }
                    self.out.add_byte(b']');
                }
                Open::Object { is_first } => {
                    let was_first = std::mem::replace(is_first, false);
                    if !was_first {
                        stack.pop(1);
                    }
                    if stack.next(-2) {
                        if !was_first {
                            self.out.add_byte(b',');
                        }
                        self.key()?;
                        return Ok(true);
                    }
                    self.out.add_byte(b'}');
                }
            }
            self.open.pop();
        }
        Ok(false)
    }

    /// Writes the key below the last value.
    fn key(&mut self) -> Outcome<()> {
        match self.stack.kind(-2) {
            Type::Number => {
                self.out.add_byte(b'"');
                self.number(-2)?;
                self.out.add(b"\":");
            }
            Type::String => {
                self.string(-2);
                self.out.add_byte(b':');
            }
            _ => return Err(self.refuse(-2, "table key must be a number or string")),
        }
        Ok(())
    }

    fn refuse(&self, index: c_int, reason: &str) -> Error {
        let kind = self.stack.kind(index).name();
        self.stack.error(format_args!("Cannot serialise {kind}: {reason}"))
    }

    fn string(&mut self, index: c_int) {
        let mut rest = self.stack.bytes(index).unwrap_or_default();
        self.out.add_byte(b'"');
        while let Some(at) = rest.iter().position(|&byte| ESCAPES[usize::from(byte)] != 0) {
            self.out.add(&rest[..at]);
            self.escape(rest[at]);
            rest = &rest[at + 1..];
        }
        self.out.add(rest);
        self.out.add_byte(b'"');
    }

    #[cold]
    fn escape(&mut self, byte: u8) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        match ESCAPES[usize::from(byte)] {
            b'u' => {
                let digit = |bits: u8| DIGITS[usize::from(bits & 15)];
                self.out.add(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]);
            }
            letter => self.out.add(&[b'\\', letter]),
        }
    }

    fn number(&mut self, index: c_int) -> Outcome<()> {
        let number = self.stack.number(index);
        if !number.is_finite() {
            match self.settings.encode_invalid_numbers {
                INVALID_REFUSED => return Err(self.refuse(index, "must not be NaN or Inf")),
                INVALID_WRITTEN if number.is_nan() => self.out.add(b"nan"),
                INVALID_WRITTEN if number > 0.0 => self.out.add(b"inf"),
                INVALID_WRITTEN => self.out.add(b"-inf"),
                _ => self.out.add(b"null"),
            }
            return Ok(());
        }
        let precision = self.settings.precision.unsigned_abs() as usize;
        self.out.add(&format_general(number, precision));
        Ok(())
    }

    /// Returns the last index of the table on top, if it is an array: all its keys are integers from 1 on, and there
    /// is one.
    fn array_len(&mut self) -> Outcome<Option<c_int>> {
        let stack = self.stack;
        let (mut last, mut count) = (0, 0_i32);
        stack.push_nil();
        while stack.next(-2) {
            let key = if stack.kind(-2) == Type::Number { stack.number(-2) } else { 0.0 };
            if key < 1.0 || key.floor() != key {
                stack.pop(2);
                return Ok(None);
            }
            if key > f64::from(last) {
                last = index(key);
            }
            count = count.wrapping_add(1);
            self.steps.take(stack, 1);
            stack.pop(1);
        }
        let Settings { sparse_ratio, sparse_safe, sparse_as_object, .. } = self.settings;
        if sparse_ratio > 0 && last > count.wrapping_mul(sparse_ratio) && last > sparse_safe {
            if sparse_as_object == 0 {
                return Err(self.refuse(-1, "excessively sparse array"));
            }
            return Ok(None);
        }
        Ok((last > 0).then_some(last))
    }
}

/// Converts a key to an integer as x86-64 does: one that does not fit is the smallest, which makes the table an
/// object.
fn index(key: f64) -> c_int {
    if key <= f64::from(c_int::MAX) { key as c_int } else { c_int::MIN }
}

/// Character after the backslash of an escaped byte, and 0 for all others.
static ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut control = 0;
    while control < 32 {
        escapes[control] = b'u';
        control += 1;
    }
    escapes[0x7f] = b'u';
    escapes[0x08] = b'b';
    escapes[b'\t' as usize] = b't';
    escapes[b'\n' as usize] = b'n';
    escapes[0x0c] = b'f';
    escapes[b'\r' as usize] = b'r';
    escapes[b'"' as usize] = b'"';
    escapes[b'/' as usize] = b'/';
    escapes[b'\\' as usize] = b'\\';
    escapes
};
