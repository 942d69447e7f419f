//! HyperLogLog: an estimate of the number of distinct elements, in at most 12 KiB.
//!
//! The counter is a string, byte-compatible with Redis, so it can be read, set, saved and loaded like any other.
//! An element's hash selects one of 16384 registers (`hash.rs`); the register keeps the longest run of zeros
//! any hash has shown there. `estimate.rs` computes the estimate from all registers.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | `HYLL` |
//! | 4 | 1 | encoding: 0 dense, 1 sparse |
//! | 5 | 3 | zero |
//! | 8 | 8 | the estimate, little-endian; stale if its highest bit is set |
//! | 16 | | registers: `dense.rs`, `sparse.rs` |
//!
//! Any client can SET these bytes: any malformed byte is an error.

mod dense;
mod estimate;
mod hash;
mod sparse;
#[cfg(test)]
mod tests;

pub use self::dense::DENSE_LEN;
use self::hash::{Observation, observe};

/// Number of registers.
pub const REGISTERS: usize = 1 << REGISTER_BITS;
/// Bits of a hash that select a register.
const REGISTER_BITS: u32 = 14;
/// Upper bound of a register's value: the rest of a hash has fifty bits.
const VALUE_MAX: u8 = 64 - REGISTER_BITS as u8 + 1;

const HEADER_LEN: usize = 16;
const MAGIC: &[u8] = b"HYLL";
const ENCODING_AT: usize = 4;
const ESTIMATE_AT: usize = 8;
/// Index of the highest byte of the estimate, which says if it is outdated.
const STALE_AT: usize = 15;
const STALE: u8 = 0x80;

/// Storage form of the registers in the string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Six bits each.
    Dense,
    /// Runs of equal registers.
    Sparse,
}

/// Error in a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// It is not a HyperLogLog.
    NotOne,
    /// It begins like a HyperLogLog, but is malformed.
    Corrupt,
}

/// A HyperLogLog in a string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HyperLogLog {
    bytes: Vec<u8>,
}

/// All registers.
pub type Registers = [u8; REGISTERS];

impl HyperLogLog {
    /// Creates an empty one, sparse.
    #[expect(clippy::new_without_default, reason = "no caller needs a default")]
    pub fn new() -> Self {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = 1;
        sparse::put_zeros(&mut bytes, REGISTERS);
        Self { bytes }
    }

    /// Takes the HyperLogLog in a string.
    ///
    /// # Errors
    ///
    /// If the string does not begin like one, or does not have the length of a dense one.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        check(&bytes)?;
        Ok(Self { bytes })
    }

    /// Returns the string.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the storage form of its registers.
    pub fn encoding(&self) -> Encoding {
        encoding(&self.bytes)
    }

    /// Adds an element. Returns true if a register has changed. A sparse string that would exceed `sparse_len_max`
    /// becomes dense.
    ///
    /// # Errors
    ///
    /// If the registers are malformed.
    pub fn add(&mut self, element: &[u8], sparse_len_max: usize) -> Result<bool, Error> {
        let Observation { register, value } = observe(element);
        let changed = self.raise(register, value, sparse_len_max)?;
        if changed {
            self.invalidate();
        }
        Ok(changed)
    }

    /// Sets a register if it is lower.
    fn raise(&mut self, register: usize, value: u8, sparse_len_max: usize) -> Result<bool, Error> {
        if self.encoding() == Encoding::Sparse {
            match sparse::raise(&mut self.bytes, register, value, sparse_len_max)? {
                sparse::Raised::Done(changed) => return Ok(changed),
                sparse::Raised::TooLong => self.make_dense()?,
            }
        }
        Ok(dense::raise(&mut self.bytes[HEADER_LEN..], register, value))
    }

    /// Converts to the dense form.
    ///
    /// # Errors
    ///
    /// If they are malformed.
    pub fn make_dense(&mut self) -> Result<(), Error> {
        if self.encoding() == Encoding::Dense {
            return Ok(());
        }
        let mut registers = [0; REGISTERS];
        raise_all(&self.bytes, &mut registers)?;
        let mut bytes = vec![0; DENSE_LEN];
        bytes[..HEADER_LEN].copy_from_slice(&self.bytes[..HEADER_LEN]);
        bytes[ENCODING_AT] = 0;
        dense::write(&mut bytes[HEADER_LEN..], &registers);
        self.bytes = bytes;
        Ok(())
    }

    /// Raises registers to those of another HyperLogLog.
    ///
    /// # Errors
    ///
    /// If its own registers are malformed.
    pub fn merge(&mut self, other: &Registers, sparse_len_max: usize) -> Result<(), Error> {
        for (register, value) in other.iter().enumerate() {
            if *value != 0 {
                self.raise(register, *value, sparse_len_max)?;
            }
        }
        self.invalidate();
        Ok(())
    }

    /// Marks the estimate in the string as outdated.
    pub fn invalidate(&mut self) {
        self.bytes[STALE_AT] |= STALE;
    }

    /// Returns the estimate that the string holds.
    pub fn cached(&self) -> Option<u64> {
        cached(&self.bytes)
    }

    /// Returns the approximate number of distinct elements. Stores the estimate in the string.
    ///
    /// # Errors
    ///
    /// If the registers are malformed.
    pub fn count(&mut self) -> Result<u64, Error> {
        if let Some(count) = self.cached() {
            return Ok(count);
        }
        let mut registers = [0; REGISTERS];
        raise_all(&self.bytes, &mut registers)?;
        let count = count(&registers);
        self.bytes[ESTIMATE_AT..HEADER_LEN].copy_from_slice(&count.to_le_bytes());
        Ok(count)
    }
}

/// Checks that a string begins like a HyperLogLog, and has the right length if it is dense.
///
/// # Errors
///
/// If it does not.
pub fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < HEADER_LEN || !bytes.starts_with(MAGIC) {
        return Err(Error::NotOne);
    }
    match bytes[ENCODING_AT] {
        0 if bytes.len() == DENSE_LEN => Ok(()),
        1 => Ok(()),
        _ => Err(Error::NotOne),
    }
}

/// Returns the encoding of a string that passed [`check`].
pub fn encoding(bytes: &[u8]) -> Encoding {
    if bytes[ENCODING_AT] == 0 { Encoding::Dense } else { Encoding::Sparse }
}

/// Returns true if an element would change a register of a string that passed [`check`]. Takes constant time if it is
/// dense.
///
/// # Errors
///
/// If the registers are malformed.
pub fn would_change(bytes: &[u8], element: &[u8]) -> Result<bool, Error> {
    let Observation { register, value } = observe(element);
    let registers = &bytes[HEADER_LEN..];
    let present = match encoding(bytes) {
        Encoding::Dense => dense::get(registers, register),
        Encoding::Sparse => sparse::get(registers, register)?,
    };
    Ok(present < value)
}

/// Returns the estimate in a string that passed [`check`], unless it is outdated.
pub fn cached(bytes: &[u8]) -> Option<u64> {
    let estimate = bytes[ESTIMATE_AT..HEADER_LEN].try_into().expect("eight bytes");
    (bytes[STALE_AT] & STALE == 0).then_some(u64::from_le_bytes(estimate))
}

/// Raises registers to those in a string that passed [`check`].
///
/// # Errors
///
/// If the registers are malformed.
pub fn raise_all(bytes: &[u8], registers: &mut Registers) -> Result<(), Error> {
    match encoding(bytes) {
        Encoding::Dense => {
            dense::raise_all(&bytes[HEADER_LEN..], registers);
            Ok(())
        }
        Encoding::Sparse => sparse::raise_all(&bytes[HEADER_LEN..], registers),
    }
}

/// Raises the register of an element.
pub fn raise(registers: &mut Registers, element: &[u8]) {
    let Observation { register, value } = observe(element);
    registers[register] = registers[register].max(value);
}

/// Returns the approximate number of distinct elements behind these registers.
pub fn count(registers: &Registers) -> u64 {
    let mut histogram = [0; estimate::VALUES];
    registers.iter().for_each(|value| histogram[usize::from(*value)] += 1);
    estimate::estimate(&histogram)
}

/// Describes the runs of a sparse string that passed [`check`]; `None` for a dense one.
///
/// # Errors
///
/// If the registers are malformed.
pub fn describe_sparse(bytes: &[u8]) -> Result<Option<String>, Error> {
    match encoding(bytes) {
        Encoding::Dense => Ok(None),
        Encoding::Sparse => sparse::describe(&bytes[HEADER_LEN..]).map(Some),
    }
}
