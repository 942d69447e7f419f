//! Collections written element by element, with only their length known in advance.

use std::io::Write;

use super::ValueWriter;
use crate::error::{Error, Result};
use crate::format::{Encoding, Kind, VERSION_REDIS_7_4};
use crate::output::{Output, Settings};

/// Writes a collection element by element: a list, from head to tail, by [`element`](Self::element); a
/// set by the same; a sorted set by [`scored`](Self::scored), a hash by [`field`](Self::field). It has to
/// be ended by [`finish`](Self::finish), and nothing but the right number of elements makes a file that
/// can be read.
#[derive(Debug)]
#[must_use = "a collection has to be finished"]
pub struct CollectionWriter<'a, W> {
    output: &'a mut Output<W>,
    announced: u64,
    given: u64,
    /// Of a hash with fields that expire, the lowest deadline.
    earliest_ms: Option<u64>,
}

impl<'a, W: Write> ValueWriter<'a, W> {
    /// Begins a list, set, sorted set or hash of `len` elements. If some fields of a hash expire, `earliest_ms` is not
    /// after the first of these deadlines, and the version must be 12, which Redis 7.4 reads, unless what it does not
    /// know is left out.
    ///
    /// # Errors
    /// If writing fails, or the version has no such hashes.
    ///
    /// # Panics
    /// If values of this kind are not written element by element.
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

    /// The next element of a list, or a member of a set.
    ///
    /// # Errors
    /// If writing fails, or there are more than were announced.
    pub fn element(&mut self, element: &[u8]) -> Result<()> {
        self.count()?;
        self.output.string(element)
    }

    /// A member of a sorted set.
    ///
    /// # Errors
    /// If writing fails, or there are more than were announced.
    pub fn scored(&mut self, member: &[u8], score: f64) -> Result<()> {
        self.count()?;
        self.output.string(member)?;
        self.output.put(&score.to_le_bytes())
    }

    /// A field of a hash, with its deadline in milliseconds since 1970, which is left out unless it was announced that
    /// there are some.
    ///
    /// # Errors
    /// If writing fails, or there are more than were announced.
    pub fn field(&mut self, name: &[u8], value: &[u8], expiry_ms: Option<u64>) -> Result<()> {
        self.count()?;
        if let Some(earliest) = self.earliest_ms {
            // Zero says that there is none, so the earliest is 1. One below the earliest would be a
            // bug of the caller; it becomes the earliest.
            let relative = expiry_ms.map_or(0, |ms| ms.saturating_sub(earliest).saturating_add(1));
            self.output.length(relative)?;
        }
        self.output.string(name)?;
        self.output.string(value)
    }

    /// Ends the collection.
    ///
    /// # Errors
    /// If there were less elements than announced.
    pub fn finish(self) -> Result<()> {
        if self.given == self.announced { Ok(()) } else { self.miscounted() }
    }
}
