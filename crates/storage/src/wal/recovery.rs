//! Recovers the records of a log, in order, from the files of a directory.
//!
//! Sequence numbers are consecutive over all segments. At a missing number the log ends: the power failed
//! after later bytes had reached the device before earlier ones, and nothing from there on was acknowledged as
//! durable. The rest is truncated and reported.

use crate::directory::{self, IfMissing};
use crate::disk::{Disk, OpenMode};
use crate::error::{Error, Result};
use crate::log::files::LogFiles;
use crate::log::options::WalOptions;
use crate::log::salvage::{TornTail, complete_segment, load_tails};
use crate::manifest::{IndexKind, Manifest, Purpose, SegmentState};
use crate::segment::file::{Segment, SegmentHome};
use crate::segment::header::SEGMENT_HEADER_LEN;
use crate::segment::scan::{Scanner, Step};
use std::path::Path;
use std::sync::Arc;

/// Maximum number of open segments of a log, besides the one being written.
const OPEN_FILES_MAX: usize = 512;

/// A log has one shard: its records are in one order.
const SHARDS: u32 = 1;

type Segments = Vec<Arc<Segment>>;

/// Result of opening a log.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct WalRecovery {
    /// Number of records read.
    pub records: u64,
    /// Length of the log in bytes.
    pub bytes: u64,
    /// Truncated ends. Nothing in them was acknowledged as durable.
    pub torn_tails: Vec<TornTail>,
}

/// Receiver of the records.
pub(crate) struct Replay<F> {
    take: F,
    /// Sequence number that the next record must have.
    next_seq: u64,
    recovery: WalRecovery,
}

impl<F: FnMut(&[u8]) -> Result<(), String>> Replay<F> {
    pub(crate) fn new(take: F) -> Self {
        Replay { take, next_seq: 0, recovery: WalRecovery::default() }
    }

    /// Passes on the records of a segment. Returns the offset of a record before which others are missing.
    fn segment(&mut self, segment: &Arc<Segment>) -> Result<Option<u64>> {
        let mut records = Scanner::of(segment)?;
        loop {
            let (offset, record) = match records.step()? {
                Step::Record(offset, record) => (offset, record),
                Step::End => return Ok(None),
                Step::Damaged(offset, damage) => {
                    return Err(Error::corrupt(&segment.path, offset, damage.0));
                }
            };
            let seq = record.header.seq;
            if seq != self.next_seq {
                return Ok(Some(offset));
            }
            self.next_seq += 1;
            (self.take)(record.value).map_err(|reason| Error::Rejected {
                path: segment.path.clone(),
                offset,
                reason,
            })?;
            self.recovery.records += 1;
        }
    }
}

/// Opens the log in a directory, creating it if there is none.
pub(crate) fn open<F: FnMut(&[u8]) -> Result<(), String>>(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: WalOptions,
    replay: &mut Replay<F>,
) -> Result<(LogFiles, WalRecovery)> {
    options.validate()?;
    disk.create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
    let if_missing = IfMissing::Make { index: IndexKind::Hash, shards: SHARDS };
    let lock = directory::lock(&*disk, dir, &if_missing)?;
    let mut manifest = directory::load_manifest(&*disk, dir, Purpose::Log, if_missing)?;
    let is_new = manifest.segments.is_empty();
    directory::sort_out_files(&*disk, dir, &mut manifest)?;
    let home = SegmentHome::new(disk, dir, manifest.store_id, false, OPEN_FILES_MAX);
    let segments = complete_segments(&home, &manifest, &mut replay.recovery)?;
    replay.next_seq = manifest.first_seq;
    let (kept, obsolete) = replay_segments(&mut manifest, segments, replay)?;
    // Continue without a gap, even though later numbers may have been given to records that are lost.
    manifest.next_seq = replay.next_seq;
    directory::adopt_tails(&*home.disk, dir, &mut manifest)?;
    match manifest.store(&*home.disk, dir) {
        Ok(()) => {
            // The files of the empty segments may be removed only now, when the manifest lists them as
            // obsolete.
            obsolete.iter().for_each(|segment| segment.mark_obsolete());
            drop(obsolete);
            directory::remove_idle_tails(&*home.disk, dir, manifest.shards)?;
        }
        // The disk is full. The manifest on disk gives the same records again. The one in memory is stored
        // before anything else is written, and the next opening removes the obsolete segments.
        Err(error) if error.is_transient() && !is_new => {}
        Err(error) => return Err(error),
    }
    replay.recovery.bytes = kept.iter().map(|segment| segment.len()).sum();
    let segments = kept.into_iter().map(|segment| (segment.id, segment)).collect();
    // The log is not read again while the server runs: the page cache has better uses.
    let direct_writes = true;
    let files = LogFiles::new(home, options, SHARDS, direct_writes, segments, manifest, lock);
    Ok((files, std::mem::take(&mut replay.recovery)))
}

/// Truncates every segment after its last good record, and sorts them by their records.
fn complete_segments(
    home: &Arc<SegmentHome>,
    manifest: &Manifest,
    recovery: &mut WalRecovery,
) -> Result<Segments> {
    let is_open = |entry: &crate::manifest::Entry| entry.state == SegmentState::Open;
    let tails = match manifest.segments.values().any(is_open) {
        true => load_tails(&*home.disk, &home.dir, home.store_id, &manifest.tails)?,
        false => Vec::new(),
    };
    let mut segments = Vec::new();
    for (id, entry) in &manifest.segments {
        let segment = Segment::open(home, *id, entry.seq_min)?;
        match entry.state {
            SegmentState::Sealed { len } => segment.check_len(len)?,
            _ => recovery.torn_tails.extend(complete_segment(&segment, &tails)?),
        }
        let first = match Scanner::of(&segment)?.step()? {
            Step::Record(_, record) => Some(record.header.seq),
            Step::End => None,
            Step::Damaged(offset, damage) => {
                return Err(Error::corrupt(&segment.path, offset, damage.0));
            }
        };
        segments.push((first, segment));
    }
    segments.sort_by_key(|(first, segment)| (*first, segment.id));
    Ok(segments.into_iter().map(|(_, segment)| segment).collect())
}

/// Passes on all records, and updates the states of the segments in the list. Returns those to keep and those
/// without records, which are to be removed.
fn replay_segments<F: FnMut(&[u8]) -> Result<(), String>>(
    manifest: &mut Manifest,
    segments: Vec<Arc<Segment>>,
    replay: &mut Replay<F>,
) -> Result<(Segments, Segments)> {
    let (mut kept, mut obsolete) = (Vec::new(), Vec::new());
    let mut has_ended = false;
    for segment in segments {
        let gap = match has_ended {
            true if segment.len() > SEGMENT_HEADER_LEN => Some(SEGMENT_HEADER_LEN),
            true => None,
            false => replay.segment(&segment)?,
        };
        if let Some(offset) = gap {
            has_ended = true;
            let is_sealed =
                matches!(manifest.segments[&segment.id].state, SegmentState::Sealed { .. });
            replay.recovery.torn_tails.push(cut(&segment, offset, is_sealed)?);
        }
        let Some(entry) = manifest.segments.get_mut(&segment.id) else { continue };
        if segment.len() > SEGMENT_HEADER_LEN {
            entry.state = SegmentState::Sealed { len: segment.len() };
            kept.push(segment);
        } else {
            entry.state = SegmentState::Obsolete;
            obsolete.push(segment);
        }
    }
    Ok((kept, obsolete))
}

/// Truncates a segment at an offset before which records are missing. A sealed segment was durable together
/// with everything before it, so a power cut cannot cause this there.
fn cut(segment: &Segment, offset: u64, is_sealed: bool) -> Result<TornTail> {
    const MISSING: &str = "records before it are missing";
    if is_sealed {
        return Err(Error::corrupt(&segment.path, offset, MISSING));
    }
    let bytes = segment.len() - offset;
    let file = segment.open_file(OpenMode::Existing)?;
    file.truncate(offset).map_err(|e| Error::io("truncate", &segment.path, e))?;
    file.sync_data().map_err(|e| Error::io("sync", &segment.path, e))?;
    segment.set_len(offset);
    Ok(TornTail { path: segment.path.clone(), offset, bytes, reason: MISSING })
}
