//! The payload of FUNCTION DUMP and RESTORE: the sources of libraries, encoded as in a file, then the version of
//! the format and the checksum, as in a [`dump`].
//!
//! ```
//! use tierce_rdb::{WriterOptions, functions};
//!
//! let library = b"#!lua name=l\nredis.register_function('f', function() return 1 end)";
//! let payload = functions::encode(WriterOptions::default(), [&library[..]])?;
//! let libraries: Result<Vec<_>, _> = functions::decode(&payload, 1 << 20)?.collect();
//! assert_eq!(libraries?, [library]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::dump::{self, PayloadError};
use crate::error::{Error, Result};
use crate::format::opcode;
use crate::input::{Input, Summing};
use crate::output::{Output, Settings};
use crate::writer::WriterOptions;

/// Reason why a library cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionsError {
    /// An item is not a library.
    #[error("the payload has an item of type {code}, which is no library")]
    NotALibrary {
        /// Type of the item.
        code: u8,
    },
    /// A function in the format of release candidates of Redis 7.0.
    #[error("the payload has a function of a release candidate of Redis 7.0")]
    Unreleased,
    /// A library is damaged despite the checksum.
    #[error(transparent)]
    Damaged(#[from] Error),
    /// The libraries exceed the caller's limit.
    #[error("the payload has libraries of more than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
}

/// Returns the payload of libraries with these sources. The option `checksum` has no effect.
///
/// # Errors
/// Fails if the version cannot be written.
pub fn encode<'a>(
    options: WriterOptions,
    libraries: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<u8>> {
    let settings = Settings { checksum: false, ..options.settings()? };
    let mut output = Output::new(Vec::new(), settings);
    for library in libraries {
        output.put(&[opcode::FUNCTION])?;
        output.string(library)?;
    }
    dump::seal(output)
}

/// Iterator over the sources of the libraries in a payload.
#[derive(Debug)]
pub struct Libraries<'a> {
    input: Input<&'a [u8]>,
    bytes_max: usize,
    bytes_left: usize,
}

/// Decodes a payload. Its libraries may have `bytes_max` bytes in total.
///
/// # Errors
/// Fails if the version or the checksum is wrong.
pub fn decode(payload: &[u8], bytes_max: usize) -> Result<Libraries<'_>, PayloadError> {
    let body = dump::unseal(payload)?;
    let input = Input::with_buffer(body, Summing::Off, body.len());
    Ok(Libraries { input, bytes_max, bytes_left: bytes_max })
}

impl Libraries<'_> {
    fn read(&mut self) -> Result<Option<Vec<u8>>, FunctionsError> {
        if self.input.at_end()? {
            return Ok(None);
        }
        match self.input.byte("a library")? {
            opcode::FUNCTION => {}
            opcode::FUNCTION_UNRELEASED => return Err(FunctionsError::Unreleased),
            code => return Err(FunctionsError::NotALibrary { code }),
        }
        let library = self.input.owned_string("a library of functions")?;
        let Self { bytes_max, bytes_left, .. } = self;
        let left = bytes_left.checked_sub(library.len());
        *bytes_left = left.ok_or(FunctionsError::TooLarge { bytes_max: *bytes_max })?;
        Ok(Some(library))
    }
}

/// After an error, the iterator must not be used any more.
impl Iterator for Libraries<'_> {
    type Item = Result<Vec<u8>, FunctionsError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: &[u8] = b"#!lua name=l\nredis.register_function('f', function() return 1 end)";

    #[test]
    fn none_is_a_payload_as_well() {
        let payload = encode(WriterOptions::default(), []).unwrap();
        assert_eq!(payload.len(), 10);
        assert!(decode(&payload, 0).unwrap().next().is_none());
    }

    #[test]
    fn what_is_wrong_is_told_apart() {
        let payload = |body: &[u8]| {
            let mut output = Output::new(Vec::new(), WriterOptions::default().settings().unwrap());
            output.put(body).unwrap();
            let payload = dump::seal(output).unwrap();
            decode(&payload, 100).unwrap().next().unwrap()
        };
        assert!(matches!(payload(b"\x00\x01a"), Err(FunctionsError::NotALibrary { code: 0 })));
        assert!(matches!(payload(b"\xf6\x01a"), Err(FunctionsError::Unreleased)));
        assert!(matches!(payload(b"\xf5\x02a"), Err(FunctionsError::Damaged(_))));
        assert!(matches!(payload(b"\xf5"), Err(FunctionsError::Damaged(_))));
        let mut whole = encode(WriterOptions::default(), [LIBRARY]).unwrap();
        let too_large = decode(&whole, 9).unwrap().next().unwrap();
        assert!(matches!(too_large, Err(FunctionsError::TooLarge { bytes_max: 9 })));
        *whole.last_mut().unwrap() ^= 1;
        assert!(matches!(decode(&whole, 100), Err(PayloadError::Checksum { .. })));
    }
}
