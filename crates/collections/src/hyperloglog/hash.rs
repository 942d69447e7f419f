//! Maps an element to a register.

use super::{REGISTER_BITS, REGISTERS};

/// Seed of the hash in Redis. It is part of the format: PFMERGE combines strings.
const SEED: u64 = 0xadc8_3b19;

/// Register and value of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Observation {
    pub(super) register: usize,
    /// One more than the length of the run of zeros in its hash, from 1 to 51.
    pub(super) value: u8,
}

pub(super) fn observe(element: &[u8]) -> Observation {
    let hash = murmur64a(element, SEED);
    let register = hash as usize & (REGISTERS - 1);
    // A one after the last bit ends the longest run.
    let rest = hash >> REGISTER_BITS | 1 << (u64::BITS - REGISTER_BITS);
    Observation { register, value: rest.trailing_zeros() as u8 + 1 }
}

/// Computes MurmurHash64A by Austin Appleby, on little-endian words.
fn murmur64a(bytes: &[u8], seed: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        word = word.wrapping_mul(MULTIPLIER);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}
