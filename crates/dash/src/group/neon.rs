//! A group as one NEON register.

use super::Group;
use core::arch::aarch64::{
    vaddv_u8, vandq_u8, vceqq_u8, vdupq_n_u8, vget_high_u8, vget_low_u8, vld1q_u8,
};

/// Bit that each byte contributes to its half of the result.
const WEIGHTS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// Returns a mask whose bit `i` is set exactly if byte `i` of `group` equals `byte`.
///
/// NEON has no "move mask". Equal bytes are all ones, so masking each with its own weight and
/// adding up each half gives the two bytes of the result.
#[inline(always)]
pub(crate) fn match_byte(group: &Group, byte: u8) -> u16 {
    // SAFETY: NEON is part of every aarch64 processor this crate is built for. Both loads read 16
    // bytes behind references to 16 bytes; `vld1q_u8` requires no more than byte alignment.
    unsafe {
        let bytes = vld1q_u8(group.0.as_ptr());
        let equal = vceqq_u8(bytes, vdupq_n_u8(byte));
        let weighted = vandq_u8(equal, vld1q_u8(WEIGHTS.as_ptr()));
        let low = vaddv_u8(vget_low_u8(weighted));
        let high = vaddv_u8(vget_high_u8(weighted));
        u16::from_le_bytes([low, high])
    }
}
