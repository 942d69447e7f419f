//! Comparison of names, which are short.

/// Returns true if two byte strings are equal. For the usual lengths of names it is a few loads
/// instead of a call.
///
/// ```
/// use tierce_collections::same_bytes;
/// assert!(same_bytes(b"element:000000000001", b"element:000000000001"));
/// assert!(!same_bytes(b"element:000000000001", b"element:000000000002"));
/// ```
#[inline]
pub fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    // Two words that overlap if the length is less than twice their size.
    match a.len() {
        4..=7 => a.first_chunk::<4>() == b.first_chunk() && a.last_chunk::<4>() == b.last_chunk(),
        8..=16 => a.first_chunk::<8>() == b.first_chunk() && a.last_chunk::<8>() == b.last_chunk(),
        17..=32 => {
            a.first_chunk::<16>() == b.first_chunk() && a.last_chunk::<16>() == b.last_chunk()
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_at_any_place_counts() {
        let bytes: Vec<u8> = (0..40).collect();
        for len in 0..=bytes.len() {
            let one = &bytes[..len];
            let mut same = [one, b"."].concat();
            same.truncate(len);
            assert!(same_bytes(one, &same));
            for at in 0..len {
                let mut other = same.clone();
                other[at] ^= 1;
                assert!(!same_bytes(one, &other), "{at} of {len}");
            }
            assert!(!same_bytes(one, &[one, b"x"].concat()));
        }
    }
}
