//! Values with elements stored one after the other, each as a string.

use std::io::Read;

use crate::decode::time_ms;
use crate::error::{Error, Result};
use crate::input::Input;
use crate::value::ValuePart;

/// Lengths of a textual score that have a special meaning.
const SCORE_NAN: u8 = 253;
const SCORE_INFINITY: u8 = 254;
const SCORE_NEGATIVE_INFINITY: u8 = 255;

/// Highest deadline of a field, as in Redis.
pub(super) const FIELD_EXPIRY_MAX: u64 = (1 << 48) - 1;

pub(super) fn string<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    visit(ValuePart::String(&input.owned_string("a string")?))
}

pub(super) fn list<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    each_string(input, "an element of a list", &mut |string| visit(ValuePart::Element(string)))
}

pub(super) fn set<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    each_string(input, "a member of a set", &mut |string| visit(ValuePart::Member(string)))
}

fn each_string<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    expected: &'static str,
    visit: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut string = Vec::new();
    for _ in 0..input.length("the length of a collection")? {
        input.string(&mut string, expected)?;
        visit(&string)?;
    }
    Ok(())
}

pub(super) fn sorted_set<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    each_scored(input, visit, |input| Ok(f64::from_le_bytes(input.array("a score")?)))
}

pub(super) fn sorted_set_text<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    each_scored(input, visit, score_text)
}

fn each_scored<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
    score: impl Fn(&mut Input<R>) -> Result<f64>,
) -> Result<(), E> {
    let mut member = Vec::new();
    for _ in 0..input.length("the length of a sorted set")? {
        input.string(&mut member, "a member of a sorted set")?;
        let score = score(input)?;
        if score.is_nan() {
            return Err(input.corrupt("a score that is a number").into());
        }
        visit(ValuePart::Scored { member: &member, score })?;
    }
    Ok(())
}

fn score_text<R: Read>(input: &mut Input<R>) -> Result<f64> {
    let len = match input.byte("the length of a score")? {
        SCORE_NAN => return Ok(f64::NAN),
        SCORE_INFINITY => return Ok(f64::INFINITY),
        SCORE_NEGATIVE_INFINITY => return Ok(f64::NEG_INFINITY),
        len => len,
    };
    let mut text = Vec::new();
    input.read_into(&mut text, len.into(), "a score")?;
    parse_score(&text).ok_or_else(|| input.corrupt("a score as text"))
}

/// Parses a score from decimal text.
pub(super) fn parse_score(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.trim_start().parse().ok()
}

pub(super) fn hash<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    each_field(input, visit, |_| Ok(None))
}

/// Reads a hash whose deadlines are relative to the earliest of them, which comes first.
pub(super) fn hash_expiring<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let earliest = time_ms(input, "the earliest expiry of a field")?;
    each_field(input, visit, |input| match input.length("the expiry of a field")? {
        0 => Ok(None),
        relative => match earliest.saturating_add(relative - 1) {
            // A deadline of zero is possible only here.
            0 => Err(input.corrupt("an expiry of a field after 1970")),
            expiry => field_expiry(input, expiry).map(Some),
        },
    })
}

pub(super) fn hash_expiring_unreleased<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
) -> Result<(), E> {
    each_field(input, visit, |input| match input.length("the expiry of a field")? {
        0 => Ok(None),
        expiry => field_expiry(input, expiry).map(Some),
    })
}

/// Checks the range of a field's deadline.
fn field_expiry<R: Read>(input: &Input<R>, expiry: u64) -> Result<u64> {
    let fits = expiry <= FIELD_EXPIRY_MAX;
    if fits { Ok(expiry) } else { Err(input.corrupt("an expiry of a field within 48 bits")) }
}

fn each_field<R: Read, E: From<Error>>(
    input: &mut Input<R>,
    visit: &mut impl FnMut(ValuePart<'_>) -> Result<(), E>,
    expiry: impl Fn(&mut Input<R>) -> Result<Option<u64>>,
) -> Result<(), E> {
    let (mut name, mut value) = (Vec::new(), Vec::new());
    for _ in 0..input.length("the length of a hash")? {
        let expiry_ms = expiry(input)?;
        input.string(&mut name, "a field of a hash")?;
        input.string(&mut value, "the value of a field")?;
        visit(ValuePart::Field { name: &name, value: &value, expiry_ms })?;
    }
    Ok(())
}
