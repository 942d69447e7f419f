//! Bits in bytes: counting, finding and combining them, words at a time.

use std::ops::Range;

const WORD_LEN: usize = size_of::<u64>();

/// Returns true if a bit is set; bits beyond the end are not.
pub(super) fn is_set(bytes: &[u8], bit: u64) -> bool {
    let byte = usize::try_from(bit / 8).ok().and_then(|at| bytes.get(at));
    byte.is_some_and(|byte| byte & mask(bit) != 0)
}

/// Returns the mask of a bit in its byte.
pub(super) fn mask(bit: u64) -> u8 {
    0x80 >> (bit % 8)
}

/// Returns the number of set bits in a range, which lies within the bytes.
pub(super) fn count(bytes: &[u8], range: Range<u64>) -> u64 {
    let Some((bytes, edges)) = cut(bytes, range) else { return 0 };
    let words = bytes.chunks_exact(WORD_LEN);
    let rest: u32 = words.remainder().iter().map(|byte| byte.count_ones()).sum();
    let words: u64 = words.map(|bytes| u64::from(word(bytes).count_ones())).sum();
    let outside = (bytes[0] & edges.before).count_ones()
        + (bytes[bytes.len() - 1] & edges.behind).count_ones();
    words + u64::from(rest) - u64::from(outside)
}

/// Returns the first bit of a range that is `wanted`. The range lies within the bytes.
pub(super) fn find(bytes: &[u8], range: Range<u64>, wanted: bool) -> Option<u64> {
    let (start, end) = (range.start, range.end);
    let (bytes, edges) = cut(bytes, range)?;
    // From here on, the wanted bit is a one.
    let flip = if wanted { 0 } else { u64::MAX };
    let first = (bytes[0] ^ flip as u8) & !edges.before;
    let base = start / 8 * 8;
    let found = if first == 0 {
        8 + first_one(&bytes[1..], flip)?
    } else {
        u64::from(first.leading_zeros())
    };
    Some(base + found).filter(|bit| *bit < end)
}

/// Returns the first bit that is a one after all were xored with `flip`.
fn first_one(bytes: &[u8], flip: u64) -> Option<u64> {
    let words = bytes.chunks_exact(WORD_LEN);
    let rest = words.remainder();
    let rest_at = bytes.len() - rest.len();
    for (at, bytes) in words.enumerate() {
        let word = word(bytes) ^ flip;
        if word != 0 {
            return Some((at * WORD_LEN * 8) as u64 + u64::from(word.leading_zeros()));
        }
    }
    let at = rest.iter().position(|byte| byte ^ flip as u8 != 0)?;
    let byte = rest[at] ^ flip as u8;
    Some(((rest_at + at) * 8) as u64 + u64::from(byte.leading_zeros()))
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// Bits of the first and the last byte that are outside a range.
struct Edges {
    before: u8,
    behind: u8,
}

/// Returns the bytes that a range touches; `None` if it is empty.
fn cut(bytes: &[u8], range: Range<u64>) -> Option<(&[u8], Edges)> {
    if range.is_empty() {
        return None;
    }
    let (start, last) = (range.start, range.end - 1);
    let bytes = &bytes[(start / 8) as usize..=(last / 8) as usize];
    let before = !(0xff >> (start % 8));
    let behind = !(0xff << (7 - last % 8));
    Some((bytes, Edges { before, behind }))
}

/// Operation that combines two bitmaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combine {
    And,
    AndNot,
    Or,
    Xor,
}

/// Combines a bitmap into another. The shorter one is padded with zeros.
pub(super) fn combine(result: &mut Vec<u8>, other: &[u8], combine: Combine) {
    if other.len() > result.len() {
        result.resize(other.len(), 0);
    }
    let (overlap, beyond) = result.split_at_mut(other.len());
    // Such simple loops are compiled to vector instructions.
    let each = overlap.iter_mut().zip(other);
    match combine {
        Combine::And => {
            each.for_each(|(byte, other)| *byte &= other);
            beyond.fill(0);
        }
        Combine::AndNot => each.for_each(|(byte, other)| *byte &= !other),
        Combine::Or => each.for_each(|(byte, other)| *byte |= other),
        Combine::Xor => each.for_each(|(byte, other)| *byte ^= other),
    }
}

/// Adds a bitmap to a union of others, and the bits that it shares with the union to `repeated`.
pub(super) fn unite(union: &mut Vec<u8>, repeated: &mut Vec<u8>, other: &[u8]) {
    let len = union.len().max(other.len());
    union.resize(len, 0);
    repeated.resize(len, 0);
    for ((union, repeated), other) in union.iter_mut().zip(repeated).zip(other) {
        *repeated |= *union & other;
        *union |= other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn ranges_are_counted_and_searched_as_bit_by_bit() {
        for len in [1, 2, 7, 8, 9, 17, 40] {
            for mut bytes in [bytes(len, 7), vec![0; len], vec![0xff; len]] {
                let bits = len as u64 * 8;
                bytes[len / 2] ^= 0x10;
                for start in 0..bits {
                    for end in start..=bits {
                        let set = |bit: &u64| is_set(&bytes, *bit);
                        let expected = (start..end).filter(set).count() as u64;
                        assert_eq!(count(&bytes, start..end), expected, "{start}..{end}");
                        for wanted in [false, true] {
                            let expected = (start..end).find(|bit| set(bit) == wanted);
                            assert_eq!(find(&bytes, start..end, wanted), expected);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_shorter_bitmap_ends_in_zeros() {
        let combined = |first: &[u8], other: &[u8], how| {
            let mut result = first.to_vec();
            combine(&mut result, other, how);
            result
        };
        assert_eq!(combined(&[0xf0, 1], &[0x3c], Combine::And), [0x30, 0]);
        assert_eq!(combined(&[0x3c], &[0xf0, 1], Combine::And), [0x30, 0]);
        assert_eq!(combined(&[0xf0], &[0x0f, 1], Combine::Or), [0xff, 1]);
        assert_eq!(combined(&[0xff, 7], &[0x0f], Combine::Xor), [0xf0, 7]);
        assert_eq!(combined(&[0xff, 7], &[0x0f], Combine::AndNot), [0xf0, 7]);
        assert_eq!(combined(&[0x3c], &[0x0f, 1], Combine::AndNot), [0x30, 0]);
    }

    #[test]
    fn a_union_knows_what_was_there_before() {
        let (mut union, mut repeated) = (vec![0x0f], vec![]);
        unite(&mut union, &mut repeated, &[0x1c, 0x80]);
        assert_eq!((&union[..], &repeated[..]), (&[0x1f, 0x80][..], &[0x0c, 0][..]));
        unite(&mut union, &mut repeated, &[0x30]);
        assert_eq!((&union[..], &repeated[..]), (&[0x3f, 0x80][..], &[0x1c, 0][..]));
    }
}
