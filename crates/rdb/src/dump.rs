//! The payload of DUMP and RESTORE: a value without its key, then the version of the format (2
//! bytes, little-endian) and the CRC-64 of everything before it (8 bytes).
//!
//! ```
//! use tierce_rdb::{WriterOptions, dump};
//!
//! let payload = dump::encode(WriterOptions::default(), |value| value.string(b"1982"))?;
//! assert_eq!(dump::Payload::parse(&payload)?.string()?, Some(b"1982".to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::crc64::crc64;
use crate::decode;
use crate::encode::ValueWriter;
use crate::error::{Error, Result};
use crate::format::{Encoding, Kind, VERSION_MAX};
use crate::input::{Input, Summing};
use crate::output::{Output, Settings};
use crate::value::ValuePart;
use crate::writer::WriterOptions;

/// Length of version and checksum.
const SEAL_LEN: usize = 10;

/// Returns the payload of the value that `write` writes. The option `checksum` has no effect.
///
/// # Errors
/// Fails if `write` or the writer fails.
pub fn encode(
    options: WriterOptions,
    write: impl FnOnce(ValueWriter<'_, Vec<u8>>) -> Result<()>,
) -> Result<Vec<u8>> {
    let settings = Settings { checksum: false, ..options.settings()? };
    let mut output = Output::new(Vec::new(), settings);
    write(ValueWriter::new(&mut output, None))?;
    seal(output)
}

/// Appends version and checksum to a payload.
pub(crate) fn seal(mut output: Output<Vec<u8>>) -> Result<Vec<u8>> {
    let version = output.settings.version;
    output.put(&version.to_le_bytes())?;
    output.flush()?;
    let mut payload = output.into_writer();
    let sum = crc64(0, &payload);
    payload.extend_from_slice(&sum.to_le_bytes());
    Ok(payload)
}

/// Checks version and checksum, and returns the bytes before them.
///
/// # Errors
/// Fails if one of them is wrong.
pub(crate) fn unseal(payload: &[u8]) -> Result<&[u8], PayloadError> {
    let too_short = PayloadError::TooShort { len: payload.len() };
    let Some((summed, stored)) = payload.split_last_chunk() else { return Err(too_short) };
    let Some((body, version)) = summed.split_last_chunk() else { return Err(too_short) };
    let version = u16::from_le_bytes(*version);
    if version > VERSION_MAX {
        return Err(PayloadError::Version { version, max: VERSION_MAX });
    }
    let (stored, computed) = (u64::from_le_bytes(*stored), crc64(0, summed));
    if stored != computed {
        return Err(PayloadError::Checksum { stored, computed });
    }
    Ok(body)
}

/// Reason why bytes are no valid payload. Redis reports the first three to a client as one: the
/// version or the checksum is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The payload is too short for version and checksum.
    #[error("a payload of {len} bytes is too short for version and checksum")]
    TooShort {
        /// Its length.
        len: usize,
    },
    /// The version is higher than the known ones.
    #[error("the payload has version {version}, at most {max} is known")]
    Version {
        /// The version in the payload.
        version: u16,
        /// The highest known.
        max: u16,
    },
    /// The checksum does not match.
    #[error("the payload says checksum {stored:016x}, its bytes have {computed:016x}")]
    Checksum {
        /// The checksum in the payload.
        stored: u64,
        /// The checksum of its bytes.
        computed: u64,
    },
    /// The first byte is no value type. Redis says: bad data format.
    #[error("the payload has a value of unknown type {code}")]
    UnknownType {
        /// The byte.
        code: u8,
    },
}

/// A payload with a valid version and checksum.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    encoding: Encoding,
    /// Bytes behind the type.
    body: &'a [u8],
}

impl<'a> Payload<'a> {
    /// Checks version, checksum and type.
    ///
    /// # Errors
    /// Fails if one of them is wrong.
    pub fn parse(payload: &'a [u8]) -> Result<Self, PayloadError> {
        if payload.len() <= SEAL_LEN {
            return Err(PayloadError::TooShort { len: payload.len() });
        }
        let value = unseal(payload)?;
        let (&code, body) = value.split_first().expect("it is longer than its end");
        let encoding = Encoding::from_code(code).ok_or(PayloadError::UnknownType { code })?;
        Ok(Payload { encoding, body })
    }

    /// Returns the kind of the value.
    pub fn kind(&self) -> Kind {
        self.encoding.kind()
    }

    /// Decodes the value and visits its parts. Offsets in errors count from the type, which is at
    /// offset 0.
    ///
    /// # Errors
    /// Fails if the value is damaged despite its checksum, if other bytes follow it, or if `visit`
    /// fails.
    pub fn visit<E: From<Error>>(
        &self,
        mut visit: impl FnMut(ValuePart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut input = self.input();
        decode::value(&mut input, self.encoding, &mut visit)?;
        Ok(expect_end(&mut input)?)
    }

    /// Decodes the value if it is a string, without an intermediate copy.
    ///
    /// # Errors
    /// Fails as [`visit`](Self::visit) does.
    pub fn string(&self) -> Result<Option<Vec<u8>>> {
        if self.encoding != Encoding::String {
            return Ok(None);
        }
        let mut input = self.input();
        let string = input.owned_string("a string")?;
        expect_end(&mut input).map(|()| Some(string))
    }

    fn input(&self) -> Input<&'a [u8]> {
        Input::with_buffer(self.body, Summing::Off, self.body.len()).beginning_at(1)
    }
}

fn expect_end(input: &mut Input<&[u8]>) -> Result<()> {
    if input.at_end()? { Ok(()) } else { Err(input.corrupt("the end of the value")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `SET k 1982` and `DUMP k` of redis-server 7.0.
    const OF_REDIS: &[u8] = b"\x00\xc1\xbe\x07\x0a\x00";

    fn of_redis() -> Vec<u8> {
        let sum = crc64(0, OF_REDIS);
        [OF_REDIS, &sum.to_le_bytes()].concat()
    }

    #[test]
    fn a_string_is_dumped_as_redis_does() {
        let payload = encode(WriterOptions::default(), |value| value.string(b"1982")).unwrap();
        assert_eq!(payload, of_redis());
    }

    #[test]
    fn what_is_wrong_is_told_apart() {
        let good = of_redis();
        let too_short = Payload::parse(&good[..10]).unwrap_err();
        assert!(matches!(too_short, PayloadError::TooShort { len: 10 }));
        let mut bad = good.clone();
        bad[1] ^= 1;
        assert!(matches!(Payload::parse(&bad).unwrap_err(), PayloadError::Checksum { .. }));
        let mut newer = good;
        newer[4] = 200;
        let error = Payload::parse(&newer).unwrap_err();
        assert!(matches!(error, PayloadError::Version { version: 200, max: VERSION_MAX }));
    }

    #[test]
    fn bytes_behind_the_value_are_an_error() {
        let mut payload = b"\x00\x01a!\x0a\x00".to_vec();
        let sum = crc64(0, &payload);
        payload.extend_from_slice(&sum.to_le_bytes());
        let error = Payload::parse(&payload).unwrap().string().unwrap_err();
        assert_eq!(error.to_string(), "damaged at offset 3: expected the end of the value");
    }
}
