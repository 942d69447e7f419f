//! Reads a segment from its first record to its last.
//!
//! Every checksum is verified. A batch is entered only when all its members are good. In a log's segment,
//! sequence numbers must ascend, which reveals leftovers of a write that was rolled back. If the records stop
//! before the file does, [`Scanner::trusts_beyond`] tells a torn tail from damage: each record says how much of
//! its segment was durable when it was written. So damage is proven by a later good record that says that the
//! bad offset was durable.

use super::file::Segment;
use super::header::{Origin, SEGMENT_HEADER_LEN};
use super::record::{BATCH_HEAD_LEN, Damage, HEADER_LEN, HEADER_LEN_MAX, Header, Kind};
use super::record::{Membership, Record};
use crate::checksum::Salt;
use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::location::ALIGNMENT;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of bytes fetched at a time; longer records are fetched whole.
const CHUNK_LEN: usize = 256 << 10;

/// Iterates over the records of one segment.
pub struct Scanner {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    salt: Salt,
    origin: Origin,
    /// End of the part to read.
    len: u64,
    position: u64,
    last_seq: u64,
    /// Number of members still to come of the current batch.
    members: u32,
    buf: Vec<u8>,
    buf_start: u64,
}

/// Item at the scanner's position.
pub enum Step<'a> {
    /// A put or delete, at this offset.
    Record(u64, Record<'a>),
    /// The part to read ended with a whole record.
    End,
    /// This is not a record.
    Damaged(u64, Damage),
}

impl Scanner {
    /// Creates a scanner that reads `file` up to `len` and skips the header.
    pub fn new(file: Arc<dyn DiskFile>, path: &Path, salt: Salt, origin: Origin, len: u64) -> Self {
        Scanner {
            file,
            path: path.to_owned(),
            salt,
            origin,
            len,
            position: SEGMENT_HEADER_LEN,
            last_seq: 0,
            members: 0,
            buf: Vec::new(),
            buf_start: 0,
        }
    }

    /// Creates a scanner of a whole segment, with its own handle.
    pub fn of(segment: &Segment) -> Result<Self> {
        let file = segment.sequential()?;
        Ok(Self::new(file, &segment.path, segment.salt, segment.origin, segment.len()))
    }

    /// Returns the offset of the next record, or of the first damage.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Continues at the position of another scanner of the same segment, which has read other bytes.
    pub fn follow(&mut self, other: &Scanner) {
        self.position = other.position;
        self.last_seq = other.last_seq;
        self.members = 0;
    }

    /// Returns the next put or delete.
    pub fn step(&mut self) -> Result<Step<'_>> {
        loop {
            let at = self.position;
            if at >= self.len && self.members == 0 {
                return Ok(Step::End);
            }
            let header = match self.load_record(at)? {
                Ok(header) => header,
                Err(damage) => return Ok(Step::Damaged(at, damage)),
            };
            if header.kind == Kind::Batch {
                match self.enter_batch(at, header)? {
                    Ok(_) => continue,
                    Err(damage) => return Ok(Step::Damaged(at, damage)),
                }
            }
            if let Err(damage) = self.check_order(&header) {
                return Ok(Step::Damaged(at, damage));
            }
            self.last_seq = header.seq;
            self.members = self.members.saturating_sub(1);
            self.position = at + header.record_len();
            return Ok(Step::Record(at, Record::verified(header, self.loaded(at))));
        }
    }

    fn check_order(&self, header: &Header) -> Result<(), Damage> {
        if self.origin == Origin::Log && header.seq <= self.last_seq {
            return Err(Damage("sequence number does not ascend"));
        }
        match (header.membership, self.members) {
            (Membership::BatchMember, 0) => Err(Damage("batch member without its batch")),
            (Membership::Alone, 1..) => Err(Damage("batch lacks members")),
            _ => Ok(()),
        }
    }

    /// Verifies all members of the batch with this head at `at`, then moves to the first. Returns the end of the
    /// last one.
    fn enter_batch(&mut self, at: u64, head: Header) -> Result<Result<u64, Damage>> {
        let first_seq = head.seq;
        let batch = Record::verified(head, self.loaded(at)).batch();
        if self.members > 0 || (self.origin == Origin::Log && first_seq <= self.last_seq) {
            return Ok(Err(Damage("batch in the wrong place")));
        }
        let (members, members_len) = match batch {
            Ok(batch) => batch,
            Err(damage) => return Ok(Err(damage)),
        };
        let first = at + BATCH_HEAD_LEN as u64;
        if members_len > self.len.saturating_sub(first) {
            return Ok(Err(Damage("batch is cut off")));
        }
        let end = first + members_len;
        let mut position = first;
        for i in 0..members {
            let header = match self.load_record(position)? {
                Ok(header) => header,
                Err(damage) => return Ok(Err(damage)),
            };
            let expected = first_seq.wrapping_add(u64::from(i));
            if header.seq != expected || header.membership != Membership::BatchMember {
                return Ok(Err(Damage("batch lacks members")));
            }
            position += header.record_len();
        }
        if position != end || members == 0 {
            return Ok(Err(Damage("batch has the wrong length")));
        }
        self.position = first;
        self.members = members;
        Ok(Ok(end))
    }

    /// Returns the end of the batch whose head is at `at`, if all its members are good.
    pub fn batch_end(&mut self, at: u64) -> Result<Result<u64, Damage>> {
        self.members = 0;
        let entered = match self.load_record(at)? {
            Ok(head) => self.enter_batch(at, head)?,
            Err(damage) => Err(damage),
        };
        self.members = 0;
        Ok(entered)
    }

    /// Loads the record at `at` into the buffer and verifies it.
    fn load_record(&mut self, at: u64) -> Result<Result<Header, Damage>> {
        let available = self.len.saturating_sub(at);
        self.load(at, available.min(HEADER_LEN_MAX as u64) as usize)?;
        let header = match Header::decode(self.loaded(at), self.salt, at) {
            Ok(header) => header,
            Err(damage) => return Ok(Err(damage)),
        };
        if header.record_len() > available {
            return Ok(Err(Damage("record body is cut off")));
        }
        let len = header.record_len() as usize;
        self.load(at, len)?;
        let body = self.loaded(at).get(header.len()..len);
        let body = body.ok_or(Damage("record body is cut off"));
        Ok(body.and_then(|body| header.split_body(body)).map(|_| header))
    }

    /// Returns the record that [`Self::find_record`] found.
    pub fn record_at(&self, at: u64) -> Result<Record<'_>, Damage> {
        Record::decode(self.loaded(at), self.salt, at)
    }

    /// Returns the buffer from file offset `at` on.
    fn loaded(&self, at: u64) -> &[u8] {
        let skip = at.checked_sub(self.buf_start).map_or(usize::MAX, |skip| skip as usize);
        self.buf.get(skip..).unwrap_or(&[])
    }

    /// Loads at least `len` bytes at `at` into the buffer; the caller knows that the file has them.
    fn load(&mut self, at: u64, len: usize) -> Result<()> {
        if self.loaded(at).len() >= len {
            return Ok(());
        }
        let want = (CHUNK_LEN as u64).min(self.len.saturating_sub(at)).max(len as u64);
        self.buf.resize(want as usize, 0);
        self.buf_start = at;
        let read =
            self.file.read_at(&mut self.buf, at).map_err(|e| Error::io("read", &self.path, e))?;
        self.buf.truncate(read);
        Ok(())
    }

    /// Returns the first offset from `from` on of a whole record with a higher sequence number than those read
    /// so far.
    pub fn find_record(&mut self, from: u64) -> Result<Option<(u64, Header)>> {
        let mut at = from.next_multiple_of(ALIGNMENT);
        while at + HEADER_LEN as u64 <= self.len {
            let available = self.len - at;
            self.load(at, available.min(HEADER_LEN_MAX as u64) as usize)?;
            if Header::is_plausible(self.loaded(at))
                && let Ok(header) = self.load_record(at)?
                && (self.origin != Origin::Log || header.seq > self.last_seq)
            {
                return Ok(Some((at, header)));
            }
            at += ALIGNMENT;
        }
        Ok(None)
    }

    /// Returns true if a good record after `bad` says that this offset was durable when it was written.
    pub fn trusts_beyond(&mut self, bad: u64) -> Result<bool> {
        let mut from = bad + ALIGNMENT;
        while let Some((at, header)) = self.find_record(from)? {
            if header.synced > bad {
                return Ok(true);
            }
            from = at + header.record_len();
        }
        Ok(false)
    }
}
