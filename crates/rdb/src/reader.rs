//! Reads an RDB file from beginning to end.
//!
//! The file is a sequence of [`Event`]s. The value of a key is not part of its event: the caller reads it next, in
//! parts, or skips it by taking the next event. So the largest string, packed value or consumer group bounds
//! memory, not the largest collection.

use std::io::Read;

use crate::decode;
use crate::error::{Error, Result};
use crate::format::{Encoding, Kind, MAGIC, VERSION_CHECKSUM, VERSION_MAX, VERSION_MIN, opcode};
use crate::input::{Input, Summing};
use crate::value::{Attributes, ValuePart};

/// What comes next in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A remark about the file, such as `redis-ver` or `ctime`.
    Aux {
        /// What it is about.
        name: Vec<u8>,
        /// What it says.
        value: Vec<u8>,
    },
    /// The keys that follow belong to this database.
    SelectDb(u64),
    /// How many keys the database has, to make room for them. A remark that nothing vouches for.
    ResizeDb {
        /// All keys.
        keys: u64,
        /// Those that expire.
        expiring: u64,
    },
    /// How many keys a slot of a cluster has. A remark that nothing vouches for.
    SlotInfo {
        /// The slot.
        slot: u64,
        /// All keys in it.
        keys: u64,
        /// Those that expire.
        expiring: u64,
    },
    /// A key. Its value can be read next.
    Entry(Entry),
    /// The source of a library of functions.
    Function(Vec<u8>),
    /// Data of a module, which were passed over.
    ModuleAux {
        /// The nine characters by which the module names its type.
        name: String,
    },
    /// The end of the file.
    End {
        /// What is known of the checksum.
        checksum: Checksum,
    },
}

/// A key, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of its database.
    pub db: u64,
    /// The key.
    pub key: Vec<u8>,
    /// How its value is encoded.
    pub encoding: Encoding,
    /// Expiry and use.
    pub attributes: Attributes,
}

impl Entry {
    /// What its value is.
    pub fn kind(&self) -> Kind {
        self.encoding.kind()
    }
}

/// What is known of a file's checksum. A wrong one is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It is right.
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
    /// How the value at the input's offset is encoded, if there is one.
    value: Option<Encoding>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Begins with the header. The reader need not be buffered.
    ///
    /// # Errors
    /// If this is no RDB file, or one of a version not known.
    pub fn new(reader: R) -> Result<Self> {
        Self::on(Input::new(reader, Summing::On))
    }

    /// The same on bytes of which some may have been peeked at, but none consumed.
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

    /// How many bytes were read so far, for a progress bar.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// What comes next; `None` after the end. A value that was not read is passed over.
    ///
    /// # Errors
    /// If the file is damaged or cut short, or cannot be read. Nothing can be read after that.
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

    /// Reads the value of the key that came last, and hands over its parts.
    ///
    /// # Errors
    /// If the value is damaged, or `visit` returns an error: nothing can be read after that.
    /// [`Error::Module`] if it belongs to a module, after which the next event can be read.
    pub fn visit_value<E: From<Error>>(
        &mut self,
        mut visit: impl FnMut(ValuePart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let encoding = self.value.take().ok_or(Error::NoValue)?;
        decode::value(&mut self.input, encoding, &mut visit)
    }

    /// Passes over the value of the key that came last. It is checked as if it were read.
    ///
    /// # Errors
    /// If the value is damaged.
    pub fn skip_value(&mut self) -> Result<()> {
        match self.visit_value(|_| Ok(())) {
            Err(Error::Module { .. }) => Ok(()),
            other => other,
        }
    }

    /// The input, for what comes after the end of the file.
    pub(crate) fn into_input(self) -> Input<R> {
        self.input
    }
}
