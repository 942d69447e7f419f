//! `cjson`: converts values of Lua to JSON and back.
//!
//! Each module table that `cjson.new` makes has [`Settings`] of its own, which are an upvalue of its functions.

mod decode;
mod encode;
mod number;
mod token;

use std::ffi::{CStr, c_int};

use crate::native::{Buffer, Outcome, Stack, Type, upvalue};

/// Settings that the functions of the module can change.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    /// Nonzero if arrays with many holes become objects. Otherwise they are errors.
    sparse_as_object: c_int,
    /// An array has many holes if its last index is more than this many times its elements. 0: never.
    sparse_ratio: c_int,
    /// Arrays up to this index are never sparse.
    sparse_safe: c_int,
    encode_depth_max: c_int,
    decode_depth_max: c_int,
    /// Handling of NaN and the infinities: an index of [`INVALID_NUMBERS`].
    encode_invalid_numbers: c_int,
    /// Nonzero if hexadecimal numbers, leading zeros, NaN and the infinities are accepted.
    decode_invalid_numbers: c_int,
    /// Digits of numbers, 1 to 14.
    precision: c_int,
    /// Stored for scripts that read it. The collector always owns the buffers.
    keep_buffer: c_int,
}

pub(super) const DEFAULTS: Settings = Settings {
    sparse_as_object: 0,
    sparse_ratio: 2,
    sparse_safe: 10,
    encode_depth_max: 1000,
    decode_depth_max: 1000,
    encode_invalid_numbers: 0,
    decode_invalid_numbers: 1,
    precision: 14,
    keep_buffer: 1,
};

const SWITCH: &[&str] = &["off", "on"];
const INVALID_NUMBERS: &[&str] = &["off", "on", "null"];

/// Refused, written as they are, or written as null.
const INVALID_REFUSED: c_int = 0;
const INVALID_WRITTEN: c_int = 1;

/// Pushes the library, with settings of its own, which live as long as its functions.
pub(super) fn push(stack: Stack<'_>) -> *mut Settings {
    stack.push_table(0, 13);
    stack.push_block(DEFAULTS);
    let settings = stack.pointer(-1).cast();
    add(stack, c"encode", encode::encode);
    add(stack, c"decode", decode::decode);
    add(stack, c"encode_sparse_array", |stack| {
        let settings = settings_with(stack, 3)?;
        choice(stack, 1, &mut settings.sparse_as_object, SWITCH)?;
        integer(stack, 2, &mut settings.sparse_ratio, 0..=c_int::MAX)?;
        integer(stack, 3, &mut settings.sparse_safe, 0..=c_int::MAX)?;
        Ok(3)
    });
    add(stack, c"encode_max_depth", |stack| {
        integer(stack, 1, &mut settings_with(stack, 1)?.encode_depth_max, 1..=c_int::MAX)
    });
    add(stack, c"decode_max_depth", |stack| {
        integer(stack, 1, &mut settings_with(stack, 1)?.decode_depth_max, 1..=c_int::MAX)
    });
    add(stack, c"encode_number_precision", |stack| {
        integer(stack, 1, &mut settings_with(stack, 1)?.precision, 1..=14)
    });
    add(stack, c"encode_keep_buffer", |stack| {
        choice(stack, 1, &mut settings_with(stack, 1)?.keep_buffer, SWITCH)
    });
    add(stack, c"encode_invalid_numbers", |stack| {
        choice(stack, 1, &mut settings_with(stack, 1)?.encode_invalid_numbers, INVALID_NUMBERS)
    });
    add(stack, c"decode_invalid_numbers", |stack| {
        choice(stack, 1, &mut settings_with(stack, 1)?.decode_invalid_numbers, SWITCH)
    });
    add(stack, c"new", |stack| {
        push(stack);
        Ok(1)
    });
    stack.pop(1);
    stack.push_null();
    stack.set_field(-2, c"null");
    for (name, value) in [(c"_NAME", "cjson"), (c"_VERSION", "2.1.0")] {
        stack.push_bytes(value.as_bytes());
        stack.set_field(-2, name);
    }
    settings
}

/// Adds a function to the table below the settings on top.
fn add<F>(stack: Stack<'_>, name: &CStr, function: F)
where
    F: Fn(Stack<'_>) -> Outcome<c_int> + Copy,
{
    stack.push_copy(-1);
    stack.push_function(function, 1);
    stack.set_field(-3, name);
}

/// Returns the settings of the module that the running function belongs to.
fn settings<'call>(stack: Stack<'call>) -> &'call mut Settings {
    // SAFETY: `push` gives each function a block of this type, and a function asks for it once.
    unsafe { stack.block(upvalue(1)) }
}

/// Returns the settings, for a function that has at most `count` arguments.
fn settings_with(stack: Stack<'_>, count: c_int) -> Outcome<&mut Settings> {
    if stack.top() > count {
        return Err(stack.argument_error(count + 1, format_args!("found too many arguments")));
    }
    // Missing arguments are nil.
    stack.set_top(count);
    Ok(settings(stack))
}

/// Sets an integer, if its argument is given, and pushes it.
fn integer(
    stack: Stack<'_>,
    index: c_int,
    setting: &mut c_int,
    range: std::ops::RangeInclusive<c_int>,
) -> Outcome<c_int> {
    if stack.kind(index) != Type::Nil {
        // Higher bits are lost, as in Redis.
        let value = stack.check_integer(index)? as c_int;
        if !range.contains(&value) {
            let text =
                format_args!("expected integer between {} and {}", range.start(), range.end());
            return Err(stack.argument_error(1, text));
        }
        *setting = value;
    }
    stack.push_integer(i64::from(*setting));
    Ok(1)
}

/// Sets a choice by its name, or one of the first two by a boolean, if the argument is given, and pushes it in the
/// same way.
fn choice(stack: Stack<'_>, index: c_int, setting: &mut c_int, names: &[&str]) -> Outcome<c_int> {
    match stack.kind(index) {
        Type::Nil => {}
        Type::Boolean => *setting = c_int::from(stack.truth(index)),
        _ => *setting = named(stack, index, names)?,
    }
    match *setting {
        0 | 1 => stack.push_boolean(*setting == 1),
        other => stack.push_bytes(names[other.unsigned_abs() as usize].as_bytes()),
    }
    Ok(1)
}

fn named(stack: Stack<'_>, index: c_int, names: &[&str]) -> Outcome<c_int> {
    let name = stack.check_bytes(index)?;
    for (place, known) in (0..).zip(names) {
        if known.as_bytes() == name {
            return Ok(place);
        }
    }
    let mut text = Buffer::new(stack);
    text.add(b"invalid option '");
    text.add(name);
    text.add_byte(b'\'');
    Err(stack.argument_error_bytes(index, text.bytes()))
}
