//! Appending groups of writes and applying them to the index.
//!
//! Order of things, for each group: stamp, append, sync if asked for, apply, acknowledge. So what
//! another thread can read has reached the operating system, and under
//! [`SyncPolicy::Always`](crate::SyncPolicy) the device.
//!
//! When the disk is full, the file is cut back to where the group began, nothing of the group is
//! kept, and the next group tries again. Any other failure latches the store.

use super::read::Found;
use super::store::{Index, Store};
use crate::error::{Error, Result};
use crate::location::Location;
use crate::log::lane::Lane;
use crate::log::write::{Op, Write};
use crate::options::{Durability, SyncPolicy};
use crate::segment::file::Segment;
use crate::segment::header::SEGMENT_HEADER_LEN;
use crate::segment::record::Kind;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Store {
    /// Commits a write whose keys all belong to one lane.
    pub(crate) fn submit(&self, lane: usize, write: Write) -> Result<()> {
        let lane = &self.lanes[lane];
        lane.submit(write, |group| self.commit(lane, group))
    }

    /// Commits a batch whose keys belong to several lanes: all of them stand still meanwhile, so
    /// that every key's writes stay in order and snapshots see all or nothing.
    pub(crate) fn submit_across(&self, lanes: &[usize], write: Write) -> Result<()> {
        debug_assert!(lanes.is_sorted(), "lanes are taken in ascending order");
        let _leaderships: Vec<_> = lanes.iter().map(|&lane| self.lanes[lane].lead()).collect();
        let first = &write.ops.as_slice()[0];
        let home = self.lane_of(first.hash, first.key(&write.frame));
        let mut results = self.commit(&self.lanes[home], vec![write]);
        results.pop().expect("one result for one write")
    }

    /// Writes groups as long as they fit into the segment, then rotates.
    fn commit(&self, lane: &Lane, group: Vec<Write>) -> Vec<Result<()>> {
        let mut results = Vec::with_capacity(group.len());
        let mut rest = group.into_iter().peekable();
        while let Some(first) = rest.next() {
            let (segment, space) = match self.writable_segment(lane, first.frame.len() as u64) {
                Ok(found) => found,
                Err(error) => {
                    results.push(Err(error));
                    continue;
                }
            };
            let mut len = first.frame.len() as u64;
            let mut fitting = vec![first];
            while let Some(next) = rest.next_if(|next| len + next.frame.len() as u64 <= space) {
                len += next.frame.len() as u64;
                fitting.push(next);
            }
            let result = self.append(&segment, &mut fitting);
            if result.is_ok() {
                fitting.iter().for_each(|write| self.counters.written(write));
            }
            results.extend(fitting.iter().map(|_| result.clone()));
        }
        results
    }

    /// The lane's segment and the space left in it, after rotating if `len` bytes do not fit.
    fn writable_segment(&self, lane: &Lane, len: u64) -> Result<(Arc<Segment>, u64)> {
        self.check_writable()?;
        let size = self.options.segment_size_bytes;
        if let Some(active) = lane.active() {
            let space = size.saturating_sub(active.len());
            // An empty segment takes a frame of any length: there is no better place for it.
            if len <= space || active.len() == SEGMENT_HEADER_LEN {
                return Ok((active, space));
            }
        }
        let next = self.next_log_segment()?;
        let space = size.saturating_sub(next.len());
        if let Some(filled) = lane.set_active(Some(next.clone())) {
            self.filled.lock().push(filled);
            if self.options.background_threads {
                self.wakeup.changed.notify_all();
            } else {
                self.seal_filled()?;
            }
        }
        Ok((next, space))
    }

    fn append(&self, segment: &Arc<Segment>, group: &mut [Write]) -> Result<()> {
        let start = segment.len();
        let count: u64 = group.iter().map(|write| write.ops.as_slice().len() as u64).sum();
        let first_seq = self.next_seq.fetch_add(count, Ordering::AcqRel);
        let (mut seq, mut offset) = (first_seq, start);
        for write in group.iter_mut() {
            write.stamp(seq, segment.synced(), segment.salt, offset);
            seq += write.ops.as_slice().len() as u64;
            offset += write.frame.len() as u64;
        }
        self.write_out(segment, group, start, offset)?;
        segment.set_len(offset);
        if group.iter().any(|write| self.wants_sync(write.durability)) {
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            segment.sync().map_err(|e| self.latch_always(e))?;
        }
        let (mut seq, mut offset) = (first_seq, start);
        for write in group.iter() {
            for op in write.ops.as_slice() {
                let place = offset + op.start as u64;
                let location = Location::new(segment.id, place, op.len as u64);
                self.apply(op, op.key(&write.frame), seq, location, segment);
                seq += 1;
            }
            offset += write.frame.len() as u64;
        }
        // Release: who sees the number sees what was applied.
        self.applied.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn write_out(&self, segment: &Segment, group: &[Write], start: u64, end: u64) -> Result<()> {
        let file = segment.writable()?;
        let written = match group {
            [write] => file.write_all_at(&[IoSlice::new(&write.frame)], start),
            _ => {
                let bufs: Vec<_> = group.iter().map(|write| IoSlice::new(&write.frame)).collect();
                file.write_all_at(&bufs, start)
            }
        };
        let Err(error) = written else {
            self.counters.bytes_written.fetch_add(end - start, Ordering::Relaxed);
            return Ok(());
        };
        let error = Error::io("write", &segment.path, error);
        if error.is_no_space() {
            // What was written of the group must not be taken for a part of the log.
            file.truncate(start)
                .map_err(|e| self.latch_always(Error::io("truncate", &segment.path, e)))?;
        }
        Err(self.latch(error))
    }

    fn wants_sync(&self, durability: Durability) -> bool {
        match durability {
            Durability::Written => false,
            Durability::Synced => true,
            Durability::Policy => self.options.sync == SyncPolicy::Always,
        }
    }

    /// Lets the index know. Changes of one key come here one at a time and in order, since they
    /// all go through its lane.
    fn apply(&self, op: &Op, key: &[u8], seq: u64, location: Location, segment: &Segment) {
        let superseded = match (&self.index, op.kind) {
            (Index::Hash(_), Kind::Put) => self.apply_to_hash(op.hash, key, seq, Some(location)),
            (Index::Hash(_), _) => self.apply_to_hash(op.hash, key, seq, None),
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
            && let Some(segment) = self.segment(old.segment())
        {
            segment.subtract_live(old.len_bound());
        }
    }

    /// Lets the hash index point to `new`, or nowhere, and returns where it pointed.
    fn apply_to_hash(
        &self,
        hash: u64,
        key: &[u8],
        seq: u64,
        new: Option<Location>,
    ) -> Option<Location> {
        let Index::Hash(index) = &self.index else { unreachable!("the caller matched the kind") };
        loop {
            let old = match self.find_by_hash(index, hash, key) {
                Found::At(old) => old,
                Found::Nowhere => {
                    if let Some(new) = new {
                        index.insert(hash, new);
                    }
                    return None;
                }
                Found::Moved => continue,
            };
            if self.history.is_needed() {
                self.history.note(&hash.to_be_bytes(), seq, old);
            }
            // Compaction may have moved the old record since it was found; then look again.
            let applied = match new {
                Some(new) => index.replace(hash, old, new),
                None => index.remove(hash, old),
            };
            if applied {
                return Some(old);
            }
        }
    }
}
