//! `bit`: operations on the low 32 bits of numbers. Results are signed.

use std::ffi::c_int;

use crate::native::{Outcome, Stack, Type, add};

/// Adding this to a double leaves the low 32 bits of the rounded integer in the low bits of the mantissa.
const SHIFT_TO_MANTISSA: f64 = 6_755_399_441_055_744.0;

const DIGITS: [&[u8; 16]; 2] = [b"0123456789abcdef", b"0123456789ABCDEF"];

/// Pushes the library.
pub fn push(stack: Stack<'_>) {
    stack.push_table(0, 12);
    add(stack, c"tobit", |stack| result(stack, bits(stack, 1)?));
    add(stack, c"bnot", |stack| result(stack, !bits(stack, 1)?));
    add(stack, c"bswap", |stack| result(stack, bits(stack, 1)?.swap_bytes()));
    add(stack, c"band", |stack| fold(stack, |all, next| all & next));
    add(stack, c"bor", |stack| fold(stack, |all, next| all | next));
    add(stack, c"bxor", |stack| fold(stack, |all, next| all ^ next));
    add(stack, c"lshift", |stack| shift(stack, |bits, by| bits << by));
    add(stack, c"rshift", |stack| shift(stack, |bits, by| bits >> by));
    add(stack, c"arshift", |stack| {
        shift(stack, |bits, by| (bits.cast_signed() >> by).cast_unsigned())
    });
    add(stack, c"rol", |stack| shift(stack, u32::rotate_left));
    add(stack, c"ror", |stack| shift(stack, u32::rotate_right));
    add(stack, c"tohex", to_hex);
}

/// Returns the low 32 bits of argument `index`, rounded to an integer.
fn bits(stack: Stack<'_>, index: c_int) -> Outcome<u32> {
    Ok((stack.check_number(index)? + SHIFT_TO_MANTISSA).to_bits() as u32)
}

fn result(stack: Stack<'_>, bits: u32) -> Outcome<c_int> {
    stack.push_number(f64::from(bits.cast_signed()));
    Ok(1)
}

/// Combines all arguments. The last one is checked after the first, and then those before it, so that errors name the
/// same argument as in Redis.
fn fold(stack: Stack<'_>, combine: fn(u32, u32) -> u32) -> Outcome<c_int> {
    let mut all = bits(stack, 1)?;
    for index in (2..=stack.top()).rev() {
        all = combine(all, bits(stack, index)?);
    }
    result(stack, all)
}

/// Shifts argument 1 by the low five bits of argument 2.
fn shift(stack: Stack<'_>, shift: fn(u32, u32) -> u32) -> Outcome<c_int> {
    let value = bits(stack, 1)?;
    let by = bits(stack, 2)? & 31;
    result(stack, shift(value, by))
}

/// Pushes the lowest hexadecimal digits: as many as argument 2 says, 8 by default; in capitals if it is negative.
fn to_hex(stack: Stack<'_>) -> Outcome<c_int> {
    let value = bits(stack, 1)?;
    let wanted = if stack.kind(2) == Type::None { 8 } else { bits(stack, 2)?.cast_signed() };
    let digits = DIGITS[usize::from(wanted < 0)];
    let count = wanted.unsigned_abs().min(8) as usize;
    let mut text = [0; 8];
    for (place, digit) in text[..count].iter_mut().rev().enumerate() {
        *digit = digits[(value >> (4 * place) & 15) as usize];
    }
    stack.push_bytes(&text[..count]);
    Ok(1)
}
