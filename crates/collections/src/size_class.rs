//! The sizes that an allocator really returns.
//!
//! Memory accounting uses the allocator's sizes, not the requested ones, which would be off by a fifth. mimalloc
//! and jemalloc share the scheme that matters here: multiples of 16 up to 128 bytes, then four classes per
//! doubling. Entries are allocated with exactly these sizes, so the slack at the end of a class is usable: a value
//! that changes its length within the class is overwritten in place.

/// The smallest class; every allocation takes at least this much.
const SIZE_CLASS_MIN: usize = 16;

/// Up to here classes are the multiples of 16 bytes.
const LINEAR_MAX: usize = 128;

/// Returns the number of bytes the allocator takes for a request of `bytes`.
///
/// `size_class(0)` is 16 bytes. The function is monotone and idempotent.
///
/// ```
/// use tierce_collections::size_class;
/// assert_eq!([1, 16, 17, 119, 129, 1020].map(size_class), [16, 16, 32, 128, 160, 1024]);
/// ```
#[inline]
pub const fn size_class(bytes: usize) -> usize {
    if bytes <= LINEAR_MAX {
        let rounded = bytes.next_multiple_of(SIZE_CLASS_MIN);
        return if rounded == 0 { SIZE_CLASS_MIN } else { rounded };
    }
    // `bytes - 1` has its highest bit at `top`; a doubling `2^top .. 2^(top + 1)` is divided into four steps of
    // `2^(top - 2)`.
    let top = usize::BITS - 1 - (bytes - 1).leading_zeros();
    let step = 1usize << (top - 2);
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_allocators() {
        let expected = [
            16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768,
            896, 1024, 1280, 1536, 1792, 2048,
        ];
        let mut seen: Vec<usize> = (1..=2048).map(size_class).collect();
        seen.dedup();
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_class_holds_its_request_and_is_its_own_class() {
        let small = if cfg!(miri) { 700 } else { 70_000 };
        for bytes in (0..small).chain([1 << 20, (1 << 20) + 1, 512 << 20]) {
            let class = size_class(bytes);
            assert!(class >= bytes, "{bytes} does not fit into {class}");
            assert_eq!(size_class(class), class, "of {bytes}");
        }
    }
}
