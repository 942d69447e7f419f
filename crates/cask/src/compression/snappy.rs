//! Decompressing raw snappy.
//!
//! Most values are short and end in a copy. For those a general decoder is slow: it works in wide
//! steps only as far from the end of the value as such a step may write too much, and goes byte by
//! byte from there. This one has room behind the value and so never does.
//!
//! The format: the value's length as a varint, then elements. An element's first byte says in its
//! low two bits whether bytes follow literally (0) or are repeated from before (1 to 3, with an
//! offset of 11, 16 or 32 bits).

use super::DecompressError;

/// Bytes copied at a time, and room behind the value that a copy may spoil.
const STEP: usize = 16;

/// The length of the value, and where the elements begin.
pub(super) fn value_len(stored: &[u8]) -> Option<(usize, &[u8])> {
    let mut len = 0;
    for (at, &byte) in stored.iter().enumerate().take(5) {
        len |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            let fits = len <= u64::from(u32::MAX);
            return fits.then_some((len as usize, &stored[at + 1..]));
        }
    }
    None
}

/// Appends the value of `len` bytes that the elements stand for. After an error, something may
/// have been appended.
pub(super) fn append(
    mut elements: &[u8],
    len: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    let start = out.len();
    out.resize(start + len + STEP, 0);
    let (value, mut done) = (&mut out[start..], 0);
    while let Some((&tag, rest)) = elements.split_first() {
        let written = match tag & 3 {
            0 => literal(tag, rest, &mut value[done..], &mut elements),
            _ => copy(tag, rest, value, done, &mut elements),
        };
        done += written.ok_or(DecompressError::Damaged)?;
    }
    out.truncate(start + len);
    super::exactly(done, len)
}

/// Bytes that stand in the input as they are; how many.
#[inline]
fn literal<'a>(tag: u8, rest: &'a [u8], to: &mut [u8], elements: &mut &'a [u8]) -> Option<usize> {
    let (len, from) = match usize::from(tag >> 2) {
        short @ ..60 => (short + 1, rest),
        long => {
            let (len, from) = rest.split_at_checked(long - 59)?;
            let mut bytes = [0; 8];
            bytes[..len.len()].copy_from_slice(len);
            (usize::try_from(u64::from_le_bytes(bytes)).ok()? + 1, from)
        }
    };
    if len > to.len().saturating_sub(STEP) {
        return None;
    }
    let (bytes, after) = from.split_at_checked(len)?;
    to[..len].copy_from_slice(bytes);
    *elements = after;
    Some(len)
}

/// Bytes that stand in the value already, `done` of which is there; how many.
#[inline]
fn copy<'a>(
    tag: u8,
    rest: &'a [u8],
    value: &mut [u8],
    done: usize,
    elements: &mut &'a [u8],
) -> Option<usize> {
    let (len, offset);
    (len, offset, *elements) = match tag & 3 {
        1 => {
            let (low, rest) = rest.split_first()?;
            let offset = usize::from(tag >> 5) << 8 | usize::from(*low);
            (usize::from(tag >> 2 & 7) + 4, offset, rest)
        }
        2 => {
            let (offset, rest) = rest.split_first_chunk()?;
            (usize::from(tag >> 2) + 1, usize::from(u16::from_le_bytes(*offset)), rest)
        }
        _ => {
            let (offset, rest) = rest.split_first_chunk()?;
            (usize::from(tag >> 2) + 1, u32::from_le_bytes(*offset) as usize, rest)
        }
    };
    let from = done.checked_sub(offset)?;
    if offset == 0 || len > (value.len() - STEP).checked_sub(done)? {
        return None;
    }
    let end = done + len;
    let (mut from, mut to) = (from, done);
    // What is repeated may reach into what it becomes. Then the distance doubles with each step.
    while to - from < STEP && to < end {
        let distance = to - from;
        let step = distance.min(end - to);
        value.copy_within(from..from + step, to);
        to += step;
        // The source stays, and is one distance longer.
        if step < distance {
            return Some(len);
        }
    }
    while to < end {
        let bytes: [u8; STEP] = *value[from..].first_chunk()?;
        *value[to..].first_chunk_mut()? = bytes;
        (from, to) = (from + STEP, to + STEP);
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decompress(stored: &[u8]) -> Option<Vec<u8>> {
        let (len, elements) = value_len(stored)?;
        let mut out = b"before".to_vec();
        append(elements, len, &mut out).ok()?;
        assert!(out.starts_with(b"before"));
        Some(out.split_off(6))
    }

    /// Pieces of what came before, near and far, and new bytes.
    fn values() -> impl Strategy<Value = Vec<u8>> {
        let piece = (any::<bool>(), 1usize..90, 1usize..200, any::<u8>());
        prop::collection::vec(piece, 0..40).prop_map(|pieces| {
            let mut value: Vec<u8> = Vec::new();
            for (is_new, offset, len, byte) in pieces {
                for n in 0..len {
                    let old = value.len().checked_sub(offset).filter(|_| !is_new);
                    let new = byte.wrapping_mul(31).wrapping_add((n * n) as u8);
                    value.push(old.map_or(new, |at| value[at]));
                }
            }
            value
        })
    }

    proptest! {
        #[test]
        fn agrees_with_the_encoder(value in values()) {
            let stored = snap::raw::Encoder::new().compress_vec(&value).unwrap();
            prop_assert_eq!(decompress(&stored), Some(value));
        }

        #[test]
        fn accepts_what_the_other_decoder_accepts(
            value in values(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut stored = snap::raw::Encoder::new().compress_vec(&value).unwrap();
            for (at, byte) in changes {
                let at = at.index(stored.len());
                stored[at] = byte;
            }
            // A length may now ask for gigabytes.
            if value_len(&stored).is_some_and(|(len, _)| len < 1 << 20) {
                let expected = snap::raw::Decoder::new().decompress_vec(&stored).ok();
                prop_assert_eq!(decompress(&stored), expected);
            }
        }
    }

    #[test]
    fn short_distances_repeat() {
        for distance in 1..40 {
            let piece: Vec<u8> = (0..distance as u8).collect();
            let value: Vec<u8> = piece.iter().copied().cycle().take(distance + 64).collect();
            // A literal of the piece, then a copy of 64 bytes with a 16-bit offset.
            let mut stored = vec![value.len() as u8, (distance as u8 - 1) << 2];
            stored.extend_from_slice(&piece);
            stored.extend_from_slice(&[63 << 2 | 2, distance as u8, 0]);
            assert_eq!(decompress(&stored), Some(value), "{distance}");
        }
    }
}
