//! The directory of a store: its lock, its manifest, and the other files that belong to it.

use crate::disk::{Disk, DiskLock};
use crate::error::{Error, Result};
use crate::manifest::{IndexKind, Manifest, Purpose, SegmentState};
use crate::names::{self, FileKind};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Policy for an opening if there is no store.
pub enum IfMissing {
    Refuse,
    Make { index: IndexKind, shards: u32 },
}

/// Locks the directory, so that other processes cannot open the store.
pub fn lock(disk: &dyn Disk, dir: &Path, if_missing: &IfMissing) -> Result<Box<dyn DiskLock>> {
    let path = names::lock(dir);
    disk.lock(&path).map_err(|e| match (e.kind(), if_missing) {
        (ErrorKind::NotFound, IfMissing::Refuse) => Error::NotAStore { path: dir.to_owned() },
        _ => Error::lock(&path, e),
    })
}

/// Reads the manifest, or creates a store.
pub fn load_manifest(
    disk: &dyn Disk,
    dir: &Path,
    purpose: Purpose,
    if_missing: IfMissing,
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
    let IfMissing::Make { index, shards } = if_missing else {
        return Err(Error::NotAStore { path: dir.to_owned() });
    };
    let manifest = Manifest::new(disk, purpose, index, shards);
    manifest.store(disk, dir)?;
    if let Some(parent) = dir.parent() {
        // The directory itself may be new. Some processes may not sync the parent, for instance that
        // of a mount point; its name is then not our concern.
        let _ = disk.sync_dir(parent);
    }
    Ok(manifest)
}

fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>> {
    disk.list(dir).map_err(|e| Error::io("list", dir, e))
}

/// Removes leftovers of crashes and compaction, and refuses foreign files.
pub fn sort_out_files(disk: &dyn Disk, dir: &Path, manifest: &mut Manifest) -> Result<()> {
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
                // The manifest that was read may not be durable yet, if the process died right after
                // renaming it. A power cut must not bring back a manifest that lists these files.
                disk.sync_dir(dir).map_err(|e| Error::failed("sync", dir, e))?;
            }
            disk.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
            removed = true;
        }
    }
    // Files may also have been removed just before the store was closed or its process died. A power
    // cut could bring those back, next to a manifest that no longer lists them.
    let has_obsolete =
        manifest.segments.values().any(|entry| entry.state == SegmentState::Obsolete);
    if removed || has_obsolete {
        disk.sync_dir(dir).map_err(|e| Error::failed("sync", dir, e))?;
    }
    // Their removal is durable now.
    manifest.segments.retain(|_, entry| entry.state != SegmentState::Obsolete);
    Ok(())
}

/// Lists the existing tails: they will be used again, which then needs no new manifest.
pub fn adopt_tails(disk: &dyn Disk, dir: &Path, manifest: &mut Manifest) -> Result<()> {
    let paths = list(disk, dir)?;
    let shards = paths.iter().filter_map(|path| match names::kind_of(path) {
        FileKind::Tail(shard) if shard < manifest.shards => Some(shard),
        _ => None,
    });
    let tails = shards.collect();
    if manifest.tails != tails {
        // The process that created it may have died before its name was durable.
        disk.sync_dir(dir).map_err(|e| Error::failed("sync", dir, e))?;
        manifest.tails = tails;
    }
    Ok(())
}

/// Removes the tails of shards that no longer exist. Their content is in segments now, durably.
pub fn remove_idle_tails(disk: &dyn Disk, dir: &Path, shards: u32) -> Result<()> {
    for path in list(disk, dir)? {
        if matches!(names::kind_of(&path), FileKind::Tail(shard) if shard >= shards) {
            disk.remove(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
    }
    Ok(())
}
