//! Writes an RDB file, from the header to the checksum.
//!
//! [`ValueWriter`] writes values, and collections element by element, so that none has to be in memory whole.

use std::io::Write;

use crate::encode::ValueWriter;
use crate::error::{Error, Result};
use crate::format::{MAGIC, VERSION_MAX, VERSION_REDIS_7_0, VERSION_WRITTEN_MIN, opcode};
use crate::output::{Output, Settings};
use crate::value::Attributes;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// The version of the format, 9 to 12. Each version of Redis reads its own and all lower ones.
    pub version: u16,
    /// Whether to compress strings, as the directive `rdbcompression` has it.
    pub compression: bool,
    /// Whether to calculate a checksum, as the directive `rdbchecksum` has it.
    pub checksum: bool,
    /// What the version does not know is left out, libraries of functions and the deadlines of fields, and is no error.
    pub leave_out_unknown: bool,
}

impl Default for WriterOptions {
    /// What Redis 7.0 and all later versions load.
    fn default() -> Self {
        WriterOptions {
            version: VERSION_REDIS_7_0,
            compression: true,
            checksum: true,
            leave_out_unknown: false,
        }
    }
}

impl WriterOptions {
    pub(crate) fn settings(self) -> Result<Settings> {
        let WriterOptions { version, compression, checksum, leave_out_unknown } = self;
        if !(VERSION_WRITTEN_MIN..=VERSION_MAX).contains(&version) {
            let (min, max) = (VERSION_WRITTEN_MIN, VERSION_MAX);
            return Err(Error::Version { version: version.into(), min, max });
        }
        Ok(Settings { version, compression, checksum, leave_out_unknown })
    }
}

/// Writes an RDB file. Nothing in it checks that a key occurs once only, or a member of a set.
#[derive(Debug)]
pub struct Writer<W> {
    output: Output<W>,
}

impl<W: Write> Writer<W> {
    /// Begins a file with its header. The writer need not be buffered.
    ///
    /// # Errors
    /// If the version is none that can be written, or writing fails.
    pub fn new(writer: W, options: WriterOptions) -> Result<Self> {
        let mut output = Output::new(writer, options.settings()?);
        output.put(MAGIC)?;
        output.put(format!("{:04}", options.version).as_bytes())?;
        Ok(Writer { output })
    }

    /// How many bytes the file has so far.
    pub fn offset(&self) -> u64 {
        self.output.offset()
    }

    /// A remark about the file. Redis reads those with the names that it writes itself, and ignores
    /// all others.
    ///
    /// # Errors
    /// If writing fails.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        self.output.put(&[opcode::AUX])?;
        self.output.string(name)?;
        self.output.string(value)
    }

    /// The keys that follow belong to this database.
    ///
    /// # Errors
    /// If writing fails.
    pub fn select_db(&mut self, db: u64) -> Result<()> {
        self.output.put(&[opcode::SELECT_DB])?;
        self.output.length(db)
    }

    /// How many keys the database has and how many of them expire, or a guess.
    ///
    /// # Errors
    /// If writing fails.
    pub fn resize_db(&mut self, keys: u64, expiring: u64) -> Result<()> {
        self.output.put(&[opcode::RESIZE_DB])?;
        self.output.length(keys)?;
        self.output.length(expiring)
    }

    /// The source of a library of functions.
    ///
    /// # Errors
    /// If writing fails, or the version has no functions.
    pub fn function(&mut self, library: &[u8]) -> Result<()> {
        let Settings { version, leave_out_unknown, .. } = self.output.settings;
        if version < VERSION_REDIS_7_0 {
            if leave_out_unknown {
                return Ok(());
            }
            let (what, needed) = ("a library of functions", VERSION_REDIS_7_0);
            return Err(Error::NotInVersion { what, needed, version });
        }
        self.output.put(&[opcode::FUNCTION])?;
        self.output.string(library)
    }

    /// A key, whose value the result writes.
    pub fn entry<'a>(
        &'a mut self,
        key: &'a [u8],
        attributes: &'a Attributes,
    ) -> ValueWriter<'a, W> {
        ValueWriter::new(&mut self.output, Some((key, attributes)))
    }

    /// Ends the file with its checksum, and returns the underlying writer, which is neither flushed
    /// nor synced.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> Result<W> {
        self.output.put(&[opcode::END])?;
        let sum = self.output.flush()?;
        self.output.put(&sum.to_le_bytes())?;
        self.output.flush()?;
        Ok(self.output.into_writer())
    }
}
