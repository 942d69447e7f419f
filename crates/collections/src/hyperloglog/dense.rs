//! Packed registers of six bits, the lowest bits of a byte first.

use super::{HEADER_LEN, REGISTERS, Registers};

const BITS: usize = 6;
const MASK: u16 = (1 << BITS) - 1;

/// Length of a dense string.
pub const DENSE_LEN: usize = HEADER_LEN + REGISTERS * BITS / 8;

/// Returns the index of the bytes that contain a register, these bytes as one number, and the
/// shift.
fn window(bytes: &[u8], register: usize) -> (usize, u16, usize) {
    let (at, shift) = (register * BITS / 8, register * BITS % 8);
    let high = bytes.get(at + 1).copied().unwrap_or(0);
    (at, u16::from_le_bytes([bytes[at], high]), shift)
}

pub(super) fn get(bytes: &[u8], register: usize) -> u8 {
    let (_, window, shift) = window(bytes, register);
    (window >> shift & MASK) as u8
}

fn set(bytes: &mut [u8], register: usize, value: u8) {
    let (at, window, shift) = window(bytes, register);
    let [low, high] = (window & !(MASK << shift) | u16::from(value) << shift).to_le_bytes();
    bytes[at] = low;
    if let Some(byte) = bytes.get_mut(at + 1) {
        *byte = high;
    }
}

/// Sets a register if it is lower. Returns true if it was.
pub(super) fn raise(bytes: &mut [u8], register: usize, value: u8) -> bool {
    let is_lower = get(bytes, register) < value;
    if is_lower {
        set(bytes, register, value);
    }
    is_lower
}

pub(super) fn write(bytes: &mut [u8], registers: &Registers) {
    registers.iter().enumerate().for_each(|(register, value)| set(bytes, register, *value));
}

pub(super) fn raise_all(bytes: &[u8], registers: &mut Registers) {
    // Four registers are three bytes.
    for (bytes, registers) in bytes.chunks_exact(3).zip(registers.chunks_exact_mut(4)) {
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        for (at, register) in registers.iter_mut().enumerate() {
            *register = (*register).max((word >> (BITS * at)) as u8 & MASK as u8);
        }
    }
}
