//! From values to bytes, for files and DUMP payloads alike.
//!
//! Collections are written element by element in the plain forms, which every version of Redis reads.

mod collection;
mod stream;

use std::io::Write;

pub use self::collection::CollectionWriter;

use crate::error::{Error, Result};
use crate::format::{Encoding, VERSION_REDIS_7_0, VERSION_REDIS_7_2, opcode};
use crate::output::Output;
use crate::value::{Attributes, Stream};

/// Writes one value, and before it what belongs there. Each method writes all of it.
///
/// Nothing is checked that takes memory: members of sets and fields of hashes must be different from
/// each other, and scores must be numbers, or Redis refuses the file.
#[derive(Debug)]
#[must_use = "the key is written together with its value"]
pub struct ValueWriter<'a, W> {
    pub(crate) output: &'a mut Output<W>,
    /// A value in a file has a key, one in a DUMP payload has none.
    key: Option<(&'a [u8], &'a Attributes)>,
}

impl<'a, W: Write> ValueWriter<'a, W> {
    pub(crate) fn new(output: &'a mut Output<W>, key: Option<(&'a [u8], &'a Attributes)>) -> Self {
        ValueWriter { output, key }
    }

    /// Writes what is before a value.
    pub(crate) fn begin(&mut self, encoding: Encoding) -> Result<()> {
        let output = &mut *self.output;
        let Some((key, attributes)) = self.key else {
            return output.put(&[encoding.code()]);
        };
        if let Some(ms) = attributes.expiry_ms {
            // The format has it with a sign.
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

    fn need_version(&self, what: &'static str, needed: u16) -> Result<()> {
        let version = self.output.settings.version;
        if version < needed { Err(Error::NotInVersion { what, needed, version }) } else { Ok(()) }
    }

    /// A string.
    ///
    /// # Errors
    /// If writing fails.
    pub fn string(mut self, string: &[u8]) -> Result<()> {
        self.begin(Encoding::String)?;
        self.output.string(string)
    }

    /// A list of `len` elements, from head to tail.
    ///
    /// # Errors
    /// If writing fails, or there are not `len` elements.
    pub fn list<T: AsRef<[u8]>>(
        self,
        len: u64,
        elements: impl IntoIterator<Item = T>,
    ) -> Result<()> {
        let mut writer = self.begin_list(len)?;
        elements.into_iter().try_for_each(|element| writer.element(element.as_ref()))?;
        writer.finish()
    }

    /// A set of `len` members.
    ///
    /// # Errors
    /// If writing fails, or there are not `len` members.
    pub fn set<T: AsRef<[u8]>>(self, len: u64, members: impl IntoIterator<Item = T>) -> Result<()> {
        let mut writer = self.begin_set(len)?;
        members.into_iter().try_for_each(|member| writer.element(member.as_ref()))?;
        writer.finish()
    }

    /// A sorted set of `len` members with their scores. Redis loads it fastest from the highest to
    /// the lowest.
    ///
    /// # Errors
    /// If writing fails, or there are not `len` members.
    pub fn sorted_set<T: AsRef<[u8]>>(
        self,
        len: u64,
        members: impl IntoIterator<Item = (T, f64)>,
    ) -> Result<()> {
        let mut writer = self.begin_sorted_set(len)?;
        for (member, score) in members {
            writer.scored(member.as_ref(), score)?;
        }
        writer.finish()
    }

    /// A hash of `len` fields, names with values.
    ///
    /// # Errors
    /// If writing fails, or there are not `len` fields.
    pub fn hash<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        self,
        len: u64,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Result<()> {
        let mut writer = self.begin_hash(len, None)?;
        for (name, value) in fields {
            writer.field(name.as_ref(), value.as_ref(), None)?;
        }
        writer.finish()
    }

    /// A hash of `len` fields, some of which expire: names, values, and deadlines in milliseconds
    /// since 1970, of which `earliest_ms` is the lowest. Needs version 12, which Redis 7.4 reads.
    ///
    /// # Errors
    /// If the version has no such hashes, writing fails, or there are not `len` fields.
    pub fn hash_expiring<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        self,
        len: u64,
        earliest_ms: u64,
        fields: impl IntoIterator<Item = (N, V, Option<u64>)>,
    ) -> Result<()> {
        let mut writer = self.begin_hash(len, Some(earliest_ms))?;
        for (name, value, expiry_ms) in fields {
            writer.field(name.as_ref(), value.as_ref(), expiry_ms)?;
        }
        writer.finish()
    }

    /// A stream. Versions below 10 do not keep all of its state, and those below 11 not when a
    /// consumer was active.
    ///
    /// # Errors
    /// If writing fails, or the entries that are kept together exceed 4 GiB.
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
