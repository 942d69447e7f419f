//! Opens a directory as a store: `lock`, `load_manifest`, `sort_out_files` of [`directory`], then `recover_segments`
//! and `load_index`.

use super::recovery::{Recovered, RecoveryReport, load_index, recover_segments};
use super::reserve::restore_reserve;
use super::store::Store;
use crate::hint::entry::HintOrder;
use crate::options::{Options, SyncPolicy};
use std::path::Path;
use std::sync::Arc;
use tierce_storage::directory;
use tierce_storage::disk::Disk;
use tierce_storage::location::SegmentId;
use tierce_storage::log::files::LogFiles;
use tierce_storage::manifest::{Entry, Manifest, Purpose, SegmentState};
use tierce_storage::reserve_file::Reserve;
use tierce_storage::segment::file::SegmentHome;
use tierce_storage::{Error, Result};

/// Opens a store, or creates it if there is none and the options say so.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    options: Options,
) -> Result<(Store, RecoveryReport)> {
    options.validate()?;
    if options.create_if_missing {
        disk.create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
    }
    let if_missing = options.if_missing();
    let lock = directory::lock(&*disk, dir, &if_missing)?;
    let mut manifest = directory::load_manifest(&*disk, dir, Purpose::Database, if_missing)?;
    directory::sort_out_files(&*disk, dir, &mut manifest)?;
    let (direct_io, files_max) = (options.direct_io, options.open_files_max);
    let home = SegmentHome::new(disk, dir, manifest.store_id, direct_io, files_max);
    let order = HintOrder { index: options.index, hash_key: manifest.hash_key };
    let threads = thread_count(&options);
    let listed: Vec<(SegmentId, Entry)> =
        manifest.segments.iter().map(|(id, entry)| (*id, *entry)).collect();
    let reserve = Reserve::open(&home.disk, dir)?;
    let recover = || recover_segments(&home, order, &listed, &manifest.tails, threads);
    let mut recovered = match recover() {
        // The reserve exists for this case.
        Err(error) if error.is_no_space() => {
            reserve.give_up()?;
            recover()?
        }
        recovered => recovered?,
    };
    let report = update_manifest(&mut manifest, &mut recovered, &options);
    directory::adopt_tails(&*home.disk, dir, &mut manifest)?;
    let space = manifest.space(options.log().tail_geometry().page_len());
    match reserve.lend(space, || manifest.store(&*home.disk, dir)) {
        Ok(()) => {
            directory::remove_idle_tails(&*home.disk, dir, manifest.shards)?;
            // Only now, after the manifest lists them as obsolete, may the files of the empty segments be deleted.
            let empty = recovered.iter().filter(|recovered| recovered.hint.is_none());
            empty.for_each(|recovered| recovered.segment.mark_obsolete());
        }
        // The manifest on disk produces the same content again; the one in memory is stored before anything else is
        // written.
        Err(error) if error.is_no_space() => {}
        Err(error) => return Err(error),
    }
    recovered.retain(|recovered| recovered.hint.is_some());
    let index = load_index(order, &recovered, &home, threads)?;
    let segments = recovered.into_iter().map(|r| (r.segment.id, r.segment)).collect();
    let shards = shards_in_use(&options, manifest.shards);
    let (log, direct) = (options.log(), options.direct_writes);
    let files = LogFiles::new(home, log, shards, direct, segments, manifest, lock);
    let store = Store::new(files, options, order, index, reserve);
    // Without space for it, the store can be read, and puts report the missing space.
    restore_reserve(&store)?;
    let report = RecoveryReport { keys: store.stats().keys, ..report };
    Ok((store, report))
}

/// Lists recovered segments in their present state, and applies options that changed.
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

/// Returns the number of logs for new records. It is one if every write waits for a sync: each log is synced
/// separately, so with more logs fewer writes would share a sync.
fn shards_in_use(options: &Options, shards: u32) -> u32 {
    if options.sync == SyncPolicy::Always { 1 } else { shards }
}
