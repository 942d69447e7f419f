//! Writes an RDB file, from the header to the checksum.
//!
//! [`ValueWriter`] writes collections element by element, so that none has to be in memory as a whole.

use std::io::Write;

use crate::encode::ValueWriter;
use crate::error::{Error, Result};
use crate::format::{MAGIC, VERSION_MAX, VERSION_REDIS_7_0, VERSION_WRITTEN_MIN, opcode};
use crate::output::{Output, Settings};
use crate::value::Attributes;

/// Options of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// Version of the format, 9 to 12. Each version of Redis reads its own and all lower ones.
    pub version: u16,
    /// Enables compression of strings, as the directive `rdbcompression` does.
    pub compression: bool,
    /// Enables the checksum, as the directive `rdbchecksum` does.
    pub checksum: bool,
    /// If true, function libraries and field deadlines that the version does not support are dropped. Otherwise
    /// they are an error.
    pub leave_out_unknown: bool,
}

impl Default for WriterOptions {
    /// Options for files that Redis 7.0 and all later versions load.
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

/// Writes an RDB file. Nothing checks that keys and members of sets are unique.
#[derive(Debug)]
pub struct Writer<W> {
    output: Output<W>,
}

impl<W: Write> Writer<W> {
    /// Begins a file with its header. The writer need not be buffered.
    ///
    /// # Errors
    /// Fails if the version cannot be written, or if writing fails.
    pub fn new(writer: W, options: WriterOptions) -> Result<Self> {
        let mut output = Output::new(writer, options.settings()?);
        output.put(MAGIC)?;
        output.put(format!("{:04}", options.version).as_bytes())?;
        Ok(Writer { output })
    }

    /// Returns the present length of the file.
    pub fn offset(&self) -> u64 {
        self.output.offset()
    }

    /// Writes an auxiliary field about the file. Redis reads those with the names that it writes itself, and
    /// ignores all others.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        self.output.put(&[opcode::AUX])?;
        self.output.string(name)?;
        self.output.string(value)
    }

    /// Selects the database of the following keys.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn select_db(&mut self, db: u64) -> Result<()> {
        self.output.put(&[opcode::SELECT_DB])?;
        self.output.length(db)
    }

    /// Writes how many keys the database has and how many of them expire; both may be estimates.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn resize_db(&mut self, keys: u64, expiring: u64) -> Result<()> {
        self.output.put(&[opcode::RESIZE_DB])?;
        self.output.length(keys)?;
        self.output.length(expiring)
    }

    /// Writes the source of a library of functions.
    ///
    /// # Errors
    /// Fails if writing fails, or if the version has no functions.
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

    /// Begins a key. The returned writer writes it together with its value.
    pub fn entry<'a>(
        &'a mut self,
        key: &'a [u8],
        attributes: &'a Attributes,
    ) -> ValueWriter<'a, W> {
        ValueWriter::new(&mut self.output, Some((key, attributes)))
    }

    /// Ends the file with its checksum, and returns the underlying writer, which is neither flushed nor synced.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn finish(mut self) -> Result<W> {
        self.output.put(&[opcode::END])?;
        let sum = self.output.flush()?;
        self.output.put(&sum.to_le_bytes())?;
        self.output.flush()?;
        Ok(self.output.into_writer())
    }
}
