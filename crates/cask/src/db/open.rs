//! From a directory to an open store: `lock_dir`, `load_manifest`, `sort_out_files`,
//! `recover_segments`, `load_index`, in this order.

use super::recovery::{Recovered, RecoveryReport, load_index, recover_segments};
use super::reserve::restore_reserve;
use super::stats::Counters;
use super::store::Store;
use crate::disk::{Disk, DiskLock};
use crate::error::{Error, Result};
use crate::hint::entry::HintOrder;
use crate::location::SegmentId;
use crate::manifest::{Entry, Manifest, Purpose, SegmentState};
use crate::names::{self, FileKind};
use crate::options::{Options, SHARDS_DEFAULT};
use crate::reserve_file::Reserve;
use crate::segment::file::SegmentHome;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a store, making it if there is none and that is wanted.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: Options,
) -> Result<(Store, RecoveryReport)> {
    options.validate()?;
    if options.create_if_missing {
        disk.create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
    }
    let lock = lock_dir(&*disk, dir, &options)?;
    let mut manifest = load_manifest(&*disk, dir, Purpose::Database, &options)?;
    sort_out_files(&*disk, dir, &mut manifest)?;
    let (direct_io, files_max) = (options.direct_io, options.open_files_max);
    let home = SegmentHome::new(disk, dir, manifest.store_id, direct_io, files_max);
    let order = HintOrder { index: options.index, hash_key: manifest.hash_key };
    let threads = thread_count(&options);
    let listed: Vec<(SegmentId, Entry)> =
        manifest.segments.iter().map(|(id, entry)| (*id, *entry)).collect();
    let reserve = Reserve::open(&home.disk, dir)?;
    let recover = || recover_segments(&home, order, &listed, &manifest.tails, threads);
    let mut recovered = match recover() {
        // The reserve is held for this case.
        Err(error) if error.is_no_space() => {
            reserve.give_up()?;
            recover()?
        }
        recovered => recovered?,
    };
    let report = update_manifest(&mut manifest, &mut recovered, &options);
    adopt_tails(&*home.disk, dir, &mut manifest)?;
    let space = manifest.space(options.tail_geometry().page_len());
    match reserve.lend(space, || manifest.store(&*home.disk, dir)) {
        Ok(()) => {
            remove_idle_tails(&*home.disk, dir, manifest.shards)?;
            // Only now, when the manifest lists them as obsolete, may the empty ones' files go.
            let empty = recovered.iter().filter(|recovered| recovered.hint.is_none());
            empty.for_each(|recovered| recovered.segment.mark_obsolete());
        }
        // The manifest that is there leads to the same content once more; the one in memory is stored
        // before anything else is written.
        Err(error) if error.is_no_space() => {}
        Err(error) => return Err(error),
    }
    recovered.retain(|recovered| recovered.hint.is_some());
    let index = load_index(order, &recovered, &home, threads)?;
    let segments = recovered.into_iter().map(|r| (r.segment.id, r.segment)).collect();
    let counters = Counters::default();
    let store =
        Store::new(home, options, order, index, segments, manifest, lock, counters, reserve);
    // Without space for it, the store can be read, and puts report what is missing.
    restore_reserve(&store)?;
    let report = RecoveryReport { keys: store.stats().keys, ..report };
    Ok((store, report))
}

pub(crate) fn lock_dir(
    disk: &dyn Disk,
    dir: &Path,
    options: &Options,
) -> Result<Box<dyn DiskLock>> {
    let path = names::lock(dir);
    disk.lock(&path).map_err(|e| match e.kind() {
        ErrorKind::WouldBlock => Error::Locked { path: path.clone() },
        ErrorKind::NotFound if !options.create_if_missing => {
            Error::NotAStore { path: dir.to_owned() }
        }
        _ => Error::io("lock", &path, e),
    })
}

pub(crate) fn load_manifest(
    disk: &dyn Disk,
    dir: &Path,
    purpose: Purpose,
    options: &Options,
) -> Result<Manifest> {
    if let Some(manifest) = Manifest::load(disk, dir)? {
        if manifest.purpose != purpose {
            let what = match purpose {
                Purpose::Database => "it is of a log, not of a database",
                Purpose::Log => "it is of a database, not of a log",
            };
            return Err(Error::Foreign { path: names::manifest(dir), what });
        }
        return Ok(manifest);
    }
    let is_ours =
        |path: &PathBuf| matches!(names::kind_of(path), FileKind::Segment(_) | FileKind::Hint(_));
    if list(disk, dir)?.iter().any(is_ours) {
        return Err(Error::Missing { path: names::manifest(dir) });
    }
    if !options.create_if_missing {
        return Err(Error::NotAStore { path: dir.to_owned() });
    }
    let shards = options.shards.unwrap_or(SHARDS_DEFAULT);
    let manifest = Manifest::new(disk, purpose, options.index, shards);
    manifest.store(disk, dir)?;
    if let Some(parent) = dir.parent() {
        // The directory itself may be new. Not everybody may sync the parent, a mount point's for
        // instance, and then its name is none of our business.
        let _ = disk.sync_dir(parent);
    }
    Ok(manifest)
}

fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>> {
    disk.list(dir).map_err(|e| Error::io("list", dir, e))
}

/// Removes what crashes and compaction left, and refuses what is not ours.
pub(crate) fn sort_out_files(disk: &dyn Disk, dir: &Path, manifest: &mut Manifest) -> Result<()> {
    let mut removed = false;
    for path in list(disk, dir)? {
        let state = |id| manifest.segments.get(&id).map(|entry| entry.state);
        let is_rubbish = match names::kind_of(&path) {
            FileKind::Temporary => true,
            FileKind::Hint(id) => matches!(state(id), None | Some(SegmentState::Obsolete)),
            FileKind::Segment(id) => match state(id) {
                None => return Err(Error::Foreign { path, what: "the manifest does not list it" }),
                Some(state) => state == SegmentState::Obsolete,
            },
            FileKind::Manifest
            | FileKind::Lock
            | FileKind::Reserve
            | FileKind::Tail(_)
            | FileKind::Other => false,
        };
        if is_rubbish {
            if !removed {
                // The manifest that was read may itself not be durable yet, if the process died
                // right after renaming it; a power cut must not bring back one that lists these.
                disk.sync_dir(dir).map_err(|e| Error::failed("sync", dir, e))?;
            }
            disk.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
            removed = true;
        }
    }
    // Files may also have gone just before the store was closed or its process died, and a power cut
    // could bring those back, beside a manifest that no longer lists them.
    let has_obsolete =
        manifest.segments.values().any(|entry| entry.state == SegmentState::Obsolete);
    if removed || has_obsolete {
        disk.sync_dir(dir).map_err(|e| Error::failed("sync", dir, e))?;
    }
    // Their files are gone for good now.
    manifest.segments.retain(|_, entry| entry.state != SegmentState::Obsolete);
    Ok(())
}

/// Lists the tails that are there: they will be used again, which then needs no other manifest.
pub(crate) fn adopt_tails(disk: &dyn Disk, dir: &Path, manifest: &mut Manifest) -> Result<()> {
    let paths = list(disk, dir)?;
    let lanes = paths.iter().filter_map(|path| match names::kind_of(path) {
        FileKind::Tail(lane) if lane < manifest.shards => Some(lane),
        _ => None,
    });
    let tails = lanes.collect();
    if manifest.tails != tails {
        // The process that made it may have died before its name was durable.
        disk.sync_dir(dir).map_err(|e| Error::failed("sync", dir, e))?;
        manifest.tails = tails;
    }
    Ok(())
}

/// Removes the tails of lanes there are no more. What they held is in segments now, durably.
pub(crate) fn remove_idle_tails(disk: &dyn Disk, dir: &Path, shards: u32) -> Result<()> {
    for path in list(disk, dir)? {
        if matches!(names::kind_of(&path), FileKind::Tail(lane) if lane >= shards) {
            disk.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
    }
    Ok(())
}

/// Lists recovered segments as what they are now, and takes over what the options change.
fn update_manifest(
    manifest: &mut Manifest,
    recovered: &mut [Recovered],
    options: &Options,
) -> RecoveryReport {
    let mut report = RecoveryReport::default();
    for recovered in recovered.iter_mut() {
        report.note(recovered);
        let Some(entry) = manifest.segments.get_mut(&recovered.segment.id) else { continue };
        match &recovered.hint {
            Some(hint) => {
                entry.state = SegmentState::Sealed { len: recovered.segment.len() };
                entry.seq_min = hint.summary.seq_min;
                manifest.next_seq = manifest.next_seq.max(hint.summary.seq_max + 1);
            }
            None => entry.state = SegmentState::Obsolete,
        }
    }
    report.segments = recovered.iter().filter(|recovered| recovered.hint.is_some()).count();
    manifest.index = options.index;
    manifest.shards = options.shards.unwrap_or(manifest.shards);
    report
}

fn thread_count(options: &Options) -> usize {
    match options.open_threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}
