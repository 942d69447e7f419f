//! Writes collections element by element, with only their length known in advance.

use std::io::Write;

use super::ValueWriter;
use crate::error::{Error, Result};
use crate::format::{Encoding, Kind, VERSION_REDIS_7_4};
use crate::output::{Output, Settings};

/// Writes a collection element by element: [`element`](Self::element) for a list, from head to tail, and for a set;
/// [`scored`](Self::scored) for a sorted set; [`field`](Self::field) for a hash. The caller must end it with
/// [`finish`](Self::finish). The file is readable only if the number of elements is right.
#[derive(Debug)]
#[must_use = "a collection has to be finished"]
pub struct CollectionWriter<'a, W> {
    output: &'a mut Output<W>,
    announced: u64,
    given: u64,
    /// Lowest deadline of a hash with expiring fields.
    earliest_ms: Option<u64>,
}

impl<'a, W: Write> ValueWriter<'a, W> {
    /// Begins a list, set, sorted set or hash of `len` elements. For a hash with expiring fields, `earliest_ms`
    /// must not be later than the first deadline. This requires version 12, which Redis 7.4 reads, unless the
    /// options drop what the version does not support.
    ///
    /// # Errors
    /// Fails if writing fails, or if the version has no such hashes.
    ///
    /// # Panics
    /// Panics if values of this kind are not written element by element.
    pub fn begin_collection(
        mut self,
        kind: Kind,
        len: u64,
        earliest_ms: Option<u64>,
    ) -> Result<CollectionWriter<'a, W>> {
        let Settings { version, leave_out_unknown, .. } = self.output.settings;
        let knows_deadlines = version >= VERSION_REDIS_7_4;
        let earliest_ms = earliest_ms.filter(|_| knows_deadlines || !leave_out_unknown);
        let encoding = match (kind, earliest_ms) {
            (Kind::List, None) => Encoding::List,
            (Kind::Set, None) => Encoding::Set,
            (Kind::SortedSet, None) => Encoding::SortedSet,
            (Kind::Hash, None) => Encoding::Hash,
            (Kind::Hash, Some(_)) if knows_deadlines => Encoding::HashExpiring,
            (Kind::Hash, Some(_)) => {
                let (what, needed) = ("a hash with fields that expire", VERSION_REDIS_7_4);
                return Err(Error::NotInVersion { what, needed, version });
            }
            (kind, _) => panic!("a {kind:?} with elements"),
        };
        self.begin(encoding)?;
        if let Some(earliest) = earliest_ms {
            self.output.put(&earliest.to_le_bytes())?;
        }
        self.output.length(len)?;
        Ok(CollectionWriter { output: self.output, announced: len, given: 0, earliest_ms })
    }
}

impl<W: Write> CollectionWriter<'_, W> {
    /// Counts an element before it is written.
    fn count(&mut self) -> Result<()> {
        self.given += 1;
        if self.given > self.announced { self.miscounted() } else { Ok(()) }
    }

    fn miscounted(&self) -> Result<()> {
        Err(Error::Count { announced: self.announced })
    }

    /// Writes the next element of a list, or a member of a set.
    ///
    /// # Errors
    /// Fails if writing fails, or if there are more elements than declared.
    pub fn element(&mut self, element: &[u8]) -> Result<()> {
        self.count()?;
        self.output.string(element)
    }

    /// Writes a member of a sorted set.
    ///
    /// # Errors
    /// Fails if writing fails, or if there are more elements than declared.
    pub fn scored(&mut self, member: &[u8], score: f64) -> Result<()> {
        self.count()?;
        self.output.string(member)?;
        self.output.put(&score.to_le_bytes())
    }

    /// Writes a field of a hash, with its deadline in milliseconds since 1970. The deadline is dropped unless the
    /// collection began with `earliest_ms`.
    ///
    /// # Errors
    /// Fails if writing fails, or if there are more elements than declared.
    pub fn field(&mut self, name: &[u8], value: &[u8], expiry_ms: Option<u64>) -> Result<()> {
        self.count()?;
        if let Some(earliest) = self.earliest_ms {
            // Zero means no deadline, so the earliest is 1. A deadline below the earliest would be a bug of the
            // caller; it is written as the earliest.
            let relative = expiry_ms.map_or(0, |ms| ms.saturating_sub(earliest).saturating_add(1));
            self.output.length(relative)?;
        }
        self.output.string(name)?;
        self.output.string(value)
    }

    /// Ends the collection.
    ///
    /// # Errors
    /// Fails if there were fewer elements than declared.
    pub fn finish(self) -> Result<()> {
        if self.given == self.announced { Ok(()) } else { self.miscounted() }
    }
}
