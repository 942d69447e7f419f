//! Sixteen bytes compared with one byte at once: the inner step of every lookup.
//!
//! Three implementations of one function, `match_byte(&Group, u8) -> u16`, where bit `i` of the
//! result is set if byte `i` is equal: `portable` is the specification, `sse2` and `neon` are used.
//! There is deliberately none for AVX2: a bucket has one header, a header is exactly one SSE2
//! register, and the second header that a lookup may need (the neighbour's) is 128 bytes further,
//! so that filling a 256-bit register would take two loads and an insert to save one compare. Every
//! x86-64 processor has SSE2, hence no run-time detection either.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod sse2;

#[cfg(target_arch = "aarch64")]
pub(crate) use neon::match_byte;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use portable::match_byte;
#[cfg(target_arch = "x86_64")]
pub(crate) use sse2::match_byte;

/// Bytes of a [`Group`].
pub(crate) const GROUP_WIDTH: usize = 16;

/// Sixteen bytes, aligned so that one aligned vector load fetches them.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Group(pub(crate) [u8; GROUP_WIDTH]);

const _: () = assert!(size_of::<Group>() == GROUP_WIDTH && align_of::<Group>() == GROUP_WIDTH);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    /// Every byte value at every place, once as the only match and once as the only mismatch.
    #[test]
    fn agrees_with_the_specification_on_every_byte_and_place() {
        let step = if cfg!(miri) { 37 } else { 1 };
        for byte in (0..=255u8).step_by(step) {
            for place in 0..GROUP_WIDTH {
                let mut lone = Group([byte.wrapping_add(1); GROUP_WIDTH]);
                lone.0[place] = byte;
                assert_eq!(match_byte(&lone, byte), 1 << place);
                assert_eq!(match_byte(&lone, byte), portable::match_byte(&lone, byte));
                let odd = byte.wrapping_add(1);
                assert_eq!(match_byte(&lone, odd), !(1 << place));
                assert_eq!(match_byte(&lone, odd), portable::match_byte(&lone, odd));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 20 } else { effort(2000) },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Few distinct values, so that groups with several matches are common.
        #[test]
        fn agrees_with_the_specification_on_random_groups(
            bytes in proptest::array::uniform16(0u8..4),
            byte in 0u8..5,
        ) {
            let group = Group(bytes);
            prop_assert_eq!(match_byte(&group, byte), portable::match_byte(&group, byte));
        }
    }
}
