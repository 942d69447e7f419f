//! `gsub`: replaces matches by a string, by the values of a table, or by the results of a function.

use std::ffi::c_int;

use super::matcher::{Found, Matcher, Pattern};
use crate::native::{Buffer, Outcome, Stack, Steps, Type, truncate};

/// Index of the replacement.
const REPLACEMENT: c_int = 3;

pub fn gsub(stack: Stack<'_>) -> Outcome<c_int> {
    let subject = stack.check_bytes(1)?;
    let pattern = Pattern::new(stack.check_bytes(2)?);
    let kind = stack.kind(REPLACEMENT);
    let limit = limit(stack, subject.len())?;
    if !matches!(kind, Type::Number | Type::String | Type::Function | Type::Table) {
        return Err(
            stack.argument_error(REPLACEMENT, format_args!("string/function/table expected"))
        );
    }
    let mut out = Buffer::new(stack);
    let mut matcher = Matcher::new(stack, subject, pattern.text);
    let mut steps = Steps::new();
    let (mut position, mut count) = (0, 0_i64);
    while count < limit {
        let Some(found) = matcher.search(position, pattern.is_anchored, &mut steps)? else { break };
        count += 1;
        out.add(&subject[position..found.start]);
        add_replacement(&mut out, &matcher, kind, found)?;
        position = found.end;
        if found.end == found.start {
            let Some(&byte) = subject.get(position) else { break };
            out.add_byte(byte);
            position += 1;
        }
        if pattern.is_anchored {
            break;
        }
    }
    out.add(&subject[position..]);
    out.push();
    stack.push_integer(count);
    Ok(2)
}

/// Returns the maximum number of replacements: no limit without the argument. Its higher bits are lost, as in C.
fn limit(stack: Stack<'_>, len: usize) -> Outcome<i64> {
    match stack.kind(4) {
        Type::None | Type::Nil => Ok(i64::try_from(len).unwrap_or(i64::MAX).saturating_add(1)),
        _ => Ok(i64::from(truncate(stack.check_number(4)?) as i32)),
    }
}

fn add_replacement(
    out: &mut Buffer<'_>,
    matcher: &Matcher<'_>,
    kind: Type,
    found: Found,
) -> Outcome<()> {
    let stack = matcher.stack();
    match kind {
        Type::Function => {
            stack.push_copy(REPLACEMENT);
            let captures = matcher.push_captures(found)?;
            stack.call(captures);
        }
        Type::Table => {
            matcher.push_capture(0, found)?;
            stack.get(REPLACEMENT);
        }
        _ => return add_string(out, matcher, found),
    }
    if !stack.truth(-1) {
        out.add(matcher.text(found));
    } else if let Some(bytes) = stack.bytes(-1) {
        out.add(bytes);
    } else {
        let name = stack.kind(-1).name();
        return Err(stack.error(format_args!("invalid replacement value (a {name})")));
    }
    stack.pop(1);
    Ok(())
}

/// Adds the replacement string, with captures for `%1` to `%9`, and the match for `%0`.
fn add_string(out: &mut Buffer<'_>, matcher: &Matcher<'_>, found: Found) -> Outcome<()> {
    let stack = matcher.stack();
    let mut rest = stack.bytes(REPLACEMENT).unwrap_or_default();
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.add(&rest[..at]);
        // If a string ends with the escape, Lua reads the zero after it.
        match rest.get(at + 1).copied().unwrap_or(0) {
            b'0' => out.add(matcher.text(found)),
            digit @ b'1'..=b'9' => {
                matcher.push_capture(usize::from(digit - b'1'), found)?;
                out.add(stack.bytes(-1).unwrap_or_default());
                stack.pop(1);
            }
            other => out.add_byte(other),
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    out.add(rest);
    Ok(())
}
