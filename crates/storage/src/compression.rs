//! Compression of values, chosen per store, recorded per record.
//!
//! A value is stored compressed only if that makes it shorter. The option of a store applies to new records
//! only; each record names its own method.
//!
//! | id | method | stored bytes |
//! |---|---|---|
//! | 0 | none | the value |
//! | 1 | snappy | raw snappy, which begins with the length |
//! | 2 | lz4 | u32 little-endian length, LZ4 block |
//! | 3 | zstd | u32 little-endian length, Zstandard frame (feature `zstd`) |

use crate::VALUE_LEN_MAX;
use crate::error::Error;
use std::path::Path;

/// Method by which values are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Compression {
    /// Values are stored as they are.
    None,
    /// Snappy. The default: on values of 100 bytes as fast as LZ4 and 8 % smaller on disk, since
    /// its length takes fewer bytes.
    #[default]
    Snappy,
    /// LZ4 blocks.
    Lz4,
    /// Zstandard at its fastest level.
    #[cfg(feature = "zstd")]
    Zstd,
}

/// Minimum length of a value to be compressed; shorter ones hardly ever shrink.
const COMPRESS_LEN_MIN: usize = 32;

/// Encodes a value for a record: the method's id and the bytes.
#[inline]
pub fn compress<'a>(method: Compression, value: &'a [u8], out: &'a mut Vec<u8>) -> (u8, &'a [u8]) {
    if method == Compression::None { (0, value) } else { try_to_compress(method, value, out) }
}

fn try_to_compress<'a>(
    method: Compression,
    value: &'a [u8],
    out: &'a mut Vec<u8>,
) -> (u8, &'a [u8]) {
    if value.len() < COMPRESS_LEN_MIN {
        return (0, value);
    }
    out.clear();
    let id = match method {
        Compression::None => return (0, value),
        Compression::Snappy => {
            out.resize(snap::raw::max_compress_len(value.len()), 0);
            let Ok(len) = snap::raw::Encoder::new().compress(value, out) else {
                return (0, value);
            };
            out.truncate(len);
            1
        }
        Compression::Lz4 => {
            out.resize(4 + lz4_flex::block::get_maximum_output_size(value.len()), 0);
            out[..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
            let Ok(len) = lz4_flex::block::compress_into(value, &mut out[4..]) else {
                return (0, value);
            };
            out.truncate(4 + len);
            2
        }
        #[cfg(feature = "zstd")]
        Compression::Zstd => {
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            let Ok(bytes) = zstd::bulk::compress(value, 1) else { return (0, value) };
            out.extend_from_slice(&bytes);
            3
        }
    };
    if out.len() < value.len() { (id, out) } else { (0, value) }
}

/// Maximum expansion of a byte: snappy copies 64 bytes by an element of 3, LZ4 lengthens a match by 255 with
/// each byte.
const LENGTHENING_MAX: usize = 256;
/// For Zstandard, which repeats a byte for a whole block of 128 KiB with 4 bytes.
#[cfg(feature = "zstd")]
const LENGTHENING_MAX_ZSTD: usize = 128 << 10;

/// Reason why stored bytes could not be decompressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecompressError {
    /// This build does not know the method.
    Unsupported,
    /// The method cannot have produced the bytes.
    Damaged,
}

impl DecompressError {
    /// Returns the error for a record with this method at an offset.
    pub fn at(self, id: u8, path: &Path, offset: u64) -> Error {
        match self {
            DecompressError::Unsupported => Error::UnsupportedCompression { id },
            DecompressError::Damaged => Error::corrupt(path, offset, "value does not decompress"),
        }
    }
}

/// Reverses [`compress`] for methods other than 0, whose bytes are the value already.
pub fn decompress(id: u8, stored: &[u8]) -> Result<Vec<u8>, DecompressError> {
    let mut value = Vec::new();
    decompress_into(id, stored, &mut value)?;
    Ok(value)
}

/// Decompresses as [`decompress`] does and appends to `out`. After an error, a part may have been appended.
pub fn decompress_into(id: u8, stored: &[u8], out: &mut Vec<u8>) -> Result<(), DecompressError> {
    let start = out.len();
    match id {
        1 => {
            let len = snap::raw::decompress_len(stored).map_err(|_| DecompressError::Damaged)?;
            check_len(len, stored, LENGTHENING_MAX)?;
            out.resize(start + len, 0);
            let done = snap::raw::Decoder::new().decompress(stored, &mut out[start..]);
            exactly(done.map_err(|_| DecompressError::Damaged)?, len)
        }
        2 => {
            let (len, block) = split_len(stored, LENGTHENING_MAX)?;
            out.resize(start + len, 0);
            let done = lz4_flex::block::decompress_into(block, &mut out[start..]);
            exactly(done.map_err(|_| DecompressError::Damaged)?, len)
        }
        #[cfg(feature = "zstd")]
        3 => {
            let (len, frame) = split_len(stored, LENGTHENING_MAX_ZSTD)?;
            let value = zstd::bulk::decompress(frame, len).map_err(|_| DecompressError::Damaged)?;
            out.extend_from_slice(&value);
            exactly(value.len(), len)
        }
        _ => Err(DecompressError::Unsupported),
    }
}

fn split_len(stored: &[u8], lengthening_max: usize) -> Result<(usize, &[u8]), DecompressError> {
    let (len, rest) = stored.split_first_chunk().ok_or(DecompressError::Damaged)?;
    let len = u32::from_le_bytes(*len) as usize;
    check_len(len, rest, lengthening_max)?;
    Ok((len, rest))
}

/// Limits the memory that a damaged length can request to the maximum expansion of the present bytes.
fn check_len(len: usize, stored: &[u8], lengthening_max: usize) -> Result<(), DecompressError> {
    let possible = stored.len().saturating_mul(lengthening_max).min(VALUE_LEN_MAX);
    if len <= possible { Ok(()) } else { Err(DecompressError::Damaged) }
}

fn exactly(found: usize, len: usize) -> Result<(), DecompressError> {
    if found == len { Ok(()) } else { Err(DecompressError::Damaged) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods() -> Vec<Compression> {
        vec![
            Compression::Snappy,
            Compression::Lz4,
            #[cfg(feature = "zstd")]
            Compression::Zstd,
        ]
    }

    #[test]
    fn compressible_values_shrink_and_come_back() {
        let value = b"the same again and again, ".repeat(100);
        for method in methods() {
            let mut out = Vec::new();
            let (id, stored) = compress(method, &value, &mut out);
            assert!(id != 0 && stored.len() < value.len() / 4, "{method:?}");
            assert_eq!(decompress(id, stored).unwrap(), value);
        }
    }

    #[test]
    fn the_most_compressible_value_comes_back_and_memory_follows_what_is_stored() {
        let value = vec![b'z'; 8 << 20];
        for method in methods() {
            let mut out = Vec::new();
            let (id, stored) = compress(method, &value, &mut out);
            assert_eq!(decompress(id, stored).unwrap(), value, "{method:?}");
        }
        // Declared lengths of 512 MiB with almost no data are refused before anything is allocated.
        let lie = (VALUE_LEN_MAX as u32).to_le_bytes();
        assert_eq!(decompress(2, &[&lie[..], b"x"].concat()), Err(DecompressError::Damaged));
        assert_eq!(decompress(1, &[0x80, 0x80, 0x80, 0x80, 2, 1]), Err(DecompressError::Damaged));
    }

    #[test]
    fn short_and_random_values_stay_as_they_are() {
        let random: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(i) ^ (i >> 3)) as u8).collect();
        let noise: Vec<u8> = random
            .iter()
            .scan(7u64, |s, &b| {
                *s = s.wrapping_mul(6364136223846793005).wrapping_add(u64::from(b) + 1);
                Some((*s >> 56) as u8)
            })
            .collect();
        for method in methods() {
            let mut out = Vec::new();
            assert_eq!(compress(method, b"short", &mut out), (0, &b"short"[..]));
            assert_eq!(compress(method, &noise, &mut out).0, 0);
        }
    }

    #[test]
    fn cut_and_changed_bytes_are_refused_or_harmless() {
        let value = b"abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc".to_vec();
        for method in methods() {
            let mut out = Vec::new();
            let (id, stored) = compress(method, &value, &mut out);
            let stored = stored.to_vec();
            for cut in 0..stored.len() {
                let _: Result<_, _> = decompress(id, &stored[..cut]);
            }
            for bit in 0..stored.len() * 8 {
                let mut changed = stored.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                if let Ok(value) = decompress(id, &changed) {
                    assert!(value.len() <= VALUE_LEN_MAX);
                }
            }
        }
        assert_eq!(decompress(77, b"x"), Err(DecompressError::Unsupported));
    }
}
