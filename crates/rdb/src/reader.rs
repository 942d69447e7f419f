//! Reads an RDB file from beginning to end.
//!
//! The file is a sequence of [`Event`]s. The value of a key is not part of its event: the caller reads it next, in
//! parts, or skips it by taking the next event. So memory is bounded by the largest string, packed value or
//! consumer group, not by the largest collection.

use std::io::Read;

use crate::decode;
use crate::error::{Error, Result};
use crate::format::{Encoding, Kind, MAGIC, VERSION_CHECKSUM, VERSION_MAX, VERSION_MIN, opcode};
use crate::input::{Input, Summing};
use crate::value::{Attributes, ValuePart};

/// Next item in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An auxiliary field about the file, such as `redis-ver` or `ctime`.
    Aux {
        /// Name of the field.
        name: Vec<u8>,
        /// Value of the field.
        value: Vec<u8>,
    },
    /// The keys that follow belong to this database.
    SelectDb(u64),
    /// Number of keys of the database, to reserve memory for them. Not verified.
    ResizeDb {
        /// All keys.
        keys: u64,
        /// Keys that expire.
        expiring: u64,
    },
    /// Number of keys in a slot of a cluster. Not verified.
    SlotInfo {
        /// The slot.
        slot: u64,
        /// All keys in it.
        keys: u64,
        /// Keys that expire.
        expiring: u64,
    },
    /// A key. Its value can be read next.
    Entry(Entry),
    /// The source of a library of functions.
    Function(Vec<u8>),
    /// Data of a module, which were skipped.
    ModuleAux {
        /// Nine characters by which the module names its type.
        name: String,
    },
    /// The end of the file.
    End {
        /// State of the checksum.
        checksum: Checksum,
    },
}

/// A key and its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of its database.
    pub db: u64,
    /// The key.
    pub key: Vec<u8>,
    /// Encoding of its value.
    pub encoding: Encoding,
    /// Expiry and usage.
    pub attributes: Attributes,
}

impl Entry {
    /// Returns the kind of its value.
    pub fn kind(&self) -> Kind {
        self.encoding.kind()
    }
}

/// State of a file's checksum. A wrong checksum is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The checksum matches.
    Right,
    /// The writer of the file did not calculate one.
    Disabled,
    /// Files before version 5 have none.
    Absent,
}

/// Reads an RDB file.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    version: u16,
    db: u64,
    /// Encoding of the value at the input's offset, if there is one.
    value: Option<Encoding>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Begins with the header. The reader need not be buffered.
    ///
    /// # Errors
    /// Fails if this is no RDB file, or if its version is unknown.
    pub fn new(reader: R) -> Result<Self> {
        Self::on(Input::new(reader, Summing::On))
    }

    /// Does what [`Self::new`] does, on an input with peeked but no consumed bytes.
    pub(crate) fn on(mut input: Input<R>) -> Result<Self> {
        let header: [u8; 9] = input.array("the header of an RDB file")?;
        let digits = header.strip_prefix(MAGIC).and_then(|digits| {
            digits.iter().try_fold(0_u16, |version, digit| {
                digit.is_ascii_digit().then(|| version * 10 + u16::from(digit - b'0'))
            })
        });
        let expected = "REDIS and four digits at the beginning";
        let version = digits.ok_or(Error::Corrupt { offset: 0, expected })?;
        if !(VERSION_MIN..=VERSION_MAX).contains(&version) {
            let (min, max) = (VERSION_MIN, VERSION_MAX);
            return Err(Error::Version { version: version.into(), min, max });
        }
        Ok(Reader { input, version, db: 0, value: None, ended: false })
    }

    /// Returns the number of bytes read so far, for a progress bar.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Returns the next event; `None` after the end. Skips a value that was not read.
    ///
    /// # Errors
    /// Fails if the file is damaged or truncated, or cannot be read. Nothing can be read after that.
    pub fn next_event(&mut self) -> Result<Option<Event>> {
        if self.value.is_some() {
            self.skip_value()?;
        }
        if self.ended {
            return Ok(None);
        }
        let mut attributes = Attributes::default();
        loop {
            match self.input.byte("a type or the end")? {
                opcode::EXPIRY_SECONDS => {
                    let seconds = i32::from_le_bytes(self.input.array("an expiry in seconds")?);
                    let seconds = u64::try_from(seconds).unwrap_or(0);
                    attributes.expiry_ms = Some(seconds * 1000);
                }
                opcode::EXPIRY_MS => {
                    let ms = decode::time_ms(&mut self.input, "an expiry in milliseconds")?;
                    attributes.expiry_ms = Some(ms);
                }
                opcode::IDLE => {
                    attributes.idle_seconds = Some(self.input.length("an idle time")?);
                }
                opcode::FREQUENCY => {
                    attributes.frequency = Some(self.input.byte("a frequency")?);
                }
                code => match Encoding::from_code(code) {
                    Some(encoding) => return self.entry(encoding, attributes).map(Some),
                    None => return self.between_keys(code).map(Some),
                },
            }
        }
    }

    fn entry(&mut self, encoding: Encoding, attributes: Attributes) -> Result<Event> {
        let key = self.input.owned_string("a key")?;
        self.value = Some(encoding);
        Ok(Event::Entry(Entry { db: self.db, key, encoding, attributes }))
    }

    fn between_keys(&mut self, code: u8) -> Result<Event> {
        let input = &mut self.input;
        Ok(match code {
            opcode::AUX => Event::Aux {
                name: input.owned_string("the name of a remark")?,
                value: input.owned_string("the text of a remark")?,
            },
            opcode::SELECT_DB => {
                self.db = input.length("the number of a database")?;
                Event::SelectDb(self.db)
            }
            opcode::RESIZE_DB => Event::ResizeDb {
                keys: input.length("the number of keys")?,
                expiring: input.length("the number of expiring keys")?,
            },
            opcode::SLOT_INFO => Event::SlotInfo {
                slot: input.length("the number of a slot")?,
                keys: input.length("the number of keys")?,
                expiring: input.length("the number of expiring keys")?,
            },
            opcode::FUNCTION => Event::Function(input.owned_string("a library of functions")?),
            opcode::FUNCTION_UNRELEASED => {
                let what = "a function of a release candidate of Redis 7.0";
                return Err(Error::Unreleased { offset: input.offset() - 1, what });
            }
            opcode::MODULE_AUX => Event::ModuleAux { name: decode::skip_module_aux(input)? },
            opcode::END => self.end()?,
            code => return Err(Error::UnknownType { offset: input.offset() - 1, code }),
        })
    }

    fn end(&mut self) -> Result<Event> {
        self.ended = true;
        if self.version < VERSION_CHECKSUM {
            return Ok(Event::End { checksum: Checksum::Absent });
        }
        let computed = self.input.sum();
        let stored = u64::from_le_bytes(self.input.array("the checksum")?);
        let checksum = match stored {
            0 => Checksum::Disabled,
            stored if stored == computed => Checksum::Right,
            stored => {
                let offset = self.input.offset();
                return Err(Error::Checksum { offset, stored, computed });
            }
        };
        Ok(Event::End { checksum })
    }

    /// Reads the value of the latest key, and visits its parts.
    ///
    /// # Errors
    /// Fails if the value is damaged, or if `visit` fails: nothing can be read after that. Returns
    /// [`Error::Module`] if it belongs to a module; the next event can still be read.
    pub fn visit_value<E: From<Error>>(
        &mut self,
        mut visit: impl FnMut(ValuePart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let encoding = self.value.take().ok_or(Error::NoValue)?;
        decode::value(&mut self.input, encoding, &mut visit)
    }

    /// Skips the value of the latest key. It is checked as if it were read.
    ///
    /// # Errors
    /// Fails if the value is damaged.
    pub fn skip_value(&mut self) -> Result<()> {
        match self.visit_value(|_| Ok(())) {
            Err(Error::Module { .. }) => Ok(()),
            other => other,
        }
    }

    /// Returns the input, for the bytes behind the RDB data.
    pub(crate) fn into_input(self) -> Input<R> {
        self.input
    }
}
