//! A race, resolved from its options, and the paths of its files.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cli::{RaceArgs, Step};
use super::dataset::{Dataset, KEY_LEN, VALUE_LEN};
use super::engine::Tuning;
use super::error::RaceError;

/// Parameters that every process of a race needs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Plan {
    pub(super) dir: PathBuf,
    pub(super) threads: u32,
    pub(super) per_thread: u64,
    pub(super) scans: u32,
    pub(super) kills: u32,
    pub(super) seed: u64,
    pub(super) verify_all: bool,
    pub(super) tuning: Tuning,
}

/// Factor of disk space for records, hint files and the system, in addition to the values.
const ROOM_BEYOND_VALUES: f64 = 1.1;

impl Plan {
    pub(super) fn new(args: &RaceArgs) -> Self {
        Self {
            dir: args.dir.clone(),
            threads: args.threads,
            per_thread: args.per_thread,
            scans: args.scans,
            kills: args.kills,
            seed: args.seed,
            verify_all: args.verify_all,
            tuning: Tuning {
                shards: args.shards,
                placement: args.placement,
                writes: args.writes,
                tail_bytes: args.tail << 10,
                direct_io: args.direct_io,
                segment_size_bytes: args.segment_size << 20,
                read_cache_bytes: (args.read_cache << 20) as usize,
                scan_memory_bytes: (args.scan_memory << 20) as usize,
            },
        }
    }

    /// Creates the directory and rejects impossible plans before anything takes time.
    pub(super) fn prepare(&self, steps: &[Step]) -> Result<(), RaceError> {
        fs::create_dir_all(&self.dir).map_err(RaceError::io("create", &self.dir))?;
        let (store, has) = (self.store(), |step| steps.contains(&step));
        if has(Step::Write) && store.exists() {
            return Err(RaceError::Usage(format!(
                "{} is there already: remove it, or leave out the phase write",
                store.display()
            )));
        }
        let needs_store = has(Step::Read) || has(Step::Warm) || has(Step::Scan);
        if !has(Step::Write) && needs_store && !store.exists() {
            return Err(RaceError::Usage(format!(
                "there is no {}: run the phase write, with --keep",
                store.display()
            )));
        }
        if has(Step::Write) {
            self.check_room()?;
        }
        Ok(())
    }

    fn check_room(&self) -> Result<(), RaceError> {
        let disk = rustix::fs::statvfs(&self.dir).map_err(RaceError::io("examine", &self.dir))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let needed = (self.bytes() as f64 * ROOM_BEYOND_VALUES) as u64;
        if free < needed {
            return Err(RaceError::Usage(format!(
                "the race needs {needed} bytes and the disk of {} has {free}: lower --per-thread",
                self.dir.display()
            )));
        }
        Ok(())
    }

    /// Returns the number of keys.
    pub(super) fn keys(&self) -> u64 {
        u64::from(self.threads) * self.per_thread
    }

    /// Returns the number of bytes of all keys and values.
    pub(super) fn bytes(&self) -> u64 {
        self.keys() * (KEY_LEN + VALUE_LEN) as u64
    }

    pub(super) fn dataset(&self) -> Dataset {
        Dataset::new(self.seed)
    }

    /// Returns the directory of the store for the timed phases.
    pub(super) fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// Returns the directory of the store whose writers are killed.
    pub(super) fn killed_store(&self) -> PathBuf {
        self.dir.join("killed")
    }

    /// Returns the file in which writers record acknowledged writes.
    pub(super) fn acknowledged(&self) -> PathBuf {
        self.dir.join("acknowledged")
    }

    /// Returns the file for measuring the disk.
    pub(super) fn raw_disk(&self) -> PathBuf {
        self.dir.join("raw_disk")
    }

    /// Removes the files of the race, and the directory if nothing else is in it.
    pub(super) fn remove(&self) -> Result<(), RaceError> {
        remove_store(&self.store())?;
        // Fails if the user has other files there, which is right.
        let _ = fs::remove_dir(&self.dir);
        Ok(())
    }
}

/// Removes a store's directory. Not an error if there is none.
pub(super) fn remove_store(dir: &Path) -> Result<(), RaceError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(RaceError::io("remove", dir)(error))
        }
        _ => Ok(()),
    }
}
