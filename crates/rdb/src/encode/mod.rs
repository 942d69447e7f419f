//! Encodes values, for files and DUMP payloads alike.
//!
//! Collections are written element by element in the plain encodings, which every version of Redis reads.

mod collection;
mod stream;

use std::io::Write;

pub use self::collection::CollectionWriter;

use crate::error::Result;
use crate::format::{Encoding, VERSION_REDIS_7_0, VERSION_REDIS_7_2, opcode};
use crate::output::Output;
use crate::value::{Attributes, Stream};

/// Writes one value, preceded by its key and attributes in a file. A collection is written element by element.
///
/// Checks that would take memory are left to the caller: members of sets and fields of hashes must be distinct, and
/// scores must not be NaN. Otherwise Redis refuses the file.
#[derive(Debug)]
#[must_use = "the key is written together with its value"]
pub struct ValueWriter<'a, W> {
    pub(crate) output: &'a mut Output<W>,
    /// Key and attributes. A value in a file has them, a value in a DUMP payload has none.
    key: Option<(&'a [u8], &'a Attributes)>,
}

impl<'a, W: Write> ValueWriter<'a, W> {
    pub(crate) fn new(output: &'a mut Output<W>, key: Option<(&'a [u8], &'a Attributes)>) -> Self {
        ValueWriter { output, key }
    }

    /// Writes the bytes that precede a value.
    pub(crate) fn begin(&mut self, encoding: Encoding) -> Result<()> {
        let output = &mut *self.output;
        let Some((key, attributes)) = self.key else {
            return output.put(&[encoding.code()]);
        };
        if let Some(ms) = attributes.expiry_ms {
            // The format stores it as a signed number.
            let ms = ms.min(i64::MAX as u64);
            output.put(&[opcode::EXPIRY_MS])?;
            output.put(&ms.to_le_bytes())?;
        }
        if let Some(seconds) = attributes.idle_seconds {
            output.put(&[opcode::IDLE])?;
            output.length(seconds)?;
        }
        if let Some(frequency) = attributes.frequency {
            output.put(&[opcode::FREQUENCY, frequency])?;
        }
        output.put(&[encoding.code()])?;
        output.string(key)
    }

    /// Writes a string.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn string(mut self, string: &[u8]) -> Result<()> {
        self.begin(Encoding::String)?;
        self.output.string(string)
    }

    /// Writes a stream. Versions below 10 lose some of its state; versions below 11 lose the time at which a
    /// consumer was active.
    ///
    /// # Errors
    /// Fails if writing fails, or if the entries of one listpack exceed 4 GiB.
    pub fn stream(mut self, stream: &Stream) -> Result<()> {
        let encoding = match self.output.settings.version {
            VERSION_REDIS_7_2.. => Encoding::Stream3,
            VERSION_REDIS_7_0 => Encoding::Stream2,
            _ => Encoding::Stream,
        };
        self.begin(encoding)?;
        stream::write(self.output, encoding, stream)
    }
}
