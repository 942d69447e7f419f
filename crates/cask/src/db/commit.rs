//! Appends writes and applies them to the index.
//!
//! Under the shard's lock: assign the number, append, apply. After releasing it: sync if requested, then acknowledge.
//! So every write that another thread can read survives the death of the process, and a write that waits for a sync
//! can be read slightly before it is durable.
//!
//! If the disk is full, the write leaves nothing behind and the next write tries again. Any other failure latches the
//! store.

use super::read::Found;
use super::reserve::{check_reserve, set_segment_space_aside};
use super::store::{Index, Store};
use crate::options::{Durability, SyncPolicy};
use std::sync::atomic::Ordering;
use tierce_storage::Result;
use tierce_storage::location::Location;
use tierce_storage::log::appender::{Appended, Appender};
use tierce_storage::log::files::{LogFiles, Owner};
use tierce_storage::log::write::{Op, Write};
use tierce_storage::segment::contents::RecordMeta;
use tierce_storage::segment::file::Segment;
use tierce_storage::segment::record::Kind;
use tierce_storage::tail::LogOffset;

impl Store {
    /// Commits a write whose keys all belong to one shard.
    pub(crate) fn submit(
        &self,
        shard: usize,
        mut write: Write,
        durability: Durability,
    ) -> Result<()> {
        let appender = &self.files.appenders[shard];
        let end = self.append_with_room(&mut write, durability, |write, apply| {
            appender.append(self, write, apply)
        })?;
        end.map_or(Ok(()), |end| self.finish(appender, end, durability))
    }

    /// Appends a write and applies it. On a full disk, deletes are retried after compaction has made room for them.
    /// `None`: they turned out to have nothing to delete.
    fn append_with_room(
        &self,
        write: &mut Write,
        durability: Durability,
        append: impl Fn(&mut Write, &mut dyn FnMut(&Write, Appended<'_>)) -> Result<LogOffset>,
    ) -> Result<Option<LogOffset>> {
        check_reserve(self, write)?;
        loop {
            let room_made = self.reserve.room_made.load(Ordering::Acquire);
            let mut applied = Ok(());
            let mut apply =
                |write: &Write, appended: Appended<'_>| applied = self.apply_all(write, &appended);
            let error = match append(write, &mut apply) {
                Err(error) if error.is_no_space() && write.only_deletes() => error,
                end => return applied.and(end.map(Some)),
            };
            if self.has_none_of(write)? {
                // The absence of these keys must be as durable as the deletes would have been.
                return if self.wants_sync(durability) { self.files.sync(self) } else { Ok(()) }
                    .map(|()| None);
            }
            self.make_room(room_made, error)?;
        }
    }

    /// Returns true if no key of a write has a value.
    fn has_none_of(&self, write: &Write) -> Result<bool> {
        for op in write.ops.as_slice() {
            let key = op.key(&write.frame);
            let is_there = match &self.index {
                Index::Ordered(index) => index.get(key).is_some(),
                Index::Hash(index) => loop {
                    match self.find_by_hash(index, op.hash, key)? {
                        Found::At(_) => break true,
                        Found::Nowhere => break false,
                        Found::Moved => {}
                    }
                },
            };
            if is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Commits a batch whose keys belong to several shards. All of these shards are locked meanwhile, so every key's
    /// writes stay in order and snapshots see all or nothing.
    pub(crate) fn submit_across(
        &self,
        shards: &[usize],
        mut write: Write,
        durability: Durability,
    ) -> Result<()> {
        debug_assert!(shards.is_sorted(), "shards are taken in ascending order");
        let first = &write.ops.as_slice()[0];
        let home = self.shard_of(first.hash, first.key(&write.frame));
        let at = shards.iter().position(|&shard| shard == home).expect("its first key's shard");
        let locked: Vec<&Appender> =
            shards.iter().map(|&shard| &self.files.appenders[shard]).collect();
        let append = |write: &mut Write, apply: &mut dyn FnMut(&Write, Appended<'_>)| {
            Appender::append_across(&locked, at, self, write, apply)
        };
        let end = self.append_with_room(&mut write, durability, append)?;
        end.map_or(Ok(()), |end| self.finish(&self.files.appenders[home], end, durability))
    }

    /// Completes an appended write: syncs it if requested.
    fn finish(&self, appender: &Appender, end: LogOffset, durability: Durability) -> Result<()> {
        if self.wants_sync(durability) && appender.sync_to(self, end)? {
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        }
        if !self.options.background_threads {
            self.files.seal_immutable(self)?;
        }
        Ok(())
    }

    /// Applies an appended write to the index. The write is in the log whatever happens here. If the record it
    /// supersedes cannot be determined, the store takes no more writes.
    fn apply_all(&self, write: &Write, appended: &Appended<'_>) -> Result<()> {
        self.counters.written(write);
        // Counted before and after the change. If the number applied when a window was copied equals the number begun
        // when a range started, the window lacks nothing the range could know of. Release: a thread that reads a count
        // sees all changes before it.
        self.applying.fetch_add(1, Ordering::AcqRel);
        for (op, seq) in write.ops.as_slice().iter().zip(appended.seq..) {
            let offset = appended.offset + op.start as u64;
            let location = Location::new(appended.segment.id, offset, op.len as u64);
            let key = op.key(&write.frame);
            let is_tombstone = op.kind == Kind::Delete;
            appended.segment.collect(
                op.hash,
                key,
                RecordMeta { seq, offset, len: op.len as u64, is_tombstone },
            );
            self.apply(op, key, seq, location, appended.segment)
                .map_err(|e| self.files.latch_always(e))?;
        }
        self.applied.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn wants_sync(&self, durability: Durability) -> bool {
        match durability {
            Durability::Written => false,
            Durability::Synced => true,
            Durability::Policy => self.options.sync == SyncPolicy::Always,
        }
    }

    /// Applies one change to the index. Changes of one key come here one at a time and in order, since they all go
    /// through its shard.
    fn apply(
        &self,
        op: &Op,
        key: &[u8],
        seq: u64,
        location: Location,
        segment: &Segment,
    ) -> Result<()> {
        let superseded = match (&self.index, op.kind) {
            (Index::Hash(_), Kind::Put) => self.apply_to_hash(op.hash, key, seq, Some(location))?,
            (Index::Hash(_), _) => self.apply_to_hash(op.hash, key, seq, None)?,
            (Index::Ordered(index), kind) => {
                if self.history.is_needed()
                    && let Some(old) = index.get(key)
                {
                    self.history.note(key, seq, old);
                }
                if kind == Kind::Put { index.put(key, location) } else { index.remove(key) }
            }
        };
        match op.kind {
            Kind::Put => segment.add_live(location.len_bound()),
            _ => segment.add_tombstone(location.len_bound()),
        }
        if let Some(old) = superseded
            && let Some(segment) = self.files.segment(old.segment())
        {
            segment.subtract_live(old.len_bound());
        }
        Ok(())
    }

    /// Lets the hash index point to `new`, or removes the entry, and returns the old location.
    fn apply_to_hash(
        &self,
        hash: u64,
        key: &[u8],
        seq: u64,
        new: Option<Location>,
    ) -> Result<Option<Location>> {
        let Index::Hash(index) = &self.index else { unreachable!("the caller matched the kind") };
        loop {
            let old = match self.find_by_hash(index, hash, key)? {
                Found::At(old) => old,
                Found::Nowhere => {
                    if let Some(new) = new {
                        index.insert(hash, new);
                    }
                    return Ok(None);
                }
                Found::Moved => continue,
            };
            if self.history.is_needed() {
                self.history.note(&hash.to_be_bytes(), seq, old);
            }
            // Compaction may have moved the old record since it was found; then search again.
            let applied = match new {
                Some(new) => index.replace(hash, old, new),
                None => index.remove(hash, old),
            };
            if applied {
                return Ok(Some(old));
            }
        }
    }
}

impl Owner for Store {
    fn files(&self) -> &LogFiles {
        &self.files
    }

    fn lend<T>(&self, bytes: u64, action: impl Fn() -> Result<T>) -> Result<T> {
        self.reserve.lend(bytes, action)
    }

    fn is_short_of_space(&self) -> bool {
        self.reserve.is_short()
    }

    fn set_aside(&self, segment: &Segment, needed: u64, usual: u64, write: &Write) -> Result<()> {
        set_segment_space_aside(self, segment, needed, usual, write)
    }

    fn begin_segment(&self, segment: &Segment) {
        segment.start_collecting();
    }

    fn describe_segment(&self, segment: &Segment) -> Result<u64> {
        self.write_hint_of(segment)
    }
}
