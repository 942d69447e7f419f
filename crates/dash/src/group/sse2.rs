//! A group as one SSE2 register.

use super::Group;
use core::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_set1_epi8,
};

/// Returns a mask whose bit `i` is set exactly if byte `i` of `group` equals `byte`.
#[inline(always)]
pub(crate) fn match_byte(group: &Group, byte: u8) -> u16 {
    // SAFETY: SSE2 is part of every x86-64 processor. The load reads the 16 bytes behind a
    // reference to `Group`, whose size is 16 and whose alignment is the 16 that it requires.
    unsafe {
        let bytes = _mm_load_si128(core::ptr::from_ref(group).cast::<__m128i>());
        let equal = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte.cast_signed()));
        // The mask has one bit for each of the 16 bytes; the upper half of the i32 is zero.
        _mm_movemask_epi8(equal) as u16
    }
}
