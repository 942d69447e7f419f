//! Syncing, and finishing segments.
//!
//! An immutable segment is sealed off the writers' path: synced, given its hint file (which reads small records
//! once more), and listed as sealed. Until then a restart reads it from end to end: slower, but equally correct.

use super::reserve::restore_reserve;
use super::store::Store;
use crate::disk::OverlayDisk;
use crate::error::Result;
use crate::hint::reader::HintReader;
use crate::hint::writer::{HintBuilder, HintSummary, Written};
use crate::manifest::{Purpose, SegmentState};
use crate::segment::file::Segment;
use crate::segment::header::SEGMENT_HEADER_LEN;
use std::sync::Arc;

impl Store {
    /// Makes every write that returned before durable.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.lanes.iter().try_for_each(|lane| lane.sync_all(self))
    }

    /// Seals the segments that writers have filled. What may pass by itself, such as a full disk,
    /// is no failure: the segments stay as they are, and are tried again.
    pub(crate) fn seal_immutable(&self) -> Result<()> {
        let _one_at_a_time = self.sealing.lock();
        loop {
            // After a failed write or sync the content of the files is unknown; opening finds out.
            if self.is_latched() {
                return Ok(());
            }
            let Some((lane, segment)) = self.immutable.lock().first().cloned() else {
                return Ok(());
            };
            match self.seal(lane, &segment) {
                Err(error) if error.is_transient() => return Ok(()),
                result => result?,
            }
            self.immutable.lock().retain(|(_, immutable)| immutable.id != segment.id);
        }
    }

    fn seal(&self, lane: u32, segment: &Arc<Segment>) -> Result<()> {
        self.lanes[lane as usize].flush_segment(self, segment)?;
        segment.complete().map_err(|e| self.latch_always(e))?;
        let len = segment.len();
        if self.purpose == Purpose::Log {
            // Its records are not looked up, and all of them are read when it is opened.
            self.set_state(segment.id, SegmentState::Sealed { len }, segment.seq_min())?;
            segment.finish();
            return Ok(());
        }
        let mut builder = match segment.take_collected() {
            Some(contents) => HintBuilder::of(self.order, contents),
            None => match HintBuilder::read(self.order, segment)? {
                (builder, None) => builder,
                (_, Some(damage)) => return Err(self.latch(damage)),
            },
        };
        let summary = self.write_hint(&mut builder, segment)?;
        self.set_state(segment.id, SegmentState::Sealed { len }, summary.seq_min)?;
        segment.set_seq_min(summary.seq_min);
        segment.finish();
        Ok(())
    }

    /// Writes the hint file of a finished segment. On a full disk there are better uses for the space.
    pub(crate) fn write_hint(
        &self,
        builder: &mut HintBuilder,
        segment: &Segment,
    ) -> Result<HintSummary> {
        if self.reserve.is_short() {
            segment.set_lacks_hint(true);
            return Ok(builder.finish());
        }
        let written = builder.write_if_there_is_space(&self.home, segment);
        let (summary, written) = written.map_err(|e| self.latch(e))?;
        segment.set_lacks_hint(written == Written::NoSpace);
        Ok(summary)
    }

    /// Writes the hint files for which there was no space, as far as there is now.
    pub(crate) fn write_missing_hints(&self) -> Result<()> {
        let lacking: Vec<_> = {
            let segments = self.segments.read();
            segments.values().filter(|segment| segment.lacks_hint()).cloned().collect()
        };
        for segment in lacking.iter().filter(|segment| !segment.is_damaged()) {
            let (mut builder, damage) = HintBuilder::read(self.order, segment)?;
            if damage.is_some() {
                segment.mark_damaged();
                continue;
            }
            let written = builder.write_if_there_is_space(&self.home, segment);
            if written.map_err(|e| self.latch(e))?.1 == Written::NoSpace {
                break;
            }
            segment.set_lacks_hint(false);
        }
        Ok(())
    }

    /// What the hint file of a segment would say for which there was no space.
    pub(crate) fn hint_in_memory(&self, segment: &Segment) -> Option<HintReader> {
        let (mut builder, damage) = HintBuilder::read(self.order, segment).ok()?;
        let (memory, dir, id) = (OverlayDisk::new(), &self.home.dir, self.home.store_id);
        let len = segment.len();
        if damage.is_some() || builder.write(&memory, dir, id, segment.id, len).is_err() {
            return None;
        }
        HintReader::open(&memory, dir, id, segment.id, len, self.order).ok()
    }

    /// Ends all writing and seals everything; the next opening then reads hint files only.
    ///
    /// When this returns, whatever the result, no thread changes a file of the store any more, so
    /// the lock may go.
    pub(crate) fn shut_down(&self) -> Result<()> {
        let writable = self.check_writable();
        let mut heads: Vec<_> = self.lanes.iter().map(|lane| lane.lock()).collect();
        self.mark_closed();
        let actives: Vec<_> = heads.iter_mut().map(|head| head.close_run()).collect();
        drop(heads);
        // A compaction in progress notices before long that the store is closed.
        let _no_compaction = self.compacting.lock();
        drop(self.preparing.lock());
        drop(self.sealing.lock());
        writable?;
        for (lane, active) in (0u32..).zip(actives) {
            match active {
                Some(active) if active.len() > SEGMENT_HEADER_LEN => {
                    self.immutable.lock().push((lane, active));
                }
                Some(empty) => {
                    self.set_state(empty.id, SegmentState::Obsolete, 0)?;
                    self.retire([empty.id]);
                }
                None => {}
            }
        }
        let spares = std::mem::take(&mut *self.spares.lock());
        if !spares.is_empty() {
            self.update_manifest(|manifest| {
                for spare in &spares {
                    if let Some(entry) = manifest.segments.get_mut(&spare.id) {
                        entry.state = SegmentState::Obsolete;
                    }
                }
            })?;
            spares.iter().for_each(|spare| spare.mark_obsolete());
        }
        self.seal_immutable()?;
        self.let_go_of_tails()?;
        // What the segments being written had in reserve is free now, and less need be held.
        restore_reserve(self).map(drop)
    }

    /// Notes that everything is in segments, if it is.
    fn let_go_of_tails(&self) -> Result<()> {
        let is_everything = self.immutable.lock().is_empty() && !self.is_latched();
        if !is_everything || self.manifest.lock().tails.is_empty() {
            return Ok(());
        }
        match self.update_manifest(|manifest| manifest.tails.clear()) {
            // It is only that the tails are missed if they are lost, without need.
            Err(error) if error.is_transient() => Ok(()),
            result => result,
        }
    }
}
