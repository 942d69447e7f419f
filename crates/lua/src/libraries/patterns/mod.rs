//! The functions of `string` that match patterns: `find`, `match`, `gmatch` and `gsub`.
//!
//! Their results and errors are those of Lua 5.1. Lua's own functions cannot be stopped, since hooks are not called
//! inside of C, and a pattern like `.-.-.-x` takes years on a short string. They also recurse once per item of a
//! pattern. Here every step is counted ([`Steps`]), and pending alternatives are in a list.

mod class;
mod matcher;
mod replace;

use std::ffi::c_int;

use matcher::{Found, Matcher, Pattern, push_position};

use crate::native::{Outcome, Stack, Steps, add, upvalue};

/// Characters that make a string a pattern.
const SPECIAL: &[u8] = b"^$*+?.([%-";

/// Replaces the functions in the table on top, which has those of Lua.
pub fn add_to(stack: Stack<'_>) {
    add(stack, c"find", |stack| search(stack, Results::Positions));
    add(stack, c"match", |stack| search(stack, Results::Captures));
    add(stack, c"gmatch", gmatch);
    // Its old name.
    stack.push_bytes(b"gmatch");
    stack.get(-2);
    stack.set_field(-2, c"gfind");
    add(stack, c"gsub", replace::gsub);
}

/// Results of a search.
#[derive(Clone, Copy, PartialEq)]
enum Results {
    /// Start and end of the match, and its captures.
    Positions,
    /// Its captures, or the match itself if the pattern has none.
    Captures,
}

fn search(stack: Stack<'_>, results: Results) -> Outcome<c_int> {
    let subject = stack.check_bytes(1)?;
    let text = stack.check_bytes(2)?;
    let start = start(stack.integer_or(3, 1)?, subject.len());
    if results == Results::Positions && (stack.truth(4) || is_plain(text)) {
        Steps::new().take(stack, u32::try_from(subject.len() / BYTES_PER_STEP).unwrap_or(u32::MAX));
        return Ok(match find_text(&subject[start..], text) {
            Some(at) => push_positions(stack, start + at, start + at + text.len()),
            None => push_nothing(stack),
        });
    }
    let pattern = Pattern::new(text);
    let mut steps = Steps::new();
    let mut matcher = Matcher::new(stack, subject, pattern.text);
    let Some(found) = matcher.search(start, pattern.is_anchored, &mut steps)? else {
        return Ok(push_nothing(stack));
    };
    if results == Results::Captures {
        return matcher.push_captures(found);
    }
    let positions = push_positions(stack, found.start, found.end);
    Ok(positions + matcher.push_own_captures()?)
}

/// Bytes of text searched in the time of a step.
const BYTES_PER_STEP: usize = 32;

/// Returns the index of `text`. In a short subject it looks for the first byte: preparing a better search would take
/// longer.
fn find_text(subject: &[u8], text: &[u8]) -> Option<usize> {
    const SHORT: usize = 512;
    let Some(first) = text.first().filter(|_| subject.len() <= SHORT) else {
        return memchr::memmem::find(subject, text);
    };
    memchr::memchr_iter(*first, subject).find(|at| subject[*at..].starts_with(text))
}

fn push_nothing(stack: Stack<'_>) -> c_int {
    stack.push_nil();
    1
}

/// Pushes start and end of a match, counted from 1, the end inclusive.
fn push_positions(stack: Stack<'_>, start: usize, end: usize) -> c_int {
    push_position(stack, start + 1);
    push_position(stack, end);
    2
}

/// Returns the index at which a search begins, from an argument that counts from 1, or from the end if it is negative.
fn start(position: i64, len: usize) -> usize {
    let signed_len = i64::try_from(len).unwrap_or(i64::MAX);
    let from_start =
        if position < 0 { position.saturating_add(signed_len).saturating_add(1) } else { position };
    usize::try_from(from_start - 1).unwrap_or(0).min(len)
}

/// Returns true if the text, up to its first zero, has no special character.
fn is_plain(text: &[u8]) -> bool {
    !text.iter().take_while(|byte| **byte != 0).any(|byte| SPECIAL.contains(byte))
}

/// Pushes an iterator: its upvalues are the subject, the pattern and the start of the next search.
fn gmatch(stack: Stack<'_>) -> Outcome<c_int> {
    stack.check_bytes(1)?;
    stack.check_bytes(2)?;
    stack.set_top(2);
    stack.push_integer(0);
    stack.push_function(next_match, 3);
    Ok(1)
}

fn next_match(stack: Stack<'_>) -> Outcome<c_int> {
    let subject = stack.bytes(upvalue(1)).unwrap_or_default();
    let text = stack.bytes(upvalue(2)).unwrap_or_default();
    let start = stack.number(upvalue(3)) as usize;
    if start > subject.len() {
        return Ok(0);
    }
    // `^` is an ordinary character here.
    let mut matcher = Matcher::new(stack, subject, Pattern::until_zero(text));
    let Some(found) = matcher.search(start, false, &mut Steps::new())? else { return Ok(0) };
    push_position(stack, found.after());
    stack.replace(upvalue(3));
    matcher.push_captures(found)
}

impl Found {
    /// Returns the start of the search for the next match: an empty match is not found again.
    fn after(self) -> usize {
        if self.end == self.start { self.end + 1 } else { self.end }
    }
}
