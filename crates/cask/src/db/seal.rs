//! Writes the hint files of finished segments, which reads small records once more, and closes the store.

use super::reserve::restore_reserve;
use super::store::Store;
use crate::hint::reader::HintReader;
use crate::hint::writer::{HintBuilder, HintSummary, Written};
use tierce_storage::Result;
use tierce_storage::disk::OverlayDisk;
use tierce_storage::segment::file::Segment;

impl Store {
    /// Writes the hint file of a finished segment. Returns the lowest sequence number in it.
    pub(super) fn write_hint_of(&self, segment: &Segment) -> Result<u64> {
        let mut builder = match segment.take_collected() {
            Some(contents) => HintBuilder::of(self.order, contents),
            None => match HintBuilder::read(self.order, segment)? {
                (builder, None) => builder,
                (_, Some(damage)) => return Err(self.files.latch(damage)),
            },
        };
        Ok(self.write_hint(&mut builder, segment)?.seq_min)
    }

    /// Writes the hint file of a finished segment, unless the disk is full, which has better uses for the space.
    pub(crate) fn write_hint(
        &self,
        builder: &mut HintBuilder,
        segment: &Segment,
    ) -> Result<HintSummary> {
        if self.reserve.is_short() {
            segment.set_lacks_hint(true);
            return Ok(builder.finish());
        }
        let written = builder.write_if_there_is_space(&self.files.home, segment);
        let (summary, written) = written.map_err(|e| self.files.latch(e))?;
        segment.set_lacks_hint(written == Written::NoSpace);
        Ok(summary)
    }

    /// Writes the hint files that were skipped for lack of space, as far as there is space now.
    pub(crate) fn write_missing_hints(&self) -> Result<()> {
        let lacking: Vec<_> = {
            let segments = self.files.segments.read();
            segments.values().filter(|segment| segment.lacks_hint()).cloned().collect()
        };
        for segment in lacking.iter().filter(|segment| !segment.is_damaged()) {
            let (mut builder, damage) = HintBuilder::read(self.order, segment)?;
            if damage.is_some() {
                segment.mark_damaged();
                continue;
            }
            let written = builder.write_if_there_is_space(&self.files.home, segment);
            if written.map_err(|e| self.files.latch(e))?.1 == Written::NoSpace {
                break;
            }
            segment.set_lacks_hint(false);
        }
        Ok(())
    }

    /// Builds in memory the hint file that a segment lacks for want of space.
    pub(crate) fn hint_in_memory(&self, segment: &Segment) -> Option<HintReader> {
        let (mut builder, damage) = HintBuilder::read(self.order, segment).ok()?;
        let (memory, dir, id) =
            (OverlayDisk::new(), &self.files.home.dir, self.files.home.store_id);
        let len = segment.len();
        if damage.is_some() || builder.write(&memory, dir, id, segment.id, len).is_err() {
            return None;
        }
        HintReader::open(&memory, dir, id, segment.id, len, self.order).ok()
    }

    /// Ends all writing and seals everything; the next opening then reads hint files only.
    ///
    /// When this returns, whatever the result, no thread changes a file of the store any more, so the lock may be
    /// released.
    pub(crate) fn shut_down(&self) -> Result<()> {
        let left = self.files.close_to_writers();
        // A running compaction soon notices that the store is closed.
        let _no_compaction = self.compacting.lock();
        self.files.seal_all(self, left)?;
        // The reserved space of open segments is free now, and the reserve may shrink.
        restore_reserve(self).map(drop)
    }
}
