//! Recovers the content of a tail after a crash.
//!
//! The records of an unfinished segment are followed from its beginning: first those in the file. Where they
//! end, the blocks of the tail are laid over the file and tried, then the file again, until neither continues.
//! Every record is verified as always, with salt and offset, so old bytes in a tail cannot pass.
//!
//! A crash may come between storing a block's bytes and its mark. The mark then still names the slot's previous
//! block, which is in the segment, but the slot's bytes are not that block's. Laid over the file they spoil a
//! record that begins in the file and ends in the tail. Slots are reused in block order, so only the first
//! blocks of the segment in the tail can be affected. If using all of them continues nothing, they are tried
//! without the first, without the first two, and so on.
//!
//! `find_end` changes nothing. [`complete_segment`] writes the recovered data to the segment and makes it
//! durable, which must happen before the tail is used again.

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{Error, Result};
use crate::names::{self, FileKind};
use crate::segment::file::Segment;
use crate::segment::scan::{Scanner, Step};
use crate::tail::TailImage;
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The truncated end of an incomplete segment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TornTail {
    /// The segment.
    pub path: PathBuf,
    /// Its new end.
    pub offset: u64,
    /// Number of truncated bytes.
    pub bytes: u64,
    /// Fault of the first truncated bytes.
    pub reason: &'static str,
}

/// End of a segment that was being written.
pub(crate) struct Ending {
    /// Offset after its last good record, be it in the file or in the tail.
    pub end: u64,
    /// Its data that the file lacks.
    pub patches: Vec<Patch>,
    /// Number of bad bytes after the end, and the fault of the first.
    pub torn: Option<(u64, &'static str)>,
}

/// Bytes for an offset in a segment.
#[derive(Clone)]
pub(crate) struct Patch {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// Loads the tails in a directory, of whatever shards.
///
/// # Errors
/// [`Error::Missing`] when one of `needed` does not exist.
pub fn load_tails(
    disk: &dyn Disk,
    dir: &Path,
    store_id: u128,
    needed: &BTreeSet<u32>,
) -> Result<Vec<TailImage>> {
    let paths = disk.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let shards = paths.iter().filter_map(|path| match names::kind_of(path) {
        FileKind::Tail(shard) => Some(shard),
        _ => None,
    });
    let shards: BTreeSet<u32> = shards.collect();
    if let Some(shard) = needed.difference(&shards).next() {
        return Err(Error::Missing { path: names::tail(dir, *shard) });
    }
    let images = shards.into_iter().map(|shard| TailImage::load(disk, dir, store_id, shard));
    images.filter_map(Result::transpose).collect()
}

/// Follows the records of an unfinished segment to their end.
///
/// # Errors
/// When a later record proves that the log was durable beyond their end.
pub(crate) fn find_end(
    segment: &Segment,
    tails: &[TailImage],
    mut tell: impl FnMut(u64),
) -> Result<Ending> {
    let file = segment.sequential()?;
    let file_len = segment.len();
    let mut blocks: Vec<Patch> = tails
        .iter()
        .flat_map(|tail| tail.blocks(segment.id))
        .map(|block| Patch { offset: block.start, bytes: block.bytes.to_vec() })
        .collect();
    blocks.sort_by_key(|block| block.offset);
    let marked_end = blocks.iter().map(Patch::end).max().unwrap_or(0);
    let overlay = |blocks: &[Patch]| -> Arc<dyn DiskFile> {
        Arc::new(Patched::new(file.clone(), file_len, blocks.to_vec()))
    };
    let scanner = |file, len| Scanner::new(file, &segment.path, segment.salt, segment.origin, len);
    let mut in_file = scanner(file.clone(), file_len);
    let mut in_tail = scanner(overlay(&blocks), file_len.max(marked_end));
    let mut patches = Vec::new();
    let damage = loop {
        let damage = last_step(&mut in_file, &mut tell)?;
        let start = in_file.position();
        in_tail.follow(&in_file);
        if marked_end <= start {
            break damage;
        }
        let mut overlaid = overlay(&blocks);
        last_step(&mut in_tail, &mut tell)?;
        for skipped in 1..blocks.len() {
            if in_tail.position() > start {
                break;
            }
            overlaid = overlay(&blocks[skipped..]);
            let mut in_rest = scanner(overlaid.clone(), file_len.max(marked_end));
            in_rest.follow(&in_file);
            last_step(&mut in_rest, &mut tell)?;
            in_tail.follow(&in_rest);
        }
        if in_tail.position() == start {
            break damage;
        }
        let mut bytes = vec![0; (in_tail.position() - start) as usize];
        overlaid.read_at(&mut bytes, start).map_err(|e| Error::io("read", &segment.path, e))?;
        patches.push(Patch { offset: start, bytes });
        in_file.follow(&in_tail);
    };
    let end = in_file.position();
    let reason = damage.unwrap_or("records are missing");
    if in_file.trusts_beyond(end)? || in_tail.trusts_beyond(end)? {
        return Err(Error::corrupt(&segment.path, end, reason));
    }
    let used = marked_end.max(last_byte(&*file, segment, end)?);
    let torn = (used > end).then(|| (used - end, reason));
    Ok(Ending { end, patches, torn })
}

/// Completes an unfinished segment from its shard's tail, and truncates it after its last whole record,
/// durably.
pub fn complete_segment(segment: &Segment, tails: &[TailImage]) -> Result<Option<TornTail>> {
    let ending = find_end(segment, tails, |_| {})?;
    let file = segment.open_file(OpenMode::Existing)?;
    for patch in &ending.patches {
        file.write_all_at(&[IoSlice::new(&patch.bytes)], patch.offset)
            .map_err(|e| Error::io("write", &segment.path, e))?;
    }
    // If only the process died, nothing of this may be durable yet.
    file.truncate(ending.end).map_err(|e| Error::io("truncate", &segment.path, e))?;
    file.sync_data().map_err(|e| Error::io("sync", &segment.path, e))?;
    segment.set_end(ending.end);
    let torn = ending.torn.map(|(bytes, reason)| {
        let path = segment.path.clone();
        TornTail { path, offset: ending.end, bytes, reason }
    });
    Ok(torn)
}

/// Reads until the records stop. Returns the reason, or `None` at the end of the input.
fn last_step(scanner: &mut Scanner, tell: &mut impl FnMut(u64)) -> Result<Option<&'static str>> {
    loop {
        match scanner.step()? {
            Step::Record(offset, _) => tell(offset),
            Step::End => return Ok(None),
            Step::Damaged(_, damage) => return Ok(Some(damage.0)),
        }
    }
}

/// Returns the offset after the last non-zero byte beyond `from`. Blocks are padded with zeros.
fn last_byte(file: &dyn DiskFile, segment: &Segment, from: u64) -> Result<u64> {
    let mut buf = vec![0; 64 << 10];
    let (mut at, mut last) = (from, from);
    loop {
        let read = file.read_at(&mut buf, at).map_err(|e| Error::io("read", &segment.path, e))?;
        if read == 0 {
            return Ok(last);
        }
        if let Some(used) = buf[..read].iter().rposition(|&byte| byte != 0) {
            last = at + used as u64 + 1;
        }
        at += read as u64;
    }
}

impl Patch {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// A file with other bytes at some offsets, for reading.
pub(crate) struct Patched {
    file: Arc<dyn DiskFile>,
    patches: Vec<Patch>,
    pub len: u64,
}

impl Patched {
    pub fn new(file: Arc<dyn DiskFile>, file_len: u64, patches: Vec<Patch>) -> Self {
        let len = patches.iter().map(Patch::end).fold(file_len, u64::max);
        Patched { file, patches, len }
    }
}

impl DiskFile for Patched {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = (self.len.saturating_sub(offset)).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        let read = self.file.read_at(buf, offset)?;
        buf[read..].fill(0);
        for patch in &self.patches {
            let from = patch.offset.max(offset);
            let to = patch.end().min(offset + len as u64);
            if from < to {
                let bytes =
                    &patch.bytes[(from - patch.offset) as usize..(to - patch.offset) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(bytes);
            }
        }
        Ok(len)
    }

    fn write_all_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn reserve(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}
