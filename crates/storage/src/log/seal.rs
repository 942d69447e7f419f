//! Syncing, finishing segments, and closing.
//!
//! A full segment is sealed outside of the writers' path: it is synced, gets its hint file if it has keys, and is
//! listed as sealed. Until then a restart reads it from end to end, which is slower but equally correct.

use super::files::{LogFiles, Owner};
use crate::error::Result;
use crate::manifest::SegmentState;
use crate::segment::file::Segment;
use crate::segment::header::SEGMENT_HEADER_LEN;
use std::sync::Arc;

/// State in which writers left the log when it was closed to them: the check for writability, and the open
/// segments.
#[must_use = "the log is not closed yet"]
pub struct LeftOpen {
    was_writable: Result<()>,
    segments: Vec<Option<Arc<Segment>>>,
}

impl LogFiles {
    /// Makes every earlier write durable.
    pub fn sync(&self, owner: &impl Owner) -> Result<()> {
        self.check_writable()?;
        self.appenders.iter().try_for_each(|appender| appender.sync_all(owner))
    }

    /// Seals the segments that writers have filled. A transient failure, such as a full disk, is not an error: the
    /// segments stay as they are and are tried again.
    pub fn seal_immutable(&self, owner: &impl Owner) -> Result<()> {
        let _one_at_a_time = self.sealing.lock();
        loop {
            // After a failed write or sync the content of the files is unknown; the next opening examines it.
            if self.is_latched() {
                return Ok(());
            }
            let Some((shard, segment)) = self.immutable.lock().first().cloned() else {
                return Ok(());
            };
            match self.seal(owner, shard, &segment) {
                Err(error) if error.is_transient() => return Ok(()),
                result => result?,
            }
            self.immutable.lock().retain(|(_, immutable)| immutable.id != segment.id);
        }
    }

    fn seal(&self, owner: &impl Owner, shard: u32, segment: &Arc<Segment>) -> Result<()> {
        self.appenders[shard as usize].flush_segment(owner, segment)?;
        segment.complete().map_err(|e| self.latch_always(e))?;
        let seq_min = owner.describe_segment(segment)?;
        let state = SegmentState::Sealed { len: segment.len() };
        self.set_state(owner, segment.id, state, seq_min)?;
        segment.set_seq_min(seq_min);
        segment.finish();
        Ok(())
    }

    /// Ends all writing.
    pub fn close_to_writers(&self) -> LeftOpen {
        let was_writable = self.check_writable();
        let mut heads: Vec<_> = self.appenders.iter().map(|appender| appender.lock(self)).collect();
        self.mark_closed();
        let segments = heads.iter_mut().map(|head| head.close_run()).collect();
        LeftOpen { was_writable, segments }
    }

    /// Seals everything after writers are excluded; the next opening then has little to do.
    ///
    /// When this returns, whatever the result, no thread of the log changes a file any more, so the lock of the
    /// directory may be released.
    pub fn seal_all(&self, owner: &impl Owner, left: LeftOpen) -> Result<()> {
        drop(self.preparing.lock());
        drop(self.sealing.lock());
        left.was_writable?;
        for (shard, segment) in (0u32..).zip(left.segments) {
            match segment {
                Some(segment) if segment.len() > SEGMENT_HEADER_LEN => {
                    self.immutable.lock().push((shard, segment));
                }
                Some(empty) => {
                    self.set_state(owner, empty.id, SegmentState::Obsolete, 0)?;
                    drop(self.take_out([empty.id]));
                }
                None => {}
            }
        }
        let spares = std::mem::take(&mut *self.spares.lock());
        if !spares.is_empty() {
            self.update_manifest(owner, |manifest| {
                for spare in &spares {
                    if let Some(entry) = manifest.segments.get_mut(&spare.id) {
                        entry.state = SegmentState::Obsolete;
                    }
                }
            })?;
            spares.iter().for_each(|spare| spare.mark_obsolete());
        }
        self.seal_immutable(owner)?;
        self.let_go_of_tails(owner)
    }

    /// Removes the tails from the manifest if everything is in segments.
    fn let_go_of_tails(&self, owner: &impl Owner) -> Result<()> {
        let is_everything = self.immutable.lock().is_empty() && !self.is_latched();
        if !is_everything || self.manifest.lock().tails.is_empty() {
            return Ok(());
        }
        match self.update_manifest(owner, |manifest| manifest.tails.clear()) {
            // The only consequence is that the tails are reported as missing if they are lost, without need.
            Err(error) if error.is_transient() => Ok(()),
            result => result,
        }
    }
}
