//! Packs small collections into one string.

use crate::format::{Encoding, VERSION_REDIS_7_0, VERSION_REDIS_7_2};
use crate::packed::listpack::{Builder, parse_i64};
use crate::testing::Value;

/// Upper bound of elements of a packed collection: the smallest default of any version of Redis.
const ELEMENTS_MAX: usize = 128;
/// Upper bound of the length of a string in a packed collection.
const STRING_LEN_MAX: usize = 64;
/// Upper bound of elements of a set of integers.
const INTEGERS_MAX: usize = 512;

/// Returns the packed form of a value and its encoding, if it is small and the version has one.
pub(super) fn pack(value: &Value, version: u16) -> Option<(Encoding, Vec<u8>)> {
    match value {
        Value::Set(members) => pack_integers(members).or_else(|| {
            let small = version >= VERSION_REDIS_7_2
                && members.len() <= ELEMENTS_MAX
                && members.iter().all(|member| is_short(member));
            small.then(|| (Encoding::SetListpack, pack_strings(members)))
        }),
        Value::SortedSet(members) => {
            let small = version >= VERSION_REDIS_7_0
                && members.len() <= ELEMENTS_MAX
                && members.iter().all(|(member, _)| is_short(member));
            small.then(|| (Encoding::SortedSetListpack, pack_scored(members)))
        }
        Value::Hash(fields) => {
            let small = version >= VERSION_REDIS_7_0
                && fields.len() <= ELEMENTS_MAX
                && fields.iter().all(|field| {
                    field.expiry_ms.is_none() && is_short(&field.name) && is_short(&field.value)
                });
            let strings = || fields.iter().flat_map(|field| [&field.name, &field.value]);
            small.then(|| (Encoding::HashListpack, pack_strings(strings())))
        }
        Value::String(_) | Value::List(_) | Value::Stream(_) => None,
    }
}

fn is_short(string: &[u8]) -> bool {
    string.len() <= STRING_LEN_MAX
}

fn pack_integers(members: &[Vec<u8>]) -> Option<(Encoding, Vec<u8>)> {
    if members.len() > INTEGERS_MAX {
        return None;
    }
    let integers: Option<Vec<i64>> = members.iter().map(|member| parse_i64(member)).collect();
    let mut integers = integers?;
    integers.sort_unstable();
    Some((Encoding::SetIntset, intset(&integers)))
}

/// Returns the intset of integers in ascending order.
fn intset(integers: &[i64]) -> Vec<u8> {
    let fits = |bits: u32| integers.iter().all(|&n| n >> (bits - 1) == n >> 63);
    let width = if fits(16) {
        2
    } else if fits(32) {
        4
    } else {
        8
    };
    let mut bytes = Vec::with_capacity(8 + integers.len() * width);
    bytes.extend_from_slice(&(width as u32).to_le_bytes());
    bytes.extend_from_slice(&(integers.len() as u32).to_le_bytes());
    for integer in integers {
        bytes.extend_from_slice(&integer.to_le_bytes()[..width]);
    }
    bytes
}

fn pack_strings<'a>(strings: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let mut builder = Builder::new();
    strings.into_iter().for_each(|string| builder.push(string));
    builder.finish()
}

/// Packs members and scores in ascending order; Redis relies on that order.
fn pack_scored(members: &[(Vec<u8>, f64)]) -> Vec<u8> {
    let mut sorted: Vec<&(Vec<u8>, f64)> = members.iter().collect();
    // Not by `total_cmp` alone, for which the two zeros differ.
    sorted.sort_by(|(a, x), (b, y)| {
        x.partial_cmp(y).unwrap_or_else(|| x.total_cmp(y)).then_with(|| a.cmp(b))
    });
    let mut builder = Builder::new();
    for (member, score) in sorted {
        builder.push(member);
        builder.push(score_text(*score).as_bytes());
    }
    builder.finish()
}

/// Returns the shortest text that is read as the same score.
fn score_text(score: f64) -> String {
    let plain = score.to_string();
    let exponential = format!("{score:e}");
    if exponential.len() < plain.len() { exponential } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_printed_short_and_exactly() {
        for score in [0.0, -0.0, 1.0, 0.1, 1e300, -5e-324, 123_456_789.125, f64::INFINITY, 1e15] {
            let text = score_text(score);
            assert!(text.len() <= 24, "{text}");
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), score.to_bits(), "{text}");
        }
    }
}
